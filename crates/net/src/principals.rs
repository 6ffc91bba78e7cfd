//! Access rules of a daemon: a TOML file of principals, each with the hash of a token or
//! certificates, roots and rights.
//!
//! ```toml
//! [[principal]]
//! name = "alice"
//! token = "lhh1$...$..."              # as made by Token::hash
//! # or several, each with an optional time of its expiry:
//! tokens = [{ hash = "lhh1$...$...", expires = 2027-01-31T00:00:00Z }]
//! certificates = ["sha256:..."]       # of client keys
//! limits = { sessions = 8, streams = 64, memory = "64MiB" }
//! [[principal.root]]
//! at = "/data"                        # in the URL
//! path = "/srv/data"                  # on this host
//! rights = ["read", "write"]          # also "measure": null:, zero:, identity of this host;
//!                                     # "set-id": written files keep these bits,
//!                                     # "owners", "devices", "delete"
//! on-commit = ["ingest"]              # may run for files written there
//! filter-cmd = ["unpack"]             # may filter files in both directions
//!
//! [commands]
//! ingest = "catalogue add \"$1\""      # shell command
//! unpack = "zstd -dc"
//! ```
//!
//! All authentication failures look alike: an unknown name, a wrong token and a name without a
//! token follow the same path and return the same error. Path resolution depends on the file alone,
//! never on the disk.

mod credentials;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_proto::command::is_command;
use longhaul_proto::manifest::TreePath;
use longhaul_system::named_files::kept_to_read;
use longhaul_system::toml_errors;
use serde::{Deserialize, Serialize};

use super::identity::Fingerprint;
use super::token::{Token, TokenHash};
pub use credentials::{PrincipalLimits, Proof, TokenRefused};
use credentials::{PrincipalToken, RawLimits, RawToken};

// tidy: long file because it is one file format with all of its checks.

/// Maximum size of the file in bytes. No list written by hand is larger.
const MAXIMUM_FILE_BYTES: u64 = 16 << 20;

/// Maximum length of a principal's name, in bytes.
pub const MAXIMUM_PRINCIPAL_BYTES: usize = 128;

/// Reasons to reject the file. A daemon does not start with a rejected file.
#[derive(Debug, thiserror::Error)]
pub enum PrincipalsError {
    /// The file cannot be read.
    #[error("{file}: {cause}: check the path, and that the daemon's user may read it")]
    File {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// Users other than the owner may change the file.
    #[error(
        "{file} says who may do what, and others may change it (mode {mode:o}): run `chmod go-w \
         {file}`"
    )]
    Writable {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is too large.
    #[error("{file} is larger than {MAXIMUM_FILE_BYTES} bytes: it is no list of principals")]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// The file is not valid TOML, or has unknown fields.
    #[error("{file}: {cause}: correct it (`longhaul serve --help` shows an example)")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Position and cause of the syntax error.
        cause: String,
    },
    /// An entry of the file is invalid.
    #[error("{file}, principal \"{principal}\": {fault}")]
    Meaning {
        /// The file.
        file: PathBuf,
        /// Name of the invalid entry.
        principal: String,
        /// Fault of the entry.
        fault: Fault,
    },
}

/// Faults of a principal's entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The name is invalid.
    #[error(
        "a name has 1 to {MAXIMUM_PRINCIPAL_BYTES} bytes without space, '/', '@', ':' or control \
         characters: choose another"
    )]
    Name,
    /// Another entry has the same name.
    #[error("two principals have this name: rename one")]
    DuplicateName,
    /// Another entry has the same key.
    #[error("{0} belongs to another principal too: a key is one principal's")]
    DuplicateCertificate(Fingerprint),
    /// The token or a certificate cannot be parsed.
    #[error("{0}")]
    Credential(String),
    /// The entry has neither a token nor certificates.
    #[error("it has neither token nor certificates: nobody could be it; give one, or delete it")]
    NoCredential,
    /// The URL path of a root is invalid.
    #[error("root at \"{0}\": write an absolute path without \".\", \"..\" or \"//\"")]
    At(String),
    /// A limit is invalid.
    #[error("limits: {0}")]
    Limit(String),
    /// Two roots have the same URL path.
    #[error("two roots are at \"{0}\": delete one")]
    DuplicateAt(String),
    /// The directory of a root is not an absolute path.
    #[error("root path {0:?}: write an absolute path on this host")]
    Path(PathBuf),
    /// A root gives no rights.
    #[error("the root at \"{0}\" has no rights: give \"read\", \"write\" or \"measure\"")]
    NoRights(String),
    /// A right has no effect without another right.
    #[error("the root at \"{0}\" has the right \"{1}\" without \"write\": give both, or neither")]
    Alone(String, &'static str),
    /// A command is not defined, empty or too long.
    #[error(
        "the root at \"{0}\" has the command \"{1}\", which [commands] does not have, or which is \
         empty or longer than 4096 bytes: add it there, or delete it here"
    )]
    Command(String, String),
    /// A root lies within another root and has fewer rights.
    #[error(
        "the root at \"{at}\" lies within that at \"{wider}\" and has fewer rights, which would not \
         bind who comes from there: move what it holds elsewhere, or give both the same"
    )]
    Narrower {
        /// URL path of the inner root.
        at: String,
        /// URL path of the outer root.
        wider: String,
    },
}

/// Rights of a principal below a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Permits reading files.
    pub read: bool,
    /// Permits creating and replacing files.
    pub write: bool,
    /// Permits `null:` and `zero:`. Probes may learn the identity of this host.
    pub measure: bool,
    /// Keeps the set-user-ID and set-group-ID bits of written files.
    pub set_id: bool,
    /// Permits setting owners, and attributes that only a superuser may set.
    pub owners: bool,
    /// Permits creating device nodes.
    pub devices: bool,
    /// Permits deleting files, for copies that mirror or move their source.
    pub delete: bool,
}

impl Rights {
    fn raw(self) -> Vec<RawRight> {
        let all = [
            (self.read, RawRight::Read),
            (self.write, RawRight::Write),
            (self.measure, RawRight::Measure),
            (self.set_id, RawRight::SetId),
            (self.owners, RawRight::Owners),
            (self.devices, RawRight::Devices),
            (self.delete, RawRight::Delete),
        ];
        let given = all.into_iter().filter(|(given, _)| *given);
        given.map(|(_, right)| right).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    principal: Vec<RawPrincipal>,
    #[serde(default)]
    commands: BTreeMap<String, String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawPrincipal {
    name: String,
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<RawToken>,
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<RawLimits>,
    #[serde(default)]
    root: Vec<RawRoot>,
    /// Commands of a single principal that was written for another process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    commands: BTreeMap<String, String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawRoot {
    at: String,
    path: PathBuf,
    rights: Vec<RawRight>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "on-commit")]
    on_commit: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "filter-cmd")]
    filters: Vec<String>,
}

#[derive(Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum RawRight {
    Read,
    Write,
    Measure,
    SetId,
    Owners,
    Devices,
    Delete,
}

/// A user known to the daemon, with credentials and rights.
#[derive(Debug)]
pub struct Principal {
    name: String,
    tokens: Vec<PrincipalToken>,
    certificates: Vec<Fingerprint>,
    roots: Vec<Root>,
    limits: PrincipalLimits,
    /// If true, the principal has all rights of this process, at all paths.
    owner: bool,
}

#[derive(Debug)]
struct Root {
    /// URL path without a trailing slash. "" is the whole URL space.
    at: String,
    path: PathBuf,
    rights: Rights,
    commands: Commands,
}

/// Commands that may run for files beneath a root: shell commands by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Commands that run after a file was committed there.
    pub on_commit: BTreeMap<String, String>,
    /// Commands that filter the contents of files written or read there.
    pub filters: BTreeMap<String, String>,
}

/// Resolution of a URL's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// URL path of the root, without a trailing slash. Empty for the whole URL space.
    pub at: &'a str,
    /// The root's directory on this host. Only this path may contain symbolic links.
    pub root: &'a Path,
    /// Path below the root. `None` for the root itself.
    pub rest: Option<TreePath>,
    /// True if the URL ended in a slash.
    pub is_directory: bool,
    /// Rights below this root.
    pub rights: Rights,
    /// Commands that may run for files below this root.
    pub commands: &'a Commands,
}

/// Error of a failed authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not authenticated: the principal is unknown here, or the token or certificate belongs to another: \
     check the name in the URL, and ask the daemon's administrator for a token"
)]
pub struct NotAuthenticated;

/// Reasons why a URL's path cannot be resolved for a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No root of the principal contains the path. The error does not show if the path exists.
    #[error("not permitted: this principal has no root for that path: ask the administrator")]
    NotPermitted,
    /// The path has `..`, `.`, a NUL byte or a name reserved by longhaul.
    #[error("the path cannot be used: {0}: write it without")]
    Path(#[from] longhaul_proto::manifest::PathError),
    /// The path does not begin with a slash.
    #[error("the path is not absolute: begin it with \"/\"")]
    Relative,
}

/// All principals known to the daemon.
#[derive(Debug)]
pub struct Principals {
    principals: Vec<Principal>,
}

impl Principals {
    /// Reads and checks the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, can be changed by other users, or has an invalid entry. A single
    /// fault rejects the whole file.
    pub fn load(file: &Path) -> Result<Principals, PrincipalsError> {
        let text = read_guarded(file)?;
        Principals::parse(&text, file)
    }

    /// Parses the text of such a file. Errors name `file`.
    ///
    /// # Errors
    ///
    /// The text is not valid TOML, or an entry is invalid.
    pub fn parse(text: &str, file: &Path) -> Result<Principals, PrincipalsError> {
        let raw: RawFile = toml::from_str(text).map_err(|cause| PrincipalsError::Syntax {
            file: file.into(),
            cause: toml_errors::in_one_line(text, &cause),
        })?;
        let mut principals = Vec::new();
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        for entry in raw.principal {
            let name = entry.name.clone();
            let checked = Principal::check(entry, &raw.commands)
                .and_then(|p| unique(p, &mut names, &mut keys));
            principals.push(checked.map_err(|fault| PrincipalsError::Meaning {
                file: file.into(),
                principal: name,
                fault,
            })?);
        }
        Ok(Principals { principals })
    }

    /// Returns a list of one principal with all rights of this process. A client authenticates as
    /// that principal with `key`.
    pub fn owner(name: &str, key: Fingerprint) -> Principals {
        Principals {
            principals: vec![Principal {
                name: name.to_owned(),
                tokens: Vec::new(),
                certificates: vec![key],
                roots: Vec::new(),
                limits: PrincipalLimits::default(),
                owner: true,
            }],
        }
    }

    /// Returns the number of principals.
    pub fn count(&self) -> usize {
        self.principals.len()
    }

    /// True if the list has no principals.
    pub fn is_empty(&self) -> bool {
        self.principals.is_empty()
    }

    /// Returns the readable or writable roots, with their principal's name and rights.
    pub fn served(&self) -> impl Iterator<Item = (&str, &Path, Rights)> {
        self.principals.iter().flat_map(|principal| {
            let served = |root: &&Root| root.rights.read || root.rights.write;
            let roots = principal.roots.iter().filter(served);
            roots.map(|root| (principal.name.as_str(), root.path.as_path(), root.rights))
        })
    }

    /// Returns the principal that owns this process, if the list has one.
    pub fn owning(&self) -> Option<&Principal> {
        self.principals.iter().find(|principal| principal.owner)
    }

    /// Returns the principal of this name. The caller has authenticated it before.
    pub fn by_name(&self, name: &str) -> Option<&Principal> {
        self.principals
            .iter()
            .find(|principal| principal.name == name)
    }

    /// Returns the principal whose certificates include `key`, which the client has proved to own.
    /// If the client gives a `name`, it must be that principal's name.
    ///
    /// # Errors
    ///
    /// [`NotAuthenticated`]: the key is unknown, or belongs to another principal than `name`.
    pub fn by_certificate(
        &self,
        name: Option<&str>,
        key: &Fingerprint,
    ) -> Result<&Principal, NotAuthenticated> {
        self.principals
            .iter()
            .find(|principal| principal.certificates.contains(key))
            .filter(|principal| name.is_none_or(|name| name == principal.name))
            .ok_or(NotAuthenticated)
    }
}

impl Principals {
    /// Authenticates the principal `name` by its token, at the time `now` in seconds since 1970.
    ///
    /// # Errors
    ///
    /// [`TokenRefused`], after the same amount of work for every cause.
    pub fn by_token(
        &self,
        name: &str,
        token: &Token,
        now: i64,
    ) -> Result<(&Principal, Proof), TokenRefused> {
        const NOBODY: &TokenHash = &TokenHash::of_nothing();
        // All names are compared, so that the duration does not reveal which names exist.
        let mut found = None;
        let mut most = 1;
        for principal in &self.principals {
            most = most.max(principal.tokens.len());
            if principal.name == name {
                found = Some(principal);
            }
        }
        // The same number of hashes is compared for every principal.
        let mut matching = None;
        for number in 0..most {
            let own = found.and_then(|principal| principal.tokens.get(number));
            let hash = own.map_or(NOBODY, |token| &token.hash);
            if hash.verify(token) && own.is_some() {
                matching = own;
            }
        }
        match (found, matching) {
            (
                Some(_),
                Some(PrincipalToken {
                    expires: Some(at), ..
                }),
            ) if *at <= now => Err(TokenRefused::Expired(*at)),
            (Some(principal), Some(own)) => Ok((principal, Proof::Token(own.hash.clone()))),
            _ => Err(TokenRefused::Unknown),
        }
    }

    /// True if the credential still belongs to this principal.
    pub fn accepts(&self, name: &str, proof: &Proof) -> bool {
        let found = self.principals.iter().find(|own| own.name == name);
        found.is_some_and(|principal| match proof {
            Proof::Token(hash) => principal.tokens.iter().any(|own| own.hash == *hash),
            Proof::Certificate(key) => principal.certificates.contains(key),
            Proof::Owner => principal.owner,
        })
    }
}

/// Reads the whole file. Fails if users other than the owner may write it.
fn read_guarded(file: &Path) -> Result<String, PrincipalsError> {
    let file_error = |cause| PrincipalsError::File {
        file: file.into(),
        cause,
    };
    let opened = kept_to_read(file).map_err(file_error)?;
    let mode = opened.metadata().map_err(file_error)?.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        let file = file.into();
        return Err(PrincipalsError::Writable { file, mode });
    }
    let mut text = String::new();
    opened
        .take(MAXIMUM_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(file_error)?;
    if text.len() as u64 > MAXIMUM_FILE_BYTES {
        return Err(PrincipalsError::TooLarge { file: file.into() });
    }
    Ok(text)
}

fn unique(
    principal: Principal,
    names: &mut HashSet<String>,
    keys: &mut HashSet<Fingerprint>,
) -> Result<Principal, Fault> {
    if !names.insert(principal.name.clone()) {
        return Err(Fault::DuplicateName);
    }
    match principal
        .certificates
        .iter()
        .find(|key| !keys.insert(**key))
    {
        Some(key) => Err(Fault::DuplicateCertificate(*key)),
        None => Ok(principal),
    }
}

impl Principal {
    fn check(raw: RawPrincipal, commands: &BTreeMap<String, String>) -> Result<Principal, Fault> {
        if !is_name(&raw.name) {
            return Err(Fault::Name);
        }
        let credential = |cause: &dyn ToString| Fault::Credential(cause.to_string());
        let tokens = credentials::tokens_of(raw.token.as_deref(), &raw.tokens);
        let tokens = tokens.map_err(Fault::Credential)?;
        let certificates = raw
            .certificates
            .iter()
            .map(|text| text.parse().map_err(|cause| credential(&cause)))
            .collect::<Result<Vec<Fingerprint>, Fault>>()?;
        if tokens.is_empty() && certificates.is_empty() {
            return Err(Fault::NoCredential);
        }
        Ok(Principal {
            name: raw.name,
            tokens,
            certificates,
            roots: check_roots(raw.root, commands)?,
            limits: raw
                .limits
                .unwrap_or_default()
                .check()
                .map_err(Fault::Limit)?,
            owner: false,
        })
    }

    /// Returns the name and roots as text, without credentials, for another process on this host
    /// that serves the same principal.
    pub fn written(&self) -> String {
        let root = |root: &Root| RawRoot {
            at: format!("{}/", root.at),
            path: root.path.clone(),
            rights: root.rights.raw(),
            on_commit: root.commands.on_commit.keys().cloned().collect(),
            filters: root.commands.filters.keys().cloned().collect(),
        };
        let lists = self.roots.iter().flat_map(|root| root.commands.lists());
        let commands = lists.flat_map(Clone::clone);
        let raw = RawPrincipal {
            name: self.name.clone(),
            token: None,
            tokens: Vec::new(),
            limits: None,
            certificates: Vec::new(),
            root: self.roots.iter().map(root).collect(),
            commands: commands.collect(),
        };
        // This cannot fail: all values were parsed from TOML before.
        toml::to_string(&raw).unwrap_or_default()
    }

    /// Reads a principal that another process of this host wrote with [`Principal::written`].
    ///
    /// # Errors
    ///
    /// The file cannot be read, may be changed by other users, or is invalid.
    pub fn read_back(file: &Path) -> Result<Principal, PrincipalsError> {
        let text = read_guarded(file)?;
        let syntax = |cause: String| PrincipalsError::Syntax {
            file: file.into(),
            cause,
        };
        let raw: RawPrincipal = toml::from_str(&text)
            .map_err(|cause| syntax(toml_errors::in_one_line(&text, &cause)))?;
        if !is_name(&raw.name) {
            return Err(syntax(Fault::Name.to_string()));
        }
        Ok(Principal {
            name: raw.name,
            tokens: Vec::new(),
            certificates: Vec::new(),
            roots: check_roots(raw.root, &raw.commands)
                .map_err(|fault| syntax(fault.to_string()))?,
            limits: PrincipalLimits::default(),
            owner: false,
        })
    }

    /// True if the principal is the user of this process. Its paths are paths of this host.
    pub fn is_owner(&self) -> bool {
        self.owner
    }

    /// Returns the limits of its sessions.
    pub fn limits(&self) -> PrincipalLimits {
        self.limits
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the directory and rights of each root. A directory may lie inside another one.
    pub fn roots(&self) -> impl Iterator<Item = (&Path, Rights)> {
        self.roots.iter().map(|root| (&*root.path, root.rights))
    }

    /// Returns the filter commands of all roots: shell commands by name.
    pub fn filters(&self) -> BTreeMap<String, String> {
        let each = self.roots.iter().map(|root| root.commands.filters.clone());
        each.flatten().collect()
    }

    /// Resolves a URL's path by the longest root that contains it. Does not access the disk.
    ///
    /// # Errors
    ///
    /// [`ResolveError`]: the path is invalid, or outside all roots.
    pub fn resolve(&self, url_path: &[u8]) -> Result<Resolved<'_>, ResolveError> {
        let (path, is_directory) = normalise(url_path)?;
        let root = self
            .roots
            .iter()
            .filter(|root| is_below(&path, root.at.as_bytes()))
            .max_by_key(|root| root.at.len())
            .ok_or(ResolveError::NotPermitted)?;
        let rest = path.get(root.at.len() + 1..).unwrap_or_default();
        Ok(Resolved {
            at: &root.at,
            root: &root.path,
            rest: match rest {
                [] => None,
                names => Some(TreePath::new(names)?),
            },
            is_directory: is_directory || rest.is_empty(),
            rights: root.rights,
            commands: &root.commands,
        })
    }

    /// Returns the names of the next path component towards each root below `url_path`, in byte
    /// order. A listing of a path above the roots shows these names only.
    pub fn steps_to_roots(&self, url_path: &[u8]) -> Vec<&str> {
        let Ok((path, _)) = normalise(url_path) else {
            return Vec::new();
        };
        let roots = self.roots.iter().map(|root| root.at.as_str());
        let steps = roots.filter_map(|at| {
            let below = at.as_bytes().strip_prefix(path.as_slice())?;
            let below = std::str::from_utf8(below).ok()?.strip_prefix('/')?;
            below.split('/').next()
        });
        let mut steps: Vec<&str> = steps.collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// True if the principal may use `null:` and `zero:`, which are below no root, and learn the
    /// identity of this host.
    pub fn may_measure(&self) -> bool {
        self.owner || self.roots.iter().any(|root| root.rights.measure)
    }
}

/// True if the name is valid for a principal; see [`Fault::Name`].
pub fn is_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "/@:".contains(c);
    (1..=MAXIMUM_PRINCIPAL_BYTES).contains(&name.len()) && !name.contains(forbidden)
}

fn check_roots(raw: Vec<RawRoot>, all: &BTreeMap<String, String>) -> Result<Vec<Root>, Fault> {
    let mut roots: Vec<Root> = Vec::new();
    for entry in raw {
        let bad_at = || Fault::At(entry.at.clone());
        let at = entry.at.strip_suffix('/').unwrap_or(&entry.at);
        let names = match at {
            "" => None,
            _ => Some(at.strip_prefix('/').ok_or_else(bad_at)?),
        };
        if names.is_some_and(|names| TreePath::new(names.as_bytes()).is_err())
            || entry.at.is_empty()
        {
            return Err(bad_at());
        }
        if roots.iter().any(|root| root.at == at) {
            return Err(Fault::DuplicateAt(entry.at));
        }
        if !entry.path.is_absolute() {
            return Err(Fault::Path(entry.path));
        }
        let has = |right| entry.rights.contains(&right);
        let rights = Rights {
            read: has(RawRight::Read),
            write: has(RawRight::Write),
            measure: has(RawRight::Measure),
            set_id: has(RawRight::SetId),
            owners: has(RawRight::Owners),
            devices: has(RawRight::Devices),
            delete: has(RawRight::Delete),
        };
        if rights == Rights::default() {
            return Err(Fault::NoRights(entry.at));
        }
        let of_writers = [
            (rights.set_id, "set-id"),
            (rights.owners, "owners"),
            (rights.devices, "devices"),
            (rights.delete, "delete"),
            (!entry.on_commit.is_empty(), "on-commit"),
        ];
        let alone = of_writers
            .into_iter()
            .find(|(given, _)| *given && !rights.write);
        if let Some((_, right)) = alone {
            return Err(Fault::Alone(entry.at, right));
        }
        let commands = Commands::of(&entry, all)?;
        roots.push(Root {
            at: at.to_owned(),
            path: entry.path,
            rights,
            commands,
        });
    }
    for inner in &roots {
        if let Some(outer) = roots.iter().find(|outer| outer.undoes(inner)) {
            // The root of the URL space is shown as "/".
            let shown = |at: &str| if at.is_empty() { "/" } else { at }.to_owned();
            return Err(Fault::Narrower {
                at: shown(&inner.at),
                wider: shown(&outer.at),
            });
        }
    }
    Ok(roots)
}

/// Returns the named commands of the root at `at`, with their shell text.
fn commands_of(
    at: &str,
    names: &[String],
    all: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Fault> {
    let known = names.iter().map(|name| {
        let text = all.get(name).filter(|text| is_command(text.as_bytes()));
        let text = text.ok_or_else(|| Fault::Command(at.to_owned(), name.clone()))?;
        Ok((name.clone(), text.clone()))
    });
    known.collect()
}

impl Commands {
    fn of(root: &RawRoot, all: &BTreeMap<String, String>) -> Result<Commands, Fault> {
        let texts = |names| commands_of(&root.at, names, all);
        Ok(Commands {
            on_commit: texts(&root.on_commit)?,
            filters: texts(&root.filters)?,
        })
    }

    fn lists(&self) -> [&BTreeMap<String, String>; 2] {
        [&self.on_commit, &self.filters]
    }

    /// True if `other` has all commands of this list.
    fn are_within(&self, other: &Commands) -> bool {
        let mut both = self.lists().into_iter().zip(other.lists());
        both.all(|(own, other)| own.keys().all(|name| other.contains_key(name)))
    }
}

impl Root {
    /// True if `inner` lies within this root, both in URLs and on this host, and has fewer rights.
    /// The rights of this root would then apply to `inner` too.
    fn undoes(&self, inner: &Root) -> bool {
        let rest = inner.at.strip_prefix(&self.at);
        let rest = rest.and_then(|rest| rest.strip_prefix('/'));
        let more = |own: bool, inner: bool| own && !inner;
        rest.is_some_and(|rest| self.path.join(rest) == inner.path)
            && (more(self.rights.read, inner.rights.read)
                || more(self.rights.write, inner.rights.write)
                || more(self.rights.set_id, inner.rights.set_id)
                || more(self.rights.owners, inner.rights.owners)
                || more(self.rights.devices, inner.rights.devices)
                || more(self.rights.delete, inner.rights.delete)
                || !self.commands.are_within(&inner.commands))
    }
}

/// Returns a URL's path with single slashes and without a trailing one ("" for the top). The second
/// value is true if the path had a trailing slash.
fn normalise(url_path: &[u8]) -> Result<(Vec<u8>, bool), ResolveError> {
    if url_path.first() != Some(&b'/') {
        return Err(ResolveError::Relative);
    }
    let mut path = Vec::with_capacity(url_path.len());
    for name in url_path.split(|&b| b == b'/').filter(|n| !n.is_empty()) {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    // Checked before the search for a root, so that `..` fails with the same error everywhere.
    if let Some(names) = path.get(1..) {
        TreePath::new(names)?;
    }
    Ok((path, url_path.ends_with(b"/")))
}

/// True if `path` is `at` or below it. Compares whole names: `/database` is not below `/data`.
fn is_below(path: &[u8], at: &[u8]) -> bool {
    path.strip_prefix(at)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
