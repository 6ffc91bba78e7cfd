//! Description of a transfer and its result for the caller.

use std::time::Duration;

use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::Operation;

use super::{Side, Transfer};

/// Description of a transfer and its result.
#[derive(Clone, Copy)]
pub struct Summary<'a> {
    transfer: &'a Transfer,
}

impl<'a> Summary<'a> {
    pub(super) fn of(transfer: &'a Transfer) -> Summary<'a> {
        Summary { transfer }
    }
}

impl Summary<'_> {
    /// True if blocks are sent in clear.
    pub fn is_clear(&self) -> bool {
        self.transfer.settings.is_clear()
    }
}

impl Summary<'_> {
    /// True if the other end sent entries that this end did not request.
    pub fn came_unasked(&self) -> bool {
        match self.transfer.side() {
            Side::Sending(_) => false,
            Side::Receiving(side) => side.came_unasked(),
        }
    }

    /// True if the session is over or everything is done.
    pub fn is_done(&self) -> bool {
        self.transfer.wait_for(Duration::ZERO)
    }

    /// True if everything is done and no stream is left: this end only waits for a sender that may
    /// not know and may return.
    pub fn is_left_alone(&self) -> bool {
        let shared = self.transfer.lock();
        shared.lifetime.is_done() && shared.streams.count() == 0
    }

    /// Returns the reason if a failure of this host ended the session.
    pub fn failure_here(&self) -> Option<String> {
        self.transfer.lock().lifetime.failure_here()
    }

    /// Describes for the summary how the data were verified and protected.
    pub fn describe_briefly(&self) -> String {
        let wire = match (
            self.transfer.settings.is_clear(),
            self.transfer.settings.local,
        ) {
            (_, true) => "within this host",
            (true, false) => "blocks in clear",
            (false, false) => "encrypted",
        };
        format!("{}; {wire}", self.verified())
    }

    /// Returns [`Summary::describe_briefly`] and the kind of I/O of this end.
    pub fn describe(&self) -> String {
        let direct = self.transfer.side().stages().is_direct();
        let disk = match (self.transfer.settings.direct, direct) {
            (false, false) => "buffered I/O",
            (false, true) => "direct I/O of large files",
            (true, true) => "direct I/O",
            (true, false) => "buffered I/O (this file system does no direct I/O)",
        };
        let stack = if self.transfer.settings.is_paired() {
            "; each stream has one thread for all its work"
        } else {
            ""
        };
        format!("{}; {disk} at this end{stack}", self.describe_briefly())
    }

    /// Returns the operation of the transfer.
    pub fn operation(&self) -> Operation {
        self.transfer.settings.operation
    }

    /// True if this end sends.
    pub fn is_sending(&self) -> bool {
        matches!(self.transfer.side(), Side::Sending(_))
    }

    /// Describes how the contents were compared or verified.
    fn verified(&self) -> &'static str {
        let progress = self.transfer.measurements().progress();
        let compares = self.transfer.settings.operation == Operation::Verify;
        let touched = progress.files > 0 || compares && progress.failed_entries > 0;
        let moved_bytes = progress.account.moved_bytes;
        let durable_bytes = progress.account.durable_bytes;
        if !touched && !compares && moved_bytes + durable_bytes > 0 {
            // Data of a failed file are not part of a file that is still to be completed.
            let is_incomplete = durable_bytes == 0 && progress.failed_entries == 0;
            return match (is_incomplete, self.transfer.settings.integrity) {
                (true, _) => "no file is complete yet",
                (false, Integrity::Digest) => "verified by BLAKE3 of every block moved",
                (false, Integrity::Checksum) => "verified by XXH3 of every block moved",
            };
        }
        match (touched, compares, self.transfer.settings.integrity) {
            (false, true, _) => "no file was there to be compared",
            (false, false, _) if progress.skipped_entries > 0 => {
                "nothing was moved: size and time say what is there already"
            }
            (false, false, _) => "no file was moved",
            (true, true, Integrity::Digest) => {
                "compared by size and, where that is the same, by BLAKE3 of every block and file"
            }
            (true, true, Integrity::Checksum) => {
                "compared by size and, where that is the same, by XXH3 of every block"
            }
            (true, false, Integrity::Digest) => "verified by BLAKE3 of every block and file moved",
            (true, false, Integrity::Checksum) => {
                "verified by XXH3 of every block moved, no digest of files"
            }
        }
    }
}
