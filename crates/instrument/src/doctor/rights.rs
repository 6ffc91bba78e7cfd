//! Finds the permissions of a principal at a path of a daemon. Opens dry runs in both
//! directions and leaves them as soon as the daemon has accepted or refused. No file
//! changes.

use std::time::Duration;

use longhaul_engine::session::opening::{self, OpenError};
use longhaul_measure::sources::Direction;
use longhaul_proto::control::ControlChannel;
use longhaul_proto::deletion::Deletion;
use longhaul_proto::handshake::{Operation, Refusal, Request, RequestPath};
use longhaul_proto::message::{Farewell, Message};
use longhaul_transfer::client::connection::{Daemon, Opened, open_stop, usual_blocks};
use longhaul_transfer::stop::{Exit, Stop};

use super::findings::Known;
use super::findings::rights::{Right, Rights};
use crate::probe::session::Ask;

/// Maximum time for ending a session.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Finds the permissions; `ask` describes a session to or from that daemon.
///
/// # Errors
///
/// Returns an error if the daemon cannot be reached or does not know the principal.
pub fn rights_at<'a>(
    daemon: &Daemon,
    path: &[u8],
    ask: impl Fn(Direction) -> Ask<'a>,
) -> Result<Rights, Stop> {
    let write = may(daemon, (path, None), &ask(Direction::To))?;
    let delete = match &write {
        Ok(Right::Granted) => {
            let deletion = Some(Deletion::default());
            may(daemon, (path, deletion), &ask(Direction::To))?
        }
        other => other.clone(),
    };
    Ok(Rights {
        principal: daemon.principal().to_owned(),
        path: String::from_utf8_lossy(path).into_owned(),
        read: may(daemon, (path, None), &ask(Direction::From))?,
        write,
        delete,
    })
}

fn may(
    daemon: &Daemon,
    (path, deletion): (&[u8], Option<Deletion>),
    ask: &Ask<'_>,
) -> Result<Known<Right>, Stop> {
    let mut request = Request {
        paths: vec![RequestPath::Path(path.to_vec())],
        ..ask.request()?
    };
    request.options.operation = Operation::DryRun;
    request.options.selection.recursive = true;
    request.options.deletion = deletion;
    let connected = daemon.connect(usual_blocks(), None)?;
    match daemon.try_open(connected, request, &[])? {
        Ok(opened) => {
            leave(opened).map_err(|error| open_stop(&"the daemon", &error))?;
            Ok(Ok(Right::Granted))
        }
        Err(OpenError::Refused(refused)) => match refused.refusal {
            Refusal::Forbidden => Ok(Ok(Right::Denied)),
            // The daemon checks permissions before the path.
            Refusal::Path => Ok(Ok(Right::Obstructed(refused.text))),
            Refusal::Credential => Err(Stop::new(Exit::Authentication, refused.text)),
            _ => Ok(Err(refused.text)),
        },
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Ends a session directly after its opening.
fn leave(opened: Opened) -> Result<(), OpenError> {
    let mut control = ControlChannel::default();
    control.push(&Message::Goodbye(Farewell::Cancelled))?;
    let frame = control.poll_frame()?.unwrap_or_default();
    let mut stream = opened.stream;
    stream.writer.write_all(&[&frame])?;
    opening::close(&mut stream, LAST_WORDS);
    Ok(())
}
