//! Sets up the daemon's key, its principals and, for a single root, its token.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use longhaul_net::config_directory::config_directory;
use longhaul_net::identity::{Fingerprint, Identity};
use longhaul_net::principals::Principals;
use longhaul_net::tls::{TlsOptions, TlsServer};
use longhaul_net::token::Token;
use longhaul_system::named_files::{kept, kept_to_read};
use serde_json::json;

use super::DaemonSettings;
use super::secrets::{Secrets, check_private};
use crate::stop::{Exit, Stop};

/// Name of the principal that `--root` creates.
const ONLY_PRINCIPAL: &str = "user";

/// Files and settings of a daemon.
pub struct Setup {
    /// TLS server with the daemon's key.
    pub tls: TlsServer,
    /// Principals and their rights.
    pub principals: Principals,
    /// Absolute path of the daemon's state directory.
    pub state: PathBuf,
    /// Paths that the daemon must never serve.
    pub secrets: Secrets,
    fingerprint: Fingerprint,
    only: Option<Only>,
}

/// The only principal with `--root`.
struct Only {
    token: String,
    tokens_file: PathBuf,
}

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Reads the files of a daemon and creates those that are missing.
pub fn prepare(arguments: &DaemonSettings) -> Result<Setup, Stop> {
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => config_directory().map_err(local)?,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state)
        .map_err(|error| {
            local(format!(
                "cannot make the directory {}: {error}; name another with --state",
                state.display()
            ))
        })?;
    check_private(&state).map_err(local)?;
    let (principals, only) = match (&arguments.principals, &arguments.root) {
        (Some(file), _) => (named_principals(file)?, None),
        (None, Some(root)) => {
            let may = (rights_of(arguments), commands_of(arguments)?);
            let (principals, only) = only_principal(&state, root, may)?;
            (principals, Some(only))
        }
        (None, None) => return Err(Stop::new(Exit::Usage, "give --root or --principals")),
    };
    let secrets = if arguments.unguarded {
        Secrets::default()
    } else {
        Secrets::new(&state, arguments)
    };
    secrets.check(&principals).map_err(local)?;
    let identity = match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => Identity::from_pem_files(certificate, key),
        _ => Identity::in_directory(&state),
    };
    let identity = identity.map_err(local)?;
    let tls = TlsServer::new(&identity, TlsOptions::default()).map_err(local)?;
    let fingerprint = tls.fingerprint();
    Ok(Setup {
        tls,
        principals,
        state: std::path::absolute(&state).map_err(local)?,
        secrets,
        fingerprint,
        only,
    })
}

/// Checks the settings of a daemon without starting it. Creates no files. Returns the number of
/// principals.
///
/// # Errors
///
/// A file is missing or invalid, or a root is refused.
pub fn check(arguments: &DaemonSettings) -> Result<usize, Stop> {
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => config_directory().map_err(local)?,
    };
    if state.exists() {
        check_private(&state).map_err(local)?;
    }
    let principals = match (&arguments.principals, &arguments.root) {
        (Some(file), _) => named_principals(file)?,
        (None, Some(root)) => {
            let token = Token::generate().map_err(local)?;
            let may = (rights_of(arguments), commands_of(arguments)?);
            let text = text_of_only(root, &token, &may)?;
            Principals::parse(&text, root).map_err(local)?
        }
        (None, None) => return Err(Stop::new(Exit::Usage, "give --root or --principals")),
    };
    if !arguments.unguarded {
        let secrets = Secrets::new(&state, arguments);
        secrets.check(&principals).map_err(local)?;
    }
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        let identity = Identity::from_pem_files(certificate, key).map_err(local)?;
        TlsServer::new(&identity, TlsOptions::default()).map_err(local)?;
    }
    if let Some(audit) = &arguments.audit {
        let directory = std::path::absolute(&audit.file).map_err(local)?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        if !directory.is_dir() {
            let directory = directory.display();
            return Err(local(format!(
                "the audit log: there is no directory {directory}"
            )));
        }
    }
    Ok(principals.count())
}

/// Returns the rights of the only principal, in TOML.
fn rights_of(arguments: &DaemonSettings) -> String {
    let all = [
        (true, "read"),
        (true, "measure"),
        (arguments.write, "write"),
        (arguments.write && arguments.keep_set_ids, "set-id"),
        (arguments.write && arguments.keep_owners, "owners"),
        (arguments.write && arguments.make_devices, "devices"),
        (arguments.write && arguments.delete, "delete"),
    ];
    let given = all.into_iter().filter(|(given, _)| *given);
    let quoted: Vec<String> = given.map(|(_, right)| format!("\"{right}\"")).collect();
    quoted.join(", ")
}

/// Returns the commands of the only principal, as the end of a principals file.
///
/// # Errors
///
/// Two different commands have the same name.
fn commands_of(arguments: &DaemonSettings) -> Result<String, Stop> {
    let mut texts: BTreeMap<&String, &String> = BTreeMap::new();
    for (name, text) in arguments.on_commit.iter().chain(&arguments.filters) {
        if texts.insert(name, text).is_some_and(|other| other != text) {
            let fault = format!("two commands have the name \"{name}\": give one another name");
            return Err(Stop::new(Exit::Usage, fault));
        }
    }
    let line = |(name, text): (&&String, &&String)| format!("{} = {}\n", json!(name), json!(text));
    let lines: String = texts.iter().map(line).collect();
    let names = |commands: &[(String, String)]| {
        let names: BTreeSet<&String> = commands.iter().map(|(name, _)| name).collect();
        json!(names)
    };
    let (on_commit, filters) = (names(&arguments.on_commit), names(&arguments.filters));
    Ok(format!(
        "on-commit = {on_commit}\nfilter-cmd = {filters}\n\n[commands]\n{lines}"
    ))
}

/// Loads the principals of a file.
fn named_principals(file: &Path) -> Result<Principals, Stop> {
    let principals = Principals::load(file).map_err(local)?;
    if principals.is_empty() {
        return Err(local(format!(
            "{} names no principal, so nobody could come: `longhaul token --principal NAME` \
             prints an entry for it, and `longhaul serve --help` a whole example",
            file.display()
        )));
    }
    Ok(principals)
}

/// Returns a principals file of one principal with one root.
fn text_of_only(
    root: &Path,
    token: &Token,
    (rights, commands): &(String, String),
) -> Result<String, Stop> {
    let root = root.canonicalize().map_err(|error| {
        local(format!(
            "cannot serve {}: {error}; make the directory first",
            root.display()
        ))
    })?;
    if !root.is_dir() {
        let text = format!("cannot serve {}: it is no directory", root.display());
        return Err(local(text));
    }
    let Some(path) = root.to_str() else {
        return Err(local(
            "the root's name is no UTF-8: serve it through a symbolic link",
        ));
    };
    let hash = token.hash().map_err(local)?;
    Ok(format!(
        "[[principal]]\nname = \"{ONLY_PRINCIPAL}\"\ntoken = \"{hash}\"\n\n[[principal.root]]\n\
         at = \"/\"\npath = {}\nrights = [{rights}]\n{commands}",
        json!(path)
    ))
}

/// Creates one principal with one root. Its token is created on first use and kept.
fn only_principal(
    state: &Path,
    root: &Path,
    may: (String, String),
) -> Result<(Principals, Only), Stop> {
    let token = kept_token(&state.join("token"))?;
    let text = text_of_only(root, &token, &may)?;
    // This name differs from the one that an administrator would choose.
    let file = state.join("root.toml");
    write_private(&file, text.as_bytes())?;
    let principals = Principals::load(&file).map_err(local)?;
    Ok((
        principals,
        Only {
            token: token.reveal(),
            tokens_file: state.join("tokens"),
        },
    ))
}

fn kept_token(file: &Path) -> Result<Token, Stop> {
    match read_private(file) {
        Ok(text) => text.trim().parse().map_err(|error| {
            local(format!(
                "{}: {error}; remove the file to get a new token",
                file.display()
            ))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = Token::generate().map_err(local)?;
            write_private(file, token.reveal().as_bytes())?;
            Ok(token)
        }
        Err(error) => Err(local(format!("{}: {error}", file.display()))),
    }
}

/// Reads a secret file. Fails if other users have access to it.
fn read_private(file: &Path) -> std::io::Result<String> {
    let mut opened = kept_to_read(file)?;
    // Check the open file, since the name may now refer to another one.
    let mode = opened.metadata()?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let text = format!(
            "others may read or change this secret (mode {mode:o}): remove the file to get a new \
             one, or run `chmod 600` on it if nobody did"
        );
        return Err(std::io::Error::other(text));
    }
    let mut text = String::new();
    opened.read_to_string(&mut text)?;
    Ok(text)
}

/// Adds a line to the tokens file, which may contain other lines of the user.
fn add_token(file: &Path, host: &str, token: &str) -> Result<(), Stop> {
    let mut older = Vec::new();
    let read = kept_to_read(file).and_then(|mut opened| opened.read_to_end(&mut older));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(local(format!("{}: {error}", file.display()))),
    }
    write_private(file, &with_token(&older, host, token))
}

/// Returns the file with the line of this daemon replaced, or else appended. All other lines stay
/// unchanged.
fn with_token(older: &[u8], host: &str, token: &str) -> Vec<u8> {
    let is_own = |line: &[u8]| {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        words.next() == Some(host.as_bytes()) && words.next() == Some(ONLY_PRINCIPAL.as_bytes())
    };
    let mut own = Some(format!("{host} {ONLY_PRINCIPAL} {token}\n"));
    let mut bytes = Vec::with_capacity(older.len());
    for line in older.split_inclusive(|&byte| byte == b'\n') {
        if is_own(line) {
            // A second line of the same principal had no effect, so it is dropped.
            bytes.extend(own.take().unwrap_or_default().bytes());
        } else {
            bytes.extend_from_slice(line);
        }
    }
    if let Some(own) = own {
        if bytes.last().is_some_and(|&byte| byte != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend(own.bytes());
    }
    bytes
}

/// Replaces a file atomically, so that a crash leaves no partial secret. Must not run in two
/// threads at once.
fn write_private(file: &Path, bytes: &[u8]) -> Result<(), Stop> {
    let failed = |error| local(format!("cannot write {}: {error}", file.display()));
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = kept(&mut options, Path::new(&new)).and_then(|mut opened| {
        opened.write_all(bytes)?;
        opened.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&new, file))
        .map_err(failed)
}

impl Setup {
    /// Returns the daemon's address, key and principal. Also adds its token to the tokens file for
    /// clients on this host.
    pub fn announcement(&self, address: SocketAddr) -> Result<Announcement, Stop> {
        let listening = shown(address);
        if let Some(only) = &self.only {
            add_token(&only.tokens_file, &listening, &only.token)?;
        }
        Ok(Announcement {
            address,
            listening,
            fingerprint: self.fingerprint,
            principal: self.only.as_ref().map(|_| ONLY_PRINCIPAL),
            token_file: self.only.as_ref().map(|only| only.tokens_file.clone()),
        })
    }
}

/// Address and identity of a daemon.
pub struct Announcement {
    /// Address on which it listens.
    pub address: SocketAddr,
    /// The same address in the form that a client on this host uses.
    pub listening: String,
    /// Fingerprint of its key.
    pub fingerprint: Fingerprint,
    /// Name of the only principal, if a single root is served.
    pub principal: Option<&'static str>,
    /// File that contains its token.
    pub token_file: Option<PathBuf>,
}

/// Returns an address that a client on this host can use.
fn shown(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("localhost:{}", address.port());
    }
    address.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_line_is_replaced() {
        let older = b"# mine\r\n\n  h:2 user old  \xff\nh:1 alice a\n h:1\tuser old\nnonsense\n\
                      h:1 user older\nlast";
        let newer = with_token(older, "h:1", "new");
        let expected =
            b"# mine\r\n\n  h:2 user old  \xff\nh:1 alice a\nh:1 user new\nnonsense\nlast";
        assert_eq!(newer, expected);
        assert_eq!(with_token(&newer, "h:1", "new"), newer);
    }

    #[test]
    fn a_new_line_is_added_at_the_end() {
        assert_eq!(with_token(b"", "h:1", "t"), b"h:1 user t\n");
        let added = with_token(b"g:1 user x", "h:1", "t");
        assert_eq!(added, b"g:1 user x\nh:1 user t\n");
    }

    #[test]
    fn a_token_that_others_may_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("token");
        let made = kept_token(&file).unwrap().reveal();
        assert_eq!(kept_token(&file).unwrap().reveal(), made);
        for mode in [0o660, 0o602, 0o604] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let stop = kept_token(&file).unwrap_err();
            assert!(stop.text.contains("remove the file"), "{}", stop.text);
        }
    }

    #[test]
    fn a_tokens_file_is_readable_only_by_its_user() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("tokens");
        std::fs::write(&file, "g:1 user x\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        add_token(&file, "h:1", "t").unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
