//! Sends the events of a job to a follower, and executes the follower's orders.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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

/// The socket at which processes of this user follow a job.
pub struct Door {
    listener: Arc<UnixListener>,
    accepts: JoinHandle<()>,
}

impl Door {
    /// Accepts followers of the job on a thread of its own.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn open(job: &Arc<Job>, listener: UnixListener) -> io::Result<Door> {
        let (job, listener) = (Arc::clone(job), Arc::new(listener));
        let thread = std::thread::Builder::new().name("control".into());
        let own = Arc::clone(&listener);
        let accepts = thread.spawn(move || accept(&job, &own))?;
        Ok(Door { listener, accepts })
    }

    /// Refuses further connections, and starts to serve all that were made before. A process that
    /// is refused reads the outcome of the job, which must be recorded already.
    pub fn close(self) {
        if rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both).is_ok() {
            // A panic of the thread has ended its loop, too.
            let _ = self.accepts.join();
        }
    }
}

/// Accepts followers until the listener is shut down.
fn accept(job: &Arc<Job>, listener: &UnixListener) {
    loop {
        match listener.accept() {
            // Without a thread the socket closes, which the follower notices.
            Ok((socket, _)) if is_own(&socket) => drop(start(job, socket)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => gate::pause(),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::job::{self, tests::job};
    use super::super::job_protocol::ShownProgress;
    use super::*;

    #[test]
    fn a_follower_that_connects_while_the_job_ends_receives_the_end() {
        let place = tempfile::tempdir().unwrap();
        let job = Arc::new(job(place.path()));
        let listener = job::at_socket(place.path(), UnixListener::bind).unwrap();
        let connect = || job::at_socket(place.path(), UnixStream::connect);
        let follower = connect().unwrap();
        job.end(0);
        Door::open(&job, listener).unwrap().close();
        assert!(connect().is_err(), "the outcome is recorded");
        let follow = Follow {
            output: 0,
            errors: 0,
            progress: ShownProgress::None,
            manifest: false,
            alive_seconds: 0,
        };
        send(&follower, &Order::Follow(follow)).unwrap();
        assert_eq!(receive(&follower).unwrap(), Some(JobEvent::Ended(0)));
        job.wait_for_followers();
    }
}
