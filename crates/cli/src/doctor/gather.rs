//! Asks both ends, and tries what opens between them. Thin: what it means is
//! decided in [`mod@longhaul_instrument::doctor::findings`].

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use longhaul_engine::allowance::thread_refusal;
use longhaul_engine::net::candidates::interface_addresses;
use longhaul_engine::net::tcp::{self, ConnectError, HostPort, TcpOptions};
use longhaul_engine::net::tcp_info::TcpInfo;
use longhaul_engine::net::tls::TlsError;
use longhaul_engine::session::{Transfer, TransferSettings};
use longhaul_instrument::doctor::findings::ports::{Inward, Opening, Tried};
use longhaul_instrument::doctor::findings::{Facts, Known, Lead, Measured, Options, Software};
use longhaul_instrument::doctor::host::{FACT, HostFacts, READY, script};
use longhaul_instrument::probe::result::{Clock, PathResult, Way};
use longhaul_proto::calls::{Call, CallLook};

use super::rights::rights_at;
use crate::arguments::{DataSecurity, DoctorArguments};
use crate::commands::connection::{Connected, Daemon, usual_blocks};
use crate::commands::probe::session::{Ask, Direction, Reach, Session};
use crate::daemon::TOLD_WITHIN;
use crate::endpoint::{Endpoint, Remote, RemotePath, SshRemote};
use crate::messages::{Exit, Stop, write_error_line};
use crate::ssh::command::{RELEASE, Start, quoted, start_of};
use crate::ssh::direct::Way as Opened;
use crate::ssh::far::Far;
use crate::ssh::process::{Hearing, Login, SshProcess, output_within};

/// Bytes that a shell may print in all.
const MOST_ANSWER_BYTES: u64 = 256 << 10;

/// How long an address may be silent.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a login that asks nobody, and the shell then, may take.
const SILENCE: Duration = Duration::from_secs(30);

/// How long each direction is measured for each number of streams.
const MEASURE_FOR: Duration = Duration::from_millis(2500);

/// Streams of a measurement: what one carries, and what some do.
const STREAMS: [u32; 2] = [1, 4];

/// What was found out.
pub struct Gathered {
    /// The facts.
    pub facts: Facts,
    /// The exit code of whatever kept it from more.
    pub failed: Option<Exit>,
}

/// Finds out what there is to know of an endpoint.
///
/// # Errors
///
/// Where the command line makes no sense.
pub fn gather(endpoint: &Endpoint, arguments: &DoctorArguments) -> Result<Gathered, Stop> {
    let mut facts = Facts {
        reached: None,
        software: None,
        here: facts_here(match endpoint {
            Endpoint::Local(path) => path,
            _ => b".",
        }),
        far: None,
        outward: None,
        inward: None,
        mortal: false,
        rights: None,
        clock: None,
        options: None,
        measured: Vec::new(),
    };
    let reached = match endpoint {
        Endpoint::Local(_) => Ok(()),
        Endpoint::Ssh(remote) => over_ssh(remote, arguments, &mut facts),
        Endpoint::Daemon(remote) => at_daemon(remote, arguments, &mut facts),
        Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => {
            let text = "name a path, of this host or another: host:path or longhaul://host/path";
            return Err(Stop::new(Exit::Usage, text));
        }
    };
    let failed = match reached {
        Ok(()) => None,
        Err(stop) => {
            facts.reached = Some(Err(stop.text));
            Some(stop.exit)
        }
    };
    Ok(Gathered { facts, failed })
}

fn unknown<T>(text: impl Into<String>) -> Option<Known<T>> {
    Some(Err(text.into()))
}

/// This host's own shell tells of it.
fn facts_here(path: &[u8]) -> Known<HostFacts> {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new("sh");
    command
        .args(["-c", &script(), "sh"])
        .arg(std::ffi::OsStr::from_bytes(path))
        .arg(RELEASE)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = output_within(&mut command, SILENCE);
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::TimedOut => format!(
            "its shell said nothing for {} s: a file system may stand still",
            SILENCE.as_secs()
        ),
        _ => format!("its shell does not run: {error}"),
    })?;
    let mut facts = HostFacts::default();
    let text = String::from_utf8_lossy(&output);
    text.lines().for_each(|line| facts.add_line(line));
    Ok(facts)
}

/// What a far shell told, and the clock beside ours.
struct Told {
    facts: HostFacts,
    clock: Known<Lead>,
    took: Duration,
}

/// Has a shell there tell of its host.
fn ask_shell(start: &Start, path: &[u8], (login, bound): (Login, Duration)) -> Result<Told, Stop> {
    let host = &start.destination;
    let path = String::from_utf8_lossy(path);
    let line = format!("exec sh -c '{}' sh {} {RELEASE}", script(), quoted(&path));
    let began = Instant::now();
    let started = SshProcess::start(&start.script_by(&line, login), login);
    let (mut process, channel) = started.map_err(|error| {
        let text = format!(
            "cannot start {}: {error}: name another with --ssh",
            start.program()
        );
        Stop::new(Exit::Local, text)
    })?;
    let mut facts = HostFacts::default();
    let hearing = process.hear(&channel, bound);
    let mut unknown = Unknown::default();
    let clock = read_facts(hearing, &channel, &mut facts, &mut unknown);
    drop(channel);
    let status = process.end();
    if facts.get("system").is_some() {
        // No failure tells it.
        if let Some(last) = process
            .said()
            .lines()
            .last()
            .filter(|_| login == Login::AskingAside)
        {
            write_error_line(last);
        }
        return Ok(Told {
            facts,
            clock,
            took: began.elapsed(),
        });
    }
    let said = process.said();
    // A shell such as nologin says on its standard output why it runs nothing.
    let last = said.lines().chain(unknown.line.lines()).next_back();
    let last = last.unwrap_or("it said nothing").to_owned();
    let code = status.and_then(|status| status.code());
    Err(match (code, crate::ssh::far::was_refused(&said)) {
        // A shell that had to be left may end in any way once its input ends.
        _ if unknown.timed_out => Stop::new(
            Exit::Connection,
            format!(
                "{host}: no shell answered there within {} s, and ssh asks nothing: a start-up \
                 file of it may wait for input",
                bound.as_secs_f64().ceil()
            ),
        ),
        (Some(255), true) => Stop::new(
            Exit::Authentication,
            format!("{host}: ssh could not log in: {last}"),
        ),
        (Some(255), false) => Stop::new(
            Exit::Connection,
            format!("{host}: ssh did not connect: {last}"),
        ),
        _ => Stop::new(
            Exit::Connection,
            format!("{host}: ssh logs in, and no shell runs there: {last}"),
        ),
    })
}

/// What came and was no fact.
#[derive(Default)]
struct Unknown {
    /// The last line.
    line: String,
    /// Nothing came any more, for too long.
    timed_out: bool,
}

/// Reads facts until the shell is ready, then asks for the time: what it says
/// lies between the question and the answer.
fn read_facts(
    heard: Hearing<'_>,
    mut channel: &UnixStream,
    facts: &mut HostFacts,
    unknown: &mut Unknown,
) -> Known<Lead> {
    let mut reader = BufReader::new(heard.take(MOST_ANSWER_BYTES));
    let mut asked: Option<(Instant, f64)> = None;
    let mut line = Vec::new();
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) => break,
            Err(error) => {
                unknown.timed_out = error.kind() == std::io::ErrorKind::TimedOut;
                break;
            }
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        facts.add_line(&text);
        if !text.starts_with(FACT) && !text.trim().is_empty() {
            text.trim().clone_into(&mut unknown.line);
        }
        if asked.is_none() && text.starts_with(&format!("{FACT}{READY}")) {
            asked = Some((Instant::now(), now()));
            if channel.write_all(b"go\n").is_err() {
                break;
            }
        }
        if let (Some((asked, then)), Some(clock)) = (asked, facts.clock()) {
            let half = asked.elapsed().as_secs_f64() / 2.0;
            return Ok(Lead {
                ahead: clock - (then + half),
                // A `date` without parts of a second.
                uncertainty: half + if clock.fract() == 0.0 { 1.0 } else { 0.0 },
            });
        }
        line.clear();
        // Asking some file systems takes a while, each by itself.
        reader.get_mut().get_mut().go_on();
    }
    Err("its shell does not tell the time".to_owned())
}

/// Seconds since 1970, by this host's clock.
fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

fn path_of(path: &RemotePath) -> &[u8] {
    match path {
        RemotePath::Path(path) => path,
        RemotePath::Null | RemotePath::Zero(_) => b".",
    }
}

fn over_ssh(
    remote: &SshRemote,
    arguments: &DoctorArguments,
    facts: &mut Facts,
) -> Result<(), Stop> {
    let connection = &arguments.connection.settings();
    let start = start_of(remote, connection, &TransferSettings::default())?;
    let path = path_of(&remote.path);
    let bound = SILENCE.min(connection.timeout);
    let silent = ask_shell(&start, path, (Login::Silent, bound));
    let (told, asks) = match silent {
        Ok(told) => (told, false),
        // It may have to ask.
        Err(_) => (ask_shell(&start, path, (Login::AskingAside, bound))?, true),
    };
    facts.reached = Some(Ok(format!(
        "ssh logs in to {} and tells all this within {:.1} s{}",
        start.destination,
        told.took.as_secs_f64(),
        match asks {
            true =>
                "; it asks for a password, so that one ssh connection alone carries data \
                     where no port opens: a key in an agent changes that",
            false => ", and asks for nothing",
        }
    )));
    facts.clock = Some(told.clock);
    let (software, seen) = (software_in(&told.facts), client_seen(&told.facts));
    facts.far = Some(Ok(told.facts));
    let named = connection.ssh.remote_longhaul.is_some();
    if !named {
        facts.software = Some(Ok(software.clone()));
    }
    if !named && software != Software::Same {
        let why = "it needs longhaul on the far side";
        facts.outward = unknown(why);
        facts.inward = unknown(why);
        facts.options = unknown(why);
        facts.measured = vec![Err(why.to_owned())];
        return Ok(());
    }
    let far = FarSide {
        remote,
        arguments,
        asks,
    };
    if let Err(stop) = far.examine(facts, seen) {
        let why = stop.text;
        if facts.outward.is_none() {
            // It was not even begun.
            facts.software = Some(Ok(Software::Broken(why.clone())));
        }
        facts.outward.get_or_insert(Err(why.clone()));
        facts.inward.get_or_insert(Err(why.clone()));
        facts.options.get_or_insert(Err(why.clone()));
        facts.measured.push(Err(why));
    }
    Ok(())
}

fn software_in(facts: &HostFacts) -> Software {
    let said = facts.get("cached").or(facts.get("installed"));
    match said {
        Some(said) if said == format!("longhaul {RELEASE}") => Software::Same,
        Some(said) => Software::Other(said.to_owned()),
        None => Software::Absent,
    }
}

/// Under which address sshd sees this host.
fn client_seen(facts: &HostFacts) -> Option<std::net::IpAddr> {
    let connection = facts.get("ssh_connection")?;
    connection.split_whitespace().next()?.parse().ok()
}

/// A far side with the same release.
struct FarSide<'a> {
    remote: &'a SshRemote,
    arguments: &'a DoctorArguments,
    /// Each login asks.
    asks: bool,
}

impl FarSide<'_> {
    fn far(&self) -> Result<Arc<Far>, Stop> {
        let settings = TransferSettings::default();
        let connection = self.arguments.connection.settings();
        Far::new(self.remote, &connection, &settings, None).map(Arc::new)
    }

    /// Ports first, with the session that they are for; then the path.
    fn examine(&self, facts: &mut Facts, seen: Option<std::net::IpAddr>) -> Result<(), Stop> {
        let far = self.far()?;
        let connected = Far::connect(&far, usual_blocks())?;
        facts.software = Some(Ok(Software::Same));
        facts.mortal = far.is_mortal();
        let tried = try_all(&far);
        let open = tried.iter().find(|tried| tried.opening == Opening::Open);
        let open = open.map(|tried| tried.address);
        facts.outward = Some(Ok(tried));
        facts.options = Some(options_at(open));
        let ask = self.ask(Direction::To, STREAMS[1]);
        let mut inward = None;
        let session = ask.run_on(&far, connected, |transfer| {
            inward = Some(try_inward(&far, transfer, seen));
        })?;
        facts.inward = inward;
        let opened = far.route().map(|route| route.way);
        let direct = matches!(opened, Some(Opened::Outward(_) | Opened::Inward));
        facts.measured = match direct {
            true => self.measure(session),
            false => vec![Err(
                "the data went through ssh, of whose connection no kernel tells longhaul"
                    .to_owned(),
            )],
        };
        Ok(())
    }

    /// One direction after the other; where each login asks, with what there is.
    fn measure(&self, first: Session) -> Vec<Known<Measured>> {
        let mut measured = Vec::new();
        for direction in [Direction::To, Direction::From] {
            if self.asks {
                let why = format!(
                    "{} the far side: not measured, as each login asks for a password",
                    direction.name()
                );
                measured.push(Err(why));
                continue;
            }
            let first = (direction == Direction::To).then(|| first.clone());
            let sessions = STREAMS.map(|streams| match &first {
                Some(session) if streams == STREAMS[1] => Ok(session.clone()),
                _ => self
                    .far()
                    .and_then(|far| self.ask(direction, streams).run(&far)),
            });
            measured.push(measured_of(direction, sessions));
        }
        measured
    }

    fn ask(&self, direction: Direction, streams: u32) -> Ask<'_> {
        ask(self.arguments, direction, streams)
    }
}

/// Nobody interrupts: a signal ends the process.
static NOT_INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn ask(arguments: &DoctorArguments, direction: Direction, streams: u32) -> Ask<'_> {
    let connection = &arguments.connection;
    Ask {
        direction,
        streams,
        time: MEASURE_FOR,
        patience: MEASURE_FOR,
        congestion: connection.congestion.clone(),
        clear: connection.data_security == DataSecurity::Clear,
        silence: connection.timeout,
        wants_host: false,
        interrupted: &NOT_INTERRUPTED,
    }
}

/// Sessions of one direction, with one stream and with some.
fn measured_of(direction: Direction, sessions: [Result<Session, Stop>; 2]) -> Known<Measured> {
    let mut way = Way {
        direction,
        trials: Vec::new(),
        sender: Default::default(),
        receiver: Default::default(),
    };
    let mut least: Option<f64> = None;
    for (session, streams) in sessions.into_iter().zip(STREAMS) {
        let seen = session.map_err(|stop| stop.text)?.seen;
        if !seen.saw_streams() {
            let why = "the far side: no direct connection was there while it was measured";
            return Err(format!("{} {why}", direction.name()));
        }
        if !seen.saw_data() {
            return Ok(nothing_arrived(direction, streams));
        }
        let trial = seen.trial(streams).ok_or_else(|| {
            let why = "the far side: too little was seen of it; this host may be busy";
            format!("{} {why}", direction.name())
        })?;
        least = [least, seen.least_rtt()]
            .into_iter()
            .flatten()
            .reduce(f64::min);
        way.trials.push(trial);
        way.sender = seen.sender.unwrap_or(way.sender);
        way.receiver = seen.receiver.unwrap_or(way.receiver);
    }
    let path = PathResult {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        local: None,
        failure: None,
        round_trips: least.into_iter().collect(),
        segment: 0,
        path_mtu: 0,
        options: longhaul_engine::net::tcp_info::Agreed {
            timestamps: true,
            selective: true,
            scaling: true,
        },
        clock: None,
        host: None,
        is_usual: true,
        ways: Vec::new(),
    };
    let (streams, bytes_per_second) = way.best().ok_or("nothing was measured")?;
    let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
    Ok(Measured {
        direction: direction.name(),
        bytes_per_second,
        streams,
        most_streams: STREAMS[1],
        one_stream: Some(way.median(STREAMS[0], |trial| trial.settled)),
        loss: way.median(STREAMS[1], |trial| trial.loss_at_most()),
        segment: way.median(STREAMS[1], |trial| f64::from(trial.segment)) as u32,
        rtt: (
            path.least(),
            seconds(way.median(STREAMS[1], |trial| trial.rtt.as_secs_f64())),
        ),
        congestion: way.sender.congestion.clone(),
        advice: path.advice(&way),
    })
}

/// A session that opened, and in which nothing moved.
fn nothing_arrived(direction: Direction, streams: u32) -> Measured {
    Measured {
        direction: direction.name(),
        bytes_per_second: 0.0,
        streams,
        most_streams: streams,
        one_stream: None,
        loss: 0.0,
        segment: 0,
        rtt: Default::default(),
        congestion: String::new(),
        advice: Vec::new(),
    }
}

/// All addresses of the far side at once.
fn try_all(far: &Arc<Far>) -> Vec<Tried> {
    let direct = far.candidates();
    std::thread::scope(|scope| {
        let threads: Vec<_> = direct
            .into_iter()
            .map(|address| {
                let far = Arc::clone(far);
                (
                    address,
                    std::thread::Builder::new()
                        .name("try".into())
                        .spawn_scoped(scope, move || far.try_address(address, PATIENCE)),
                )
            })
            .collect();
        let tried = threads.into_iter().map(|(address, thread)| Tried {
            address,
            opening: match thread.map(ScopedJoinHandle::join) {
                Ok(Ok(Ok(()))) => Opening::Open,
                Ok(Ok(Err(error))) => opening_of(&error),
                Err(error) => Opening::Unreachable(thread_refusal(&error)),
                Ok(Err(_)) => Opening::Unreachable("it could not be tried".to_owned()),
            },
        });
        tried.collect()
    })
}

/// How an error of connecting looks.
pub fn opening_of(error: &TlsError) -> Opening {
    use std::io::ErrorKind;
    match error {
        TlsError::Connect(ConnectError::Timeout { timeout, .. }) => Opening::Silent(*timeout),
        TlsError::Connect(ConnectError::Refused { cause, .. }) => match cause.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                Opening::Reset(cause.to_string())
            }
            ErrorKind::TimedOut => Opening::Silent(PATIENCE),
            _ => Opening::Unreachable(cause.to_string()),
        },
        TlsError::Connect(other) => Opening::Unreachable(other.to_string()),
        TlsError::Deadline { .. } => Opening::Stalled(error.to_string()),
        other => Opening::WrongHost(other.to_string()),
    }
}

/// What the far side says of this end's addresses.
fn try_inward(
    far: &Arc<Far>,
    transfer: &Transfer,
    seen: Option<std::net::IpAddr>,
) -> Known<Inward> {
    if far.own_port().is_none() {
        return Err("this host listens on no port: name others with --ports".to_owned());
    }
    let calls = far.try_inward(transfer, TOLD_WITHIN + PATIENCE);
    let calls = calls.ok_or("the far side did not say what it sees of this host's ports")?;
    Ok(Inward {
        tried: calls.iter().filter_map(tried_of).collect(),
        own: interface_addresses().unwrap_or_default(),
        seen,
    })
}

/// What the far side says of one address.
fn tried_of(call: &Call) -> Option<Tried> {
    let cause = call.cause.clone();
    let opening = match call.look {
        CallLook::Open => Opening::Open,
        CallLook::Reset => Opening::Reset(cause),
        CallLook::Silent => Opening::Silent(TOLD_WITHIN),
        CallLook::Unreachable => Opening::Unreachable(cause),
        CallLook::WrongHost => Opening::WrongHost(cause),
        CallLook::Stalled => Opening::Stalled(cause),
    };
    let address = call.address.parse().ok()?;
    Some(Tried { address, opening })
}

fn options_at(address: Option<SocketAddr>) -> Known<Options> {
    let address = address.ok_or("no direct connection opens")?;
    let options = TcpOptions::default();
    let socket = tcp::connect(&HostPort::from(address), PATIENCE, &options);
    let socket = socket.map_err(|error| error.to_string())?;
    let info = TcpInfo::of(&socket).map_err(|error| error.to_string())?;
    Ok(Options {
        scaling: info.options.scaling,
        path_mtu: info.path_mtu.0,
    })
}

fn at_daemon(remote: &Remote, arguments: &DoctorArguments, facts: &mut Facts) -> Result<(), Stop> {
    let daemon = Daemon::new(remote, &arguments.connection.settings())?;
    let first = daemon.first_stream()?;
    let key = first.handle.peer_fingerprint();
    drop(first);
    facts.reached = Some(Ok(format!("the daemon at {} answers", remote.host)));
    if let RemotePath::Path(path) = &remote.path {
        // Whoever it does not know learns nothing more of it.
        let of = |direction| ask(arguments, direction, 1);
        facts.rights = Some(Ok(rights_at(&daemon, path, of)?));
    }
    let addresses = daemon.addresses()?;
    let tried: Vec<Tried> = addresses
        .iter()
        .map(|&address| Tried {
            address,
            opening: match daemon.at(key, address, None).try_stream(PATIENCE) {
                Ok(()) => Opening::Open,
                Err(error) => opening_of(&error),
            },
        })
        .collect();
    let open = tried.iter().find(|tried| tried.opening == Opening::Open);
    facts.options = Some(options_at(open.map(|tried| tried.address)));
    facts.outward = Some(Ok(tried));
    facts.inward = unknown("a daemon is connected to, and connects to nobody");
    facts.far = unknown("a daemon does not describe its host: examine user@host:path as well");
    for direction in [Direction::To, Direction::From] {
        let sessions = STREAMS.map(|streams| ask(arguments, direction, streams).run(&daemon));
        if let [Ok(session), _] = &sessions {
            facts.software = Some(Ok(software_said(&session.software)));
            let least = session.seen.least_rtt().unwrap_or_default();
            facts.clock = session
                .clock_lead
                .map(|lead| Clock::of(lead, least))
                .map(|clock| {
                    Ok(Lead {
                        ahead: clock.ahead,
                        uncertainty: clock.uncertainty,
                    })
                });
        }
        facts.measured.push(measured_of(direction, sessions));
    }
    let why = "the daemon let nothing be measured, and says it only then";
    facts.software.get_or_insert(Err(why.to_owned()));
    facts.clock.get_or_insert(Err(why.to_owned()));
    Ok(())
}

fn software_said(said: &str) -> Software {
    match said == format!("longhaul {RELEASE}") {
        true => Software::Same,
        false => Software::Other(said.to_owned()),
    }
}

/// So that a session over SSH is measured as one with a daemon is.
impl Reach for Arc<Far> {
    fn connect(&self) -> Result<Connected, Stop> {
        Far::connect(self, usual_blocks())
    }

    fn open(
        &self,
        connected: Connected,
        request: longhaul_proto::handshake::Request,
    ) -> Result<crate::commands::connection::Opened, Stop> {
        Far::open(self, connected, request, &[])
    }

    fn dialer(
        &self,
        opened: &crate::commands::connection::Opened,
        transfer: &Arc<Transfer>,
    ) -> longhaul_engine::session::Dialer {
        Far::dialer(self, opened, transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_of_connecting_are_told_apart() {
        let target = HostPort::new("h", 1);
        let refused = |kind: io::ErrorKind| {
            TlsError::Connect(ConnectError::Refused {
                target: target.clone(),
                addresses: 1,
                last: SocketAddr::from(([192, 0, 2, 1], 1)),
                cause: kind.into(),
            })
        };
        let reset = opening_of(&refused(io::ErrorKind::ConnectionRefused));
        assert!(matches!(reset, Opening::Reset(_)));
        let away = opening_of(&refused(io::ErrorKind::HostUnreachable));
        assert!(matches!(away, Opening::Unreachable(_)));
        let timeout = PATIENCE;
        let silent = TlsError::Connect(ConnectError::Timeout {
            target: target.clone(),
            timeout,
        });
        assert_eq!(opening_of(&silent), Opening::Silent(PATIENCE));
        let peer = target.clone();
        let stalled = opening_of(&TlsError::Deadline { peer, timeout });
        assert!(matches!(stalled, Opening::Stalled(_)));
        let other = opening_of(&TlsError::NotTls { peer: target });
        assert!(matches!(other, Opening::WrongHost(_)));
    }

    #[test]
    fn releases_are_told_from_others() {
        let with = |line: &str| {
            let mut facts = HostFacts::default();
            facts.add_line(&format!("{FACT}{line}"));
            software_in(&facts)
        };
        assert_eq!(with(&format!("cached longhaul {RELEASE}")), Software::Same);
        let other = Software::Other("longhaul 0.0.1".into());
        assert_eq!(with("installed longhaul 0.0.1"), other);
        assert_eq!(with("installed"), Software::Absent);
    }
}
