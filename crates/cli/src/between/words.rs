//! The command line of a job: what the user asked for, as the host that runs
//! it has to be asked.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longhaul_proto::allowed::Allowed;
use longhaul_proto::block::Codec;
use longhaul_proto::handshake::{Purport, Role};
use longhaul_units::ByteCount;

use crate::arguments::{
    BetweenArguments, ConnectionArguments, CopyArguments, DataSecurity, Expiry, IntegrityArgument,
    LayerArguments, StackArgument, VerifyArguments,
};
use crate::commands::run::request_path;
use crate::endpoint::{Endpoint, Remote, RemotePath, SshRemote};
use crate::messages::{Exit, Stop};

/// Words as they come.
type Words = Vec<Vec<u8>>;

/// What the user asked for, wherever it is done.
pub struct Asked<'a> {
    /// Sources, then the destination, as he wrote them.
    pub paths: Vec<OsString>,
    /// The command, with paths of the host that runs it.
    pub words: Box<dyn Fn(Words) -> Result<Words, Stop> + 'a>,
    /// Memory for blocks of each end.
    pub memory: ByteCount,
    /// When leftovers expire.
    pub expiry: Expiry,
    /// Where the digests of all files go, here.
    pub manifest: Option<PathBuf>,
    /// Progress as events.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
    /// Copy or compare.
    pub purport: Purport,
    /// Directories too.
    pub recursive: bool,
    /// Links below the sources are followed.
    pub copy_links: bool,
    /// Set-user-ID and set-group-ID bits are kept, whoever owns the files.
    pub keep_set_ids: bool,
    /// How the hosts are reached.
    pub connection: &'a ConnectionArguments,
    /// How they are joined.
    pub between: &'a BetweenArguments,
}

impl<'a> Asked<'a> {
    /// A copy.
    pub fn copy(arguments: &'a CopyArguments) -> Asked<'a> {
        Asked {
            paths: arguments.paths.clone(),
            words: Box::new(|paths| copy_words(arguments, paths)),
            memory: arguments.layers.memory,
            expiry: arguments.expire_leftovers,
            manifest: arguments.manifest.clone(),
            json: arguments.json,
            quiet: arguments.quiet,
            purport: match arguments.dry_run {
                true => Purport::DryRun,
                false => Purport::Copy,
            },
            recursive: arguments.recursive,
            copy_links: arguments.copy_links,
            keep_set_ids: arguments.keep_set_ids,
            connection: &arguments.connection,
            between: &arguments.between,
        }
    }

    /// A comparison.
    pub fn verify(arguments: &'a VerifyArguments) -> Asked<'a> {
        Asked {
            paths: vec![arguments.left.clone(), arguments.right.clone()],
            words: Box::new(|paths| verify_words(arguments, paths)),
            memory: arguments.layers.memory,
            // Nothing is written, so none is removed.
            expiry: Expiry(None),
            manifest: None,
            json: arguments.json,
            quiet: arguments.quiet,
            purport: Purport::Verify,
            recursive: true,
            copy_links: arguments.copy_links,
            keep_set_ids: false,
            connection: &arguments.connection,
            between: &arguments.between,
        }
    }

    /// What the host that runs the job may ask the other one for.
    pub fn allowed(&self, sides: &Sides, runs_at_source: bool) -> Allowed {
        let sources = sides.sources.iter().filter_map(Endpoint::remote_path);
        let sources = sources.map(request_path).collect();
        let (role, paths, sources) = match runs_at_source {
            true => {
                let to = sides.destination.remote_path().map(request_path);
                (Role::Sender, to.into_iter().collect(), sources)
            }
            false => (Role::Receiver, sources, Vec::new()),
        };
        Allowed {
            role,
            purport: self.purport,
            paths,
            sources,
            recursive: self.recursive,
            copy_links: self.copy_links,
            keep_set_ids: self.keep_set_ids,
        }
    }

    /// Both sides, where both are remote.
    pub fn sides(&self) -> Result<Option<Sides>, Stop> {
        let sides = Sides::of(&self.paths)?;
        let alone = self.between.detach || self.between.through_local;
        if sides.is_none() && alone {
            let text = "--detach and --through-local are for copies between two remote hosts: \
                        leave them out";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(sides)
    }
}

/// Both remote sides of a copy.
#[derive(Clone, Debug)]
pub struct Sides {
    /// Where it comes from, all at one place.
    pub sources: Vec<Endpoint>,
    /// Where it goes.
    pub destination: Endpoint,
}

impl Sides {
    /// What the paths of a command name, the destination last; none where a side is on this host.
    pub fn of(paths: &[OsString]) -> Result<Option<Sides>, Stop> {
        let parse = |path| Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error));
        let endpoints = paths.iter().map(|path| parse(path));
        let mut sources = endpoints.collect::<Result<Vec<Endpoint>, Stop>>()?;
        let Some(destination) = sources.pop().filter(|_| !sources.is_empty()) else {
            return Ok(None);
        };
        let remote = |endpoint: &Endpoint| endpoint.place().is_some();
        if !(remote(&destination) && sources.iter().all(remote)) {
            return Ok(None);
        }
        let first = sources.first().and_then(Endpoint::place);
        if sources.iter().any(|source| source.place() != first) {
            let text = "the sources are at different hosts: copy them with one command each";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(Some(Sides {
            sources,
            destination,
        }))
    }

    /// What the host with the sources, or the destination, is asked for.
    pub fn paths(&self, runs_at_source: bool) -> Words {
        let path = |endpoint: &Endpoint, own: bool| match own {
            true => own_path(endpoint),
            false => other_path(endpoint),
        };
        let sources = self.sources.iter();
        let mut paths: Words = sources.map(|source| path(source, runs_at_source)).collect();
        paths.push(path(&self.destination, !runs_at_source));
        paths
    }
}

/// A path at the host that runs the job, as it names it.
fn own_path(endpoint: &Endpoint) -> Vec<u8> {
    match endpoint.remote_path() {
        Some(RemotePath::Path(path)) if path.contains(&b':') && !path.starts_with(b"/") => {
            [b"./", path.as_slice()].concat()
        }
        Some(path) => measured(path),
        None => Vec::new(),
    }
}

fn measured(path: &RemotePath) -> Vec<u8> {
    match path {
        RemotePath::Path(path) => path.clone(),
        RemotePath::Null => b"null:".to_vec(),
        RemotePath::Zero(size) => format!("zero:{}B", size.0).into_bytes(),
    }
}

/// A path at the other one.
fn other_path(endpoint: &Endpoint) -> Vec<u8> {
    match endpoint {
        Endpoint::Ssh(remote) => {
            let host = bracketed(remote);
            [host.as_bytes(), b":", &measured(&remote.path)].concat()
        }
        Endpoint::Daemon(remote) => {
            let place = url_of(remote);
            let path = measured(&remote.path);
            let slash: &[u8] = match path.starts_with(b"/") {
                true => b"",
                false => b"/",
            };
            [place.as_bytes(), slash, &path].concat()
        }
        Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => Vec::new(),
    }
}

fn url_of(remote: &Remote) -> String {
    let principal = remote.principal.as_ref();
    let principal = principal.map_or(String::new(), |name| format!("{name}@"));
    format!("longhaul://{principal}{}", remote.host)
}

/// `[user@]host` with an IPv6 address in brackets.
fn bracketed(remote: &SshRemote) -> String {
    let (user, host) = match remote.destination.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), remote.destination.as_str()),
    };
    match host.contains(':') {
        true => format!("{user}[{host}]"),
        false => format!("{user}{host}"),
    }
}

/// The job's words, the paths last. Every field is named here, so that none
/// that is added is forgotten.
fn copy_words(arguments: &CopyArguments, paths: Words) -> Result<Words, Stop> {
    let CopyArguments {
        paths: _,
        recursive,
        copy_links,
        keep_set_ids,
        dry_run,
        verbose,
        compress,
        integrity,
        verify,
        // The job writes one of its own, which is fetched.
        manifest: _,
        direct,
        checkpoint,
        bwlimit,
        expire_leftovers,
        json,
        quiet,
        lab,
        layers,
        connection,
        between,
    } = arguments;
    if lab.is_some() {
        return Err(usage("with --lab source and destination are local paths"));
    }
    let BetweenArguments {
        detach: _,
        through_local: _,
    } = between;
    let mut words = Line::new("cp");
    words.flag("--recursive", *recursive);
    words.flag("--copy-links", *copy_links);
    words.flag("--keep-set-ids", *keep_set_ids);
    words.flag("--dry-run", *dry_run);
    words.flag("--verbose", *verbose);
    words.value("--compress", compress.map(codec_word));
    words.value(
        "--integrity",
        Some(match integrity {
            IntegrityArgument::Digest => "digest",
            IntegrityArgument::Checksum => "checksum",
        }),
    );
    words.flag("--verify", *verify);
    words.flag("--direct", *direct);
    words.value("--checkpoint", Some(bytes(*checkpoint)));
    let rate = bwlimit.map(|limit| format!("{}B/s", limit.bytes_per_second()));
    words.value("--bwlimit", rate);
    let expiry = expire_leftovers.0;
    words.value(
        "--expire-leftovers",
        Some(expiry.map_or("never".to_owned(), |age| format!("{}s", age.as_secs()))),
    );
    words.flag("--json", *json);
    words.flag("--quiet", *quiet);
    words.end(layers, connection, paths)
}

/// The same of a comparison.
fn verify_words(arguments: &VerifyArguments, paths: Words) -> Result<Words, Stop> {
    let VerifyArguments {
        left: _,
        right: _,
        copy_links,
        verbose,
        json,
        quiet,
        layers,
        connection,
        between: BetweenArguments {
            detach: _,
            through_local: _,
        },
    } = arguments;
    let mut words = Line::new("verify");
    words.flag("--copy-links", *copy_links);
    words.flag("--verbose", *verbose);
    words.flag("--json", *json);
    words.flag("--quiet", *quiet);
    words.end(layers, connection, paths)
}

fn usage(text: &str) -> Stop {
    Stop::new(Exit::Usage, text)
}

/// A command line that grows.
struct Line(Words);

impl Line {
    fn new(first: &str) -> Line {
        Line(vec![first.as_bytes().to_vec()])
    }

    fn flag(&mut self, name: &str, given: bool) {
        if given {
            self.0.push(name.as_bytes().to_vec());
        }
    }

    fn value(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            // One word, so that a value that begins with a hyphen stays one.
            self.0
                .push(format!("{name}={}", value.to_string()).into_bytes());
        }
    }

    /// What every command ends with: how it is done, and the paths.
    fn end(
        mut self,
        layers: &LayerArguments,
        connection: &ConnectionArguments,
        paths: Words,
    ) -> Result<Words, Stop> {
        layer_words(&mut self, layers);
        connection_words(&mut self, connection)?;
        self.0.push(b"--".to_vec());
        self.0.extend(paths);
        Ok(self.0)
    }
}

fn codec_word(codec: Codec) -> String {
    match codec {
        Codec::Zstd { level } => format!("zstd:{level}"),
        Codec::Lz4 => "lz4".to_owned(),
        Codec::Plain | Codec::Omitted => String::new(),
    }
}

fn layer_words(words: &mut Line, layers: &LayerArguments) {
    let LayerArguments {
        stack,
        readers,
        compressors,
        streams,
        decompressors,
        writers,
        memory,
        block_size,
    } = layers;
    let paired = *stack == StackArgument::Paired;
    words.value("--stack", paired.then_some("paired"));
    words.value("--readers", *readers);
    words.value("--compressors", *compressors);
    words.value("--streams", *streams);
    words.value("--decompressors", *decompressors);
    words.value("--writers", *writers);
    words.value("--memory", Some(bytes(*memory)));
    words.value("--block-size", *block_size);
}

/// Who the hosts are, and how they are reached, was found out here.
fn connection_words(words: &mut Line, connection: &ConnectionArguments) -> Result<(), Stop> {
    let ConnectionArguments {
        fingerprint: _,
        accept_new: _,
        authority: _,
        token_file: _,
        certificate: _,
        key: _,
        data_security,
        congestion,
        nice,
        bind,
        mptcp,
        buffer,
        timeout,
        ssh: _,
    } = connection;
    if !bind.is_empty() {
        return Err(usage(
            "--bind is for connections of this host, and a copy between two remote hosts has none: \
             leave it out",
        ));
    }
    let clear = *data_security == DataSecurity::Clear;
    words.value("--data-security", clear.then_some("clear"));
    words.value("--congestion", congestion.clone());
    words.flag("--nice", *nice);
    words.flag("--mptcp", *mptcp);
    words.value("--buffer", buffer.map(bytes));
    words.value("--timeout", Some(format!("{}ms", timeout.as_millis())));
    Ok(())
}

/// A size without loss.
fn bytes(size: ByteCount) -> String {
    format!("{}B", size.0)
}

/// A word of a command line that came from another host. Earlier releases wrote sizes as bare
/// numbers of bytes.
pub fn with_unit(word: &[u8]) -> Vec<u8> {
    let sizes = ["--checkpoint=", "--memory=", "--buffer="];
    let option = sizes
        .iter()
        .find_map(|name| word.strip_prefix(name.as_bytes()));
    let bare = option
        .or_else(|| zeros(word))
        .is_some_and(|size| !size.is_empty() && size.iter().all(u8::is_ascii_digit));
    match bare {
        true => [word, b"B"].concat(),
        false => word.to_vec(),
    }
}

/// The size in `zero:SIZE`, here or at another host.
fn zeros(word: &[u8]) -> Option<&[u8]> {
    let path = match word.strip_prefix(b"longhaul://") {
        Some(url) => {
            let slash = url.iter().position(|byte| *byte == b'/')?;
            &url[slash + 1..]
        }
        None => match word.iter().position(|byte| b":/".contains(byte)) {
            Some(end) if word[end] == b':' && !word.starts_with(b"zero:") => &word[end + 1..],
            _ => word,
        },
    };
    path.strip_prefix(b"zero:")
}

/// A path as the user named it, for lists and messages.
pub fn named(path: &std::ffi::OsStr) -> String {
    let mut text = String::from_utf8_lossy(path.as_bytes()).into_owned();
    let mut end = text.len().min(super::job_protocol::MAXIMUM_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn parsed(line: &[&str]) -> CopyArguments {
        let line = [&["longhaul", "cp"], line].concat();
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Cp(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    /// What the host that runs it understands.
    fn understood(line: &[&str], at_source: bool) -> CopyArguments {
        use std::os::unix::ffi::OsStringExt;
        let arguments = parsed(line);
        let sides = Sides::of(&arguments.paths).unwrap().unwrap();
        let words = copy_words(&arguments, sides.paths(at_source)).unwrap();
        let words = words.into_iter().map(std::ffi::OsString::from_vec);
        let line = std::iter::once("longhaul".into()).chain(words);
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Cp(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_job_is_asked_for_what_the_user_asked() {
        let line = [
            "-r",
            "-L",
            "--compress",
            "zstd:-3",
            "--integrity",
            "digest",
            "--verify",
            "--direct",
            "--checkpoint",
            "5MiB",
            "--bwlimit",
            "100mbit",
            "--expire-leftovers",
            "never",
            "--json",
            "--streams",
            "7",
            "--memory",
            "1MiB",
            "--congestion",
            "bbr",
            "--nice",
            "--timeout",
            "90s",
            "a:x",
            "b:y",
        ];
        let paired = understood(&["--stack", "paired", "a:x", "b:y"], true);
        assert_eq!(paired.layers.stack, StackArgument::Paired);
        let multipath = understood(&["--mptcp", "a:x", "b:y"], true);
        assert!(multipath.connection.mptcp && !parsed(&line).connection.mptcp);
        let (asked, understood) = (parsed(&line), understood(&line, true));
        let same = |arguments: &CopyArguments| {
            let mut arguments = arguments.clone();
            arguments.paths.clear();
            format!("{arguments:?}")
        };
        assert_eq!(same(&asked), same(&understood));
        assert_eq!(understood.paths, ["x", "b:y"]);
    }

    #[test]
    fn paths_are_what_they_were() {
        let paths = |line: &[&str], at_source| understood(line, at_source).paths;
        let (two, one) = (["a:-x", "a:p:q", "u@[::1]:~"], ["a:zero:1kB", "b:null:"]);
        assert_eq!(paths(&two, true), ["-x", "./p:q", "u@[::1]:."]);
        assert_eq!(paths(&one, true), ["zero:1000B", "b:null:"]);
        let daemon = ["longhaul://p@d:7/x", "b:/y"];
        assert_eq!(paths(&daemon, false), ["longhaul://p@d:7/x", "/y"]);
        let sink = ["a:x", "longhaul://d/null:"];
        assert_eq!(paths(&sink, true), ["x", "longhaul://d:4960/null:"]);
    }

    #[test]
    fn sizes_of_earlier_releases_are_understood() {
        for (word, understood) in [
            ("--memory=1048576", "--memory=1048576B"),
            ("--buffer=1048576B", "--buffer=1048576B"),
            ("--streams=8", "--streams=8"),
            ("zero:1000", "zero:1000B"),
            ("b:zero:1000", "b:zero:1000B"),
            ("longhaul://d:7/zero:1000", "longhaul://d:7/zero:1000B"),
            ("longhaul://d:7/x/zero:1000", "longhaul://d:7/x/zero:1000"),
            ("b:x/zero:1000", "b:x/zero:1000"),
            ("./zero:1000", "./zero:1000"),
            ("zero:", "zero:"),
        ] {
            let found = String::from_utf8(with_unit(word.as_bytes())).unwrap();
            assert_eq!(found, understood);
        }
    }

    #[test]
    fn only_two_remote_sides_are_between() {
        let sides = |line: &[&str]| Sides::of(&parsed(line).paths);
        for line in [["a:x", "y"], ["x", "b:y"], ["x", "y"]] {
            assert!(sides(&line).unwrap().is_none(), "{line:?}");
        }
        assert!(sides(&["a:x", "b:y", "c:z"]).is_err());
        let bound = parsed(&["--bind", "127.0.0.1", "a:x", "b:y"]);
        assert!(copy_words(&bound, Vec::new()).is_err());
    }
}
