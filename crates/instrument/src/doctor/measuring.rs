//! Sessions that measure the path in each direction.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_measure::sources::Direction;
use longhaul_net::tcp_info::Agreed;
use longhaul_transfer::settings::{ConnectionSettings, DataSecurity};
use longhaul_transfer::stop::Stop;

use super::findings::{Known, Measured};
use crate::probe::result::{PathResult, Way};
use crate::probe::session::{Ask, Session};

/// Duration of the measurement for each direction and number of streams.
const MEASURE_FOR: Duration = Duration::from_millis(2500);

/// Numbers of streams: one, and several.
pub(super) const STREAMS: [u32; 2] = [1, 4];

/// Never set: a signal ends the process.
static NOT_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns the description of a session with this direction and number of streams.
pub(super) fn ask(connection: &ConnectionSettings, direction: Direction, streams: u32) -> Ask<'_> {
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

/// Evaluates the sessions of one direction, with one and with several streams.
pub(super) fn measured_of(
    direction: Direction,
    sessions: [Result<Session, Stop>; 2],
) -> Known<Measured> {
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
            let why = "the remote host: there was no direct connection during the measurement";
            return Err(format!("{} {why}", direction.name()));
        }
        if !seen.saw_data() {
            return Ok(nothing_arrived(direction, streams));
        }
        let trial = seen.trial(streams).ok_or_else(|| {
            let why = "the remote host: too few samples arrived; this host may be busy";
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
        options: Agreed {
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
        loss: way.median(STREAMS[1], |trial| trial.unqueued_loss()),
        segment: way.median(STREAMS[1], |trial| f64::from(trial.segment)) as u32,
        rtt: (
            path.least(),
            seconds(way.median(STREAMS[1], |trial| trial.rtt.as_secs_f64())),
        ),
        congestion: way.sender.congestion.clone(),
        advice: path.advice(&way),
    })
}

/// Returns the result of a session that opened without moving data.
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
