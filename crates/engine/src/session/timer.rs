//! The timer of an end: it ends sessions and streams that timed out, and sends observations.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use longhaul_proto::message::Message;
use longhaul_units::Moment;

use super::{Shared, Transfer};

/// Interval of observations. The steering end learns the congestion windows of the other end only
/// from them.
const OBSERVE_EVERY: Duration = Duration::from_millis(250);

/// Interval at which the steering end of this process examines the transfer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Delay of the timer's thread that means that the process was stopped. Usually the thread runs far
/// more often.
const PAUSED_FOR: Duration = Duration::from_secs(2);

/// Runs the timer's thread: ends sessions and streams that timed out, and sends observations.
pub(super) fn keep_time(transfer: &Arc<Transfer>) {
    let mut next = transfer.now() + OBSERVE_EVERY;
    let mut next_look = transfer.now() + LOOK_EVERY;
    let mut next_level = transfer.now();
    let mut last = transfer.now();
    loop {
        let mut shared = transfer.lock();
        let now = transfer.now();
        if now - last > PAUSED_FOR {
            shared.handle_pause(now - last, now);
        }
        last = now;
        shared.lifetime.handle_timeout(now);
        if shared.is_over() {
            transfer.wake_everybody(&shared);
            return;
        }
        if now >= next_level {
            drop(shared);
            next_level = now + transfer.regulator().level();
            continue;
        }
        if now >= next_look {
            next_look = now + LOOK_EVERY;
            drop(shared);
            transfer.coded.handle_tick();
            transfer.streams().watch_streams();
            transfer.regulator().look();
            transfer.regulator().adapt_flows();
            transfer.regulator().look_for_codecs();
            continue;
        }
        if now >= next {
            next = now + OBSERVE_EVERY;
            drop(shared);
            tick(transfer);
            continue;
        }
        let next = next.min(next_look).min(next_level);
        let until = shared
            .lifetime
            .poll_timeout()
            .map_or(next, |end| end.min(next));
        let wait = (until - now).max(Duration::from_millis(1));
        drop(
            transfer
                .signals
                .living
                .wait_timeout(shared, wait)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Ends streams that timed out, and sends an observation.
pub(super) fn tick(transfer: &Arc<Transfer>) {
    let observation = transfer.measurements().observe();
    let mut shared = transfer.lock();
    shared.note_what_came(transfer.now());
    let listens = transfer.counters.held_streams.load(Ordering::Relaxed) == 0;
    if !listens || transfer.settings.local {
        shared.lifetime.note_deaf(transfer.now());
    }
    shared
        .lifetime
        .end_untold(transfer.settings.silence, transfer.now());
    let silent = !transfer.settings.local
        && shared.lifetime.silence(transfer.now()) > transfer.settings.silence;
    if shared.lifetime.is_active() && listens && silent {
        shared.streams.shutdown();
    }
    transfer.streams().end_stalled(&shared);
    transfer.streams().find_lost(&mut shared);
    let listened = shared.control.is_drained() && shared.control.has_room();
    if listened && shared.lifetime.is_active() {
        shared.say(&Message::Observed(observation));
        shared.wake_writers();
    }
    drop(shared);
    transfer.signals.reading.notify_all();
    transfer.signals.storing.notify_all();
}

impl Shared {
    /// Records a sign of life if bytes arrived on any stream. On a slow path it takes long until a
    /// block, and a message behind it, is complete.
    pub(super) fn note_what_came(&mut self, now: Moment) {
        if self.streams.has_heard_more() {
            self.lifetime.note_heard(now);
        }
    }

    /// Handles a pause in which this process or its host was stopped. The pause is not counted as
    /// silence of the other end.
    pub(super) fn handle_pause(&mut self, span: Duration, now: Moment) {
        let later = |moment: Moment| now.min(moment + span);
        self.streams.handle_pause(later);
        self.lifetime.handle_pause(span, later);
    }
}
