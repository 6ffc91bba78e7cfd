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

use longhaul_proto::message::Farewell;
use longhaul_units::Moment;

use super::{Machine, Shared, Slot, Transfer};

/// A stream that carried fewer bytes has passed no block. To join takes less than half of it.
const PASSED_BYTES: u64 = 16 << 10;

/// After so much data the path is not one that loses all large packets.
const SOUND_BYTES: u64 = 64 << 10;

/// A stream that lost its large packets is noticed after [`super::stall`]'s patience. One that
/// ended sooner was closed, and one that lived longer was idle.
const LIFE: std::ops::Range<Duration> = Duration::from_millis(500)..Duration::from_secs(60);

/// Segments that are tried, in bytes of payload. Linux falls back to 1024 as well
/// (`tcp_base_mss`). With 536 a packet has the 576 bytes that each host accepts (RFC 791).
pub const SEGMENTS: [u32; 2] = [1024, 536];

/// Streams that must be lost before a session ends because no data move.
const LOST_BEFORE_THE_END: u32 = 2;

/// The advice if large packets seem to be lost.
const ADVICE: &str = "large packets seem to be lost on the path without a message (an MTU black \
    hole): let ICMP \"fragmentation needed\" pass, or set net.ipv4.tcp_mtu_probing=1 at both hosts; \
    `longhaul doctor` looks into it";

/// Whether data pass, as the dialing end sees it.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Data that had moved at the last look, and entries that were settled.
    bytes: u64,
    entries: u64,
    /// Streams lost since data moved, with something to carry; and when the first one was.
    lost: u32,
    first_lost: Moment,
    /// When the first stream of a generation was lost that passed no block, and the data that had
    /// moved then.
    choked: Option<(Moment, u64)>,
    /// How many of [`SEGMENTS`] were tried.
    tried: usize,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// When it joined.
    born: Moment,
    /// Bytes that passed in the direction of the data.
    carried: u64,
}

impl Passage {
    /// This amount of data has moved so far, and this number of entries is settled: copied,
    /// compared or deleted.
    fn note_moved(&mut self, bytes: u64, entries: u64) {
        if (bytes, entries) != (self.bytes, self.entries) {
            (self.bytes, self.entries) = (bytes, entries);
            self.lost = 0;
        }
        self.choked = self.choked.filter(|(_, then)| bytes < then + SOUND_BYTES);
    }

    /// A stream was lost that had something to carry.
    fn note_lost(&mut self, lost: Lost, now: Moment) {
        if self.lost == 0 {
            self.first_lost = now;
        }
        self.lost = self.lost.saturating_add(1);
        if lost.carried >= PASSED_BYTES || !LIFE.contains(&(now - lost.born)) {
            return;
        }
        match self.choked {
            // It opened after another one had choked: small packets pass.
            Some((first, _)) if lost.born > first => {
                self.tried = (self.tried + 1).min(SEGMENTS.len());
                self.choked = None;
            }
            Some(_) => {}
            None => self.choked = Some((now, self.bytes)),
        }
    }

    /// This process did not run for a time: moments are later.
    pub(super) fn pause(&mut self, later: impl Fn(Moment) -> Moment) {
        self.first_lost = later(self.first_lost);
    }

    /// The largest segment of new connections, if that is to be limited.
    fn segment(&self) -> Option<u32> {
        SEGMENTS.get(self.tried.checked_sub(1)?).copied()
    }

    /// Why the session ends, if no data moved for longer than `patience`.
    /// Nothing of the session came after `heard`.
    fn verdict(&self, patience: Duration, heard: Moment, now: Moment) -> Option<String> {
        let waited = now - self.first_lost;
        if self.lost < LOST_BEFORE_THE_END || waited <= patience {
            return None;
        }
        let (lost, seconds) = (self.lost, waited.as_secs());
        if heard < self.first_lost && self.tried == 0 {
            return Some(format!(
                "the other end accepted connections, but said nothing on them for {seconds} s"
            ));
        }
        let cause = if self.tried > 0 {
            ADVICE
        } else {
            "the path drops data or resets connections; `longhaul doctor` looks into it"
        };
        Some(format!(
            "no data arrived for {seconds} s, while {lost} connections opened and were lost: {cause}"
        ))
    }
}

impl Slot {
    /// Whether the kernel may still find a smaller packet size by itself (`tcp_mtu_probing`). A
    /// stream that is replaced sooner begins again.
    pub(super) fn may_probe(&self, now: Moment) -> bool {
        self.acked.0 < PASSED_BYTES && now - self.acked.1 < PROBED_WITHIN && kernel_probes()
    }
}

/// After so long a probing kernel has sent smaller segments. It begins at the first timeout that is
/// 3 s after the first retransmission or later (`tcp_retries1`); with the least timeout of 200 ms
/// that is after 6.2 s, since timeouts double.
const PROBED_WITHIN: Duration = Duration::from_secs(8);

/// Whether this host's kernel looks for a smaller packet size if a connection stands still.
fn kernel_probes() -> bool {
    use std::sync::OnceLock;
    static PROBES: OnceLock<bool> = OnceLock::new();
    *PROBES.get_or_init(|| {
        let set = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mtu_probing");
        set.is_ok_and(|set| matches!(set.trim(), "1" | "2"))
    })
}

impl Transfer {
    /// The largest segment, in bytes, that new connections should agree on; `None` leaves it to the
    /// kernel. For `TCP_MAXSEG`, which has to be set before a connection opens.
    pub fn segment_limit(&self) -> Option<u32> {
        self.lock().passage.segment()
    }

    /// Ends the session if data were to move, and did not for the timeout.
    pub(super) fn end_if_no_data_pass(&self) {
        let (now, patience) = (self.now(), self.settings.silence);
        let mut shared = self.lock();
        if shared.dialer.is_none() || shared.is_over() || shared.finished.is_some() {
            return;
        }
        let bytes = shared.moved_data();
        shared.passage.note_moved(bytes, self.settled_entries());
        if let Some(text) = shared.passage.verdict(patience, shared.told, now) {
            shared.life.end(Farewell::Broken(text));
            self.wake_everybody(&shared);
        }
    }
}

impl Transfer {
    /// Entries of which something became, or is known.
    fn settled_entries(&self) -> u64 {
        let counters = &self.counters;
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

impl Shared {
    /// File data that have arrived at the receiver, as far as this end knows.
    fn moved_data(&self) -> u64 {
        match &self.machine {
            Machine::Sending(sender) => sender.account().arrived_bytes,
            Machine::Receiving(receiver) => receiver.account().moved_bytes,
        }
    }

    /// A stream was lost, before its blocks are given to others.
    pub(super) fn note_lost_stream(&mut self, id: longhaul_proto::session::StreamId, now: Moment) {
        let Some(slot) = self.streams.get(&id).filter(|_| self.dialer.is_some()) else {
            return;
        };
        let (carried, carries) = match &self.machine {
            // Messages may be as large as blocks.
            _ if slot.stuck => (slot.acked.0, true),
            Machine::Sending(sender) => (slot.acked.0, sender.carries_something(id)),
            // What the other end had to send is not known here.
            Machine::Receiving(_) => (slot.received, slot.received < PASSED_BYTES),
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
    fn after_two_generations_of_choked_streams_segments_are_smaller() {
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
        // Streams that carried blocks, were refused at once, or were idle say nothing.
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
        // What is compared is progress, too.
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
    }
}
