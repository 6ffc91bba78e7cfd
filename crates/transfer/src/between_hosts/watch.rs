//! Follows a job from here to its end.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_storage::spill::{TemporaryError, nameless_file};
use longhaul_system::named_files::{Older, to_write};

use super::drive::why_gone;
use super::job;
use super::job_protocol::{Channel, Follow, JobEvent, Order, ShownProgress, receive, send};
use super::own_job::{HERE, job_of};
use super::viewer::{Unseen, Viewer};
use crate::console;
use crate::endpoint::names_daemon;
use crate::manifest::{raw_beside, try_to_write};
use crate::rate_limit::BandwidthLimit;
use crate::stop::{Exit, Stop};

/// Time limit for a job's first message. A job has nothing to send while it looks for a way to its
/// other end.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(180);

/// Interval at which a job without news sends [`JobEvent::Alive`].
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Number of consecutive intervals without a message after which the job counts as lost.
const MISSED_AT_MOST: u32 = 6;

/// Maximum size of a manifest, in bytes: enough for a thousand million files.
const MAXIMUM_MANIFEST_BYTES: u64 = 1 << 40;

/// A job, and the channel over which it is followed.
pub struct Watched {
    /// The channel to it.
    pub channel: UnixStream,
    /// Name of the job.
    pub name: String,
    /// Host that runs the job, as it is reached.
    pub host: String,
    /// Manifest to fetch from the job.
    pub manifest: Option<Fetched>,
}

/// A manifest that is received from a job. It is written when the job has ended, like the manifest
/// of a copy in the foreground.
pub struct Fetched {
    /// Temporary files for the manifest and for the names that it cannot represent.
    came: File,
    raw: File,
    path: PathBuf,
}

impl Fetched {
    /// Prepares to fetch the manifest into this file. The file is opened now, so that an error is
    /// found before hours of copying. Its content stays until the job has ended.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn into(path: Option<&Path>) -> Result<Option<Fetched>, Stop> {
        let Some(path) = path else {
            return Ok(None);
        };
        let failed = |error| unwritten(path, &error);
        try_to_write(path).map_err(failed)?;
        let held = || nameless_file(&std::env::temp_dir()).map_err(unheld);
        Ok(Some(Fetched {
            came: held()?,
            raw: held()?,
            path: path.to_owned(),
        }))
    }

    /// Stores a part of the manifest in its temporary file.
    fn hold(&self, channel: Channel, at: u64, bytes: &[u8]) -> Result<(), Stop> {
        if at.saturating_add(bytes.len() as u64) > MAXIMUM_MANIFEST_BYTES {
            let text = "the manifest is longer than any list of files";
            return Err(Stop::new(Exit::Connection, text));
        }
        let file = match channel {
            Channel::RawManifest => &self.raw,
            _ => &self.came,
        };
        let written = file.write_all_at(bytes, at);
        written.map_err(|error| unheld(TemporaryError::wrap(error, &std::env::temp_dir())))
    }

    /// Writes the received manifest to its file; returns false if none was received.
    fn write(&self) -> Result<bool, Stop> {
        let write = || {
            let (all, raw) = (self.came.metadata()?.len(), self.raw.metadata()?.len());
            if all + raw > 0 {
                copy_whole(&self.came, &self.path)?;
            }
            if raw > 0 {
                copy_whole(&self.raw, &raw_beside(&self.path))?;
            }
            Ok(all + raw > 0)
        };
        write().map_err(|error| unwritten(&self.path, &error))
    }
}

fn copy_whole(mut from: &File, to: &Path) -> io::Result<()> {
    from.rewind()?;
    io::copy(&mut from, &mut to_write(to, Older::Goes)?).map(drop)
}

fn unheld(error: io::Error) -> Stop {
    Stop::new(
        Exit::Local,
        format!("the manifest waits for the copy's end: {error}"),
    )
}

fn unwritten(path: &Path, error: &io::Error) -> Stop {
    let text = format!("cannot write the manifest {}: {error}", path.display());
    Stop::new(Exit::Local, text)
}

/// State in which the client left a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The job runs.
    Running,
    /// The job ended with this code.
    Ended(u8),
}

impl Left {
    /// Returns the exit code of the command that followed the job.
    pub fn exit(self) -> Exit {
        match self {
            Left::Running => Exit::Done,
            Left::Ended(code) => Exit::of_code(code),
        }
    }
}

impl Watched {
    /// Returns the job's name in the form that `attach` and `cancel` accept.
    pub fn job(&self) -> String {
        job_of(&self.host, &self.name)
    }

    /// Sends an order that must precede [`Watched::follow`]. A failed write is not reported here:
    /// `follow` reads the answer that the other end gave before it closed the channel.
    pub fn order(&self, order: &Order) {
        let _ = send(&self.channel, order);
    }

    /// Ends the job and waits until it has ended.
    ///
    /// # Errors
    ///
    /// The same as [`Watched::follow`].
    pub fn cancel(&self) -> Result<Left, Stop> {
        self.order(&Order::Cancel);
        self.follow(&Unseen, false)
    }

    /// Shows the job to its end, or, if `begins`, until it runs.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost or the job cannot be followed.
    pub fn follow(&self, viewer: &dyn Viewer, begins: bool) -> Result<Left, Stop> {
        let follow = Follow {
            output: 0,
            errors: 0,
            progress: if begins {
                ShownProgress::None
            } else {
                viewer.wants()
            },
            manifest: self.manifest.is_some(),
            alive_seconds: ALIVE_EVERY.as_secs() as u32,
        };
        // A job that cannot be followed sends its answer and closes before it reads the order.
        let asked = send(&self.channel, &Order::Follow(follow));
        let mut is_there = false;
        // Without this timeout, the client waits without a limit.
        let _ = self.channel.set_read_timeout(Some(FIRST_WORD_WITHIN));
        loop {
            if is_there && !speaks_within(&self.channel, ALIVE_EVERY, MISSED_AT_MOST) {
                return Err(self.lost());
            }
            let told = receive(&self.channel).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => self.silent(),
                _ => self.lost(),
            })?;
            let told = told.ok_or_else(|| self.lost())?;
            // After its first message, a job may take any time, as long as it sends `Alive`.
            is_there = true;
            let is_answer = matches!(
                told,
                JobEvent::Absent | JobEvent::Failed(..) | JobEvent::Listed(_)
            );
            if asked.is_err() && !is_answer {
                return Err(self.lost());
            }
            match told {
                JobEvent::Output(
                    channel @ (Channel::Manifest | Channel::RawManifest),
                    at,
                    bytes,
                ) => {
                    if let Some(manifest) = &self.manifest {
                        manifest.hold(channel, at, &bytes)?;
                    }
                }
                JobEvent::Output(channel, at, bytes) => viewer.output(channel, at, &bytes),
                JobEvent::Progress(text) => viewer.progress(&text),
                JobEvent::Running if begins => return Ok(Left::Running),
                JobEvent::Ended(code) => {
                    viewer.end();
                    self.write_manifest(code)?;
                    return Ok(Left::Ended(code));
                }
                JobEvent::Failed(text, code) => {
                    return Err(Stop::new(Exit::of_failure(code), text));
                }
                JobEvent::Listed(listed) => return Err(why_gone(&listed)),
                JobEvent::Absent => return Err(self.absent()),
                JobEvent::Running | JobEvent::Named(_) | JobEvent::Alive => {}
            }
        }
    }

    /// Sets another rate limit for the job; `None`: no limit.
    ///
    /// # Errors
    ///
    /// Fails if the job does not run or the connection is lost.
    pub fn bind(&self, rate: Option<BandwidthLimit>) -> Result<(), Stop> {
        let rate = rate.map_or(0, BandwidthLimit::bytes_per_second);
        // The job reads orders one after another, so its answer proves that it has read the limit.
        let follow = Follow {
            output: u64::MAX,
            errors: u64::MAX,
            progress: ShownProgress::None,
            manifest: false,
            alive_seconds: 1,
        };
        self.order(&Order::Limit(rate));
        self.order(&Order::Follow(follow));
        let _ = self.channel.set_read_timeout(Some(FIRST_WORD_WITHIN));
        match receive(&self.channel) {
            Ok(Some(JobEvent::Running | JobEvent::Alive)) => Ok(()),
            Ok(Some(JobEvent::Ended(code))) => {
                let text = format!("{} had ended already, with exit code {code}", self.job());
                Err(Stop::new(Exit::Usage, text))
            }
            Ok(Some(JobEvent::Failed(text, code))) => Err(Stop::new(Exit::of_failure(code), text)),
            Ok(Some(JobEvent::Listed(listed))) => Err(why_gone(&listed)),
            Ok(Some(JobEvent::Absent)) => Err(self.absent()),
            Ok(Some(_) | None) => Err(self.lost()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.silent()),
            Err(_) => Err(self.lost()),
        }
    }

    fn write_manifest(&self, code: u8) -> Result<(), Stop> {
        let Some(manifest) = &self.manifest else {
            return Ok(());
        };
        let complete = matches!(Exit::of_code(code), Exit::Done | Exit::Partial);
        if !manifest.write()? && complete {
            console::say(&format!(
                "no digests came of the job {}: it was begun without --manifest, or has no file; {} \
                 is as it was",
                self.name,
                manifest.path.display()
            ));
        }
        Ok(())
    }

    fn absent(&self) -> Stop {
        let (name, host) = (&self.name, &self.host);
        let text = format!("{host} has no job {name}: `longhaul jobs {host}` lists them");
        Stop::new(Exit::Usage, text)
    }

    fn silent(&self) -> Stop {
        let (name, host) = (&self.name, &self.host);
        let text = format!(
            "longhaul on {host} is there, and said nothing of {name} for {} s: its processes or \
             file systems may stand still; try again later",
            FIRST_WORD_WITHIN.as_secs()
        );
        Stop::new(Exit::Connection, text)
    }

    fn lost(&self) -> Stop {
        let (name, host) = (&self.name, &self.host);
        // A job of this host has no connection that could be lost.
        if host == HERE
            && let Some(killed) = job::killed(name)
        {
            return why_gone(&killed);
        }
        let text = format!(
            "the connection to {host} was lost; the job continues there if it had begun: `longhaul \
             attach {name}` follows it{}",
            same_options(host)
        );
        Stop::new(Exit::Connection, text)
    }
}

/// True if data or the end of the channel arrive within `most` spans. A span in which this process
/// was stopped counts as one.
fn speaks_within(channel: &UnixStream, span: Duration, most: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let span = rustix::time::Timespec {
        tv_sec: span.as_secs().cast_signed(),
        tv_nsec: span.subsec_nanos().into(),
    };
    (0..most).any(|_| {
        let mut polled = [PollFd::new(channel, PollFlags::IN)];
        // If the poll fails, the next read reports the error.
        !matches!(
            poll(&mut polled, Some(&span)),
            Ok(0) | Err(rustix::io::Errno::INTR)
        )
    })
}

/// Returns a hint about options that are needed again to reach a job at a daemon.
pub fn same_options(host: &str) -> &'static str {
    if names_daemon(host) {
        "; where this command was given --token-file, --certificate and --key, --fingerprint or \
         --authority, that one needs them too"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_given_up_after_the_timeout() {
        let (near, far) = UnixStream::pair().unwrap();
        let span = Duration::from_millis(1);
        assert!(!speaks_within(&near, span, 3));
        send(&far, &JobEvent::Alive).unwrap();
        assert!(speaks_within(&near, span, 1));
        assert_eq!(receive(&near).unwrap(), Some(JobEvent::Alive));
        drop(far);
        assert!(speaks_within(&near, span, 1), "the end is heard");
    }

    /// Returns a job whose host sent an answer and closed the channel before reading.
    fn answered(answer: &JobEvent) -> Watched {
        let (near, far) = UnixStream::pair().unwrap();
        send(&far, answer).unwrap();
        Watched {
            channel: near,
            name: "00000000".into(),
            host: "left".into(),
            manifest: None,
        }
    }

    #[test]
    fn an_answer_is_reported_even_if_the_order_cannot_be_written() {
        let requests: [fn(&Watched) -> Option<Stop>; 3] = [
            |job| job.cancel().err(),
            |job| job.follow(&Unseen, false).err(),
            |job| job.bind(None).err(),
        ];
        for request in requests {
            let stop = request(&answered(&JobEvent::Absent)).unwrap();
            assert_eq!(stop.exit, Exit::Usage, "{}", stop.text);
            assert!(stop.text.starts_with("left has no job"), "{}", stop.text);
            let failed = JobEvent::failed("no", Some(Exit::Local.code()));
            let stop = request(&answered(&failed)).unwrap();
            assert_eq!((stop.exit, stop.text.as_str()), (Exit::Local, "no"));
        }
    }

    #[test]
    fn an_old_manifest_stays_until_the_job_has_sent_its_own() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("manifest");
        std::fs::write(&file, "before").unwrap();
        let fetched = Fetched::into(Some(&file)).unwrap().unwrap();
        assert!(!fetched.write().unwrap(), "nothing came");
        fetched.hold(Channel::Manifest, 0, b"one").unwrap();
        fetched.hold(Channel::RawManifest, 0, b"odd").unwrap();
        // A reconnected job repeats part of the manifest.
        fetched.hold(Channel::Manifest, 1, b"ne two").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"before");
        assert!(fetched.write().unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"one two");
        assert_eq!(std::fs::read(raw_beside(&file)).unwrap(), b"odd");
    }

    #[test]
    fn exit_codes_are_those_of_the_job() {
        for exit in [
            Exit::Done,
            Exit::Partial,
            Exit::Superseded,
            Exit::Interrupted,
        ] {
            assert_eq!(Left::Ended(exit.code()).exit(), exit);
        }
        assert_eq!(Left::Ended(77).exit(), Exit::Connection);
    }
}
