//! Control socket of a running lab, in the lab's directory. A client sends one line and
//! receives one line of JSON.
//!
//! Requests: `report`, `set KEY=VALUE,…`, `cut TIME`, `down`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_units::parse_span;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::processes::Event;

/// Maximum length of a request in bytes. The settings of a path are far shorter.
const LONGEST_REQUEST: u64 = 4096;

/// Timeout for reading a request and for writing the reply. Clients are local processes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request to a running lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Returns the lab's report.
    Report,
    /// Changes settings of the paths: `KEY=VALUE,…`.
    Set(String),
    /// Drops all packets for this time.
    Cut(Duration),
    /// Ends the lab.
    Down,
}

impl Request {
    /// Parses a request line.
    ///
    /// # Errors
    ///
    /// Returns a message that names the unknown request or the invalid time.
    pub fn parse(line: &str) -> Result<Request, String> {
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "report" => Ok(Request::Report),
            "down" => Ok(Request::Down),
            "set" => Ok(Request::Set(rest.to_owned())),
            "cut" => parse_span(rest)
                .map(Request::Cut)
                .map_err(|e| e.to_string()),
            _ => Err(format!(
                "unknown request \"{word}\": use report, set, cut or down"
            )),
        }
    }

    /// Returns the request as a line, with its newline.
    pub fn line(&self) -> String {
        match self {
            Request::Report => "report\n".to_owned(),
            Request::Set(settings) => format!("set {settings}\n"),
            Request::Cut(time) => format!("cut {}s\n", time.as_secs_f64()),
            Request::Down => "down\n".to_owned(),
        }
    }
}

/// Starts a thread that answers requests until the process ends.
///
/// # Errors
///
/// Returns an error if the socket or the thread cannot be created.
pub fn serve(path: &Path, lab: Arc<Mutex<Lab>>, events: Sender<Event>) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new()
        .name("lab-control".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // An error here means that the client has disconnected: no reply is
                // needed.
                let _ = answer(&stream, &lab, &events);
            }
        })?;
    Ok(())
}

fn answer(stream: &UnixStream, lab: &Mutex<Lab>, events: &Sender<Event>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut line)?;
    let request = Request::parse(&line);
    let result = request.clone().and_then(|request| follow(&request, lab));
    let reply = match result {
        Ok(value) => json!({"ok": true, "result": value}),
        Err(text) => json!({"ok": false, "error": text}),
    };
    let mut writer = stream;
    let answered = writer.write_all(format!("{reply}\n").as_bytes());
    if request == Ok(Request::Down) {
        // Sent after the reply, because the process then ends. An error means that the
        // lab is already ending.
        let _ = events.send(Event::Down);
    }
    answered
}

fn follow(request: &Request, lab: &Mutex<Lab>) -> Result<Value, String> {
    let mut lab = lab.lock().unwrap_or_else(PoisonError::into_inner);
    match request {
        Request::Report => {
            let report = lab.report().map_err(|error| error.to_string())?;
            Ok(report.to_json())
        }
        Request::Set(settings) => {
            lab.set(settings).map_err(|error| error.to_string())?;
            Ok(json!({"path": lab.scenario().shown_path()}))
        }
        Request::Cut(time) => {
            lab.cut(*time).map_err(|error| error.to_string())?;
            Ok(json!({"cut_s": time.as_secs_f64()}))
        }
        Request::Down => Ok(Value::Null),
    }
}

/// Sends a request to a running lab and returns the result.
///
/// # Errors
///
/// Returns a message if the lab cannot be reached, its reply is not JSON, or it rejected
/// the request.
pub fn ask(socket: &Path, request: &Request) -> Result<Value, String> {
    let talk = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(request.line().as_bytes())?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply)?;
        Ok::<String, io::Error>(reply)
    };
    let reply = talk().map_err(|error| format!("{}: {error}", socket.display()))?;
    let reply: Value = serde_json::from_str(&reply).map_err(|error| error.to_string())?;
    match reply["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(reply["result"].clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reverses_line_for_every_request() {
        for request in [
            Request::Report,
            Request::Down,
            Request::Set("rtt=10ms,loss=1e-3".to_owned()),
            Request::Cut(Duration::from_millis(1500)),
        ] {
            assert_eq!(Request::parse(&request.line()), Ok(request));
        }
        for line in ["", "cut", "cut x", "shutdown"] {
            assert!(Request::parse(line).is_err(), "{line}");
        }
    }
}
