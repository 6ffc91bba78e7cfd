//! What a destination did not keep, or refused to do, although the data arrived. The receiving end
//! gathers notices: one of each kind, with a count and an example. The end that shows the summary
//! gets them with the last message.

use minicbor::decode::Error;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder};

#[cfg(doc)]
use crate::message::MAXIMUM_TEXT_BYTES;

/// Most notices of one session. There is one of each kind, so a peer of a
/// later release has room for kinds that this one does not know.
pub const MAXIMUM_NOTICES: usize = 32;

/// What kind of wish was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// The file system keeps times less exactly; comparisons allow for that.
    TimeRounded,
    /// A time is outside the file system's range; comparisons allow for that.
    TimeLimited,
    /// A time was set, and is another one.
    TimeNotKept,
    /// The file system refused to set a time.
    TimeRefused,
    /// Permission bits were set, and are others.
    ModeNotKept,
    /// The file system refused to set permission bits.
    ModeRefused,
    /// A set-user-ID or set-group-ID bit was left out: the file belongs to
    /// another user or group than at the source.
    SetIdDropped,
    /// The file system does not sync directories.
    NamesNotSynced,
    /// The file system has no locks: that nobody else writes there is not certain.
    NotLocked,
    /// An entry does not belong to the user that it should belong to.
    OwnerNotKept,
    /// An entry does not belong to the group that it should belong to.
    GroupNotKept,
    /// An extended attribute was not set, or not read.
    AttributeNotKept,
    /// An access control list was not set.
    ListNotKept,
    /// A device was not made.
    DeviceNotMade,
    /// A kind of a later release.
    Unknown,
}

impl NoticeKind {
    /// Kinds that a peer may name, by their number.
    pub const ALL: [NoticeKind; 14] = [
        NoticeKind::TimeRounded,
        NoticeKind::TimeLimited,
        NoticeKind::TimeNotKept,
        NoticeKind::TimeRefused,
        NoticeKind::ModeNotKept,
        NoticeKind::ModeRefused,
        NoticeKind::SetIdDropped,
        NoticeKind::NamesNotSynced,
        NoticeKind::NotLocked,
        NoticeKind::OwnerNotKept,
        NoticeKind::GroupNotKept,
        NoticeKind::AttributeNotKept,
        NoticeKind::ListNotKept,
        NoticeKind::DeviceNotMade,
    ];
}

impl<C> Encode<C> for NoticeKind {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let number = NoticeKind::ALL.iter().position(|kind| kind == self);
        let number = number.unwrap_or(NoticeKind::ALL.len());
        encoder.u32(number as u32)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for NoticeKind {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        let known = NoticeKind::ALL.get(decoder.u32()? as usize);
        Ok(known.copied().unwrap_or(NoticeKind::Unknown))
    }
}

/// A wish that the destination did not grant.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Notice {
    /// Its kind.
    #[n(0)]
    pub kind: NoticeKind,
    /// How often, 1 or more; of directories that are not synced, how many.
    #[n(1)]
    pub count: u64,
    /// One path that it concerns; at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(2), decode_with = "crate::message::bounded_text")]
    pub example: String,
    /// Why, in words, of that one; at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(3), decode_with = "crate::message::bounded_text")]
    pub cause: String,
}

impl Notice {
    /// The first of a kind; texts are cut to their bound.
    pub fn new(kind: NoticeKind, example: impl Into<String>, cause: impl Into<String>) -> Notice {
        Notice {
            kind,
            count: 1,
            example: crate::message::cut(example.into()),
            cause: crate::message::cut(cause.into()),
        }
    }
}

/// Notices from a peer, who may be anybody.
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
    fn notices_go_with_the_end_and_older_ends_have_none() {
        let notices: Vec<Notice> = NoticeKind::ALL
            .into_iter()
            .map(|kind| Notice::new(kind, "a/b", "x".repeat(5000)))
            .collect();
        assert_eq!(notices[0].cause.len(), MAXIMUM_TEXT_BYTES);
        let message = Message::Finished(Totals::default(), notices);
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(decoded(&bytes).unwrap(), message);
        // What a release without notices says.
        let mut old = Encoder::new(Vec::new());
        old.array(2).unwrap().u32(12).unwrap();
        old.array(1).unwrap().encode(Totals::default()).unwrap();
        let old = old.into_writer();
        let expected = Message::Finished(Totals::default(), Vec::new());
        assert_eq!(decoded(&old).unwrap(), expected);
    }

    /// What a release without notices understands.
    #[derive(Debug, Decode)]
    enum Older {
        #[n(12)]
        Finished(#[n(0)] Totals),
    }

    #[test]
    fn an_older_end_passes_over_notices() {
        let notice = Notice::new(NoticeKind::ModeRefused, "a", "b");
        let message = Message::Finished(Totals::default(), vec![notice]);
        let bytes = minicbor::to_vec(&message).unwrap();
        let Older::Finished(totals) = minicbor::decode(&bytes).unwrap();
        assert_eq!(totals, Totals::default());
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

    #[test]
    fn a_kind_of_a_later_release_is_unknown() {
        let bytes = minicbor::to_vec(NoticeKind::Unknown).unwrap();
        let kind: NoticeKind = minicbor::decode(&bytes).unwrap();
        assert_eq!(kind, NoticeKind::Unknown);
    }
}
