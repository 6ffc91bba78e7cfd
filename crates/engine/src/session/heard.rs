//! When an end last heard the other one.

use std::time::Duration;

use longhaul_proto::message::Farewell;
use longhaul_units::Moment;

use super::Shared;

impl Shared {
    /// A stream joined. An end that lets streams join and says nothing on them is silent, so this
    /// counts only if there was no stream.
    pub(super) fn note_joined(&mut self, was_alone: bool, now: Moment) {
        if was_alone {
            self.heard = now;
        }
    }

    /// Where bytes came on any stream the other end is heard: on a slow path a block, and
    /// what was said behind it, takes long to be whole.
    pub(super) fn note_what_came(&mut self, now: Moment) {
        let slots = self.streams.values_mut();
        // Each is asked, for the next time.
        let heard = slots.filter_map(|slot| slot.has_heard_more().then_some(()));
        if heard.count() > 0 {
            self.note_heard(now);
        }
    }

    /// Something of the session came, or this end could not have read it before.
    pub(super) fn note_heard(&mut self, now: Moment) {
        (self.heard, self.told) = (now, now);
    }

    /// The session ends if nothing of it came for so long, although streams join.
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
