//! A server for tests. It logs every user in and has one file, at all paths.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use longhaul_gridftp::location::Location;
use longhaul_system::queue::lock;

/// The bytes of the file of each server.
pub const DATA: &[u8] = b"0123456789";

/// Answer to a command.
#[derive(Clone, Copy)]
pub enum Answer {
    /// The answer of a usual server.
    Usual,
    /// These lines.
    Lines(&'static str),
    /// The end of the control connection.
    Close,
}

/// Chooses the answer to a command. The arguments are the number of the session, from 0, and the
/// command. The command is empty before the greeting.
type Choose = dyn Fn(usize, &str) -> Answer + Send + Sync;

/// A server, which runs until the test ends.
pub struct TestServer {
    port: u16,
    commands: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Starts a server. `features` are the lines of its reply to `FEAT`.
    pub fn start(
        features: &'static str,
        choose: impl Fn(usize, &str) -> Answer + Send + Sync + 'static,
    ) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let (heard, choose) = (Arc::clone(&commands), Arc::new(choose));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (heard, choose) = (Arc::clone(&heard), Arc::clone(&choose));
                let mut session = ServerSession {
                    reader: BufReader::new(stream.unwrap()),
                    features,
                    listener: None,
                    start: 0,
                };
                std::thread::spawn(move || session.run(number, &*choose, &heard));
            }
        });
        TestServer { port, commands }
    }

    /// Returns the URL of the server.
    pub fn location(&self) -> Location {
        let url = format!("ftp://127.0.0.1:{}/", self.port);
        Location::parse(url.as_bytes()).unwrap()
    }

    /// Returns the commands of all sessions so far.
    pub fn commands(&self) -> Vec<String> {
        lock(&self.commands).clone()
    }
}

/// A session of the server.
struct ServerSession {
    reader: BufReader<TcpStream>,
    features: &'static str,
    /// Listens for a data connection.
    listener: Option<TcpListener>,
    /// Offset at which the next transfer begins.
    start: usize,
}

impl ServerSession {
    fn run(&mut self, number: usize, choose: &Choose, heard: &Mutex<Vec<String>>) {
        let mut command = String::new();
        loop {
            let lines = match choose(number, &command) {
                Answer::Usual => self.usual(&command),
                Answer::Lines(lines) => lines.to_owned(),
                Answer::Close => return,
            };
            let written = self.reader.get_mut().write_all(lines.as_bytes());
            let mut line = String::new();
            if written.is_err() || self.reader.read_line(&mut line).is_err() || line.is_empty() {
                return;
            }
            command = line.trim_end().to_owned();
            lock(heard).push(command.clone());
        }
    }

    /// Returns the reply of a usual server.
    fn usual(&mut self, command: &str) -> String {
        let (verb, argument) = command.split_once(' ').unwrap_or((command, ""));
        match verb {
            "" => "220 ready\r\n".to_owned(),
            "FEAT" => format!("211-F\r\n{}211 End\r\n", self.features),
            "PWD" => "257 \"/\"\r\n".to_owned(),
            "USER" => "230 ok\r\n".to_owned(),
            "REST" => {
                self.start = argument.parse().unwrap();
                "350 ok\r\n".to_owned()
            }
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                self.listener = Some(listener);
                format!("229 (|||{port}|)\r\n")
            }
            "RETR" => {
                let (mut data, _) = self.listener.take().unwrap().accept().unwrap();
                // The client may have given up.
                let _ = data.write_all(&DATA[std::mem::take(&mut self.start)..]);
                "150 data\r\n226 done\r\n".to_owned()
            }
            _ => "200 ok\r\n".to_owned(),
        }
    }
}
