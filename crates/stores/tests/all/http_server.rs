//! A scripted HTTP server on a port of this host.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Method.
    pub method: String,
    /// Path as sent, without its query.
    pub path: String,
    /// Query.
    pub query: String,
    /// Headers by name in small letters.
    pub headers: BTreeMap<String, String>,
    /// Data.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the offsets of a requested part: the first byte and the one after the last.
    pub fn range(&self) -> Option<(usize, usize)> {
        let range = self.headers.get("range")?.strip_prefix("bytes=")?;
        let (first, last) = range.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
    }
}

/// A reply.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers. Without `content-length` or `transfer-encoding`, the length of the data is added.
    pub headers: Vec<(String, String)>,
    /// Data. They are not sent in reply to `HEAD`.
    pub body: Vec<u8>,
    /// True if the connection closes after the data, although more were announced.
    pub closes: bool,
}

impl Reply {
    /// Returns a reply without data.
    pub fn status(status: u16) -> Reply {
        Reply {
            status,
            ..Reply::default()
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Reply {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets the data.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Reply {
        self.body = body.into();
        self
    }
}

/// Returns a file or a part of it as an ordinary server does.
pub fn file(request: &Received, data: &[u8], headers: &[(&str, &str)]) -> Reply {
    let mut reply = Reply::status(200).with("accept-ranges", "bytes");
    for (name, value) in headers {
        reply = reply.with(name, value);
    }
    let tag = headers.iter().find(|(name, _)| *name == "etag");
    let condition = request.headers.get("if-range");
    let is_same = condition.is_none_or(|known| headers.iter().any(|(_, value)| value == known));
    let refused = request.headers.get("if-match");
    if refused.is_some_and(|known| tag.is_none_or(|(_, tag)| tag != known)) {
        return Reply::status(412);
    }
    match request.range().filter(|_| is_same) {
        Some((start, _)) if start >= data.len() => Reply::status(416),
        Some((start, end)) => {
            let end = end.min(data.len());
            reply.status = 206;
            let range = format!("bytes {start}-{}/{}", end - 1, data.len());
            reply.with("content-range", range).body(&data[start..end])
        }
        None => reply.body(data),
    }
}

type Handler = dyn Fn(&Received) -> Reply + Send + Sync;

/// A server. It ends when the value is dropped.
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    /// True if connections are in TLS.
    is_encrypted: bool,
    is_over: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<Received>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Server {
    /// Starts a server without TLS.
    pub fn start(handler: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_with(None, handler)
    }

    /// Starts a server, which may use TLS.
    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            is_encrypted: tls.is_some(),
            is_over: Arc::default(),
            log: Arc::default(),
        };
        let handler: Arc<Handler> = Arc::new(handler);
        let (is_over, log) = (Arc::clone(&server.is_over), Arc::clone(&server.log));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (handler, log, tls) = (Arc::clone(&handler), Arc::clone(&log), tls.clone());
                std::thread::spawn(move || {
                    // A client may close the connection at any time.
                    let _ = match tls {
                        None => serve(stream, &*handler, &log),
                        Some(tls) => match ServerConnection::new(tls) {
                            Ok(tls) => serve(StreamOwned::new(tls, stream), &*handler, &log),
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        server
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Returns all requests that arrived.
    pub fn requests(&self) -> Vec<Received> {
        self.log.lock().unwrap().clone()
    }
}

fn serve(
    stream: impl Read + Write,
    handler: &Handler,
    log: &Mutex<Vec<Received>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Received {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: BTreeMap::new(),
            body: Vec::new(),
        };
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => request
                    .headers
                    .insert(name.to_lowercase(), value.trim().to_owned()),
                None => break,
            };
        }
        let length = request.headers.get("content-length");
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        stream.read_exact(&mut request.body)?;
        log.lock().unwrap().push(request.clone());
        let reply = handler(&request);
        let mut head = format!("HTTP/1.1 {} X\r\n", reply.status);
        for (name, value) in &reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let is_framed = |(name, _): &(String, String)| {
            matches!(&name[..], "content-length" | "transfer-encoding")
        };
        if !reply.headers.iter().any(is_framed) {
            head += &format!("content-length: {}\r\n", reply.body.len());
        }
        let stream = stream.get_mut();
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        if request.method != "HEAD" {
            stream.write_all(&reply.body)?;
        }
        stream.flush()?;
        if reply.closes {
            return Ok(());
        }
    }
}

/// Returns data in chunks, as a server that does not know their length sends them.
pub fn chunked(data: &[u8]) -> Reply {
    let mut body = Vec::new();
    for chunk in data.chunks(10_000) {
        body.extend(format!("{:x}\r\n", chunk.len()).bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    Reply::status(200)
        .with("transfer-encoding", "chunked")
        .body(body)
}

/// Returns reproducible data.
pub fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
