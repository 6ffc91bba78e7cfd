//! Merges sorted runs.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;

use super::run::{OwnedRecord, Run, RunReader};
use super::{Record, Spill, SpillSettings};

/// Merges neighbouring runs until few enough are left for one merge. Only neighbours are merged, so
/// that equal keys stay in the order of their age.
pub(super) fn merge_until(mut runs: Vec<Run>, settings: &SpillSettings) -> io::Result<Vec<Run>> {
    let fan_in = settings.fan_in.max(2);
    while runs.len() > fan_in {
        let mut longer = Spill::new(&settings.directory)?;
        let mut shorter = runs.into_iter();
        loop {
            let group: Vec<Run> = shorter.by_ref().take(fan_in).collect();
            if group.is_empty() {
                break;
            }
            let mut merge = Merge::new(group, settings)?;
            while let Some(record) = merge.next_record()? {
                longer.push(record)?;
            }
            longer.end_run();
        }
        runs = longer.finish()?;
    }
    Ok(runs)
}

/// A merge of several runs into one.
pub(super) struct Merge {
    heads: BinaryHeap<Reverse<Head>>,
    /// True if the record at the top was returned.
    is_used: bool,
}

/// The next record of a run.
struct Head {
    record: OwnedRecord,
    /// Age that breaks ties: the older run comes first.
    age: usize,
    run: RunReader,
}

/// Minimum and maximum size in bytes of a run's buffer. A smaller one would need a system call for
/// every few names, and a larger one gives no benefit.
const READ_BYTES: (usize, usize) = (4 << 10, 64 << 10);

impl Merge {
    pub(super) fn new(runs: Vec<Run>, settings: &SpillSettings) -> io::Result<Merge> {
        let share = settings.memory.0 / runs.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let buffer_bytes = share.clamp(READ_BYTES.0, READ_BYTES.1);
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (age, run) in runs.into_iter().enumerate() {
            let mut run = run.read(buffer_bytes);
            let mut record = OwnedRecord::default();
            if run.read_into(&mut record)? {
                heads.push(Reverse(Head { record, age, run }));
            }
        }
        Ok(Merge {
            heads,
            is_used: false,
        })
    }

    pub(super) fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        if self.is_used {
            self.advance()?;
        }
        self.is_used = true;
        Ok(self.heads.peek().map(|Reverse(head)| head.record.borrow()))
    }

    /// Replaces the returned record by the next one of its run.
    fn advance(&mut self) -> io::Result<()> {
        let Some(mut top) = self.heads.peek_mut() else {
            return Ok(());
        };
        let Reverse(Head { record, run, .. }) = &mut *top;
        if !run.read_into(record)? {
            PeekMut::pop(top);
        }
        Ok(())
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let keys = self.record.borrow().key.cmp(other.record.borrow().key);
        keys.then(self.age.cmp(&other.age))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}
