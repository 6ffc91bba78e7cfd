//! Axes, and scales that map values to coordinates.

use super::svg::{Anchor, Stroke, Svg, Type};
use super::{FAINT_INK, GRID, INK, SMALL_TEXT_SIZE, TEXT_SIZE, short_number};

/// Maps values to coordinates along one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    least: f64,
    greatest: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// Creates a scale from 0 or a round number below `least` to a round number at or above
    /// `greatest`.
    pub fn from_zero(greatest: f64, least: f64, start: f64, end: f64) -> Scale {
        let (greatest, least) = (greatest.max(0.0), least.min(0.0));
        let step = round_step(greatest - least);
        Scale {
            least: (least / step).floor() * step,
            greatest: (greatest / step).ceil().max(1.0) * step,
            start,
            end,
        }
    }

    /// Creates a scale that ends exactly at two values.
    pub fn between(least: f64, greatest: f64, start: f64, end: f64) -> Scale {
        Scale {
            least,
            greatest,
            start,
            end,
        }
    }

    /// Returns the coordinate of the greatest value.
    pub fn end(&self) -> f64 {
        self.end
    }

    /// Returns the coordinate of a value.
    pub fn place(&self, value: f64) -> f64 {
        let length = self.greatest - self.least;
        let share = if length > 0.0 {
            (value - self.least) / length
        } else {
            0.5
        };
        self.start + (self.end - self.start) * share
    }

    /// Returns about five round values within the scale.
    pub fn ticks(&self) -> Vec<f64> {
        let step = round_step(self.greatest - self.least);
        let first = (self.least / step).ceil() as i64;
        let last = (self.greatest / step + 1e-9).floor() as i64;
        // A step is about a fifth of the length, so there are at most about ten ticks.
        (first..=last.min(first + 20))
            .map(|n| n as f64 * step)
            .collect()
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten, about a fifth of a length.
fn round_step(length: f64) -> f64 {
    if !(length > 0.0 && length.is_finite()) {
        return 1.0;
    }
    let rough = length / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    match rough / power {
        f if f < 1.5 => power,
        f if f < 3.5 => 2.0 * power,
        f if f < 7.5 => 5.0 * power,
        _ => 10.0 * power,
    }
}

/// The rectangle in which data are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame {
    /// Draws grid lines and numbers for a vertical scale.
    pub fn draw_vertical(&self, svg: &mut Svg, scale: &Scale, title: &str) {
        for tick in scale.ticks() {
            let y = scale.place(tick);
            svg.line((self.left, y), (self.right, y), Stroke::thin(GRID));
            svg.text(
                (self.left - 7.0, y + 4.0),
                &short_number(tick),
                Type {
                    size: SMALL_TEXT_SIZE,
                    anchor: Anchor::End,
                    colour: FAINT_INK,
                },
            );
        }
        let middle = f64::midpoint(self.top, self.bottom);
        svg.upward_text((self.left - 46.0, middle), title, TEXT_SIZE);
    }

    /// Draws a base line with labels. Omits a label that would overlap the previous one.
    pub fn draw_labels(&self, svg: &mut Svg, labels: &[(f64, String)], title: &str) {
        svg.line(
            (self.left, self.bottom),
            (self.right, self.bottom),
            Stroke::thin(INK),
        );
        let mut free_from = f64::NEG_INFINITY;
        for (x, label) in labels {
            svg.line(
                (*x, self.bottom),
                (*x, self.bottom + 5.0),
                Stroke::thin(INK),
            );
            let half = label.chars().count() as f64 * SMALL_TEXT_SIZE * 0.29;
            if x - half < free_from {
                continue;
            }
            free_from = x + half + 6.0;
            svg.text(
                (*x, self.bottom + 18.0),
                label,
                Type {
                    size: SMALL_TEXT_SIZE,
                    anchor: Anchor::Middle,
                    colour: FAINT_INK,
                },
            );
        }
        if !title.is_empty() {
            let middle = f64::midpoint(self.left, self.right);
            svg.text(
                (middle, self.bottom + 38.0),
                title,
                Type {
                    size: TEXT_SIZE,
                    anchor: Anchor::Middle,
                    colour: INK,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        let scale = Scale::from_zero(9.415, 0.0, 300.0, 0.0);
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale.place(0.0), 300.0);
        assert_eq!(scale.place(10.0), 0.0);
        let signed = Scale::from_zero(0.03, -0.012, 0.0, 1.0);
        assert!(signed.ticks().contains(&0.0) && signed.ticks().len() <= 8);
    }

    #[test]
    fn extreme_values_do_not_break_an_axis() {
        for greatest in [0.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            let ticks = Scale::from_zero(greatest, 0.0, 0.0, 1.0).ticks();
            assert!(ticks.len() <= 21, "{greatest}");
        }
    }
}
