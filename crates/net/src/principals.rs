//! Who may do what at a daemon: a TOML file of principals, each with a token's
//! hash or certificates, roots and rights.
//!
//! ```toml
//! [[principal]]
//! name = "alice"
//! token = "lhh1$...$..."              # as made by Token::hash
//! certificates = ["sha256:..."]       # of client keys
//! [[principal.root]]
//! at = "/data"                        # in the URL
//! path = "/srv/data"                  # on this host
//! rights = ["read", "write"]          # also "measure": null:, zero:, and what host this is;
//!                                     # "set-id": files put keep such bits,
//!                                     # "owners", "devices", "delete"
//! on-commit = ["ingest"]              # may run for files that are put there
//! filter-cmd = ["unpack"]             # files may go through it, both ways
//!
//! [commands]
//! ingest = "catalogue add \"$1\""      # what a shell runs
//! unpack = "zstd -dc"
//! ```
//!
//! Answers to strangers are all alike: an unknown name, a wrong token and a
//! name without a token take the same way and give the same error. Answers to
//! principals depend on the file alone, never on what exists on disk.

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

// tidy: long file because it is one file format with all of its checks.

/// More than this is no file that an administrator wrote.
const MAXIMUM_FILE_BYTES: u64 = 16 << 20;

/// The longest name of a principal, in bytes.
pub const MAXIMUM_PRINCIPAL_BYTES: usize = 128;

/// The file cannot be used. A daemon does not start with it.
#[derive(Debug, thiserror::Error)]
pub enum PrincipalsError {
    /// It cannot be read.
    #[error("{file}: {cause}: check the path, and that the daemon's user may read it")]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Others may change it.
    #[error(
        "{file} says who may do what, and others may change it (mode {mode:o}): run `chmod go-w \
         {file}`"
    )]
    Writable {
        /// Which.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no such file.
    #[error("{file} is larger than {MAXIMUM_FILE_BYTES} bytes: it is no list of principals")]
    TooLarge {
        /// Which.
        file: PathBuf,
    },
    /// It is no TOML, or has other fields.
    #[error("{file}: {cause}: correct it (`longhaul serve --help` shows an example)")]
    Syntax {
        /// Which.
        file: PathBuf,
        /// Where and why.
        cause: String,
    },
    /// What it says makes no sense.
    #[error("{file}, principal \"{principal}\": {fault}")]
    Meaning {
        /// Which.
        file: PathBuf,
        /// Whose.
        principal: String,
        /// What.
        fault: Fault,
    },
}

/// What is wrong with a principal's entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its name.
    #[error(
        "a name has 1 to {MAXIMUM_PRINCIPAL_BYTES} bytes without space, '/', '@', ':' or control \
         characters: choose another"
    )]
    Name,
    /// Its name is taken.
    #[error("two principals have this name: rename one")]
    DuplicateName,
    /// Its key is another's too.
    #[error("{0} belongs to another principal too: a key is one principal's")]
    DuplicateCertificate(Fingerprint),
    /// Its token or certificates cannot be read.
    #[error("{0}")]
    Credential(String),
    /// It has neither.
    #[error("it has neither token nor certificates: nobody could be it; give one, or delete it")]
    NoCredential,
    /// A root's place in the URL.
    #[error("root at \"{0}\": write an absolute path without \".\", \"..\" or \"//\"")]
    At(String),
    /// Two roots at one place.
    #[error("two roots are at \"{0}\": delete one")]
    DuplicateAt(String),
    /// A root's directory.
    #[error("root path {0:?}: write an absolute path on this host")]
    Path(PathBuf),
    /// A root for nothing.
    #[error("the root at \"{0}\" has no rights: give \"read\", \"write\" or \"measure\"")]
    NoRights(String),
    /// A right that means nothing alone.
    #[error("the root at \"{0}\" has the right \"{1}\" without \"write\": give both, or neither")]
    Alone(String, &'static str),
    /// A command that nobody can run.
    #[error(
        "the root at \"{0}\" has the command \"{1}\", which [commands] does not have, or which is \
         empty or longer than 4096 bytes: add it there, or delete it here"
    )]
    Command(String, String),
    /// A root within another one, with fewer rights than that.
    #[error(
        "the root at \"{at}\" lies within that at \"{wider}\" and has fewer rights, which would not \
         bind who comes from there: move what it holds elsewhere, or give both the same"
    )]
    Narrower {
        /// The inner one.
        at: String,
        /// The outer one.
        wider: String,
    },
}

/// What may be done below a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Files may be fetched.
    pub read: bool,
    /// Files may be put and replaced.
    pub write: bool,
    /// `null:` and `zero:` may be used, and probes learn what host this is.
    pub measure: bool,
    /// Files that are put keep their set-user-ID and set-group-ID bits.
    pub set_id: bool,
    /// What is put may belong to others, and have attributes that only a superuser sets.
    pub owners: bool,
    /// Devices may be put.
    pub devices: bool,
    /// Files may be deleted: by a copy that mirrors its source, or moves it away.
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
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    root: Vec<RawRoot>,
    /// Of one that was written down for another process.
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

/// Somebody whom the daemon knows.
#[derive(Debug)]
pub struct Principal {
    name: String,
    token: Option<TokenHash>,
    certificates: Vec<Fingerprint>,
    roots: Vec<Root>,
    /// May do what the process may, anywhere.
    owner: bool,
}

#[derive(Debug)]
struct Root {
    /// Without the slash at its end: "" is the whole URL space.
    at: String,
    path: PathBuf,
    rights: Rights,
    commands: Commands,
}

/// What may run for files beneath a root: what a shell runs, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Once they are put there.
    pub on_commit: BTreeMap<String, String>,
    /// What they go through, as they are put or fetched.
    pub filters: BTreeMap<String, String>,
}

/// Where a URL's path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// Where the root is in URLs, without a slash at its end: nothing for all of them.
    pub at: &'a str,
    /// The root's directory on this host; the one path that may have symbolic
    /// links in it.
    pub root: &'a Path,
    /// What is named below it; none is the root itself.
    pub rest: Option<TreePath>,
    /// Whether the URL ended in a slash.
    pub is_directory: bool,
    /// What may be done there.
    pub rights: Rights,
    /// What may run for files that are put there.
    pub commands: &'a Commands,
}

/// Nobody proved to be anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not authenticated: the principal is unknown here, or the token or certificate belongs to another: \
     check the name in the URL, and ask the daemon's administrator for a token"
)]
pub struct NotAuthenticated;

/// A URL leads nowhere for this principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No root of the principal holds it, whether or not it exists.
    #[error("not permitted: this principal has no root for that path: ask the administrator")]
    NotPermitted,
    /// It has `..`, `.`, a NUL byte or a name that longhaul keeps for itself.
    #[error("the path cannot be used: {0}: write it without")]
    Path(#[from] longhaul_proto::manifest::PathError),
    /// It does not begin with a slash.
    #[error("the path is not absolute: begin it with \"/\"")]
    Relative,
}

/// All whom the daemon knows.
#[derive(Debug)]
pub struct Principals {
    principals: Vec<Principal>,
}

impl Principals {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, may be changed by others, or does not make
    /// sense in any part: half a list of rights is worse than none.
    pub fn load(file: &Path) -> Result<Principals, PrincipalsError> {
        let text = read_guarded(file)?;
        Principals::parse(&text, file)
    }

    /// Reads the text of such a file; `file` is named in errors.
    ///
    /// # Errors
    ///
    /// Where it does not make sense in any part.
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

    /// A single principal with the rights of this process: its client, known by the key of the
    /// client's end.
    pub fn owner(name: &str, key: Fingerprint) -> Principals {
        Principals {
            principals: vec![Principal {
                name: name.to_owned(),
                token: None,
                certificates: vec![key],
                roots: Vec::new(),
                owner: true,
            }],
        }
    }

    /// Whether nobody can come.
    pub fn is_empty(&self) -> bool {
        self.principals.is_empty()
    }

    /// The roots in which a principal may read or write, with its name and rights.
    pub fn served(&self) -> impl Iterator<Item = (&str, &Path, Rights)> {
        self.principals.iter().flat_map(|principal| {
            let served = |root: &&Root| root.rights.read || root.rights.write;
            let roots = principal.roots.iter().filter(served);
            roots.map(|root| (principal.name.as_str(), root.path.as_path(), root.rights))
        })
    }

    /// The one who owns this process, where there is one.
    pub fn owning(&self) -> Option<&Principal> {
        self.principals.iter().find(|principal| principal.owner)
    }

    /// One of this name, whose word was taken before.
    pub fn by_name(&self, name: &str) -> Option<&Principal> {
        self.principals
            .iter()
            .find(|principal| principal.name == name)
    }

    /// The principal that calls itself `name` and shows `token`.
    ///
    /// # Errors
    ///
    /// [`NotAuthenticated`], after the same work in every case.
    pub fn by_token(&self, name: &str, token: &Token) -> Result<&Principal, NotAuthenticated> {
        const NOBODY: &TokenHash = &TokenHash::of_nothing();
        // All names are compared, so that the time does not tell which exist.
        let mut found = None;
        for principal in &self.principals {
            if principal.name == name {
                found = Some(principal);
            }
        }
        let hash = found.and_then(|p| p.token.as_ref()).unwrap_or(NOBODY);
        match (hash.verify(token), found) {
            (true, Some(principal)) => Ok(principal),
            _ => Err(NotAuthenticated),
        }
    }

    /// The principal whose key a client proved to have. If the client calls itself `name`, it must
    /// be that principal's key.
    ///
    /// # Errors
    ///
    /// [`NotAuthenticated`].
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

/// The whole file, unless others may write it.
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
        let token = raw.token.map(|text| text.parse()).transpose();
        let token = token.map_err(|cause: super::token::ParseTokenError| credential(&cause))?;
        let certificates = raw
            .certificates
            .iter()
            .map(|text| text.parse().map_err(|cause| credential(&cause)))
            .collect::<Result<Vec<Fingerprint>, Fault>>()?;
        if token.is_none() && certificates.is_empty() {
            return Err(Fault::NoCredential);
        }
        Ok(Principal {
            name: raw.name,
            token,
            certificates,
            roots: check_roots(raw.root, commands)?,
            owner: false,
        })
    }

    /// Its name and roots as text, without credentials: for a process of the principal on this
    /// host.
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
            certificates: Vec::new(),
            root: self.roots.iter().map(root).collect(),
            commands: commands.collect(),
        };
        // Everything in it came from such text.
        toml::to_string(&raw).unwrap_or_default()
    }

    /// One whom another process of this host wrote down, and knew.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, may be changed by others, or is none.
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
            token: None,
            certificates: Vec::new(),
            roots: check_roots(raw.root, &raw.commands)
                .map_err(|fault| syntax(fault.to_string()))?,
            owner: false,
        })
    }

    /// Whether it is the user of this process, whose paths are this host's.
    pub fn is_owner(&self) -> bool {
        self.owner
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directories of its roots, with what may be done there. One may lie in another one.
    pub fn roots(&self) -> impl Iterator<Item = (&Path, Rights)> {
        self.roots.iter().map(|root| (&*root.path, root.rights))
    }

    /// What files may go through beneath any of its roots: what a shell runs, by name.
    pub fn filters(&self) -> BTreeMap<String, String> {
        let each = self.roots.iter().map(|root| root.commands.filters.clone());
        each.flatten().collect()
    }

    /// Where a URL's path leads, by the longest root that holds it. The disk is
    /// not looked at.
    ///
    /// # Errors
    ///
    /// [`ResolveError`].
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

    /// Names of the next step to its roots, in byte order, for a path that lies above them and
    /// beneath none: the principal sees these and no others.
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

    /// Whether it may use `null:` and `zero:`, which are below no root, and learn what host this
    /// is.
    pub fn may_measure(&self) -> bool {
        self.owner || self.roots.iter().any(|root| root.rights.measure)
    }
}

/// Whether a principal can have this name; see [`Fault::Name`].
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
            // The top is told as it is written.
            let shown = |at: &str| if at.is_empty() { "/" } else { at }.to_owned();
            return Err(Fault::Narrower {
                at: shown(&inner.at),
                wider: shown(&outer.at),
            });
        }
    }
    Ok(roots)
}

/// What these commands of the root at `at` are.
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

    /// Whether another root has all of these.
    fn are_within(&self, other: &Commands) -> bool {
        let mut both = self.lists().into_iter().zip(other.lists());
        both.all(|(own, other)| own.keys().all(|name| other.contains_key(name)))
    }
}

impl Root {
    /// Whether another root with fewer rights is within it, by its place in URLs and on this host.
    /// Its rights would hold there too.
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

/// A URL's path with single slashes and none at its end ("" for the top), and
/// whether there was one.
fn normalise(url_path: &[u8]) -> Result<(Vec<u8>, bool), ResolveError> {
    if url_path.first() != Some(&b'/') {
        return Err(ResolveError::Relative);
    }
    let mut path = Vec::with_capacity(url_path.len());
    for name in url_path.split(|&b| b == b'/').filter(|n| !n.is_empty()) {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    // Before any root is looked for, so that `..` fails alike everywhere.
    if let Some(names) = path.get(1..) {
        TreePath::new(names)?;
    }
    Ok((path, url_path.ends_with(b"/")))
}

/// At or below, whole names only: `/database` is not below `/data`.
fn is_below(path: &[u8], at: &[u8]) -> bool {
    path.strip_prefix(at)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
