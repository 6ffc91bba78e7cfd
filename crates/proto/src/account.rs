//! Accounts for the file data of one session. The counts of a killed and repeated transfer's
//! sessions add up and contain each byte once.

/// Bytes and files of one end of one session. Unchanged files at the destination are not counted.
/// For a file that changed during the copy, all counts but `moved_bytes` cover only its newest
/// state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// File data in blocks that streams carried, including holes, before compression.
    pub moved_bytes: u64,
    /// Part of `moved_bytes` in blocks whose arrival the receiver reported. The rest may be in
    /// buffers on the way. At a receiver, all of `moved_bytes`.
    pub arrived_bytes: u64,
    /// Part of `moved_bytes` that moved again in this session, because a stream was slow or lost,
    /// data arrived corrupt, or the source changed.
    pub moved_again_bytes: u64,
    /// Number of files of which a block moved, each counted once, including empty files.
    pub moved_files: u64,
    /// File data in blocks that were planned or read but discarded before a stream took them.
    pub discarded_bytes: u64,
    /// Bytes of files that became durable in this session, with or without their names, as far as
    /// this end knows.
    pub durable_bytes: u64,
    /// Bytes of files that an earlier session left durable without a name.
    pub resumed_bytes: u64,
}

/// Counts of one entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// True if a block of the entry moved.
    pub begun: bool,
    /// Bytes of the entry that moved, each counted once.
    pub moved: u64,
    /// See [`Account::durable_bytes`].
    pub durable: u64,
    /// See [`Account::resumed_bytes`].
    pub resumed: u64,
}

impl Share {
    /// Returns the durable bytes of the entry from all sessions.
    pub fn at_destination(&self) -> u64 {
        self.durable.saturating_add(self.resumed)
    }
}

impl Account {
    /// Counts a file's block that moved: its bytes, and the part of them that moved for the first
    /// time.
    pub(crate) fn add_moved(&mut self, share: &mut Share, bytes: u64, fresh: u64) {
        self.moved_files += u64::from(!share.begun);
        share.begun = true;
        share.moved = share.moved.saturating_add(fresh);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        self.moved_again_bytes = self
            .moved_again_bytes
            .saturating_add(bytes - fresh.min(bytes));
    }

    /// Counts bytes that moved again for a finished file.
    pub(crate) fn add_unclaimed(&mut self, bytes: u64) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        self.moved_again_bytes = self.moved_again_bytes.saturating_add(bytes);
    }

    /// Counts further durable bytes of a file.
    pub(crate) fn add_durable(&mut self, share: &mut Share, bytes: u64) {
        share.durable = share.durable.saturating_add(bytes);
        self.durable_bytes = self.durable_bytes.saturating_add(bytes);
    }

    /// Counts bytes of a file that an earlier session left.
    pub(crate) fn add_resumed(&mut self, share: &mut Share, bytes: u64) {
        share.resumed = share.resumed.saturating_add(bytes);
        self.resumed_bytes = self.resumed_bytes.saturating_add(bytes);
    }

    /// Counts a file of this size that has its name, so that all of it is durable.
    pub(crate) fn complete(&mut self, share: &mut Share, size: u64) {
        self.add_durable(share, size.saturating_sub(share.at_destination()));
    }

    /// Marks moved bytes of a file that must move again.
    pub(crate) fn take_back(&mut self, share: &mut Share, bytes: u64) {
        let bytes = bytes.min(share.moved);
        share.moved -= bytes;
        self.moved_again_bytes = self.moved_again_bytes.saturating_add(bytes);
    }

    /// Voids the counts of a file's older state.
    pub(crate) fn void(&mut self, share: Share) {
        self.moved_files = self.moved_files.saturating_sub(u64::from(share.begun));
        self.moved_again_bytes = self.moved_again_bytes.saturating_add(share.moved);
        self.durable_bytes = self.durable_bytes.saturating_sub(share.durable);
        self.resumed_bytes = self.resumed_bytes.saturating_sub(share.resumed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_once() {
        let (mut account, mut share) = (Account::default(), Share::default());
        account.add_resumed(&mut share, 100);
        account.add_moved(&mut share, 50, 50);
        account.add_moved(&mut share, 60, 50);
        account.take_back(&mut share, 50);
        account.add_moved(&mut share, 50, 50);
        account.add_durable(&mut share, 70);
        account.complete(&mut share, 200);
        assert_eq!(account.moved_bytes - account.moved_again_bytes, 100);
        assert_eq!((account.durable_bytes, account.resumed_bytes), (100, 100));
        assert_eq!((account.moved_files, account.moved_again_bytes), (1, 60));
    }

    #[test]
    fn void_bytes_do_not_count() {
        let (mut account, mut share) = (Account::default(), Share::default());
        account.add_moved(&mut share, 50, 50);
        account.add_durable(&mut share, 50);
        account.void(share);
        let expected = Account {
            moved_bytes: 50,
            moved_again_bytes: 50,
            ..Account::default()
        };
        assert_eq!(account, expected);
    }
}
