//! Defines the interfaces that show a job to a user, and that a job uses to report its progress.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use super::job_protocol::{Channel, Order, Shown, ShownProgress, send};
use crate::about::About;
use crate::client::observer::Control;
use crate::client::observer::Observer;
use crate::stop::Stop;

/// Shows a job to the user of this host.
pub trait Viewer {
    /// Returns the wanted form of progress.
    fn wants(&self) -> ShownProgress;

    /// Shows the current step until the job itself reports.
    fn notice(&self, text: &str);

    /// Called after the order to begin. From now on the job continues without this client.
    fn begun(&self, canceller: Canceller);

    /// Called when the job runs and the client leaves it. The name is used to find it again.
    fn left(&self, name: &str);

    /// Shows output from an offset of a channel. After a lost connection, output is repeated.
    fn output(&self, channel: Channel, at: u64, bytes: &[u8]);

    /// Shows progress: a line or an event, as wanted.
    fn progress(&self, text: &str);

    /// Called when the job has ended.
    fn end(&self);
}

/// A viewer that shows nothing.
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

    /// Asks the job to end. Durable data stay.
    pub fn cancel(&self) {
        // A lost channel is reported where it is read.
        let _ = send(&self.0, &Order::Cancel);
    }
}

/// Reports the progress of a job to its followers.
pub trait Outlet: Send + Sync {
    /// Called when the session is open.
    fn begun(&self);

    /// Reports the newest progress line.
    fn line(&self, line: String);

    /// Reports the newest progress event.
    fn event(&self, event: String);

    /// Reports the number of bytes of files that are durable at the destination.
    fn done_bytes(&self, bytes: u64);

    /// Called before the summary is written.
    fn over(&self);
}

/// Settings for a job that writes to its own standard output and error, which are stored.
pub struct JobOutput {
    /// Selects the texts to write.
    pub shown: Shown,
    /// Operation, source and destination.
    pub about: About,
    /// Path of the manifest, and its name as the user gave it.
    pub manifest: Option<(PathBuf, String)>,
    /// Files for the result of each entry: for programs, and for people.
    pub accounts: [Option<PathBuf>; 2],
    /// Receives the progress for the followers.
    pub outlet: Arc<dyn Outlet>,
    /// Cancels the job.
    pub control: Control,
}

/// Creates the observer that shows a job on its standard output and error.
pub type Rendering = dyn Fn(JobOutput) -> Result<Arc<dyn Observer>, Stop>;
