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

/// The timer of an end.
pub(super) struct Timer<'a> {
    transfer: &'a Arc<Transfer>,
}

impl<'a> Timer<'a> {
    pub fn of(transfer: &'a Arc<Transfer>) -> Timer<'a> {
        Timer { transfer }
    }
}

impl Timer<'_> {
    /// Runs the timer's thread: ends sessions and streams that timed out, and sends observations.
    pub(super) fn keep_time(&self) {
        let mut next = self.transfer.now() + OBSERVE_EVERY;
        let mut next_look = self.transfer.now() + LOOK_EVERY;
        let mut next_level = self.transfer.now();
        let mut last = self.transfer.now();
        loop {
            let mut shared = self.transfer.lock();
            let now = self.transfer.now();
            if now - last > PAUSED_FOR {
                shared.handle_pause(now - last, now);
            }
            last = now;
            shared.lifetime.handle_timeout(now);
            if shared.is_over() {
                self.transfer.wake_everybody(&shared);
                return;
            }
            if now >= next_level {
                drop(shared);
                next_level = now + self.transfer.regulator().level();
                continue;
            }
            if now >= next_look {
                next_look = now + LOOK_EVERY;
                drop(shared);
                self.transfer.coded.handle_tick();
                self.transfer.streams().watch_streams();
                self.transfer.regulator().look();
                self.transfer.regulator().adapt_flows();
                self.transfer.regulator().look_for_codecs();
                continue;
            }
            if now >= next {
                next = now + OBSERVE_EVERY;
                drop(shared);
                self.tick();
                continue;
            }
            let next = next.min(next_look).min(next_level);
            let until = shared
                .lifetime
                .poll_timeout()
                .map_or(next, |end| end.min(next));
            let wait = (until - now).max(Duration::from_millis(1));
            drop(
                self.transfer
                    .signals
                    .living
                    .wait_timeout(shared, wait)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    pub(super) fn tick(&self) {
        let observation = self.transfer.measurements().observe();
        let mut shared = self.transfer.lock();
        shared.note_what_came(self.transfer.now());
        let listens = self.transfer.counters.held_streams.load(Ordering::Relaxed) == 0;
        if !listens || self.transfer.settings.local {
            shared.lifetime.note_deaf(self.transfer.now());
        }
        shared
            .lifetime
            .end_untold(self.transfer.settings.silence, self.transfer.now());
        let silent = !self.transfer.settings.local
            && shared.lifetime.silence(self.transfer.now()) > self.transfer.settings.silence;
        if shared.lifetime.is_active() && listens && silent {
            shared.streams.shutdown();
        }
        self.transfer.streams().end_stalled(&shared);
        self.transfer.streams().find_lost(&mut shared);
        let listened = shared.control.is_drained() && shared.control.has_room();
        if listened && shared.lifetime.is_active() {
            shared.say(&Message::Observed(observation));
            shared.wake_writers();
        }
        drop(shared);
        self.transfer.signals.reading.notify_all();
        self.transfer.signals.storing.notify_all();
    }
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
