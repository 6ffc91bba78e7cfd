//! Counts the messages of the remote end for which a copy over SSH waits before its first block
//! leaves. Each is a round trip in addition to those of ssh.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::process::{limit, longhaul, run, script};
use longhaul_proto::frame::{FrameHeader, FrameKind, HEADER_BYTES};

/// Writes a substitute for `ssh`. It prints the remote command, and connects its standard streams
/// to a local port. It records each run, and behaves as if a master existed.
fn stand_in(place: &Path, port: u16) {
    let text = format!(
        "#!/bin/bash\nprintf '%s\\n' \"$*\" >>'{}'\n\
         [[ \" $* \" == *' -G '* ]] && {{ printf 'controlmaster auto\\ncontrolpath /c\\n'; exit; }}\n\
         [[ \" $* \" == *' -O check '* ]] && {{ echo 'Master running (pid=1)' >&2; exit; }}\n\
         printf %s \"${{@: -1}}\" > '{}'\nexec 3<>/dev/tcp/127.0.0.1/{port}\n\
         cat <&3 &\nexec cat >&3\n",
        place.join("runs").display(),
        place.join("command").display()
    );
    script(place.join("ssh"), &text);
}

/// Returns a greeting without the port at which its end listens.
fn without_port(greeting: &str) -> String {
    let words = greeting.trim_end().split(' ');
    let words: Vec<&str> = words.filter(|word| !word.starts_with("port=")).collect();
    words.join(" ") + "\n"
}

/// Forwards the data of the local end, and reports the first block. `greet` changes the greeting.
fn outward(
    mut near: BufReader<TcpStream>,
    mut far: ChildStdin,
    block: &Sender<()>,
    greet: fn(&str) -> String,
) {
    let mut greeting = String::new();
    near.read_line(&mut greeting).unwrap();
    let greeting = greet(&greeting);
    far.write_all(greeting.as_bytes()).unwrap();
    let mut bytes = [0; HEADER_BYTES];
    while near.read_exact(&mut bytes).is_ok() {
        let header = FrameHeader::parse(&bytes).unwrap();
        if header.kind == FrameKind::Block {
            // One report is enough.
            let _ = block.send(());
        }
        let mut rest = vec![0; header.body + header.payload];
        // A local end that has finished ends `ssh`, even if data are in flight. A remote end that
        // has finished reads no more data.
        let heard = near.read_exact(&mut rest);
        let said = heard.and_then(|()| far.write_all(&[&bytes[..], &rest].concat()));
        if said.and_then(|()| far.flush()).is_err() {
            return;
        }
    }
}

/// Changes to the greetings, and the event after which the remote end's messages are forwarded.
trait Between: Send {
    /// Changes the greeting of the local end.
    fn near_greeting(greeting: &str) -> String {
        greeting.to_owned()
    }
    fn greeting(&mut self, line: String) -> String;
    fn before_the_welcome(&mut self) {}
    /// Waits for the event. Returns true if it happened.
    fn after_the_welcome(&mut self, block: &Receiver<()>) -> bool;
}

/// Neither end announces a port, so the first block goes through `ssh`. Otherwise, on a busy host,
/// it could use a stream that the remote end opens.
struct Unheard;

impl Between for Unheard {
    fn near_greeting(greeting: &str) -> String {
        without_port(greeting)
    }

    fn greeting(&mut self, line: String) -> String {
        without_port(&line)
    }

    fn after_the_welcome(&mut self, block: &Receiver<()>) -> bool {
        block.recv_timeout(limit()).is_ok()
    }
}

/// Listens on the port that the remote end announces. Holds back the answer of the remote end until
/// a client has connected to that port.
struct Listening {
    listener: Option<TcpListener>,
    connected: (Sender<()>, Receiver<()>),
}

impl Between for Listening {
    fn greeting(&mut self, line: String) -> String {
        let listener = self.listener.take().unwrap();
        let said = line.split(' ').find(|word| word.starts_with("port="));
        let said = said.expect("the remote host listens").to_owned();
        let own = format!("port={}", listener.local_addr().unwrap().port());
        let port: u16 = said["port=".len()..].parse().unwrap();
        let connected = self.connected.0.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let _ = connected.send(());
                let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || carry(near, far));
                std::thread::spawn(move || carry(far_too, near_too));
            }
        });
        line.replace(&said, &own)
    }

    fn before_the_welcome(&mut self) {
        let waited = self.connected.1.recv_timeout(Duration::from_secs(60));
        waited.expect("no connection opened before the session");
    }

    /// Blocks may all go there.
    fn after_the_welcome(&mut self, _: &Receiver<()>) -> bool {
        true
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Forwards the remote end's greeting and the first frame after it, and then waits for the event
/// before it forwards the rest. Returns true if the event happened.
fn inward(
    mut far: BufReader<ChildStdout>,
    mut near: TcpStream,
    block: &Receiver<()>,
    mut between: impl Between,
) -> bool {
    let mut line = String::new();
    while !line.starts_with("longhaul-remote/1") {
        near.write_all(line.as_bytes()).unwrap();
        line.clear();
        assert!(far.read_line(&mut line).unwrap() > 0, "no greeting");
    }
    near.write_all(between.greeting(line).as_bytes()).unwrap();
    between.before_the_welcome();
    let mut bytes = [0; HEADER_BYTES];
    far.read_exact(&mut bytes).unwrap();
    let header = FrameHeader::parse(&bytes).unwrap();
    let mut body = vec![0; header.body];
    far.read_exact(&mut body).unwrap();
    near.write_all(&[&bytes[..], &body].concat()).unwrap();
    let came = between.after_the_welcome(block);
    // The local end may already have closed the connection.
    let _ = io::copy(&mut far, &mut near);
    let _ = near.shutdown(std::net::Shutdown::Both);
    came
}

/// Starts the remote end as `ssh` would. Returns true if the event happened.
fn far_side<B: Between>(listener: &TcpListener, command: &Path, between: B) -> bool {
    let (near, _) = listener.accept().unwrap();
    let command = std::fs::read_to_string(command).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &command])
        // sshd sets this variable, which makes direct connections possible.
        .env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, block) = channel();
    let reader = BufReader::new(near.try_clone().unwrap());
    let said = std::thread::spawn(move || outward(reader, input, &sender, B::near_greeting));
    let came = inward(output, near, &block, between);
    said.join().unwrap();
    child.wait().unwrap();
    came
}

/// Copies to a remote end that the substitute starts. Returns true if the event happened, and the
/// command lines of ssh.
fn copy_through(between: impl Between + 'static) -> (bool, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    stand_in(place.path(), listener.local_addr().unwrap().port());
    let told = place.path().join("command");
    let far = std::thread::spawn(move || far_side(&listener, &told, between));
    let mut copy = longhaul();
    copy.args(["cp", "--remote-longhaul", env!("CARGO_BIN_EXE_longhaul")])
        .args(["zero:4MB", "far:null:"])
        .env("LONGHAUL_SSH", place.path().join("ssh"));
    run(&mut copy).expect(0);
    let runs = std::fs::read_to_string(place.path().join("runs")).unwrap();
    let runs = runs.lines().map(str::to_owned).collect();
    (far.join().unwrap(), runs)
}

#[test]
fn the_first_block_waits_only_for_the_greeting_and_the_welcome() {
    let (came, runs) = copy_through(Unheard);
    assert!(came, "no block left the local end");
    // With a master, the other two commands run on this host only, and no other data cross the
    // network before the session.
    let [configured, asked, session, further @ ..] = &runs[..] else {
        panic!("{runs:#?}");
    };
    assert!(configured.contains("-G"), "{configured}");
    assert!(asked.starts_with("-O check"), "{asked}");
    assert!(session.contains("remote --memory"), "{session}");
    // Channels wait for the session. If a direct one is slow to open, ssh's configuration is read
    // once more for them, which crosses no network.
    let mut crossing = further.iter().filter(|run| !run.starts_with("-G "));
    assert!(crossing.all(|run| run.contains("--join")), "{further:#?}");
}

#[test]
fn direct_streams_start_while_the_session_opens() {
    let between = Listening {
        listener: Some(TcpListener::bind("127.0.0.1:0").unwrap()),
        connected: channel(),
    };
    assert!(copy_through(between).0);
}

#[test]
fn a_copy_does_not_wait_for_a_remote_host_without_longhaul() {
    let place = tempfile::tempdir().unwrap();
    let ssh = place.path().join("ssh");
    let words = "printf '\\nlonghaul-absent/1 Linux x86_64\\n'; cat >/dev/null; echo ended >";
    let others = "case \" $* \" in *' -G '*|*' -O check '*) exit 255;; esac";
    let text = format!("#!/bin/sh\n{others}\n{words}'{}.ended'\n", ssh.display());
    script(ssh.clone(), &text);
    let from = place.path().join("from");
    std::fs::write(&from, "x").unwrap();
    let mut command = longhaul();
    command
        .arg("cp")
        .arg("--ssh")
        .arg(&ssh)
        .arg(&from)
        .arg("far:x");
    run(&mut command)
        .expect(3)
        .says(&["there is no longhaul on the remote host (Linux x86_64)"]);
    // With an open channel, the remote end would wait until it is killed.
    assert!(place.path().join("ssh.ended").exists());
}
