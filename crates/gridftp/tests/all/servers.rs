//! Servers for tests. The test itself listens, and starts the server for each connection as
//! inetd does: no port can be taken by another program, and no server survives its connection.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use longhaul_gridftp::location::Location;
use longhaul_gridftp::retrieve::{Fetch, Sink};
use longhaul_gridftp::session::{Options, Session};
use longhaul_gridftp::store::{Put, Source};

/// Seconds after which a server ends in any case.
const LIMIT: &str = "120";

/// Programs of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vsftpd,
    Globus,
}

/// A server with a directory `data` that anonymous users may read and write.
pub struct Server {
    pub kind: Kind,
    directory: tempfile::TempDir,
    port: u16,
    /// First process of each session.
    sessions: Arc<Mutex<Vec<i32>>>,
}

impl Server {
    /// Starts a server. `None` if the test must be skipped.
    pub fn start(kind: Kind) -> Option<Server> {
        Server::start_with(kind, "")
    }

    /// Starts a server with further lines of configuration.
    pub fn start_with(kind: Kind, lines: &str) -> Option<Server> {
        let program = match kind {
            Kind::Vsftpd => "/usr/sbin/vsftpd",
            Kind::Globus => "/usr/sbin/globus-gridftp-server",
        };
        if !Path::new(program).exists() || !rustix_is_root() {
            longhaul_testing::skip(&format!("{program} and root are necessary"));
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        for (name, mode) in [("data", 0o777), ("empty", 0o555)] {
            std::fs::create_dir(path.join(name)).unwrap();
            let mode = PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path.join(name), mode).unwrap();
        }
        let arguments = match kind {
            Kind::Vsftpd => vec![configuration(path, lines).into_os_string()],
            Kind::Globus => "-inetd -aa -anonymous-user nobody -anonymous-group nogroup"
                .split(' ')
                .map(Into::into)
                .collect(),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let started = Arc::clone(&sessions);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let stream = OwnedFd::from(stream);
                let mut command = Command::new("timeout");
                command.args([LIMIT, program]).args(&arguments);
                command.stdin(Stdio::from(stream.try_clone().unwrap()));
                command.stdout(Stdio::from(stream)).stderr(Stdio::null());
                let mut child = command.spawn().unwrap();
                started.lock().unwrap().push(child.id() as i32);
                std::thread::spawn(move || child.wait());
            }
        });
        Some(Server {
            kind,
            directory,
            port,
            sessions,
        })
    }

    /// Kills the processes of all sessions.
    pub fn kill_sessions(&self) {
        let mut killed: Vec<i32> = self.sessions.lock().unwrap().drain(..).collect();
        // Children come after their parents.
        let parents: Vec<(i32, i32)> = processes();
        let mut at = 0;
        while let Some(parent) = killed.get(at).copied() {
            let children = parents.iter().filter(|(_, above)| *above == parent);
            killed.extend(children.map(|(child, _)| *child));
            at += 1;
        }
        for process in killed {
            let process = rustix::process::Pid::from_raw(process).unwrap();
            // A session that has ended has no process.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }

    /// Path of a file on this host.
    pub fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join("data").join(name)
    }

    /// Path of a file at the server.
    pub fn remote(&self, name: &str) -> Vec<u8> {
        match self.kind {
            // The server changes its root.
            Kind::Vsftpd => format!("/data/{name}").into_bytes(),
            Kind::Globus => self.local(name).into_os_string().into_encoded_bytes(),
        }
    }

    pub fn location(&self) -> Location {
        let scheme = match self.kind {
            Kind::Vsftpd => "ftp",
            Kind::Globus => "gsiftp",
        };
        let url = format!("{scheme}://127.0.0.1:{}/", self.port);
        Location::parse(url.as_bytes()).unwrap()
    }

    pub fn session(&self) -> Session {
        self.session_with(Options::default())
    }

    pub fn session_with(&self, options: Options) -> Session {
        Session::open(&self.location(), options).unwrap()
    }
}

/// Returns all processes of this host, each with its parent.
fn processes() -> Vec<(i32, i32)> {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents = numbers.filter_map(|number| {
        // A process that has just ended has no status.
        let text = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let parent = text.rsplit_once(") ")?.1.split(' ').nth(1)?;
        Some((number, parent.parse().ok()?))
    });
    parents.collect()
}

fn rustix_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn configuration(directory: &Path, lines: &str) -> PathBuf {
    let path = directory.join("vsftpd.conf");
    let directory = directory.display();
    let text = format!(
        "listen=NO\nanonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\n\
         anon_root={directory}\nsecure_chroot_dir={directory}/empty\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
         anon_other_write_enable=YES\nanon_umask=022\nseccomp_sandbox=NO\nisolate=NO\n\
         isolate_network=NO\nxferlog_enable=NO\npasv_address=192.0.2.1\n{lines}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Both kinds of servers that are installed.
pub fn all() -> impl Iterator<Item = Server> {
    [Kind::Vsftpd, Kind::Globus]
        .into_iter()
        .filter_map(Server::start)
}

/// A file in memory.
#[derive(Default)]
pub struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Number of bytes written.
    pub written: Cell<u64>,
}

impl Memory {
    pub fn of(bytes: &[u8]) -> Memory {
        Memory {
            bytes: Mutex::new(bytes.to_vec()),
            written: Cell::new(0),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Sink for Memory {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.bytes.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(bytes);
        self.written.set(self.written.get() + bytes.len() as u64);
        Ok(())
    }
}

impl Source for Memory {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let file = self.bytes.lock().unwrap();
        let rest = file.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Bytes that differ at each offset and for each seed.
pub fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes.truncate(length);
    bytes
}

/// Stores a whole file.
pub fn stored(session: &mut Session, path: &[u8], size: u64, source: &Memory) {
    let put = Put {
        path,
        size,
        present: Default::default(),
        source,
    };
    session
        .store(&[put], &mut |_, result| result.unwrap())
        .unwrap();
}

/// Fetches a whole file.
pub fn fetched(session: &mut Session, path: &[u8], size: u64) -> Memory {
    let sink = Memory::default();
    let fetch = Fetch {
        path,
        size,
        present: Default::default(),
        sink: &sink,
    };
    session
        .retrieve(&[fetch], &mut |_, result| result.unwrap())
        .unwrap();
    sink
}
