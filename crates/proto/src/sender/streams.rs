//! Estimates the speed of each stream from arrivals, and finds the stream that delays the others.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use crate::sender::results::BlockId;
use crate::session::StreamId;

/// Length of the spans over which a rate is measured. It is long enough that a rate follows the
/// path and not single blocks.
const RATE_SPAN: Duration = Duration::from_millis(500);

/// Minimum and maximum interval between searches for a slow stream at the end. The interval is an
/// eighth of the least latency within these bounds.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_micros(250), Duration::from_millis(20));

/// Round trips that a new connection needs for a block of 1 MiB, if its window starts at ten
/// segments and doubles.
const SLOW_START_LATENCIES: f64 = 7.0;

/// Factor on the least latency. After so long without arrivals, and at least [`LEAST_SILENCE`], the
/// stream that carries messages may be stuck.
const SILENT_LATENCIES: u32 = 4;

/// Minimum time without arrivals that counts as silence.
const LEAST_SILENCE: Duration = Duration::from_millis(50);

/// Maximum silence after doublings, unless the first silence is longer, and the maximum number of
/// doublings.
const MOST_SILENCE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

/// Silence before any latency is known.
const FIRST_SILENCE: Duration = Duration::from_secs(1);

/// Factor on the usual lateness up to which a late block is no sign of a slow stream. RFC 6298 has
/// four for its timer; here a timer that is early costs a block, not a window.
const USUAL_LATENESS: f64 = 3.0;

/// Fraction of a block's time by which any block may be late, however regular the path is.
const LEAST_LATENESS: f64 = 0.125;

/// Maximum factor of a sender's patience after unnecessary twins.
const MOST_PATIENCE: f64 = 16.0;

/// Time for which a judgement remains valid that a stream does not wait for its path.
const INNOCENCE: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Sent {
    block: BlockId,
    bytes: u64,
    at: Moment,
}

#[derive(Debug)]
struct Stream {
    /// Blocks sent and not yet arrived, oldest first.
    backlog: VecDeque<Sent>,
    backlog_bytes: u64,
    arrived: u64,
    /// Time of the last arrival. After an idle period, the earliest possible time of an arrival.
    progress: Moment,
    /// Time of the first arrival of the span; `None` before it.
    span_began: Option<Moment>,
    /// Bytes that arrived after the first arrival of the span.
    span_bytes: u64,
    /// Bytes per second over the last span.
    rate: Option<f64>,
    /// True if the rate covers less than a full span.
    provisional: bool,
    /// Minimum time between handing a block to the stream and the report of its arrival.
    latency: Option<Duration>,
    /// Last answer of the driver: its time, and true if data of the stream waits for the path.
    judged: Option<(Moment, bool)>,
    /// True if the stream takes no new blocks as long as others do.
    reserve: bool,
}

/// A block that would arrive sooner over another stream.
#[derive(Debug)]
pub(super) struct Hopeless {
    /// The stream that carries the block.
    pub slow: StreamId,
    /// The block.
    pub block: BlockId,
    /// The faster stream.
    pub helper: StreamId,
}

/// The streams of a sender.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<StreamId, Stream>,
    /// Time of the last arrival on any stream. Also set when data is sent on idle streams and when
    /// the messages move to another stream.
    heard: Moment,
    /// Time at which the messages last moved to another stream.
    moved: Option<Moment>,
    /// Number of moves because of silence since the last arrival.
    silent_moves: u32,
    /// True if the receiver has no room, so that streams wait for it.
    choked: bool,
    /// Number of times that the receiver ran out of room.
    chokes: u64,
    /// Average deviation of a block's arrival from the time expected by its stream's rate, in
    /// seconds; `None` before the first measurement.
    lateness: Option<f64>,
    /// Blocks that arrived on all streams.
    arrivals: u64,
    /// Bytes of these blocks. A block without data counts as one byte.
    arrived_bytes: u64,
    /// Patience, which grows with each unnecessary twin.
    patience: Patience,
}

/// Factor, at least 1, on every time that the sender waits before it sends a twin.
#[derive(Clone, Copy, Debug)]
struct Patience(f64);

impl Default for Patience {
    fn default() -> Patience {
        Patience(1.0)
    }
}

/// Typical values among the streams of a sender.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// Best rate of all streams in bytes per second.
    rate: Option<f64>,
    /// Tolerated lateness of a block in seconds; `None` before it is known.
    lateness: Option<f64>,
    /// See [`Patience`].
    patience: f64,
}

impl Stream {
    fn new(now: Moment) -> Stream {
        Stream {
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            arrived: 0,
            progress: now,
            span_began: None,
            span_bytes: 0,
            rate: None,
            provisional: true,
            latency: None,
            judged: None,
            reserve: false,
        }
    }

    /// Handles the arrival of the first block of the backlog. Returns the block and its lateness in
    /// seconds against its stream's rate, or the best rate.
    fn handle_arrival(&mut self, usual: Usual, now: Moment) -> Option<(BlockId, Option<f64>)> {
        let sent = self.backlog.pop_front()?;
        let rate = self.rate.or(usual.rate);
        let late = rate.zip(self.latency).map(|(rate, latency)| {
            let turn = (sent.at + latency).max(self.progress);
            (now - turn).as_secs_f64() - sent.bytes as f64 / rate
        });
        self.measure(&sent, now);
        Some((sent.block, late))
    }

    fn measure(&mut self, sent: &Sent, now: Moment) {
        self.backlog_bytes -= sent.bytes;
        self.progress = now;
        let taken = now - sent.at;
        let known = self.latency.unwrap_or_default();
        self.latency = Some(self.latency.map_or(taken, |least| least.min(taken)));
        let Some(began) = self.span_began else {
            self.span_began = Some(now);
            // For the first block, only the total time is known.
            let sending = taken
                .checked_sub(known)
                .filter(|left| !left.is_zero())
                .unwrap_or(taken);
            if !sending.is_zero() {
                self.rate
                    .get_or_insert(sent.bytes as f64 / sending.as_secs_f64());
            }
            return;
        };
        self.span_bytes += sent.bytes;
        let span = now - began;
        let full = span >= RATE_SPAN;
        if full || self.provisional && !span.is_zero() {
            self.rate = Some(self.span_bytes as f64 / span.as_secs_f64());
        }
        if full {
            self.provisional = false;
            self.span_began = Some(now);
            self.span_bytes = 0;
        }
    }

    /// Returns the current rate in bytes per second: the measured or the usual rate, reduced if the
    /// first block in the backlog is overdue.
    fn current_rate(&self, usual: Option<f64>, now: Moment) -> Option<f64> {
        let waited = (now - self.progress).as_secs_f64();
        let first = self.backlog.front().map_or(0, |sent| sent.bytes) as f64;
        let rate = self.rate.or(usual)?;
        let overdue = waited > 0.0 && first > 0.0;
        Some(if overdue {
            rate.min((first / waited).max(1.0))
        } else {
            rate
        })
    }

    /// Returns the time by which the first block in the backlog should have been reported. Its turn
    /// began when the previous block had left. Its duration follows from the stream's own rate,
    /// else from the usual rate, else from the round trips of a slow start. Usual lateness and
    /// [`LEAST_LATENESS`] are added.
    fn overdue_at(&self, usual: Usual) -> Option<Moment> {
        let (first, latency) = (self.backlog.front()?, self.latency?);
        let seconds = match self.rate.or(usual.rate) {
            Some(rate) => {
                let block = first.bytes as f64 / rate;
                block
                    + usual.patience * block * LEAST_LATENESS
                    + usual.lateness.unwrap_or(2.0 * block)
            }
            None => slow_start_seconds(latency),
        };
        let turn = (first.at + latency).max(self.progress);
        Some(turn + Duration::try_from_secs_f64(seconds).ok()?)
    }

    /// True if the stream could send one more block at once, because the path can hold its backlog.
    fn is_free(&self, now: Moment) -> bool {
        let path = self.latency.unwrap_or_default().as_secs_f64();
        let block = self.backlog.back().map_or(0, |sent| sent.bytes) as f64;
        let rate = self.rate.unwrap_or(f64::INFINITY);
        self.backlog.is_empty() || self.drain_seconds(None, now) <= path + block / rate
    }

    /// True if the driver recently judged that no data of the stream waits for the path.
    fn is_innocent(&self, now: Moment) -> bool {
        matches!(self.judged, Some((at, false)) if now < at + INNOCENCE)
    }

    /// Returns the seconds until the backlog has arrived.
    fn drain_seconds(&self, usual: Option<f64>, now: Moment) -> f64 {
        match self.current_rate(usual, now) {
            _ if self.backlog.is_empty() => 0.0,
            Some(rate) if rate > 0.0 => self.backlog_bytes as f64 / rate,
            _ => f64::INFINITY,
        }
    }

    /// Returns the seconds until one more block of `bytes` has arrived and its arrival was
    /// reported. An idle stream without a measured rate is assumed to have the rate `otherwise`. If
    /// that is unknown, the block needs the round trips of a slow start. `None` if a stream without
    /// a measured rate is busy.
    fn seconds_for(&self, bytes: u64, otherwise: Option<f64>, now: Moment) -> Option<f64> {
        let latency = self.latency.unwrap_or(FIRST_SILENCE).as_secs_f64();
        match self.rate {
            Some(rate) => Some(self.drain_seconds(None, now) + bytes as f64 / rate + latency),
            None if !self.backlog.is_empty() => None,
            None => Some(
                otherwise.map_or_else(
                    || slow_start_seconds(self.latency.unwrap_or(FIRST_SILENCE)),
                    |rate| bytes as f64 / rate,
                ) + latency,
            ),
        }
    }
}

/// Returns the maximum seconds for the first block of a new connection.
fn slow_start_seconds(latency: Duration) -> f64 {
    SLOW_START_LATENCIES * latency.as_secs_f64() + LOOK_AGAIN.1.as_secs_f64()
}

impl Streams {
    pub(super) fn add(&mut self, stream: StreamId, now: Moment) {
        self.streams.insert(stream, Stream::new(now));
    }

    /// Removes a stream and returns its blocks that have not arrived.
    pub(super) fn remove(&mut self, stream: StreamId) -> Vec<BlockId> {
        let gone = self.streams.remove(&stream);
        gone.map_or_else(Vec::new, |gone| {
            gone.backlog.iter().map(|sent| sent.block).collect()
        })
    }

    /// Handles a round trip that a stream's handshake or its kernel measured. It is the only
    /// knowledge of a path before blocks have arrived.
    pub fn handle_round_trip(&mut self, stream: StreamId, span: Duration) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.latency = Some(known.latency.map_or(span, |least| least.min(span)));
        }
    }

    fn best_rate(&self) -> Option<f64> {
        let rates = self.streams.values().filter_map(|stream| stream.rate);
        rates.max_by(f64::total_cmp)
    }

    fn usual(&self) -> Usual {
        let patience = self.patience.0;
        Usual {
            rate: self.best_rate(),
            lateness: self.lateness.map(|late| USUAL_LATENESS * patience * late),
            patience,
        }
    }

    pub(super) fn contains(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Returns the number of streams that take blocks.
    pub(super) fn count(&self) -> usize {
        let streams = self.streams.values();
        streams.filter(|stream| !stream.reserve).count()
    }

    pub(super) fn handle_reserve(&mut self, stream: StreamId, reserve: bool) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.reserve = reserve;
        }
    }

    pub(super) fn is_reserve(&self, stream: StreamId) -> bool {
        let known = self.streams.get(&stream);
        known.is_some_and(|known| known.reserve)
    }

    pub(super) fn handle_sent(
        &mut self,
        stream: StreamId,
        block: BlockId,
        bytes: u64,
        now: Moment,
    ) {
        if self.streams.values().all(|known| known.backlog.is_empty()) {
            self.heard = now;
        }
        if let Some(known) = self.streams.get_mut(&stream) {
            if known.backlog.is_empty() {
                known.progress = now + known.latency.unwrap_or_default();
                known.span_began = None;
                known.span_bytes = 0;
            }
            // A block without data still takes the time of its header.
            let bytes = bytes.max(1);
            known.backlog.push_back(Sent {
                block,
                bytes,
                at: now,
            });
            known.backlog_bytes += bytes;
        }
    }

    /// Handles the number of blocks that arrived since the stream began. Calls `arrived` for each
    /// new arrival.
    pub(super) fn handle_arrived(
        &mut self,
        stream: StreamId,
        blocks: u64,
        now: Moment,
        mut arrived: impl FnMut(BlockId),
    ) {
        let usual = self.usual();
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        let before = known.backlog_bytes;
        while known.arrived < blocks
            && let Some((block, late)) = known.handle_arrival(usual, now)
        {
            known.arrived += 1;
            self.heard = now;
            self.silent_moves = 0;
            self.arrivals += 1;
            if let Some(late) = late.map(f64::abs) {
                let known = self.lateness.unwrap_or(late);
                self.lateness = Some(known + (late - known) / 8.0);
            }
            arrived(block);
        }
        let bytes = before - known.backlog_bytes;
        self.arrived_bytes = self.arrived_bytes.saturating_add(bytes);
    }

    /// Returns the total bytes of the blocks that arrived. A block without data counts as one byte.
    pub(super) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// True if as many blocks have arrived as there are streams. Before that, the speed of the path
    /// is unknown.
    pub(super) fn are_proven(&self) -> bool {
        self.arrivals >= self.streams.len() as u64
    }

    /// Handles the first arrival of a twin or its original. If the original won, the twin was
    /// unnecessary.
    pub(super) fn handle_race(&mut self, twin_won: bool) {
        let factor = if twin_won { 0.5 } else { 1.25 };
        self.patience.0 = (self.patience.0 * factor).clamp(1.0, MOST_PATIENCE);
    }

    /// Returns the maximum number of twins on their way. It grows with the number of arrivals,
    /// because the estimates improve.
    pub(super) fn most_twins(&self) -> usize {
        usize::try_from(2 + self.arrivals / 2).unwrap_or(usize::MAX)
    }

    /// Handles the driver's judgement of a stream. `guilty` is true if data of the stream waits for
    /// its path: it has not left, or its acknowledgement is overdue. Otherwise the data will arrive
    /// before any data sent now, or the other end has yet to read it.
    pub fn handle_judged(&mut self, stream: StreamId, guilty: bool, now: Moment) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.judged = Some((now, guilty));
        }
    }

    /// True if the driver judged the stream at this moment.
    pub(super) fn is_judged(&self, stream: StreamId, now: Moment) -> bool {
        let known = self.streams.get(&stream);
        known.is_some_and(|known| known.judged.is_some_and(|(at, _)| at == now))
    }

    /// True if the receiver has room for more blocks.
    pub(super) fn has_room(&self) -> bool {
        !self.choked
    }

    /// Handles a change of the receiver's room. The time that streams waited for room does not
    /// count as slowness.
    pub(super) fn handle_room(&mut self, room: bool, now: Moment) {
        if room && self.choked {
            for stream in self.streams.values_mut() {
                stream.progress = now;
            }
        }
        self.chokes += u64::from(!room && !self.choked);
        self.choked = !room;
    }

    /// Returns true if the receiver has room for more, and the number of times that it ran out of
    /// room.
    pub fn room(&self) -> (bool, u64) {
        (self.has_room(), self.chokes)
    }

    /// Returns a block that would arrive sooner over another free stream. Considers only blocks for
    /// which `eligible` is true.
    pub(super) fn hopeless(
        &self,
        now: Moment,
        eligible: impl Fn(BlockId) -> bool,
    ) -> Option<Hopeless> {
        let usual = self.usual();
        let suspects = self.streams.iter().filter(|s| !s.1.is_innocent(now));
        let candidates = suspects.filter_map(|(&id, stream)| {
            let mut ahead = stream.backlog_bytes;
            let candidate = stream.backlog.iter().rev().find(|sent| {
                ahead -= sent.bytes;
                eligible(sent.block)
            })?;
            if stream.overdue_at(usual).is_some_and(|at| now >= at) {
                return Some((f64::INFINITY, id, candidate));
            }
            let share = (ahead + candidate.bytes) as f64 / stream.backlog_bytes as f64;
            let drain = usual.rate.map(|_| stream.drain_seconds(usual.rate, now))?;
            Some((drain * share, id, candidate))
        });
        let (finish, slow, candidate) = candidates.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let best = self
            .streams
            .iter()
            .filter(|(id, other)| **id != slow && !other.reserve && other.is_free(now))
            .filter_map(|(&id, other)| {
                Some((other.seconds_for(candidate.bytes, usual.rate, now)?, id))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        // A twin costs a block, so it must save more than a small margin of time.
        let block = usual.rate.map_or(0.0, |rate| candidate.bytes as f64 / rate);
        let margin = usual.patience * block * LEAST_LATENESS + usual.lateness.unwrap_or_default();
        (finish > best.0 + margin).then_some(Hopeless {
            slow,
            block: candidate.block,
            helper: best.1,
        })
    }

    /// Returns the stream that should carry this end's messages from now on, if the `current` one
    /// is slow or the other end has become silent. The driver then calls
    /// [`crate::session::Session::move_control`] and
    /// [`crate::control::ControlChannel::handle_stream_change`].
    pub fn poll_control(&mut self, current: StreamId, now: Moment) -> Option<StreamId> {
        // Moved messages are sent again, so they must not move more often than they can arrive.
        if self.moved.is_some_and(|at| now < at + self.silence()) {
            return None;
        }
        let usual = self.usual();
        let known = self.streams.get(&current)?;
        let fit = |stream: &Stream| !stream.reserve;
        let overdue = known.overdue_at(usual).is_some_and(|at| now >= at);
        // The factor 2 prevents alternation between streams of similar speed.
        let slow = known.rate.or(usual.rate) < usual.rate.map(|best| best / 2.0);
        let silent = self.is_busy() && now >= self.heard + self.silence();
        let next = if silent {
            let after = self.streams.range(current..).skip(1);
            let mut around = after.chain(self.streams.iter());
            around.find(|(_, stream)| fit(stream))
        } else if slow || overdue {
            let proven = |stream: &Stream| stream.rate.unwrap_or_default();
            let streams = self.streams.iter().filter(|(_, stream)| fit(stream));
            streams.max_by(|a, b| proven(a.1).total_cmp(&proven(b.1)))
        } else {
            None
        };
        let next = next.map(|(&id, _)| id).filter(|next| *next != current)?;
        self.heard = now;
        self.moved = Some(now);
        if silent {
            self.silent_moves += 1;
        }
        Some(next)
    }

    /// Returns the time since which the stream's oldest block has been expected; `None` if all its
    /// blocks have arrived or the receiver has no room.
    pub fn waits_since(&self, stream: StreamId) -> Option<Moment> {
        let known = self.streams.get(&stream)?;
        (self.has_room() && !known.backlog.is_empty()).then_some(known.progress)
    }

    /// True if the stream has blocks that have not arrived.
    pub fn carries_something(&self, stream: StreamId) -> bool {
        let known = self.streams.get(&stream);
        known.is_some_and(|known| !known.backlog.is_empty())
    }

    /// True if any block that was sent has not arrived.
    pub(super) fn is_busy(&self) -> bool {
        let mut streams = self.streams.values();
        streams.any(|stream| !stream.backlog.is_empty())
    }

    fn least_latency(&self) -> Option<Duration> {
        self.streams
            .values()
            .filter_map(|stream| stream.latency)
            .min()
    }

    /// Returns the time without arrivals after which messages move. It doubles after each move
    /// without effect, because moved messages are sent again.
    fn silence(&self) -> Duration {
        let first = self.least_latency().map_or(FIRST_SILENCE, |least| {
            (least * SILENT_LATENCIES).max(LEAST_SILENCE)
        });
        let doubled = first.saturating_mul(1 << self.silent_moves.min(MOST_DOUBLINGS));
        doubled.min(first.max(MOST_SILENCE))
    }

    /// Returns the time of the next search for a slow stream; `held_up` is true if the sender waits
    /// only for blocks on their way.
    pub(super) fn poll_timeout(&self, held_up: bool, now: Moment) -> Option<Moment> {
        if !self.is_busy() || self.streams.len() < 2 {
            return None;
        }
        let soonest = now + LOOK_AGAIN.0;
        let silent = (self.heard + self.silence()).max(soonest);
        let latency = self.least_latency().filter(|_| held_up);
        let Some(latency) = latency else {
            return Some(silent);
        };
        let look = now + (latency / 8).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
        let usual = self.usual();
        let overdue = self
            .streams
            .values()
            .filter_map(|stream| stream.overdue_at(usual));
        let overdue = overdue.filter(|at| *at >= now).min();
        Some(
            overdue
                .map_or(look, |at| look.min(at.max(soonest)))
                .min(silent),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_the_other_end_reports_have_arrived() {
        let (mut streams, stream, now) = (Streams::default(), StreamId(3), Moment(0));
        streams.add(stream, now);
        streams.handle_sent(stream, BlockId(0), 100, now);
        streams.handle_sent(stream, BlockId(1), 50, now);
        let mut heard = Vec::new();
        let mut arrived = |blocks| {
            streams.handle_arrived(stream, blocks, Moment(9), |block| heard.push(block.0));
            streams.arrived_bytes()
        };
        assert_eq!([0, 1, 1, 2].map(&mut arrived), [0, 100, 100, 150]);
        assert_eq!(heard, [0, 1]);
    }
}
