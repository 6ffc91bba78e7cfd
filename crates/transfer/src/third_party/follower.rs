//! Tells a follower of a job what happens, and obeys its orders.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::job::{Job, Seen};
use super::job_protocol::{Follow, JobEvent, Order, receive, send};

/// Who may follow a job at once.
const MAXIMUM_FOLLOWERS: usize = 16;

/// How long a follower may take to say what it wants.
const FIRST_ORDER: Duration = Duration::from_secs(30);

/// A follower that takes nothing for this time has gone. Output waits for it in files, never in
/// memory.
const TAKES_WITHIN: Duration = Duration::from_secs(60);

/// Lets this user's processes follow a job at its socket.
///
/// # Errors
///
/// Where the system gives no thread.
pub fn accept(job: &Arc<Job>, listener: UnixListener) -> io::Result<()> {
    let job = Arc::clone(job);
    let thread = std::thread::Builder::new().name("control".into());
    let accept = move || {
        for socket in listener.incoming().flatten() {
            if is_own(&socket) {
                // Without a thread he hears that it closes.
                let _ = start(&job, socket);
            }
        }
    };
    thread.spawn(accept).map(drop)
}

/// Whether the same user is at the other end.
pub fn is_own(socket: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Serves a follower on its own thread.
///
/// # Errors
///
/// Where the system gives none.
pub fn start(job: &Arc<Job>, socket: UnixStream) -> io::Result<()> {
    if !job.enter(MAXIMUM_FOLLOWERS) {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    let own = Arc::clone(job);
    let thread = std::thread::Builder::new().name("follower".into());
    let started = thread.spawn(move || {
        // Whoever is lost comes back.
        let _ = serve(&own, &socket);
        own.leave();
    });
    if started.is_err() {
        job.leave();
    }
    started.map(drop)
}

/// Serves a follower until it or the job has ended.
///
/// # Errors
///
/// As the socket reports.
pub fn serve(job: &Arc<Job>, socket: &UnixStream) -> io::Result<()> {
    socket.set_read_timeout(Some(FIRST_ORDER))?;
    socket.set_write_timeout(Some(TAKES_WITHIN))?;
    let Some(follow) = first_order(job, socket)? else {
        return Ok(());
    };
    socket.set_read_timeout(None)?;
    let gone = Arc::new(AtomicBool::new(false));
    let mut seen = Seen::new(follow, Arc::clone(&gone));
    let (orders, own) = (socket.try_clone()?, Arc::clone(job));
    let listener = std::thread::Builder::new().name("orders".into());
    listener.spawn(move || {
        while let Ok(Some(order)) = receive::<Order>(&orders) {
            match order {
                Order::Cancel => own.cancel(),
                Order::Limit(rate) => own.limit(rate),
                Order::Begin(_) | Order::Follow(_) | Order::Allow(_) | Order::Describe => {}
            }
        }
        gone.store(true, Ordering::Relaxed);
        own.wake();
    })?;
    let mut told = Ok(());
    while told.is_ok()
        && let Some(news) = job.next(&mut seen)
    {
        told = send(socket, &news);
    }
    // Wakes whoever listens for orders; the other end hears what was said.
    let _ = socket.shutdown(std::net::Shutdown::Both);
    told
}

/// `None` if it only looked.
fn first_order(job: &Job, socket: &UnixStream) -> io::Result<Option<Follow>> {
    loop {
        match receive(socket)? {
            Some(Order::Follow(follow)) => return Ok(Some(follow)),
            Some(Order::Cancel) => job.cancel(),
            Some(Order::Limit(rate)) => job.limit(rate),
            Some(Order::Describe) => {
                let told = job.describe().map(JobEvent::Listed);
                return told
                    .map_or(Ok(()), |told| send(socket, &told))
                    .map(|()| None);
            }
            Some(Order::Begin(_) | Order::Allow(_)) | None => return Ok(None),
        }
    }
}
