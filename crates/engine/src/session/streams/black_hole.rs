//! Paths on which connections open and data do not arrive. A path that loses large packets without
//! a message (an MTU black hole) does that: a router drops what is too large for the next line, and
//! its message (ICMP "fragmentation needed") is filtered. Small packets pass, so that streams join
//! the session, stand still and are replaced, without an end.
//!
//! The dialing end judges, since it opens the connections. After two generations of such streams
//! its new connections agree on smaller segments, in both directions. If still no data move
//! for the timeout, the session ends and says why.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_proto::sender::Sender;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::{Slot, StreamSet, Streams};
use crate::session::Counters;

/// Bytes that a stream must have carried to have passed a block. Joining takes less than half of
/// it.
const PASSED_BYTES: u64 = 16 << 10;

/// Bytes of data after which the path does not count as one that loses all large packets.
const SOUND_BYTES: u64 = 64 << 10;

/// Age at which a stream may be lost because of its large packets; [`super::stall`] detects it
/// within this range. A stream that ended earlier was closed by the other end, and one that lived
/// longer was idle.
const LIFE: std::ops::Range<Duration> = Duration::from_millis(500)..Duration::from_secs(60);

/// Segment sizes to try, in bytes of payload. Linux falls back to 1024 as well (`tcp_base_mss`).
/// With 536 a packet has the 576 bytes that each host accepts (RFC 791).
pub const SEGMENTS: [u32; 2] = [1024, 536];

/// Number of streams that must be lost before a session ends because no data move.
const LOST_BEFORE_THE_END: u32 = 2;

/// Advice if large packets seem to be lost.
const ADVICE: &str = "large packets seem to be lost on the path without a message (an MTU black \
    hole): let ICMP \"fragmentation needed\" pass, or set net.ipv4.tcp_mtu_probing=1 at both hosts; \
    `longhaul doctor` looks into it";

/// Records if data pass, at the dialing end.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Bytes of data that had moved, and number of settled entries, at the last check.
    bytes: u64,
    entries: u64,
    /// Number of streams with data to carry that were lost since data moved, and the time when the
    /// first was lost.
    lost: u32,
    first_lost: Moment,
    /// Time when the first stream of a generation was lost without passing a block, and the bytes
    /// of data that had moved then.
    choked: Option<(Moment, u64)>,
    /// Number of [`SEGMENTS`] that were tried.
    tried: usize,
}

/// Data about a lost stream.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Time when it joined.
    born: Moment,
    /// Number of bytes that passed in the direction of the data.
    carried: u64,
}

impl Passage {
    /// Records the bytes of data moved so far, and the number of settled entries: copied, compared
    /// or deleted ones.
    fn note_moved(&mut self, bytes: u64, entries: u64) {
        if (bytes, entries) != (self.bytes, self.entries) {
            (self.bytes, self.entries) = (bytes, entries);
            self.lost = 0;
        }
        self.choked = self.choked.filter(|(_, then)| bytes < then + SOUND_BYTES);
    }

    /// Records the loss of a stream that had data to carry.
    fn note_lost(&mut self, lost: Lost, now: Moment) {
        if self.lost == 0 {
            self.first_lost = now;
        }
        self.lost = self.lost.saturating_add(1);
        if lost.carried >= PASSED_BYTES || !LIFE.contains(&(now - lost.born)) {
            return;
        }
        match self.choked {
            // It opened after another one had been lost: small packets pass.
            Some((first, _)) if lost.born > first => {
                self.tried = (self.tried + 1).min(SEGMENTS.len());
                self.choked = None;
            }
            Some(_) => {}
            None => self.choked = Some((now, self.bytes)),
        }
    }

    /// Shifts times after a pause of this process.
    pub(super) fn pause(&mut self, later: impl Fn(Moment) -> Moment) {
        self.first_lost = later(self.first_lost);
    }

    /// Returns the maximum segment of new connections in bytes; `None` if it is not limited.
    fn segment(&self) -> Option<u32> {
        SEGMENTS.get(self.tried.checked_sub(1)?).copied()
    }

    /// Returns the reason to end the session if no data moved for longer than `patience`. `heard`
    /// is the time when data of the session last arrived.
    fn verdict(&self, patience: Duration, heard: Moment, now: Moment) -> Option<String> {
        let waited = now - self.first_lost;
        if self.lost < LOST_BEFORE_THE_END || waited <= patience {
            return None;
        }
        let (lost, seconds) = (self.lost, waited.as_secs());
        let lowered = if self.tried > 0 { Some(ADVICE) } else { None };
        if heard < self.first_lost {
            // Small segments did not help either, so that the other end may be the cause, too.
            let advice = lowered.map_or(String::new(), |advice| {
                format!(": it may stand still, or {advice}")
            });
            return Some(format!(
                "the other end accepted connections, but said nothing on them for {seconds} s{advice}"
            ));
        }
        let cause = lowered.unwrap_or(
            "the path drops data or resets connections; `longhaul doctor` looks into it",
        );
        Some(format!(
            "no data arrived for {seconds} s, while {lost} connections opened and were lost: {cause}"
        ))
    }
}

impl Slot {
    /// True if the kernel may still find a smaller packet size by itself (`tcp_mtu_probing`). A new
    /// stream would have to begin again.
    pub(super) fn may_probe(&self, now: Moment) -> bool {
        self.acked.0 < PASSED_BYTES && now - self.acked.1 < PROBED_WITHIN && kernel_probes()
    }
}

/// Time after which a probing kernel has sent smaller segments. It begins at the first timeout that
/// is 3 s after the first retransmission or later (`tcp_retries1`); with the minimum timeout of 200
/// ms that is after 6.2 s, since timeouts double.
const PROBED_WITHIN: Duration = Duration::from_secs(8);

/// True if this host's kernel searches for a smaller packet size when a connection stalls.
fn kernel_probes() -> bool {
    use std::sync::OnceLock;
    static PROBES: OnceLock<bool> = OnceLock::new();
    *PROBES.get_or_init(|| {
        let set = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mtu_probing");
        set.is_ok_and(|set| matches!(set.trim(), "1" | "2"))
    })
}

impl Streams<'_> {
    /// Returns the maximum segment of new connections in bytes; `None` leaves it to the kernel. For
    /// `TCP_MAXSEG`, which must be set before a connection opens.
    pub fn segment_limit(&self) -> Option<u32> {
        self.transfer.lock().streams.passage.segment()
    }

    /// Ends the session if streams with data were lost and no data moved for the timeout.
    pub(super) fn end_if_no_data_pass(&self) {
        let (now, patience) = (self.transfer.now(), self.transfer.settings.silence);
        let mut shared = self.transfer.lock();
        if !shared.streams.dials() || shared.lifetime.is_ending() {
            return;
        }
        let (bytes, told) = (shared.machine.moved_data(), shared.lifetime.told());
        let passage = &mut shared.streams.passage;
        passage.note_moved(bytes, self.transfer.counters.settled_entries());
        let verdict = passage.verdict(patience, told, now);
        if let Some(text) = verdict {
            shared.lifetime.break_off(text);
            self.transfer.wake_everybody(&shared);
        }
    }
}

impl Counters {
    /// Returns the number of entries whose result is known.
    fn settled_entries(&self) -> u64 {
        let counters = self;
        let counts = [
            &counters.done_entries,
            &counters.skipped_entries,
            &counters.new_entries,
            &counters.changed_entries,
            &counters.differing_entries,
            &counters.failed_entries,
            &counters.deleted_entries,
        ];
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl StreamSet {
    /// Records the loss of a stream, before its blocks are given to other streams.
    /// `sender` is the state machine of an end that sends.
    pub(super) fn note_lost_stream(&mut self, id: StreamId, sender: Option<&Sender>, now: Moment) {
        let Some(slot) = self.slots.get(&id).filter(|_| self.dials()) else {
            return;
        };
        let (carried, carries) = match sender {
            // Messages may be as large as blocks.
            _ if slot.stuck => (slot.acked.0, true),
            Some(sender) => (slot.acked.0, sender.streams().carries_something(id)),
            // This end does not know if the other end had data to send.
            None => (slot.received, slot.received < PASSED_BYTES),
        };
        let lost = Lost {
            born: slot.born,
            carried,
        };
        if carries {
            self.passage.note_lost(lost, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn at(milliseconds: u64) -> Moment {
        Moment(milliseconds * 1_000_000)
    }

    fn lost(born: u64, carried: u64) -> Lost {
        Lost {
            born: at(born),
            carried,
        }
    }

    #[test]
    fn segments_shrink_after_two_generations_of_stalled_streams() {
        let mut passage = Passage::default();
        for _ in 0..4 {
            passage.note_lost(lost(0, 700), at(2_000));
            assert_eq!(passage.segment(), None, "one generation may be a cut");
        }
        passage.note_lost(lost(2_100, 700), at(4_100));
        assert_eq!(passage.segment(), Some(1024));
        for (born, ended) in [(4_200, 6_200), (6_300, 8_300)] {
            passage.note_lost(lost(born, 700), at(ended));
        }
        assert_eq!(passage.segment(), Some(536));
        for (born, ended) in [(8_400, 9_400), (9_500, 10_500)] {
            passage.note_lost(lost(born, 700), at(ended));
        }
        assert_eq!(passage.segment(), Some(536), "it does not get smaller");
    }

    #[test]
    fn a_path_that_passed_data_between_is_sound() {
        let mut passage = Passage::default();
        passage.note_lost(lost(0, 700), at(2_000));
        passage.note_moved(SOUND_BYTES, 0);
        passage.note_lost(lost(2_100, 700), at(4_100));
        assert_eq!(passage.segment(), None);
        // Streams that carried blocks, were refused at once, or were idle are no evidence.
        for other in [lost(4_200, PASSED_BYTES), lost(99_900, 0), lost(4_200, 0)] {
            passage.note_lost(other, at(100_000));
        }
        assert_eq!(passage.segment(), None);
    }

    #[test]
    fn a_session_ends_if_streams_are_lost_and_no_data_move() {
        let mut passage = Passage::default();
        assert_eq!(
            passage.verdict(PATIENCE, at(90_000), at(1_000_000)),
            None,
            "it is idle"
        );
        passage.note_lost(lost(0, 700), at(2_000));
        assert_eq!(passage.verdict(PATIENCE, at(90_000), at(13_000)), None);
        passage.note_lost(lost(11_000, 700), at(13_000));
        assert_eq!(passage.verdict(PATIENCE, at(90_000), at(12_000)), None);
        let why = passage.verdict(PATIENCE, at(90_000), at(13_000)).unwrap();
        assert!(why.contains("MTU black hole"), "{why}");
        passage.note_moved(1, 0);
        assert_eq!(passage.verdict(PATIENCE, at(90_000), at(13_000)), None);
        for ended in [14_000, 15_000] {
            passage.note_lost(lost(ended - 1_000, PASSED_BYTES), at(ended));
        }
        // A comparison is progress, too.
        passage.note_moved(1, 1);
        assert_eq!(passage.verdict(PATIENCE, at(90_000), at(30_000)), None);
        for ended in [20_000, 25_000] {
            passage.note_lost(lost(ended - 1_000, PASSED_BYTES), at(ended));
        }
        let why = passage.verdict(PATIENCE, at(90_000), at(31_000)).unwrap();
        assert!(why.contains("2 connections"), "{why}");
        let mut silent = Passage::default();
        for ended in [20_000, 25_000] {
            silent.note_lost(lost(ended - 1_000, PASSED_BYTES), at(ended));
        }
        let why = silent.verdict(PATIENCE, at(19_000), at(31_000)).unwrap();
        assert!(why.contains("said nothing on them"), "{why}");
        assert!(!why.contains("MTU black hole"), "{why}");
    }

    #[test]
    fn a_silent_end_is_named_although_smaller_segments_were_tried() {
        let mut silent = Passage::default();
        for (born, ended) in [(0, 2_000), (2_100, 4_100)] {
            silent.note_lost(lost(born, 700), at(ended));
        }
        assert_eq!(silent.segment(), Some(1024));
        let why = silent.verdict(PATIENCE, at(0), at(13_000)).unwrap();
        assert!(why.contains("said nothing on them"), "{why}");
        assert!(why.contains("MTU black hole"), "{why}");
    }
}
