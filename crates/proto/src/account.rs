//! What became of file data within one session. The counts of a killed and repeated transfer's
//! sessions add up, and contain each byte once.

/// Bytes and files of one end of one session. Nothing is counted of what was
/// there unchanged. Of a file that changed under the copy, all but
/// `moved_bytes` is about its newest state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// File data in blocks that were handed to streams, or came from them;
    /// holes included, before compression.
    pub moved_bytes: u64,
    /// Of `moved_bytes`, those in blocks that the receiver said have arrived: others may lie
    /// in buffers on the way. All of them at a receiver.
    pub arrived_bytes: u64,
    /// Of `moved_bytes`, those that had moved before in this session: for a slow or lost
    /// stream, or because they arrived wrong, or their source changed.
    pub moved_again_bytes: u64,
    /// Files of which a block moved, each counted once, empty ones too.
    pub moved_files: u64,
    /// File data in blocks that were read, or were to be, and that no stream
    /// took because nobody needed them any more.
    pub discarded_bytes: u64,
    /// Bytes of files that became durable in this session, under their names
    /// or not, as this end knows.
    pub durable_bytes: u64,
    /// Bytes of files that an earlier session left durable without a name.
    pub resumed_bytes: u64,
}

/// What is counted of one entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// A block of it moved.
    pub begun: bool,
    /// Bytes of it that moved, each once.
    pub moved: u64,
    /// See [`Account::durable_bytes`].
    pub durable: u64,
    /// See [`Account::resumed_bytes`].
    pub resumed: u64,
}

impl Share {
    /// Bytes of it that are durable, by any session.
    pub fn at_destination(&self) -> u64 {
        self.durable.saturating_add(self.resumed)
    }
}

impl Account {
    /// A file's block moved: its bytes, and how many of them for the first time.
    pub(crate) fn add_moved(&mut self, share: &mut Share, bytes: u64, fresh: u64) {
        self.moved_files += u64::from(!share.begun);
        share.begun = true;
        share.moved = share.moved.saturating_add(fresh);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        self.moved_again_bytes = self
            .moved_again_bytes
            .saturating_add(bytes - fresh.min(bytes));
    }

    /// Bytes of finished files that moved again.
    pub(crate) fn add_unclaimed(&mut self, bytes: u64) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        self.moved_again_bytes = self.moved_again_bytes.saturating_add(bytes);
    }

    /// Further bytes of a file are durable.
    pub(crate) fn add_durable(&mut self, share: &mut Share, bytes: u64) {
        share.durable = share.durable.saturating_add(bytes);
        self.durable_bytes = self.durable_bytes.saturating_add(bytes);
    }

    /// Bytes of a file that were there already.
    pub(crate) fn add_resumed(&mut self, share: &mut Share, bytes: u64) {
        share.resumed = share.resumed.saturating_add(bytes);
        self.resumed_bytes = self.resumed_bytes.saturating_add(bytes);
    }

    /// A file of this size has its name: all of it is durable.
    pub(crate) fn complete(&mut self, share: &mut Share, size: u64) {
        self.add_durable(share, size.saturating_sub(share.at_destination()));
    }

    /// Moved bytes of a file that must move again.
    pub(crate) fn take_back(&mut self, share: &mut Share, bytes: u64) {
        let bytes = bytes.min(share.moved);
        share.moved -= bytes;
        self.moved_again_bytes = self.moved_again_bytes.saturating_add(bytes);
    }

    /// What moved of a file is void.
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
    fn what_is_void_does_not_count() {
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
