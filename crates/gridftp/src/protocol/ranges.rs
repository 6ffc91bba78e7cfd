//! Ranges of bytes, as restart markers carry them: `0-100,200-300`, each end excluded (GFD.20).

/// Maximum number of separate ranges. Data connections deliver in order, so that a file has
/// few more ranges than connections.
pub const MAXIMUM_RANGES: usize = 65_536;

/// The ranges would be more than [`MAXIMUM_RANGES`], or a range ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent too many separate ranges, or a range that ends before its start")]
pub struct RangesError;

/// A set of bytes of a file as ranges, sorted, and with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    /// Returns the set of the first bytes of a file.
    pub fn front(length: u64) -> Ranges {
        let ranges = if length == 0 {
            vec![]
        } else {
            vec![(0, length)]
        };
        Ranges { ranges }
    }

    /// Adds the bytes from `start` up to `end`, which is excluded.
    ///
    /// # Errors
    ///
    /// [`RangesError`]. The set stays as it was.
    pub fn insert(&mut self, start: u64, end: u64) -> Result<(), RangesError> {
        if end < start {
            return Err(RangesError);
        }
        if end == start {
            return Ok(());
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let after = self.ranges.partition_point(|range| range.0 <= end);
        let touched = &self.ranges[first..after];
        let merged = (
            touched.first().map_or(start, |range| range.0.min(start)),
            touched.last().map_or(end, |range| range.1.max(end)),
        );
        if touched.is_empty() && self.ranges.len() >= MAXIMUM_RANGES {
            return Err(RangesError);
        }
        self.ranges.splice(first..after, [merged]);
        Ok(())
    }

    /// True if the set contains any byte from `start` up to `end`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let first = self.ranges.partition_point(|range| range.1 <= start);
        self.ranges.get(first).is_some_and(|range| range.0 < end)
    }

    /// True if the set contains all bytes of a file of this size.
    pub fn covers(&self, size: u64) -> bool {
        size == 0 || matches!(self.ranges.first(), Some((0, end)) if *end >= size)
    }

    /// Returns the ranges that a file of this size has and the set does not.
    pub fn missing(&self, size: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = 0;
        for (start, end) in &self.ranges {
            if *start >= size {
                break;
            }
            if at < *start {
                missing.push((at, *start));
            }
            at = *end;
        }
        if at < size {
            missing.push((at, size));
        }
        missing
    }

    /// Returns the number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the set of the first `count` ranges.
    pub fn first(&self, count: usize) -> Ranges {
        let ranges = self.ranges.iter().take(count).copied().collect();
        Ranges { ranges }
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// Parses the ranges of a marker. `None` if the text has another form.
    pub fn parse(text: &[u8]) -> Option<Ranges> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let mut ranges = Ranges::default();
        for part in text.split(',') {
            let (start, end) = part.split_once('-')?;
            let (start, end) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
            ranges.insert(start, end).ok()?;
        }
        Some(ranges)
    }

    /// Formats the ranges as the argument of `REST`.
    pub fn marker(&self) -> String {
        let parts: Vec<String> = self
            .ranges
            .iter()
            .map(|(start, end)| format!("{start}-{end}"))
            .collect();
        parts.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_the_set_of_their_bytes(
            parts in proptest::collection::vec((0_u64..64, 0_u64..16), 0..20),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 80];
            for (start, length) in parts {
                ranges.insert(start, start + length).unwrap();
                for byte in start..start + length {
                    bytes[byte as usize] = true;
                }
            }
            let of = |ranges: &mut dyn Iterator<Item = (u64, u64)>| {
                let mut found = [false; 80];
                for (start, end) in ranges {
                    found[start as usize..end as usize].fill(true);
                }
                found
            };
            prop_assert_eq!(of(&mut ranges.iter()), bytes);
            let missing = ranges.missing(80);
            prop_assert_eq!(of(&mut missing.into_iter()), bytes.map(|present| !present));
            prop_assert_eq!(ranges.covers(80), bytes.iter().all(|present| *present));
            prop_assert_eq!(ranges.overlaps(10, 20), bytes[10..20].contains(&true));
            if !ranges.is_empty() {
                prop_assert_eq!(Ranges::parse(ranges.marker().as_bytes()), Some(ranges));
            }
        }
    }

    #[test]
    fn markers_of_another_form_are_refused() {
        for bad in ["", "a-b", "5-1", "1", "1-2,", "1-2;3-4", "-1-2"] {
            assert_eq!(Ranges::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Ranges::parse(b" 0-8").unwrap(), Ranges::front(8));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut ranges = Ranges::default();
        for number in 0..MAXIMUM_RANGES as u64 {
            ranges.insert(number * 2, number * 2 + 1).unwrap();
        }
        let beyond = MAXIMUM_RANGES as u64 * 2;
        assert_eq!(ranges.insert(beyond, beyond + 1), Err(RangesError));
        assert_eq!(ranges.insert(0, beyond), Ok(()));
        assert_eq!(ranges.iter().count(), 1);
    }
}
