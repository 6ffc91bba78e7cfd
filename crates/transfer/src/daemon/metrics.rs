//! Metrics of a daemon for Prometheus, and its health, over HTTP on a loopback address.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::sums::{Sum, Sums};
use crate::stop::{Exit, Stop};

/// Maximum time for one request and its answer.
const WITHIN: Duration = Duration::from_secs(5);

/// Maximum size of a request in bytes.
const MAXIMUM_REQUEST_BYTES: usize = 8 << 10;

/// Values of the metrics at one time.
pub struct Facts {
    /// Sums over the sessions.
    pub(super) sums: Sums,
    /// Maximum number of sessions.
    pub sessions_limit: usize,
    /// True if no new sessions are accepted.
    pub is_draining: bool,
    /// Number of accepted connections.
    pub connections: u64,
    /// End of the validity of the certificate, in seconds since 1970.
    pub certificate_end: i64,
}

/// Parses the address of the metrics, which must be a loopback address.
///
/// # Errors
///
/// Returns a message for the user.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| {
        "write a loopback address and a port, such as 127.0.0.1:9496: the metrics are not protected"
            .to_owned()
    })
}

/// Starts to listen for requests.
///
/// # Errors
///
/// The address is not available.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Stop> {
    TcpListener::bind(address).map_err(|error| {
        let text = format!("the metrics at {address}: {error}; choose another port");
        Stop::new(Exit::Local, text)
    })
}

/// Answers requests on a separate thread, one at a time. `facts` returns the current values.
///
/// # Errors
///
/// No thread can be started.
pub fn serve(
    listener: TcpListener,
    facts: impl Fn() -> Facts + Send + 'static,
) -> Result<(), Stop> {
    let thread = std::thread::Builder::new().name("metrics".into());
    let started = thread.spawn(move || {
        for socket in listener.incoming() {
            match socket {
                // A client that disconnects misses its answer only.
                Ok(socket) => drop(answer(&facts(), socket)),
                Err(_) => longhaul_net::gate::pause(),
            }
        }
    });
    started
        .map(drop)
        .map_err(|error| Stop::because(Exit::Local, error))
}

fn answer(facts: &Facts, mut socket: TcpStream) -> std::io::Result<()> {
    let path = requested(&mut socket)?;
    let (status, body) = match path.as_deref() {
        Some("/metrics") => ("200 OK", text_of(facts)),
        Some("/healthz") if facts.is_draining => {
            ("503 Service Unavailable", "draining\n".to_owned())
        }
        Some("/healthz") => ("200 OK", "ok\n".to_owned()),
        Some(_) => ("404 Not Found", "see /metrics and /healthz\n".to_owned()),
        None => ("400 Bad Request", "send a GET request\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.set_write_timeout(Some(WITHIN))?;
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// Reads a request and returns its path; `None` if it is no GET request.
fn requested(socket: &mut TcpStream) -> std::io::Result<Option<String>> {
    let until = Instant::now() + WITHIN;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > MAXIMUM_REQUEST_BYTES {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut part)? {
            0 => return Ok(None),
            length => request.extend_from_slice(&part[..length]),
        }
    }
    let text = String::from_utf8_lossy(&request);
    let mut words = text.split(' ');
    let is_get = words.next() == Some("GET");
    Ok(words.next().filter(|_| is_get).map(str::to_owned))
}

/// A metric of one principal: name, type, help and value.
type OfPrincipal = (&'static str, &'static str, &'static str, fn(&Sum) -> u64);

const OF_PRINCIPALS: [OfPrincipal; 7] = [
    ("longhaul_sessions", "gauge", "Running sessions.", |sum| {
        sum.running
    }),
    (
        "longhaul_sent_bytes_total",
        "counter",
        "Bytes of files sent to clients.",
        |sum| sum.sent.bytes,
    ),
    (
        "longhaul_received_bytes_total",
        "counter",
        "Durable bytes of files received.",
        |sum| sum.received.bytes,
    ),
    (
        "longhaul_sent_files_total",
        "counter",
        "Complete files sent.",
        |sum| sum.sent.files,
    ),
    (
        "longhaul_received_files_total",
        "counter",
        "Complete files received.",
        |sum| sum.received.files,
    ),
    (
        "longhaul_deleted_total",
        "counter",
        "Names deleted by clients.",
        |sum| sum.deleted,
    ),
    (
        "longhaul_failed_entries_total",
        "counter",
        "Entries that failed.",
        |sum| sum.failed,
    ),
];

/// Returns the metrics in the text format of Prometheus.
fn text_of(facts: &Facts) -> String {
    let mut text = sums_text(&facts.sums);
    let whole = [
        (
            "longhaul_sessions_limit",
            "gauge",
            "Maximum number of sessions.",
            i64::try_from(facts.sessions_limit).unwrap_or(i64::MAX),
        ),
        (
            "longhaul_draining",
            "gauge",
            "1 if no new sessions are accepted.",
            facts.is_draining.into(),
        ),
        (
            "longhaul_connections_total",
            "counter",
            "Accepted connections.",
            facts.connections.cast_signed(),
        ),
        (
            "longhaul_certificate_expiry_timestamp_seconds",
            "gauge",
            "End of the validity of the daemon's certificate.",
            facts.certificate_end,
        ),
    ];
    for (name, kind, help, value) in whole {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "{name} {value}");
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn sums_text(sums: &Sums) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in OF_PRINCIPALS {
        head(&mut text, name, kind, help);
        for (principal, sum) in sums.iter() {
            let (principal, value) = (escaped(principal), value(sum));
            let _ = writeln!(text, "{name}{{principal=\"{principal}\"}} {value}");
        }
    }
    let name = "longhaul_sessions_ended_total";
    head(&mut text, name, "counter", "Sessions that have ended.");
    for (principal, sum) in sums.iter() {
        let principal = escaped(principal);
        for (ended, count) in &sum.ended {
            let outcome = ended.name();
            let labels = format!("principal=\"{principal}\",outcome=\"{outcome}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {count}");
        }
    }
    text
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\");
    value.replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::sums::Ended;
    use super::*;

    #[test]
    fn sums_are_written_with_escaped_labels() {
        let mut sums = Sums::default();
        let sum = sums.of("a\"b\\");
        sum.sent.add(7, 1);
        sum.ended.insert(Ended::Broken, 3);
        let text = sums_text(&sums);
        let line = "longhaul_sent_bytes_total{principal=\"a\\\"b\\\\\"} 7\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains(",outcome=\"broken\"} 3\n"), "{text}");
        assert!(text.contains("# TYPE longhaul_sessions gauge\n"));
    }

    #[test]
    fn the_address_is_a_loopback_address() {
        assert!(parse_address("127.0.0.1:9496").is_ok() && parse_address("[::1]:1").is_ok());
        for text in ["0.0.0.0:9496", "127.0.0.1", "x", "192.0.2.1:80"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
