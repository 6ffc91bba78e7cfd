//! Counts file data at the sender.

use super::tasks::{Stage, Tasks};
use crate::account::Account;
use crate::block::{ContentName, PieceName};
use crate::manifest::EntryKind;

/// Counts a block that a stream took. In a twin of a pack, some entries may be done meanwhile.
/// `bytes` includes their bytes, which move again.
pub(super) fn count_moved(
    account: &mut Account,
    content: &ContentName,
    bytes: u64,
    tasks: &mut Tasks,
) {
    match content {
        &ContentName::Piece(piece) => count_piece(account, piece, tasks),
        ContentName::Pack(ids) => {
            let mut left = bytes;
            for id in ids {
                let Some(tracked) = tasks.get_mut(*id) else {
                    continue;
                };
                if !matches!(tracked.entry.kind, EntryKind::File { .. }) {
                    continue;
                }
                let (share, size) = (&mut tracked.share, tracked.entry.size());
                let earlier = share.moved;
                account.take_back(share, earlier);
                account.add_moved(share, size, size);
                left = left.saturating_sub(size);
            }
            account.add_unclaimed(left);
        }
    }
}

fn count_piece(account: &mut Account, piece: PieceName, tasks: &mut Tasks) {
    let Some(tracked) = tasks.get_mut(piece.file) else {
        account.add_unclaimed(piece.length);
        return;
    };
    let (share, end) = (&mut tracked.share, piece.offset + piece.length);
    if let Stage::Large(large) = &mut tracked.stage {
        let fresh = large.moved.missing(piece.offset, end);
        large.moved.insert(piece.offset, end);
        account.add_moved(share, piece.length, fresh);
    }
}
