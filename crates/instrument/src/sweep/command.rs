//! Command lines of a run, and its directories.
//!
//! Commands receive their parameters in environment variables, which `docs/sweep.md`
//! lists.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::record::{Knob, Measures};
use longhaul_storage::lives_in_page_cache;

use super::dataset::{Set, Shape};
use super::file::{Method, SweepFile};
use super::plan::Cell;
use super::step::{Client, LabPlan, Step};

/// Directories that a sweep creates in its working directory.
pub const OWN_DIRECTORIES: [&str; 4] = ["sets", "run", "old", "setup"];

/// Directory that is created in a directory of the user, for destination files.
pub const FOREIGN_DESTINATION: &str = "longhaul-sweep-run";

/// First port for servers of a run. It is below the ports that kernels assign to clients.
const FIRST_PORT: u16 = 20_000;

/// Maximum number of files for which longhaul prints events. More events would affect the
/// measurement.
const MOST_EVENTS: u64 = 10_000;

/// Directories of a run.
#[derive(Debug)]
pub struct Place {
    /// Source files.
    pub sets: PathBuf,
    /// Destination files.
    pub destinations: PathBuf,
    /// Output of the commands.
    run: PathBuf,
    /// Destination files that are removed later.
    old: PathBuf,
    work: PathBuf,
    id: String,
}

fn at(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// True if the directory is in memory, so that removed files are gone at once.
fn is_memory(directory: &Path) -> bool {
    fs::File::open(directory).is_ok_and(|directory| lives_in_page_cache(directory.as_fd()))
}

impl Place {
    /// Creates the directories and empties them.
    ///
    /// # Errors
    ///
    /// Returns an error with the directory that cannot be created.
    pub fn prepare(work: &Path, cell: &Cell, id: &str) -> Result<Place, String> {
        let storage = cell.storage.as_ref();
        let foreign = storage.and_then(|storage| storage.destination.as_deref());
        let sets = storage.and_then(|storage| storage.source.clone());
        let place = Place {
            sets: sets.unwrap_or_else(|| work.join("sets")),
            destinations: match foreign {
                Some(directory) => directory.join(FOREIGN_DESTINATION).join("now"),
                None => work.join("run/destination"),
            },
            old: match foreign {
                Some(directory) => directory.join(FOREIGN_DESTINATION).join("old"),
                None => work.join("old"),
            },
            run: work.join("run"),
            work: work.to_owned(),
            id: id.to_owned(),
        };
        remove(&place.destinations)?;
        remove(&place.run)?;
        let clients = 1 + cell.cross.as_ref().map_or(0, |cross| cross.beside.len());
        for client in 0..clients {
            let directory = place.logs(client);
            fs::create_dir_all(&directory).map_err(at(&directory))?;
            // Some servers run as the user nobody.
            let everybody = fs::Permissions::from_mode(0o777);
            fs::set_permissions(&directory, everybody).map_err(at(&directory))?;
        }
        fs::create_dir_all(&place.destinations).map_err(at(&place.destinations))?;
        fs::create_dir_all(&place.sets).map_err(at(&place.sets))?;
        Ok(place)
    }

    /// Returns the destination of a client; client 0 is the measured one.
    pub fn destination(&self, client: usize) -> PathBuf {
        self.destinations.join(client.to_string())
    }

    fn logs(&self, client: usize) -> PathBuf {
        self.run.join(format!("logs-{client}"))
    }

    /// Returns the source directory of a set, or an empty directory without a set.
    pub fn sets_source(&self, set: Option<&Set>) -> PathBuf {
        set.map_or_else(|| self.run.clone(), |set| set.source.clone())
    }

    /// Removes destination files that were kept.
    ///
    /// # Errors
    ///
    /// Returns an error with the directory that cannot be removed.
    pub fn remove_old(&self) -> Result<(), String> {
        remove(&self.old)
    }

    /// Removes the destination files. On a disk with `later` set, moves them instead,
    /// because removing them would slow down the following runs.
    ///
    /// # Errors
    ///
    /// Returns an error with the directory that cannot be removed or moved.
    pub fn put_away(&self, later: bool) -> Result<(), String> {
        if !later || is_memory(&self.destinations) {
            return remove(&self.destinations);
        }
        fs::create_dir_all(&self.old).map_err(at(&self.old))?;
        let name = self.id.replace('/', "-");
        let kept = self.old.join(name);
        remove(&kept)?;
        fs::rename(&self.destinations, &kept).map_err(at(&kept))
    }
}

/// Input for the commands of a run.
struct Made<'a> {
    file: &'a SweepFile,
    cell: &'a Cell,
    place: &'a Place,
    source: &'a Path,
    shape: Shape,
}

/// Returns a run. `seed` is the seed of the lab's random events.
///
/// # Errors
///
/// Returns an error if a background method does not exist.
pub fn step(
    file: &SweepFile,
    cell: &Cell,
    place: &Place,
    source: &Path,
    shape: Shape,
    sidecar: Option<&(PathBuf, String)>,
    seed: Option<u64>,
) -> Result<Step, String> {
    let made = Made {
        file,
        cell,
        place,
        source,
        shape,
    };
    let mut clients = vec![made.client(0, &cell.method, &cell.knobs)];
    let beside = cell.cross.iter().flat_map(|cross| &cross.beside);
    for (place, name) in beside.enumerate() {
        let method = file.methods.iter().find(|method| &method.name == name);
        let method = method.ok_or_else(|| format!("there is no method \"{name}\""))?;
        let knobs = method.knob_sets().into_iter().next().unwrap_or_default();
        clients.push(made.client(place + 1, method, &knobs));
    }
    let samples = sidecar.map(|(path, _)| (path.clone(), file.samples.max(SHORTEST_LOOK)));
    Ok(Step {
        lab: cell.path.lab.as_ref().map(|(_, settings)| LabPlan {
            settings: seed
                .map(|seed| ("seed".to_owned(), seed.to_string()))
                .into_iter()
                .chain(mounted(settings, &place.destinations))
                .collect(),
            name: format!("sweep-{}", std::process::id()),
        }),
        peer: cell.path.endpoint.as_deref().map(host_of),
        clients,
        cap: file.cap,
        samples,
        cut: cell.path.cut,
        change: cell.path.change.clone(),
        expected: (cell.method.measures == Measures::Transfer && cell.path.is_local())
            .then(|| (shape, place.sets.clone())),
        result: place.run.join("result.json"),
    })
}

/// Mounts a file system of the lab at the destination.
fn mounted(settings: &[(String, String)], destinations: &Path) -> Vec<(String, String)> {
    let at = |(key, value): &(String, String)| {
        let is_made = key == "storage" && value.starts_with(LAB_FILE_SYSTEM);
        let value = if is_made {
            format!("{value},at={}", destinations.display())
        } else {
            value.clone()
        };
        (key.clone(), value)
    };
    settings.iter().map(at).collect()
}

/// Prefix of lab storage that is a file system and not a device in front of a directory.
pub const LAB_FILE_SYSTEM: &str = "gluster:";

/// Minimum interval of samples. A shorter one would affect the measurement.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);

/// Returns the host name or address of an endpoint without brackets and port, for example
/// of `longhaul://user@host:4960/path`, `user@host:path`, `https://[2001:db8::7]:443/`
/// and `host`.
pub fn host_of(endpoint: &str) -> String {
    let (url, rest) = match endpoint.split_once("://") {
        Some((_, rest)) => (true, rest),
        None => (false, endpoint),
    };
    let rest = rest.split('/').next().unwrap_or_default();
    let (user, host) = if url {
        rest.rsplit_once('@')
    } else {
        rest.split_once('@')
    }
    .unwrap_or(("", rest));
    // After the host's colon, an @ belongs to the path.
    let rest = if !url && user.contains(':') {
        rest
    } else {
        host
    };
    let end = match rest.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => rest.split(':').next(),
    };
    end.unwrap_or_default().to_owned()
}

impl Made<'_> {
    fn client(&self, number: usize, method: &Method, knobs: &BTreeMap<String, Knob>) -> Client {
        let logs = self.place.logs(number);
        let port = self.port(number);
        let (command, server) = if method.longhaul {
            self.longhaul(method, knobs)
        } else {
            (
                method.command.clone().unwrap_or_default(),
                method.server.clone(),
            )
        };
        let is_local = self.cell.path.is_local();
        let server = server.filter(|_| is_local);
        Client {
            method: method.name.clone(),
            pulls: method.pulls,
            ready: (method.longhaul && is_local).then(|| logs.join("ready")),
            server,
            port,
            command,
            environment: self.environment(number, port, method, knobs),
            directory: logs.clone(),
            output: logs.join("output"),
            errors: logs.join("errors"),
            destination: self.place.destination(number),
            syncs: !method.durable && !method.longhaul && is_local,
        }
    }

    /// Returns a port. In a lab every port is free; on this host the kernel
    /// chooses one.
    fn port(&self, number: usize) -> u16 {
        let own = FIRST_PORT + number as u16;
        if self.cell.path.lab.is_some() {
            return own;
        }
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
        free.map_or(own, |address| address.port())
    }

    fn environment(
        &self,
        number: usize,
        port: u16,
        method: &Method,
        knobs: &BTreeMap<String, Knob>,
    ) -> BTreeMap<String, String> {
        let shown = |path: &Path| path.display().to_string();
        let own = std::env::current_exe().unwrap_or_else(|_| "longhaul".into());
        let logs = self.place.logs(number);
        let mut variables: BTreeMap<String, String> = [
            ("SWEEP_SOURCE", shown(self.source)),
            ("SWEEP_DESTINATION", shown(&self.place.destination(number))),
            ("SWEEP_BYTES", self.cell.bytes.to_string()),
            ("SWEEP_SECONDS", self.seconds().to_string()),
            ("SWEEP_FILES", self.shape.files().to_string()),
            ("SWEEP_SIZES", self.sizes()),
            ("SWEEP_PORT", port.to_string()),
            ("SWEEP_RUN", shown(&logs)),
            ("SWEEP_ID", self.place.id.replace('/', "-")),
            (
                "SWEEP_SETUP",
                shown(&self.place.work.join("setup").join(&method.name)),
            ),
            ("SWEEP_OPTIONS", method.options.join(" ")),
            ("SWEEP_CAP", self.file.cap.as_secs().max(1).to_string()),
            ("SWEEP_LONGHAUL", shown(&own)),
            ("XDG_STATE_HOME", shown(&logs.join("state"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if self.cell.path.lab.is_none() && self.cell.path.is_local() {
            for site in ["LONGHAUL_LAB_A", "LONGHAUL_LAB_B"] {
                variables.insert(site.to_owned(), "127.0.0.1".to_owned());
            }
        }
        if let Some(endpoint) = &self.cell.path.endpoint {
            variables.insert("SWEEP_ENDPOINT".to_owned(), endpoint.clone());
        }
        for (name, knob) in knobs {
            let name = name.to_ascii_uppercase().replace(['-', '.'], "_");
            variables.insert(format!("KNOB_{name}"), knob.to_string());
        }
        variables
    }

    /// Returns the time that the link needs for the data, in whole seconds, at least 1.
    fn seconds(&self) -> u64 {
        let seconds = self.cell.link_time().as_secs_f64().round();
        (seconds as u64).max(1)
    }

    /// Returns the smallest and the largest file size, if they are set.
    fn sizes(&self) -> String {
        let data = &self.cell.data;
        match (data.smallest, data.largest) {
            (Some(smallest), Some(largest)) => format!("{} {}", smallest.0, largest.0),
            _ => String::new(),
        }
    }

    /// Returns the shell commands of longhaul as client and as daemon.
    fn longhaul(
        &self,
        method: &Method,
        knobs: &BTreeMap<String, Knob>,
    ) -> (String, Option<String>) {
        let mut options: Vec<String> = Vec::new();
        for (name, knob) in knobs {
            match knob {
                Knob::Flag(true) => options.push(format!("--{name}")),
                Knob::Flag(false) => {}
                value => options.push(format!("--{name}={}", quoted(&value.to_string()))),
            }
        }
        options.extend(method.options.iter().map(|option| quoted(option)));
        let options = options.join(" ");
        let told = match self.shape.files() {
            0..=MOST_EVENTS => "--json",
            _ => "--quiet",
        };
        let copy = format!("exec \"$SWEEP_LONGHAUL\" cp -r {told} {options}");
        if !self.cell.path.is_local() {
            let to = "\"${SWEEP_ENDPOINT%/}/$SWEEP_ID/\"";
            return (format!("{copy} \"$SWEEP_SOURCE/\" {to}"), None);
        }
        let command = format!(
            "{copy} --fingerprint \"$SWEEP_FINGERPRINT\" --token-file \"$SWEEP_TOKEN_FILE\" \
             \"$SWEEP_SOURCE/\" \"longhaul://$LONGHAUL_LAB_B:$SWEEP_PORT/\""
        );
        let serve: Vec<String> = method.serve_options.iter().map(|o| quoted(o)).collect();
        let server = format!(
            "exec \"$SWEEP_LONGHAUL\" serve --print-ready --listen \
             \"$LONGHAUL_LAB_B:$SWEEP_PORT\" --root \"$SWEEP_DESTINATION\" --write --allow-clear \
             --state \"$SWEEP_RUN/daemon\" {} >\"$SWEEP_RUN/ready\"",
            serve.join(" ")
        );
        (command, Some(server))
    }
}

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("--streams=4"), "--streams=4");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_file_system_of_the_lab_is_mounted_at_the_destination() {
        let settings = [
            ("rtt", "1ms"),
            ("storage", "gluster:nodes=2"),
            ("storage", "/a:rate=1MBps"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mounted = mounted(&settings, Path::new("/w/run"));
        assert_eq!(mounted[1].1, "gluster:nodes=2,at=/w/run");
        assert_eq!((&mounted[0], &mounted[2]), (&settings[0], &settings[2]));
    }

    #[test]
    fn the_host_of_an_endpoint_is_found() {
        for (endpoint, host) in [
            ("longhaul://user@far.example:4960/data", "far.example"),
            ("longhaul://[::1]:4960", "::1"),
            ("longhaul://user@[2001:db8::7]/data", "2001:db8::7"),
            ("ssh://user:word@far:22/x", "far"),
            ("user@far:path", "far"),
            ("user@[::1]:a/b", "::1"),
            ("far:p@th", "far"),
            ("far", "far"),
        ] {
            assert_eq!(host_of(endpoint), host);
        }
    }
}
