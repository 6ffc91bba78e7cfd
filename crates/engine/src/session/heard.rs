//! Records when an end last received data from the other end.

use std::time::Duration;

use longhaul_proto::message::Farewell;
use longhaul_units::Moment;

use super::Shared;

impl Shared {
    /// Records that a stream joined. It counts as a sign of life only if there was no stream,
    /// because an end that accepts streams but sends nothing is silent.
    pub(super) fn note_joined(&mut self, was_alone: bool, now: Moment) {
        if was_alone {
            self.heard = now;
        }
    }

    /// Records a sign of life if bytes arrived on any stream. On a slow path it takes long until a
    /// block, and a message behind it, is complete.
    pub(super) fn note_what_came(&mut self, now: Moment) {
        let slots = self.streams.values_mut();
        // Query every stream, since each call also updates its count.
        let heard = slots.filter_map(|slot| slot.has_heard_more().then_some(()));
        if heard.count() > 0 {
            self.note_heard(now);
        }
    }

    /// Records that data of the session arrived, or that this end can read again.
    pub(super) fn note_heard(&mut self, now: Moment) {
        (self.heard, self.told) = (now, now);
    }

    /// Ends the session if no data of it arrived for a long time, although streams join.
    pub(super) fn end_untold(&mut self, silence: Duration, now: Moment) {
        let span = silence.saturating_mul(2) + self.life.linger();
        if now - self.told > span {
            let text = format!(
                "the other end accepted connections, but said nothing on them for {} s",
                span.as_secs_f64().ceil()
            );
            self.life.end(Farewell::Broken(text));
        }
    }
}
