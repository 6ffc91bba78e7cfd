//! Condition variables of an end. All wait on the one lock of the session.

use std::sync::Condvar;

use longhaul_proto::receiver::Receiver;
use longhaul_proto::sender::Sender;
use longhaul_units::Moment;

/// Condition variables of an end.
#[derive(Default)]
pub(crate) struct Signals {
    /// Notified when there may be a block to read.
    pub reading: Condvar,
    /// Notified when there may be a file to read for its digest, to filter or to remove.
    pub digesting: Condvar,
    /// Notified when the other end has searched its sources.
    pub searching: Condvar,
    /// Notified when the walk may continue.
    pub walking: Condvar,
    /// Notified when there may be a storage job.
    pub storing: Condvar,
    /// Notified when more data of large files may be written.
    pub writing: Condvar,
    /// Notified when the life of the session or its streams changed.
    pub living: Condvar,
}

impl Signals {
    /// Wakes the threads of a sending end that may have work. `may_read` is false if enough blocks
    /// wait for streams.
    pub fn notify_for_sender(&self, sender: &Sender, may_read: bool) {
        if may_read {
            self.reading.notify_one();
        }
        if sender.work().has_unread_digest()
            || sender.work().moves().has_step()
            || sender.work().searches().has_step()
            || sender.work().has_filter_step()
        {
            self.digesting.notify_all();
        }
        self.walking.notify_all();
    }

    /// Wakes the threads of a receiving end that may have work. `storing_in_time` is true if a
    /// committer wakes by itself when the next storage job is due.
    pub fn notify_for_receiver(&self, receiver: &Receiver, storing_in_time: bool, now: Moment) {
        let unwatched = receiver.files().durability().poll_timeout().is_some() && !storing_in_time;
        if unwatched || receiver.has_storage_job(now) {
            self.storing.notify_one();
        }
        if receiver.files().durability().may_write() {
            self.writing.notify_all();
        }
        if receiver.probes().has_sources() {
            self.searching.notify_all();
        }
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.reading.notify_all();
        self.digesting.notify_all();
        self.searching.notify_all();
        self.walking.notify_all();
        self.storing.notify_all();
        self.writing.notify_all();
        self.living.notify_all();
    }
}
