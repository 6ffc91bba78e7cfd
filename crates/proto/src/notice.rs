//! Properties that a destination lost or refused although the data arrived. The receiving end
//! collects notices: one of each kind, with a count and an example. The end that shows the summary
//! receives them with the last message.

use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode};

use crate::keeping::Keeping;
#[cfg(doc)]
use crate::message::MAXIMUM_TEXT_BYTES;

/// Maximum number of notices of one session: one of each kind.
pub const MAXIMUM_NOTICES: usize = 14;

/// Property that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum NoticeKind {
    /// The file system rounds times. Comparisons allow for that.
    #[n(0)]
    TimeRounded,
    /// A time is outside the file system's range. Comparisons allow for that.
    #[n(1)]
    TimeLimited,
    /// A time was set, but reads back differently.
    #[n(2)]
    TimeNotKept,
    /// The file system refused to set a time.
    #[n(3)]
    TimeRefused,
    /// Permission bits were set, but read back differently.
    #[n(4)]
    ModeNotKept,
    /// The file system refused to set permission bits.
    #[n(5)]
    ModeRefused,
    /// A set-user-ID or set-group-ID bit was omitted, because the file belongs to another user or
    /// group than at the source.
    #[n(6)]
    SetIdDropped,
    /// The file system does not sync directories.
    #[n(7)]
    NamesNotSynced,
    /// The file system has no locks, so that another writer cannot be excluded.
    #[n(8)]
    NotLocked,
    /// An entry does not have the requested user.
    #[n(9)]
    OwnerNotKept,
    /// An entry does not have the requested group.
    #[n(10)]
    GroupNotKept,
    /// An extended attribute was not set, or not read.
    #[n(11)]
    AttributeNotKept,
    /// An access control list was not set.
    #[n(12)]
    ListNotKept,
    /// A device was not created.
    #[n(13)]
    DeviceNotMade,
}

/// Returns the notices that count as failures, because the attribute was requested by name.
pub fn required_by(keep: &Keeping) -> Vec<NoticeKind> {
    let mut required = Vec::new();
    if keep.owners_required {
        required.extend([NoticeKind::OwnerNotKept, NoticeKind::GroupNotKept]);
    }
    if keep.devices_required {
        required.push(NoticeKind::DeviceNotMade);
    }
    if keep.extended {
        required.push(NoticeKind::AttributeNotKept);
    }
    if keep.acls {
        required.push(NoticeKind::ListNotKept);
    }
    required
}

/// Count and example of one kind of lost property.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Notice {
    /// Kind of the property.
    #[n(0)]
    pub kind: NoticeKind,
    /// Number of occurrences, 1 or more. For directories that are not synced, the number of
    /// directories.
    #[n(1)]
    pub count: u64,
    /// An affected path, at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(2), decode_with = "crate::message::bounded_text")]
    pub example: String,
    /// Cause for the example, at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(3), decode_with = "crate::message::bounded_text")]
    pub cause: String,
}

impl Notice {
    /// Makes the first notice of a kind. Texts are cut to their bound.
    pub fn new(kind: NoticeKind, example: impl Into<String>, cause: impl Into<String>) -> Notice {
        Notice {
            kind,
            count: 1,
            example: crate::message::cut(example.into()),
            cause: crate::message::cut(cause.into()),
        }
    }
}

/// Decodes notices from an untrusted peer. Fails if there are more than [`MAXIMUM_NOTICES`].
pub(crate) fn bounded_notices<'b, C>(
    decoder: &mut Decoder<'b>,
    context: &mut C,
) -> Result<Vec<Notice>, Error> {
    let count = decoder.array()?;
    let count = count.ok_or_else(|| Error::message("notices without their number"))?;
    if count > MAXIMUM_NOTICES as u64 {
        return Err(Error::message("too many notices"));
    }
    (0..count)
        .map(|_| Notice::decode(decoder, context))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MAXIMUM_TEXT_BYTES, Message, Totals};

    fn decoded(bytes: &[u8]) -> Result<Message, Error> {
        minicbor::decode(bytes)
    }

    #[test]
    fn too_many_notices_or_too_long_ones_are_refused() {
        let notice = Notice::new(NoticeKind::TimeLimited, "a", "b");
        let end = |notices| Message::Finished(Totals::default(), notices);
        let many = end(vec![notice.clone(); MAXIMUM_NOTICES + 1]);
        assert!(decoded(&minicbor::to_vec(&many).unwrap()).is_err());
        let long = "x".repeat(MAXIMUM_TEXT_BYTES + 1);
        let long = end(vec![Notice {
            example: long,
            ..notice
        }]);
        assert!(decoded(&minicbor::to_vec(&long).unwrap()).is_err());
    }
}
