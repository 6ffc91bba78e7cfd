//! What shows a job, and what a job shows itself with.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use super::job_protocol::{Channel, Order, Shown, ShownProgress, send};
use crate::about::About;
use crate::client::observer::Control;
use crate::client::observer::Observer;
use crate::stop::Stop;

/// Shows a job here.
pub trait Viewer {
    /// How progress is wanted.
    fn wants(&self) -> ShownProgress;

    /// What is under way, until the job itself speaks.
    fn notice(&self, text: &str);

    /// The job was asked to begin: it would continue without this end.
    fn begun(&self, canceller: Canceller);

    /// The job runs, and is left to itself; its name finds it again.
    fn left(&self, name: &str);

    /// The job wrote this at an offset of a channel; what was lost comes again.
    fn output(&self, channel: Channel, at: u64, bytes: &[u8]);

    /// How far it is: a line or an event, as wanted.
    fn progress(&self, text: &str);

    /// It has ended.
    fn end(&self);
}

/// Shows nothing.
pub struct Unseen;

impl Viewer for Unseen {
    fn wants(&self) -> ShownProgress {
        ShownProgress::None
    }

    fn notice(&self, _: &str) {}

    fn begun(&self, _: Canceller) {}

    fn left(&self, _: &str) {}

    fn output(&self, _: Channel, _: u64, _: &[u8]) {}

    fn progress(&self, _: &str) {}

    fn end(&self) {}
}

/// Cancels a job.
pub struct Canceller(UnixStream);

impl Canceller {
    pub(super) fn new(channel: UnixStream) -> Canceller {
        Canceller(channel)
    }

    /// Asks the job to end; what is durable stays.
    pub fn cancel(&self) {
        // Where the channel is lost, that is heard and said.
        let _ = send(&self.0, &Order::Cancel);
    }
}

/// Tells the followers of a job how far it is.
pub trait Outlet: Send + Sync {
    /// It has begun.
    fn begun(&self);

    /// The newest progress line.
    fn line(&self, line: String);

    /// The newest progress event.
    fn event(&self, event: String);

    /// Bytes of files that are durable at the destination.
    fn done_bytes(&self, bytes: u64);

    /// The summary is next.
    fn over(&self);
}

/// What a job is to be shown with, on its own standard output and error, which are kept.
pub struct JobOutput {
    /// What it tells.
    pub shown: Shown,
    /// What is done, and from where to where.
    pub about: About,
    /// Where its manifest goes, and as the user named that.
    pub manifest: Option<(PathBuf, String)>,
    /// Where it is written down what became of each entry, for programs and for people.
    pub accounts: [Option<PathBuf>; 2],
    /// Who hears how far it is.
    pub outlet: Arc<dyn Outlet>,
    /// What cancels it.
    pub control: Control,
}

/// Makes what shows a job on its own standard output and error.
pub type Rendering = dyn Fn(JobOutput) -> Result<Arc<dyn Observer>, Stop>;
