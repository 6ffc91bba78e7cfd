//! What kind of data a block has, by what its file's first bytes say and by samples.

use std::collections::HashMap;
use std::sync::Mutex;

use longhaul_proto::coding::Kind;
use longhaul_proto::manifest::EntryId;
use longhaul_proto::shuffle::ElementSize;

use crate::codec::recognise::{Format, recognise};
use crate::codec::sample::{Nature, nature_of};
use crate::queue::lock;

/// Files whose kind is remembered, for their next pieces.
const MOST_FILES: usize = 256;

/// Bytes of a file that are taken for what a sample before them was. A sample takes a
/// hundredth of the time in which the fastest codec does so much.
const BYTES_BETWEEN_SAMPLES: u64 = 8 << 20;

/// Elements of arrays, as the user said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// There are none: nothing is shuffled.
    None,
    /// Of this size, in every file that is no small one.
    Of(ElementSize),
}

impl Elements {
    /// By bytes of an element: 1, 2, 4 or 8.
    pub fn of_bytes(bytes: usize) -> Option<Elements> {
        match bytes {
            1 => Some(Elements::None),
            _ => ElementSize::of_bytes(bytes).map(Elements::Of),
        }
    }
}

/// Kinds of files that are under way.
#[derive(Default)]
pub(crate) struct Kinds {
    files: Mutex<HashMap<EntryId, Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    format: Option<Format>,
    kind: Kind,
    /// For this number of bytes more.
    left: u64,
}

impl Kinds {
    /// The kind of a file's next piece, which has `bytes`, where a sample before tells it.
    pub fn known(&self, file: EntryId, bytes: u64) -> Option<Kind> {
        let mut files = lock(&self.files);
        let known = files.get_mut(&file)?;
        known.left = known.left.checked_sub(bytes)?;
        Some(known.kind)
    }

    /// Takes a sample of a piece, whose elements begin at multiples of their size, and the front
    /// of its file where the piece is that.
    pub fn handle_sample(
        &self,
        file: EntryId,
        (head, sample): (Option<&[u8]>, &[u8]),
        elements: Option<Elements>,
    ) -> Kind {
        let nature = nature_of(sample);
        let mut files = lock(&self.files);
        if files.len() >= MOST_FILES && !files.contains_key(&file) {
            files.clear();
        }
        let before = files.get(&file).and_then(|known| known.format);
        let format = head.and_then(recognise).or(before);
        let kind = kind_of(format, nature, elements);
        let known = Known {
            format,
            kind,
            left: BYTES_BETWEEN_SAMPLES,
        };
        files.insert(file, known);
        kind
    }
}

/// What a block of small files is, by a sample.
pub(crate) fn kind_of_pack(sample: &[u8]) -> Kind {
    match nature_of(sample) {
        Nature::Full => Kind::SmallFull,
        Nature::Numbers(_) | Nature::Dense | Nature::Other => Kind::Small,
    }
}

fn kind_of(format: Option<Format>, nature: Nature, elements: Option<Elements>) -> Kind {
    let is_packed = matches!(format, Some(Format::Compressed(_)));
    match (nature, format, elements) {
        (Nature::Full, _, None) if is_packed => Kind::Full,
        // Something in it was stored as it is.
        (_, _, None) if is_packed => Kind::Dense,
        (_, _, Some(Elements::Of(element))) | (_, Some(Format::Numbers(_, element)), None) => {
            numbers(element)
        }
        (Nature::Numbers(element), _, None) => numbers(element),
        (Nature::Full, ..) => Kind::Full,
        (Nature::Dense, ..) => Kind::Dense,
        (Nature::Other | Nature::Numbers(_), ..) => Kind::Text,
    }
}

fn numbers(element: ElementSize) -> Kind {
    match element {
        ElementSize::Two => Kind::Numbers2,
        ElementSize::Four => Kind::Numbers4,
        ElementSize::Eight => Kind::Numbers8,
    }
}

/// The elements of a kind.
pub(crate) fn elements_of(kind: Kind) -> Option<ElementSize> {
    match kind {
        Kind::Numbers2 => Some(ElementSize::Two),
        Kind::Numbers4 => Some(ElementSize::Four),
        Kind::Numbers8 => Some(ElementSize::Eight),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    #[test]
    fn a_file_keeps_its_kind_for_some_bytes_and_its_format_for_good() {
        let kinds = Kinds::default();
        let (file, random) = (EntryId(7), &mut Random::new(3));
        assert_eq!(kinds.known(file, 1), None);
        let noise = random.bytes(32 << 10);
        let head = [b"\x1f\x8b\x08\0", &noise[..100]].concat();
        let kind = kinds.handle_sample(file, (Some(&head), &noise), None);
        assert_eq!(kind, Kind::Full);
        assert_eq!(kinds.known(file, BYTES_BETWEEN_SAMPLES), Some(Kind::Full));
        assert_eq!(kinds.known(file, 1), None);
        let text = b"stored as it is, ".repeat(2000);
        assert_eq!(kinds.handle_sample(file, (None, &text), None), Kind::Dense);
        let other = kinds.handle_sample(EntryId(8), (Some(&text), &text), None);
        assert_eq!(other, Kind::Text);
    }

    #[test]
    fn what_the_user_says_of_elements_counts() {
        let kinds = Kinds::default();
        let text = b"text ".repeat(7000);
        let four = Elements::of_bytes(4);
        let kind = kinds.handle_sample(EntryId(1), (None, &text), four);
        assert_eq!(kind, Kind::Numbers4);
        let values = (0..4000_u32).flat_map(|n| (300.0 + f64::from(n % 97) / 7.0).to_le_bytes());
        let values: Vec<u8> = values.collect();
        let (none, some) = (Elements::of_bytes(1), None);
        let sampled = |elements| kinds.handle_sample(EntryId(2), (None, &values), elements);
        assert_eq!(sampled(some), Kind::Numbers8);
        assert_eq!(sampled(none), Kind::Text);
        assert_eq!(Elements::of_bytes(3), None);
    }
}
