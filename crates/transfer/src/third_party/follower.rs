//! Sends the events of a job to a follower, and executes the follower's orders.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_net::gate;

use super::job::{Job, Seen};
use super::job_protocol::{Follow, JobEvent, Order, receive, send};

/// Maximum number of followers of a job at a time.
const MAXIMUM_FOLLOWERS: usize = 16;

/// Time limit for a follower's first order.
const FIRST_ORDER: Duration = Duration::from_secs(30);

/// Time after which a follower that receives no data counts as gone. Output waits in files, not in
/// memory.
const TAKES_WITHIN: Duration = Duration::from_secs(60);

/// Lets processes of this user follow a job at its socket.
///
/// # Errors
///
/// Fails if the system cannot start a thread.
pub fn accept(job: &Arc<Job>, listener: UnixListener) -> io::Result<()> {
    let job = Arc::clone(job);
    let thread = std::thread::Builder::new().name("control".into());
    let accept = move || {
        for socket in listener.incoming().filter_map(gate::or_pause) {
            if is_own(&socket) {
                // Without a thread the socket closes, which the follower notices.
                let _ = start(&job, socket);
            }
        }
    };
    thread.spawn(accept).map(drop)
}

/// True if the same user is at the other end of the socket.
pub fn is_own(socket: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Serves a follower on its own thread.
///
/// # Errors
///
/// Fails if there are too many followers or the system cannot start a thread.
pub fn start(job: &Arc<Job>, socket: UnixStream) -> io::Result<()> {
    if !job.enter(MAXIMUM_FOLLOWERS) {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    let own = Arc::clone(job);
    let thread = std::thread::Builder::new().name("follower".into());
    let started = thread.spawn(move || {
        // A follower whose connection is lost attaches again.
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
/// Returns the error of the socket.
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
    // Ends the thread that reads orders. The other end still receives the sent events.
    let _ = socket.shutdown(std::net::Shutdown::Both);
    told
}

/// Executes orders until the follower asks for the output; `None` if it leaves without this order.
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
