//! Finds the kind of data of a block, by the first bytes of its file and by samples.

use std::collections::HashMap;
use std::sync::Mutex;

use longhaul_proto::coding::Kind;
use longhaul_proto::manifest::EntryId;
use longhaul_proto::shuffle::ElementSize;
use longhaul_system::queue::lock;

use crate::codec::recognise::{Format, recognise};
use crate::codec::sample::{Nature, is_array_of, nature_of};

/// Maximum number of files whose kind is remembered for their next pieces.
const MOST_FILES: usize = 256;

/// Number of bytes of a file for which a sample is valid. A sample takes a hundredth of the time
/// that the fastest codec needs for them.
const BYTES_BETWEEN_SAMPLES: u64 = 8 << 20;

/// Element size of arrays, as given by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// No arrays: blocks are not shuffled.
    None,
    /// Elements of this size, in every large file.
    Of(ElementSize),
}

impl Elements {
    /// Returns the value for 1, 2, 4 or 8 bytes; `None` for other sizes.
    pub fn of_bytes(bytes: usize) -> Option<Elements> {
        match bytes {
            1 => Some(Elements::None),
            _ => ElementSize::of_bytes(bytes).map(Elements::Of),
        }
    }
}

/// Kinds of the files being sent.
#[derive(Default)]
pub(crate) struct Kinds {
    files: Mutex<HashMap<EntryId, Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    format: Option<Format>,
    kind: Kind,
    /// Number of bytes for which it stays valid.
    left: u64,
}

impl Kinds {
    /// Returns the kind of a file's next piece of `bytes` bytes, if an earlier sample is still
    /// valid.
    pub fn known(&self, file: EntryId, bytes: u64) -> Option<Kind> {
        let mut files = lock(&self.files);
        let known = files.get_mut(&file)?;
        known.left = known.left.checked_sub(bytes)?;
        Some(known.kind)
    }

    /// Processes a sample of a piece, whose elements begin at multiples of their size. `head` has
    /// the first bytes of the file if the piece contains them.
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
        let kind = kind_of(format, (nature, sample), elements);
        let known = Known {
            format,
            kind,
            left: BYTES_BETWEEN_SAMPLES,
        };
        files.insert(file, known);
        kind
    }
}

/// Returns the kind of a sample of a large file with these first bytes.
pub(crate) fn kind_of_sample(head: &[u8], sample: &[u8]) -> Kind {
    kind_of(recognise(head), (nature_of(sample), sample), None)
}

/// Bytes of a sample of small files, which is taken for each block.
const PACK_SAMPLE_BYTES: usize = 8 << 10;

/// Returns the kind of a block of small files from two samples: an array if both show the same
/// elements, compressed if the first one is.
pub(crate) fn kind_of_pack(data: &[u8]) -> Kind {
    let middle = &data[middle_of(data.len(), PACK_SAMPLE_BYTES)];
    let nature = nature_of(middle);
    let elsewhere = || {
        let quarter = &data[..data.len() / 4];
        nature_of(&quarter[middle_of(quarter.len(), PACK_SAMPLE_BYTES)])
    };
    match nature {
        Nature::Full => Kind::SmallFull,
        Nature::Numbers(element) if elsewhere() == nature => numbers(element),
        Nature::Numbers(_) | Nature::Dense | Nature::Other => Kind::Small,
    }
}

/// Returns the range in the middle of some data, beginning at a multiple of the largest element.
pub(crate) fn middle_of(length: usize, wanted: usize) -> std::ops::Range<usize> {
    let from = length.saturating_sub(wanted) / 2 / 8 * 8;
    from..length.min(from + wanted)
}

/// Returns the kind of data. Compressed data count as compressed, even if the file or the user
/// gives an element size.
fn kind_of(
    format: Option<Format>,
    (nature, sample): (Nature, &[u8]),
    elements: Option<Elements>,
) -> Kind {
    let said = match (elements, format) {
        (Some(Elements::Of(element)), _) => Some(element),
        (None, Some(Format::Numbers(_, element))) => Some(element),
        _ => None,
    };
    match (nature, format, elements) {
        (Nature::Full, Some(Format::Compressed(_)), _) => Kind::Full,
        // A part of it was stored uncompressed.
        (_, Some(Format::Compressed(_)), _) => Kind::Dense,
        (Nature::Full, ..) => match said.filter(|element| is_array_of(sample, *element)) {
            Some(element) => numbers(element),
            None => Kind::Full,
        },
        (Nature::Numbers(element), _, None) => numbers(said.unwrap_or(element)),
        (nature, ..) => match (said, nature) {
            (Some(element), _) => numbers(element),
            (None, Nature::Dense) => Kind::Dense,
            (None, _) => Kind::Text,
        },
    }
}

fn numbers(element: ElementSize) -> Kind {
    match element {
        ElementSize::Two => Kind::Numbers2,
        ElementSize::Four => Kind::Numbers4,
        ElementSize::Eight => Kind::Numbers8,
    }
}

/// Returns the element size of a kind.
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
    fn samples_lie_in_the_middle_at_whole_elements() {
        assert_eq!(middle_of(100, 8), 40..48);
        assert_eq!(middle_of(5, 8), 0..5);
        assert_eq!(middle_of(0, 8), 0..0);
    }

    #[test]
    fn small_files_with_a_common_element_size_are_arrays() {
        let value = |at: u32| (300.0 + 20.0 * (f64::from(at) / 700.0).sin()).to_le_bytes();
        // The lengths of the files are not multiples of the element size.
        let file = |number: u32| (0..500).flat_map(move |at| value(at * 7 + number)).skip(3);
        let arrays: Vec<u8> = (0..40).flat_map(file).collect();
        assert_eq!(kind_of_pack(&arrays), Kind::Numbers8);
        let text = b"{\"name\": \"value\", \"count\": 17}\n".repeat(3000);
        let mixed = [&text[..], &arrays].concat();
        assert_eq!(kind_of_pack(&mixed), Kind::Small);
        assert_eq!(kind_of_pack(&text), Kind::Small);
        assert_eq!(kind_of_pack(&Random::new(1).bytes(90_000)), Kind::SmallFull);
        assert_eq!(kind_of_pack(b""), Kind::Small);
    }

    #[test]
    fn compressed_data_are_never_an_array() {
        let kinds = Kinds::default();
        let noise = Random::new(4).bytes(32 << 10);
        let numpy: &[u8] = b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'shape': (3,), }\n";
        let gzip: &[u8] = b"\x1f\x8b\x08\0";
        let eight = Elements::of_bytes(8);
        for (number, head, elements) in [
            (1, Some(numpy), None),
            (2, Some(gzip), eight),
            (3, None, eight),
            (4, Some(numpy), eight),
        ] {
            let kind = kinds.handle_sample(EntryId(number), (head, &noise), elements);
            assert_eq!(kind, Kind::Full, "{number}");
        }
        // Only the byte of the exponent has a pattern.
        let value = |at: usize| [&noise[7 * at..7 * at + 7], &[64 + (at % 3) as u8]].concat();
        let values: Vec<u8> = (0..4000).flat_map(value).collect();
        let kind = kinds.handle_sample(EntryId(5), (None, &values), eight);
        assert_eq!(kind, Kind::Numbers8);
    }

    #[test]
    fn the_users_element_size_takes_precedence() {
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
