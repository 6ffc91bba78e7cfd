//! Programs that run on a lab's hosts to measure them: `cargo xtask bench worker`.
//!
//! - `storage DIRECTORY FLOWS BYTES`: writes and reads with parallel flows
//! - `sink`, `source HOST BYTES`: sends zeros over TCP, and checks their arrival

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

/// Bytes of one request: what file systems take well.
const REQUEST_BYTES: usize = 1 << 20;

/// Port of a sink.
const PORT: u16 = 7001;

/// Does one of them and prints a line of JSON.
///
/// # Errors
///
/// If it fails.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let number = |text: &str| {
        let number = text.parse::<u64>();
        number.map_err(|error| format!("\"{text}\": {error}"))
    };
    let done = match arguments {
        ["storage", directory, flows, bytes] => {
            storage(Path::new(directory), number(flows)?, number(bytes)?)
        }
        ["sink"] => sink(),
        ["source", host, bytes] => source(host, number(bytes)?),
        _ => return Err("write: storage DIRECTORY FLOWS BYTES, sink, or source HOST BYTES".into()),
    };
    done.map_err(|error| error.to_string())
}

/// Each flow writes a separate file until it is durable, and then reads it past the page cache.
fn storage(directory: &Path, flows: u64, bytes: u64) -> std::io::Result<()> {
    let paths: Vec<PathBuf> = (0..flows)
        .map(|flow| directory.join(format!("flow-{flow}")))
        .collect();
    let share = bytes / flows;
    let timed = |work: &(dyn Fn(&Path) -> std::io::Result<()> + Sync)| {
        let began = Instant::now();
        let ended: std::io::Result<Vec<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = paths
                .iter()
                .map(|path| scope.spawn(move || work(path)))
                .collect();
            let panicked = |_| Err(std::io::Error::other("a flow panicked"));
            let ended = threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(panicked));
            ended.collect()
        });
        ended.map(|_| began.elapsed().as_secs_f64())
    };
    let write = timed(&|path| write_file(path, share))?;
    for path in &paths {
        forget_cached(&File::open(path)?)?;
    }
    let read = timed(&|path| read_file(path, share))?;
    for path in &paths {
        std::fs::remove_file(path)?;
    }
    let moved = (share * flows) as f64;
    println!(
        "{}",
        json!({ "flows": flows, "bytes": moved, "write": moved / write, "read": moved / read })
    );
    Ok(())
}

fn write_file(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0x5a; REQUEST_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(REQUEST_BYTES as u64);
        file.write_all(&block[..count as usize])?;
        left -= count;
    }
    file.sync_all()
}

fn read_file(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut block = vec![0; REQUEST_BYTES];
    let mut found = 0;
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => found += count as u64,
        }
    }
    if found == bytes {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("{found} bytes of {bytes}")))
    }
}

/// This host reads the file anew, not the machine's other files.
#[allow(unsafe_code)] // No safe binding among this crate's dependencies.
fn forget_cached(file: &File) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and the call takes no pointer.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Takes one connection; counts bytes, bits that are set, and what its kernel
/// threw away for its checksum.
fn sink() -> std::io::Result<()> {
    let (mut stream, _) = TcpListener::bind(("0.0.0.0", PORT))?.accept()?;
    let mut block = vec![0; REQUEST_BYTES];
    let (mut bytes, mut set) = (0, 0);
    loop {
        let count = stream.read(&mut block)?;
        if count == 0 {
            break;
        }
        bytes += count;
        set += block[..count]
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>();
    }
    let table = std::fs::read_to_string("/proc/net/snmp")?;
    let mut rows = table.lines().filter(|line| line.starts_with("Tcp:"));
    let names = rows.next().unwrap_or_default().split_whitespace();
    let mut values = names.zip(rows.next().unwrap_or_default().split_whitespace());
    let errors = values.find(|(name, _)| *name == "InCsumErrors");
    let errors: u64 = errors
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let line = json!({ "bytes": bytes, "bits_set": set, "checksum_errors": errors });
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Sends zeros, and prints the report of the sink.
fn source(host: &str, bytes: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((host, PORT))?;
    let block = vec![0; REQUEST_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(REQUEST_BYTES as u64);
        stream.write_all(&block[..count as usize])?;
        left -= count;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    print!("{said}");
    Ok(())
}
