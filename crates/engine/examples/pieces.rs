//! Measures the cost of one piece of a copy: `cargo xtask bench pieces` runs this, one process for
//! one repetition of one piece.
//!
//! `pieces PIECE DIRECTORY BYTES` and `pieces blocks DIRECTORY BYTES (read | write) (direct |
//! buffered | dropped) FILE BLOCK THREADS` print `{"bytes":…,"wall":…,"cpu":…}`, both in seconds,
//! CPU time of user and system. The input of a piece is touched before the clock starts.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use longhaul_engine::pool::{Buffer, BufferPool};
use longhaul_net::clear;
use longhaul_net::identity::Identity;
use longhaul_net::stream::Stream;
use longhaul_net::tcp::HostPort;
use longhaul_net::tls::{TlsClient, TlsOptions, TlsServer};
use longhaul_net::trust::ServerTrust;
use longhaul_proto::digest::{BlockHasher, Integrity};
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{Advice, Creation, DataMode, StoredFile};
use longhaul_units::ByteCount;
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A block of a copy, as `longhaul cp` has it by default.
const BLOCK_BYTES: usize = 1 << 20;

/// The header that goes before a block.
const HEADER_BYTES: usize = 200;

/// Bytes of one small file.
const SMALL_FILE_BYTES: usize = 4096;

/// Small files in one directory.
const FILES_PER_DIRECTORY: u64 = 1000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [piece, directory, bytes, rest @ ..] = arguments.as_slice() else {
        return Err("usage: pieces PIECE DIRECTORY BYTES".into());
    };
    let (directory, bytes) = (Path::new(directory), bytes.parse()?);
    if let [direction, how, name, block, threads] = rest {
        let blocks = Blocks {
            write: direction == "write",
            dropped: how == "dropped",
            mode: match how.as_str() {
                "direct" => DataMode::Direct,
                _ => DataMode::Buffered,
            },
            bytes,
            block: block.parse()?,
            threads: threads.parse()?,
        };
        return blocks.measure(directory, name);
    }
    match piece.as_str() {
        "read" => read(&directory.join("source/large-0"), bytes),
        "digest" => digest(bytes),
        "socket" => socket(bytes),
        "tls" => tls(bytes),
        "write" => write(&directory.join("piece"), bytes),
        "sync" => sync(&directory.join("piece"), bytes),
        "touch" => measure(|| touch(&directory.join("piece"), bytes).map(|()| bytes)),
        "create" => create(
            &directory.join(format!("pieces-{}", std::process::id())),
            bytes,
        ),
        _ => Err(format!("there is no piece {piece}").into()),
    }
}

/// Times the work, which returns the number of bytes that it moved, and prints the result.
fn measure(work: impl FnOnce() -> Outcome<u64>) -> Outcome<()> {
    let (began, before) = (Instant::now(), cpu_seconds());
    let bytes = work()?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - before);
    println!("{{\"bytes\":{bytes},\"wall\":{wall:.6},\"cpu\":{cpu:.6}}}");
    Ok(())
}

/// CPU time of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn read(file: &Path, bytes: u64) -> Outcome<()> {
    let file = File::open(file)?;
    let mut block = vec![1; BLOCK_BYTES];
    measure(|| {
        let mut done = 0;
        while done < bytes {
            let count = file.read_at(&mut block, done)?;
            if count == 0 {
                break;
            }
            done += count as u64;
        }
        Ok(done)
    })
}

/// Reads or writes one file block by block, by threads with the mover's buffers.
struct Blocks {
    write: bool,
    /// If true, the file is dropped from the page cache before.
    dropped: bool,
    mode: DataMode,
    bytes: u64,
    block: usize,
    threads: usize,
}

impl Blocks {
    fn measure(&self, directory: &Path, name: &str) -> Outcome<()> {
        let root = PosixDirectory::open_root(directory)?;
        let file = if self.write {
            root.create_file(name.as_bytes(), Creation::New, self.mode)?
        } else {
            root.open_file(name.as_bytes(), self.mode)?
        };
        if self.write {
            file.preallocate(self.bytes)?;
        }
        if self.dropped {
            file.advise(Advice::DropCache, 0, 0);
        }
        let pool = BufferPool::new(ByteCount(u64::MAX), self.block);
        let mut held: Vec<_> = (0..self.threads).filter_map(|_| pool.take()).collect();
        // The buffers are touched, as in a copy that has run for a while, and as fio does.
        held.iter_mut().for_each(|buffer| buffer.fill(7));
        let next = AtomicU64::new(0);
        let measured = measure(|| {
            std::thread::scope(|scope| {
                let work = |mut buffer: Buffer| self.work(&*file, &next, &mut buffer);
                let threads: Vec<_> = held
                    .into_iter()
                    .map(|buffer| scope.spawn(move || work(buffer)))
                    .collect();
                for thread in threads {
                    thread.join().map_err(|_| "a thread panicked")??;
                }
                Ok::<(), Box<dyn Error>>(())
            })?;
            if self.write {
                file.sync_data()?;
            }
            Ok(self.bytes)
        });
        if self.write {
            root.remove_file(name.as_bytes())?;
        }
        measured
    }

    fn work(&self, file: &dyn StoredFile, next: &AtomicU64, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let offset = next.fetch_add(self.block as u64, Ordering::Relaxed);
            if offset >= self.bytes {
                return Ok(());
            }
            if self.write {
                file.write_at(&buffer[..self.block], offset)?;
            } else {
                file.read_at(&mut buffer[..self.block], offset)?;
            }
        }
    }
}

fn digest(bytes: u64) -> Outcome<()> {
    let block = vec![3; BLOCK_BYTES];
    measure(|| {
        for offset in (0..bytes).step_by(BLOCK_BYTES) {
            let length = BLOCK_BYTES as u64;
            let hasher = BlockHasher::new(Integrity::Digest, offset, length, bytes + length);
            let mut hasher = hasher.ok_or("no block")?;
            hasher.update(&block);
            std::hint::black_box(hasher.finish());
        }
        Ok(bytes)
    })
}

fn socket_pair() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok((near, listener.accept()?.0))
}

fn socket(bytes: u64) -> Outcome<()> {
    let (near, far) = socket_pair()?;
    transport(clear::over_tcp(near)?, clear::over_tcp(far)?, bytes)
}

fn tls(bytes: u64) -> Outcome<()> {
    let options = TlsOptions::default();
    let server = TlsServer::new(&Identity::ephemeral()?, options)?;
    let trust = ServerTrust::Fingerprint(server.fingerprint());
    let client = TlsClient::new(trust, None, options);
    let (near, far) = socket_pair()?;
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(far));
        let near = client.handshake(near, &HostPort::new("localhost", 1))?;
        let far = accepted.join().map_err(|_| "the server panicked")??;
        transport(near, far, bytes)
    })
}

/// Blocks with headers from one thread to another.
fn transport(near: Stream, far: Stream, bytes: u64) -> Outcome<()> {
    let (mut writer, mut reader) = (near.writer, far.reader);
    let _open = (near.reader, far.writer);
    let (header, block) = (vec![1; HEADER_BYTES], vec![2; BLOCK_BYTES]);
    let mut room = vec![4; BLOCK_BYTES];
    measure(|| {
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || {
                for _ in 0..bytes.div_ceil(BLOCK_BYTES as u64) {
                    writer.write_all(&[&header, &block])?;
                }
                writer.finish()
            });
            let mut done = 0;
            loop {
                match reader.read(&mut room)? {
                    0 => break,
                    count => done += count as u64,
                }
            }
            sent.join().map_err(|_| "the sender panicked")??;
            Ok(done)
        })
    })
}

fn fill(file: &File, bytes: u64) -> Outcome<u64> {
    let block = vec![5; BLOCK_BYTES];
    for offset in (0..bytes).step_by(BLOCK_BYTES) {
        file.write_all_at(&block, offset)?;
    }
    Ok(bytes)
}

/// Takes the memory that a file will need from the host and frees it: on a
/// virtual machine the first touch costs more than the write itself.
fn touch(path: &Path, bytes: u64) -> Outcome<()> {
    fill(&File::create(path)?, bytes)?;
    Ok(fs::remove_file(path)?)
}

/// Into a new file, as a copy does; it is removed unsynced.
fn write(path: &Path, bytes: u64) -> Outcome<()> {
    touch(path, bytes)?;
    let file = File::create(path)?;
    let measured = measure(|| fill(&file, bytes));
    fs::remove_file(path)?;
    measured
}

/// Only the sync of what was written.
fn sync(path: &Path, bytes: u64) -> Outcome<()> {
    let file = File::create(path)?;
    fill(&file, bytes)?;
    let measured = measure(|| {
        file.sync_data()?;
        Ok(bytes)
    });
    fs::remove_file(path)?;
    measured
}

/// Creates small files in directories of a thousand, without syncing or removing them. ext4
/// searches long for an inode if many were freed recently.
fn create(directory: &Path, bytes: u64) -> Outcome<()> {
    touch(&directory.with_extension("touched"), bytes)?;
    let files = bytes / SMALL_FILE_BYTES as u64;
    let data = vec![6; SMALL_FILE_BYTES];
    measure(|| {
        for index in 0..files {
            let folder = directory.join(format!("{}", index / FILES_PER_DIRECTORY));
            if index % FILES_PER_DIRECTORY == 0 {
                fs::create_dir_all(&folder)?;
            }
            File::create(folder.join(format!("{index}")))?.write_all(&data)?;
        }
        Ok(files * SMALL_FILE_BYTES as u64)
    })
}
