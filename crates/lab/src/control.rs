//! A running lab is asked through a socket in its directory: one line there,
//! one line of JSON back.
//!
//! `report`, `set KEY=VALUE,…`, `cut TIME`, `down`.

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

/// The longest request: far above what a path's settings take.
const LONGEST_REQUEST: u64 = 4096;

/// How long a client may take to finish a line; it is a local process.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What it did so far.
    Report,
    /// Other settings of the paths.
    Set(String),
    /// No packet passes for a time.
    Cut(Duration),
    /// End.
    Down,
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
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
                "a lab knows report, set, cut and down, not \"{word}\""
            )),
        }
    }

    /// As it is sent.
    pub fn line(&self) -> String {
        match self {
            Request::Report => "report\n".to_owned(),
            Request::Set(settings) => format!("set {settings}\n"),
            Request::Cut(time) => format!("cut {}s\n", time.as_secs_f64()),
            Request::Down => "down\n".to_owned(),
        }
    }
}

/// Answers requests in a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// Where the socket cannot be made.
pub fn serve(path: &Path, lab: Arc<Mutex<Lab>>, events: Sender<Event>) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new()
        .name("lab-control".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asked and left needs no answer.
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
        // Not before the answer: the process ends. Gone already, it is ending.
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

/// Asks a running lab.
///
/// # Errors
///
/// Where it cannot be reached, or what it answered.
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
    fn requests_are_read_as_they_are_sent() {
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
