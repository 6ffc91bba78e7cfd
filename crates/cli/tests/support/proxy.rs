//! A TCP proxy between a client and a daemon. It counts the bytes of each direction, and runs an
//! action after a given number.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Receive buffer of a client's connection. The kernel's own tuning would use tens of MB, and a
/// trigger after a number of bytes would be inexact.
const CLIENT_BUFFER_BYTES: usize = 128 << 10;

/// Bytes of a piece that can only be of blocks: messages are shorter.
const SMALLEST_DAMAGED: usize = 16 << 10;

/// An action, and the number of bytes in both directions after which it runs.
struct Trigger {
    after: u64,
    action: Box<dyn FnOnce() + Send>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    /// Bytes on connections since the last [`Proxy::take_passed`]. Data of an earlier client that
    /// was killed may still be in flight.
    passed: Mutex<Arc<AtomicU64>>,
    trigger: Mutex<Option<Trigger>>,
    open: Mutex<Vec<TcpStream>>,
    stopping: AtomicBool,
    held: Mutex<bool>,
    released: Condvar,
    /// Pieces that are still to be damaged.
    damages: AtomicU64,
}

pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, CLIENT_BUFFER_BYTES).unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            passed: Mutex::default(),
            trigger: Mutex::new(None),
            open: Mutex::default(),
            stopping: AtomicBool::new(false),
            held: Mutex::new(false),
            released: Condvar::new(),
            damages: AtomicU64::new(0),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if serving.stopping.load(Ordering::Relaxed) {
                    return;
                }
                serving.join(client.unwrap());
            }
        });
        Proxy { address, shared }
    }

    /// Returns a handle for use in an action.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Bytes that passed on connections made since the last call, both
    /// directions.
    pub fn take_passed(&self) -> u64 {
        let passed = std::mem::take(&mut *self.shared.passed.lock().unwrap());
        passed.load(Ordering::Relaxed)
    }

    /// Runs the action once, after this number of bytes on connections made since the last
    /// [`Proxy::take_passed`].
    pub fn after(&self, after: u64, action: impl FnOnce() + Send + 'static) {
        self.handle().after(after, action);
    }

    /// Forgets what was to be done; true where it was not done yet.
    pub fn disarm(&self) -> bool {
        self.shared.trigger.lock().unwrap().take().is_some()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.handle().cut();
    }
}

/// A proxy, as its actions have it.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// See [`Proxy::after`].
    pub fn after(&self, after: u64, action: impl FnOnce() + Send + 'static) {
        let action = Box::new(action);
        *self.0.trigger.lock().unwrap() = Some(Trigger { after, action });
    }

    /// Runs the action while the proxy holds back all data, except for at most 64 KiB in flight on
    /// each connection.
    pub fn hold(&self, during: impl FnOnce()) {
        *self.0.held.lock().unwrap() = true;
        during();
        *self.0.held.lock().unwrap() = false;
        self.0.released.notify_all();
    }

    /// Flips a bit in each of the next `pieces` pieces. Only large pieces count, which contain file
    /// data.
    pub fn damage(&self, pieces: u64) {
        self.0.damages.store(pieces, Ordering::Relaxed);
    }

    /// See [`Proxy::cut`].
    pub fn cut(&self) {
        for socket in self.0.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        self.cut();
    }
}

impl Shared {
    fn join(self: &Arc<Shared>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(*self.target.lock().unwrap()) else {
            return;
        };
        let passed = Arc::clone(&self.passed.lock().unwrap());
        let mut open = self.open.lock().unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let _ = from.set_nodelay(true);
            open.push(from.try_clone().unwrap());
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (shared, passed) = (Arc::clone(self), Arc::clone(&passed));
            std::thread::spawn(move || shared.pass(from, to, &passed));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, passed: &Arc<AtomicU64>) {
        let mut room = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut room) {
            let held = self.held.lock().unwrap();
            drop(self.released.wait_while(held, |held| *held).unwrap());
            let (relaxed, fewer) = (Ordering::Relaxed, |left: u64| left.checked_sub(1));
            if read >= SMALLEST_DAMAGED
                && self.damages.fetch_update(relaxed, relaxed, fewer).is_ok()
            {
                room[read / 2] ^= 1;
            }
            if to.write_all(&room[..read]).is_err() {
                break;
            }
            self.count(passed, read as u64);
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    fn count(&self, passed: &Arc<AtomicU64>, bytes: u64) {
        let before = passed.fetch_add(bytes, Ordering::Relaxed);
        if !Arc::ptr_eq(passed, &self.passed.lock().unwrap()) {
            return;
        }
        let passed = before + bytes;
        let mut trigger = self.trigger.lock().unwrap();
        if trigger.as_ref().is_some_and(|t| passed >= t.after) {
            let due = trigger.take();
            drop(trigger);
            if let Some(due) = due {
                (due.action)();
            }
        }
    }
}
