//! The process in which a lab lives. It is the first of a process namespace: when it ends, for any
//! reason, the kernel ends everything that was started in it. Network namespaces, devices and
//! mounts disappear with the last process.
//!
//! The process that was called stays outside: it passes signals on, waits, and
//! gives the exit code. When it dies, the one inside is killed by the kernel.

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

/// What is missing for a lab.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// Neither root nor a user namespace.
    #[error(
        "a lab needs root, or a user namespace, which this system refuses ({0}): look at \
         user.max_user_namespaces, and kernel.unprivileged_userns_clone or \
         kernel.apparmor_restrict_unprivileged_userns where these exist, or use sudo"
    )]
    UserNamespace(#[source] io::Error),
    /// In a container, for instance.
    #[error("a lab needs a process namespace of its own, which this system refuses: {0}")]
    ProcessNamespace(#[source] io::Error),
    /// No devices.
    #[error(
        "a lab needs TUN devices, and /dev/net/tun cannot be opened: {0}; load the module tun, \
         or let root allow its use (chmod 666 /dev/net/tun)"
    )]
    Tun(#[source] io::Error),
    /// No process.
    #[error("a process for the lab cannot be started: {0}")]
    Fork(#[source] io::Error),
}

/// Whether this system allows a lab, without making one.
///
/// # Errors
///
/// What is missing.
pub fn check() -> Result<(), IsolateError> {
    crate::tun::probe().map_err(IsolateError::Tun)
}

/// What a lab's process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// What it mounts, nobody else sees.
    pub private_mounts: bool,
    /// Its number as the processes outside see it.
    pub outer_pid: Option<u32>,
}

/// What becomes of the standard streams of the process outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// They stay: somebody waits for the command.
    Attached,
    /// They are let go: nobody does.
    Detached,
}

/// Does `inside` in a lab's process and gives its exit code. This process must
/// have no other thread.
///
/// # Errors
///
/// What is missing; then `inside` did not begin.
pub fn run(outside: Outside, inside: impl FnOnce(Inside) -> u8) -> Result<u8, IsolateError> {
    check()?;
    enter_namespaces()?;
    let (alive, guard) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| IsolateError::Fork(error.into()))?;
    match fork().map_err(IsolateError::Fork)? {
        None => {
            drop(guard);
            die_with(alive);
            // Before `/proc` shows the lab's own processes only.
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
                // Kept, they keep whoever reads them waiting.
                let _ = let_go_of_streams();
            }
            let code = attend(child);
            drop(guard);
            Ok(code)
        }
    }
}

/// True in a user namespace of the lab's own: then the machine itself cannot be
/// changed.
pub fn is_unprivileged() -> bool {
    // A map that is not the whole range is not the first user namespace's.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) != Some("4294967295")
}

/// Continues in the background. The caller gets what the other process announced, or the news that
/// it ended before. This process must have no other thread.
///
/// # Errors
///
/// Where there is no process to be had.
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

/// Which of the two processes continues.
#[derive(Debug)]
pub enum Side {
    /// The one that was called; it has waited.
    Caller {
        /// Whether the other announced that it is ready.
        is_ready: bool,
    },
    /// The one that stays.
    Background(Announce),
}

/// Who is in the background and has not said so yet.
#[derive(Debug)]
pub struct Announce(OwnedFd);

impl Announce {
    /// Lets the caller go; from here on standard streams lead nowhere.
    ///
    /// # Errors
    ///
    /// Where `/dev/null` cannot be opened.
    pub fn ready(self) -> io::Result<()> {
        // A caller that has gone does not wait.
        let _ = rustix::io::write(&self.0, b"1");
        let_go_of_streams()
    }
}

/// Standard streams lead nowhere from here on.
fn let_go_of_streams() -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let nowhere = options.read(true).write(true).open("/dev/null");
    // Some machines let only root write there; then writing is an error, which
    // nobody sees either.
    let nowhere = nowhere.or_else(|_| fs::File::open("/dev/null"))?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(rustix::stdio::dup2_stderr(&nowhere)?)
}

/// Moves this process, which has no other thread, into a lab's namespaces. Its children are among
/// the lab's processes. This process is in the host's network, under the host's `name`. `process`
/// is the lab's first process and `network` its descriptor of the host.
///
/// # Errors
///
/// Where the lab is gone or belongs to another user.
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
    // All are opened first: afterwards they have other names.
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

/// Children of this process are in a process namespace of their own.
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

/// None in the child.
#[allow(unsafe_code)] // Forking has no safe name.
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller promised that there is no other thread, so that the
    // child finds all locks free.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Ends this process when the one outside ends.
fn die_with(alive: OwnedFd) {
    // Refused, the pipe below still tells.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    std::thread::spawn(move || {
        // Closed when the last writer is gone; nothing is ever written.
        let _ = fs::File::from(alive).read(&mut [0]);
        std::process::exit(EXIT_ORPHANED);
    });
}

/// 128 + SIGKILL, as if the lab had been killed itself. Nobody is there to see.
const EXIT_ORPHANED: i32 = 137;

/// Mounts stay within, and `/proc` shows the lab's own processes. Where the
/// system forbids either, the lab works without, and this is false.
fn make_mounts_private() -> bool {
    let receive = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    if unshare(UnshareFlags::NEWNS).is_err() || mount_change("/", receive).is_err() {
        return false;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // In a container whose own /proc is covered in part this is not allowed.
    let _ = mount("proc", "/proc", "proc", flags, None);
    true
}

/// Puts a file in another's place, for this lab only.
///
/// # Errors
///
/// Where the system refuses, or others would see it.
pub fn cover(inside: Inside, file: &std::path::Path, by: &std::path::Path) -> io::Result<()> {
    if !inside.private_mounts {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::mount::mount_bind(by, file)?)
}

/// Passes signals on until the child ends; gives its exit code, 128 and the
/// signal's number where one ended it.
pub fn attend(child: Pid) -> u8 {
    let wanted = [SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2];
    let mut signals = match signal_hook::iterator::Signals::new(wanted) {
        Ok(signals) => signals,
        // Then there is nothing to pass on.
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

/// A terminal signals every process of its foreground group: the lab's own processes got the
/// signal already.
pub fn came_from_terminal(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT)
        && fs::File::open("/dev/tty").is_ok_and(|terminal| {
            rustix::termios::tcgetpgrp(&terminal)
                .is_ok_and(|group| group == rustix::process::getpgrp())
        })
}

/// Sends a signal by its number.
pub fn pass_on(to: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // Gone already: its end is noticed next.
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

/// Ends every other process of this process namespace and waits for those that
/// are its children or become them. Does nothing in a process that is not the
/// first of one.
#[allow(unsafe_code)] // No safe binding sends to all.
pub fn end_all_processes() {
    if !rustix::process::getpid().is_init() {
        return;
    }
    // SAFETY: the first of a namespace reaches its own processes alone, and is
    // left out itself.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    // Until there are none.
    while let Ok(Some(_)) | Err(rustix::io::Errno::INTR) =
        rustix::process::wait(WaitOptions::empty())
    {}
}

/// As in shells.
pub fn exit_code(raw_status: i32) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let status = ExitStatus::from_raw(raw_status);
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        (None, None) => 1,
    }
}
