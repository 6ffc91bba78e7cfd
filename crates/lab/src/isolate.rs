//! Creates the process in which a lab lives. It is the first process of a process
//! namespace: when it ends, for any reason, the kernel ends all other processes of the
//! namespace. Network namespaces, devices and mounts disappear with the last process.
//!
//! The calling process stays outside. It passes signals on, waits, and returns the exit
//! code. If it dies, the kernel kills the process inside.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, geteuid, kill_process, set_parent_process_death_signal,
    waitpid,
};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Reasons why the system cannot create a lab.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The process is not root, and user namespaces are refused.
    #[error(
        "a lab needs root, or a user namespace, which this system refuses ({0}): check \
         user.max_user_namespaces, and kernel.unprivileged_userns_clone or \
         kernel.apparmor_restrict_unprivileged_userns where these exist, or use sudo"
    )]
    UserNamespace(#[source] io::Error),
    /// Process namespaces are refused, for example in a container.
    #[error("a lab needs a process namespace of its own, which this system refuses: {0}")]
    ProcessNamespace(#[source] io::Error),
    /// TUN devices are not available.
    #[error(
        "a lab needs TUN devices, and /dev/net/tun cannot be opened: {0}; load the module tun, \
         or let root allow its use (chmod 666 /dev/net/tun)"
    )]
    Tun(#[source] io::Error),
    /// The lab's process cannot be started.
    #[error("a process for the lab cannot be started: {0}")]
    Fork(#[source] io::Error),
}

/// Checks that TUN devices are available. Creates no lab.
///
/// # Errors
///
/// Returns [`IsolateError::Tun`] if the TUN device cannot be opened.
pub fn check() -> Result<(), IsolateError> {
    crate::tun::probe().map_err(IsolateError::Tun)
}

/// Properties of a lab's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// True if mounts of the lab are invisible outside of it.
    pub private_mounts: bool,
    /// Process id of the lab's first process as seen from outside.
    pub outer_pid: Option<u32>,
}

/// Treatment of the standard streams of the process outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The streams stay open: the caller waits for the command.
    Attached,
    /// The streams are redirected to `/dev/null`: the lab runs in the background.
    Detached,
}

/// Runs `inside` in a lab's process and returns its exit code. The calling process must
/// have no other thread.
///
/// # Errors
///
/// Returns an error if a namespace, device or process cannot be created; `inside` has
/// then not run.
pub fn run(outside: Outside, inside: impl FnOnce(Inside) -> u8) -> Result<u8, IsolateError> {
    check()?;
    enter_namespaces()?;
    let (alive, guard) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| IsolateError::Fork(error.into()))?;
    match fork().map_err(IsolateError::Fork)? {
        None => {
            drop(guard);
            die_with(alive);
            // Read before the new `/proc` is mounted, which shows the lab's processes
            // only.
            let own = fs::read_link("/proc/self").ok();
            let outer_pid = own.and_then(|own| own.to_str()?.parse().ok());
            let private_mounts = make_mounts_private();
            std::process::exit(i32::from(inside(Inside {
                private_mounts,
                outer_pid,
            })))
        }
        Some(child) => {
            drop(alive);
            if outside == Outside::Detached {
                // Open streams would keep the reader of a pipe waiting.
                let _ = let_go_of_streams();
            }
            let code = attend(child);
            drop(guard);
            Ok(code)
        }
    }
}

/// True in a user namespace other than the first. The settings of the machine cannot be
/// changed from there.
pub fn is_unprivileged() -> bool {
    // Only the first user namespace maps the whole range.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) != Some("4294967295")
}

/// Forks; the child continues in the background as [`Side::Background`]. The parent waits
/// until the child announces that it is ready, or ends. This process must have no other
/// thread.
///
/// # Errors
///
/// Returns an error if a pipe or process cannot be created.
pub fn background() -> Result<Side, IsolateError> {
    let no_process = |error: rustix::io::Errno| IsolateError::Fork(error.into());
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (heard, said) = rustix::pipe::pipe_with(flags).map_err(no_process)?;
    if fork().map_err(IsolateError::Fork)?.is_none() {
        rustix::process::setsid().map_err(no_process)?;
        return Ok(Side::Background(Announce(said)));
    }
    drop(said);
    let mut heard = fs::File::from(heard);
    Ok(Side::Caller {
        is_ready: heard.read(&mut [0]).is_ok_and(|bytes| bytes == 1),
    })
}

/// The two processes after [`background`].
#[derive(Debug)]
pub enum Side {
    /// The parent, after it has waited.
    Caller {
        /// True if the child announced that it is ready.
        is_ready: bool,
    },
    /// The child, which continues.
    Background(Announce),
}

/// Handle with which the background process announces that it is ready.
#[derive(Debug)]
pub struct Announce(OwnedFd);

impl Announce {
    /// Notifies the parent and redirects the standard streams to `/dev/null`.
    ///
    /// # Errors
    ///
    /// Returns an error if `/dev/null` cannot be opened.
    pub fn ready(self) -> io::Result<()> {
        // An error means that the parent has ended.
        let _ = rustix::io::write(&self.0, b"1");
        let_go_of_streams()
    }
}

/// Redirects the standard streams to `/dev/null`.
fn let_go_of_streams() -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let nowhere = options.read(true).write(true).open("/dev/null");
    // On some machines only root may write to `/dev/null`. It is then opened for reading,
    // and writes fail.
    let nowhere = nowhere.or_else(|_| fs::File::open("/dev/null"))?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(rustix::stdio::dup2_stderr(&nowhere)?)
}

/// Moves this process into a host's network namespace and the lab's other namespaces. Its
/// children become processes of the lab. `process` is the lab's first process, `network`
/// its descriptor of the host's namespace, and `name` the new host name. This process
/// must have no other thread.
///
/// # Errors
///
/// Returns an error if the lab has ended or belongs to another user.
pub fn enter_lab(process: u32, network: i32, name: &str) -> io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::unix::fs::MetadataExt;
    let here = std::env::current_dir();
    let lab = std::path::PathBuf::from(format!("/proc/{process}"));
    let user = lab.join("ns/user");
    let is_own = fs::metadata(&user)?.ino() == fs::metadata("/proc/self/ns/user")?.ino();
    let mut entered = vec![
        (lab.join("ns/pid"), LinkNameSpaceType::ProcessID),
        (lab.join("ns/mnt"), LinkNameSpaceType::Mount),
        (
            lab.join(format!("fd/{network}")),
            LinkNameSpaceType::Network,
        ),
    ];
    if !is_own {
        entered.insert(0, (user, LinkNameSpaceType::User));
    }
    // Opened before the first move: the paths are different afterwards.
    let opened: Result<Vec<_>, io::Error> = entered
        .into_iter()
        .map(|(path, kind)| Ok((fs::File::open(path)?, kind)))
        .collect();
    for (namespace, kind) in opened? {
        use std::os::fd::AsFd;
        move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    }
    crate::netns::take_name(name);
    std::env::set_current_dir(here?)
}

#[allow(unsafe_code)] // Namespaces are left by a system call without a safe name.
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags unshares descriptors or memory.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Puts future children of this process into a new process namespace.
fn enter_namespaces() -> Result<(), IsolateError> {
    let able = capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN)
    });
    if !able {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        unshare(UnshareFlags::NEWUSER).map_err(IsolateError::UserNamespace)?;
        let map = || {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        };
        map().map_err(IsolateError::UserNamespace)?;
    }
    unshare(UnshareFlags::NEWPID).map_err(IsolateError::ProcessNamespace)
}

/// Forks. Returns `None` in the child.
#[allow(unsafe_code)] // Forking has no safe name.
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: callers guarantee that no other thread exists, so all locks are free in the
    // child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Ends this process when the process outside ends.
fn die_with(alive: OwnedFd) {
    // If the signal is refused, the pipe below has the same effect.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // Without a thread, the signal alone ends this process.
    let _ = std::thread::Builder::new().spawn(move || {
        // The read returns when the last writer has closed the pipe; no byte is ever
        // written.
        let _ = fs::File::from(alive).read(&mut [0]);
        std::process::exit(EXIT_ORPHANED);
    });
}

/// Exit code 128 + SIGKILL, as if the lab had been killed. The parent has ended, so it is
/// not observed.
const EXIT_ORPHANED: i32 = 137;

/// Makes mounts private to the lab and mounts its own `/proc`. False if the system
/// refuses private mounts; the lab then works without them.
fn make_mounts_private() -> bool {
    let receive = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    if unshare(UnshareFlags::NEWNS).is_err() || mount_change("/", receive).is_err() {
        return false;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Refused in a container that covers part of its own `/proc`.
    let _ = mount("proc", "/proc", "proc", flags, None);
    true
}

/// Bind-mounts the file `by` over `file`, for this lab only.
///
/// # Errors
///
/// Returns an error if the mount is refused or would be visible outside the lab.
pub fn cover(inside: Inside, file: &std::path::Path, by: &std::path::Path) -> io::Result<()> {
    if !inside.private_mounts {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::mount::mount_bind(by, file)?)
}

/// Passes signals on until the child ends. Returns its exit code, or 128 plus the number
/// of the signal that ended it.
pub fn attend(child: Pid) -> u8 {
    let wanted = [SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2];
    let mut signals = match signal_hook::iterator::Signals::new(wanted) {
        Ok(signals) => signals,
        // Without a signal handler, no signals can be passed on.
        Err(_) => return wait(child, WaitOptions::empty()).unwrap_or(1),
    };
    loop {
        if let Some(code) = wait(child, WaitOptions::NOHANG) {
            return code;
        }
        for signal in signals.wait() {
            if signal != SIGCHLD && !came_from_terminal(signal) {
                pass_on(child, signal);
            }
        }
    }
}

/// True if the signal came from a terminal, which signals all processes of its foreground
/// group. The lab's processes have then received it already.
pub fn came_from_terminal(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT)
        && fs::File::open("/dev/tty").is_ok_and(|terminal| {
            rustix::termios::tcgetpgrp(&terminal)
                .is_ok_and(|group| group == rustix::process::getpgrp())
        })
}

/// Sends a signal, given by its number, to a process.
pub fn pass_on(to: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // An error means that the process has ended; `wait` will report it.
        let _ = kill_process(to, signal);
    }
}

fn wait(child: Pid, options: WaitOptions) -> Option<u8> {
    match waitpid(Some(child), options) {
        Ok(Some((_, status))) => Some(exit_code(status.as_raw())),
        Ok(None) | Err(rustix::io::Errno::INTR) => None,
        Err(_) => Some(1),
    }
}

/// Kills all other processes of this process namespace and waits for the children among
/// them. Does nothing if this process is not the first of its namespace.
#[allow(unsafe_code)] // No safe binding sends to all.
pub fn end_all_processes() {
    if !rustix::process::getpid().is_init() {
        return;
    }
    // SAFETY: the first process of a namespace reaches only processes of that namespace,
    // and the signal is not sent to itself.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    // Waits until no child is left.
    while let Ok(Some(_)) | Err(rustix::io::Errno::INTR) =
        rustix::process::wait(WaitOptions::empty())
    {}
}

/// Converts a wait status into an exit code, as shells do: 128 plus the signal's number
/// for a signal.
pub fn exit_code(raw_status: i32) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let status = ExitStatus::from_raw(raw_status);
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        (None, None) => 1,
    }
}
