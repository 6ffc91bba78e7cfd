//! The daemon's key, its principals, and for a single root the token that
//! opens it.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_engine::net::config_directory::config_directory;
use longhaul_engine::net::identity::{Fingerprint, Identity};
use longhaul_engine::net::principals::Principals;
use longhaul_engine::net::tls::{TlsOptions, TlsServer};
use longhaul_engine::net::token::Token;
use serde_json::json;

use crate::arguments::ServeArguments;
use crate::messages::{Exit, Stop, print_line, say};

/// Name of the principal that `--root` makes.
const ONLY_PRINCIPAL: &str = "user";

/// What a daemon needs.
pub struct Setup {
    /// Its key.
    pub tls: TlsServer,
    /// Who may do what.
    pub principals: Principals,
    /// Where the daemon keeps what is its own, from the root on.
    pub state: PathBuf,
    fingerprint: Fingerprint,
    only: Option<Only>,
}

/// The single principal of `--root`.
struct Only {
    token: String,
    tokens_file: PathBuf,
}

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Reads, or makes, what is needed.
pub fn prepare(arguments: &ServeArguments) -> Result<Setup, Stop> {
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
    let identity = match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => Identity::from_pem_files(certificate, key),
        _ => Identity::in_directory(&state),
    };
    let identity = identity.map_err(local)?;
    let tls = TlsServer::new(&identity, TlsOptions::default()).map_err(local)?;
    let (principals, only) = match (&arguments.principals, &arguments.root) {
        (Some(file), _) => (Principals::load(file).map_err(local)?, None),
        (None, Some(root)) => {
            let (principals, only) = only_principal(&state, root, arguments.write)?;
            (principals, Some(only))
        }
        (None, None) => return Err(Stop::new(Exit::Usage, "give --root or --principals")),
    };
    let fingerprint = tls.fingerprint();
    Ok(Setup {
        tls,
        principals,
        state: std::path::absolute(&state).map_err(local)?,
        fingerprint,
        only,
    })
}

/// One principal with one root, whose token is made on first use and kept.
fn only_principal(state: &Path, root: &Path, write: bool) -> Result<(Principals, Only), Stop> {
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
    let token = kept_token(&state.join("token"))?;
    let rights = if write {
        "\"read\", \"write\", \"measure\""
    } else {
        "\"read\", \"measure\""
    };
    let Some(path) = root.to_str() else {
        return Err(local(
            "the root's name is no UTF-8: serve it through a symbolic link",
        ));
    };
    let hash = token.hash().map_err(local)?;
    let text = format!(
        "[[principal]]\nname = \"{ONLY_PRINCIPAL}\"\ntoken = \"{hash}\"\n\n[[principal.root]]\n\
         at = \"/\"\npath = {}\nrights = [{rights}]\n",
        json!(path)
    );
    // Not the name under which an administrator would keep his own.
    let file = state.join("root.toml");
    write_private(&file, &text)?;
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
    match std::fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map_err(|error| {
            local(format!(
                "{}: {error}; remove the file to get a new token",
                file.display()
            ))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = Token::generate().map_err(local)?;
            write_private(file, &token.reveal())?;
            Ok(token)
        }
        Err(error) => Err(local(format!("{}: {error}", file.display()))),
    }
}

/// Puts a line into the tokens file, which may be the user's own: his other
/// lines stay.
fn add_token(file: &Path, host: &str, token: &str) -> Result<(), Stop> {
    let older = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(local(format!("{}: {error}", file.display()))),
    };
    let is_other = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next() != Some(host) || words.next() != Some(ONLY_PRINCIPAL)
    };
    let mut text: String = older
        .lines()
        .filter(is_other)
        .map(|line| format!("{line}\n"))
        .collect();
    text += &format!("{host} {ONLY_PRINCIPAL} {token}\n");
    write_private(file, &text)
}

/// Replaces a file at once, so that no crash leaves half a secret. No other
/// thread writes it.
fn write_private(file: &Path, text: &str) -> Result<(), Stop> {
    let failed = |error| local(format!("cannot write {}: {error}", file.display()));
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut opened| {
            opened.write_all(text.as_bytes())?;
            opened.sync_all()
        });
    written
        .and_then(|()| std::fs::rename(&new, file))
        .map_err(failed)
}

impl Setup {
    /// Says where the daemon is and how it is known.
    pub fn announce(&self, arguments: &ServeArguments, address: SocketAddr) -> Result<(), Stop> {
        if let Some(only) = &self.only {
            add_token(&only.tokens_file, &shown(address), &only.token)?;
        }
        if arguments.print_ready {
            print_line!(
                "{}",
                json!({
                    "listening": shown(address),
                    "fingerprint": self.fingerprint.to_string(),
                    "principal": self.only.as_ref().map(|_| ONLY_PRINCIPAL),
                    "token_file": self.only.as_ref().map(|only| only.tokens_file.display().to_string()),
                })
            );
            return Ok(());
        }
        say(&format!("listening on {address}, key {}", self.fingerprint));
        if let Some(only) = &self.only {
            say(&format!(
                "clients need a line \"HOST:{} {ONLY_PRINCIPAL} TOKEN\" in their tokens file; the \
                 token, and this line for this host, is in {}",
                address.port(),
                only.tokens_file.display()
            ));
        }
        Ok(())
    }
}

/// An address that a client on this host can use.
fn shown(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("localhost:{}", address.port());
    }
    address.to_string()
}
