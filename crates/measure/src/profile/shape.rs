//! The shape of a profile: concave and convex regions, and the transition between them.
//!
//! Paper 001 (section 1) expects profiles that are concave at short and convex at long round-trip
//! times. Between two points of a concave region, throughput is at least the value on the line
//! between them. Between two points of a convex region, it is only at least the smaller of the two
//! values.

use std::time::Duration;

use super::coefficients::{NormalisedProfile, Point};

/// The bend of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bend {
    /// Above the line between neighbouring points.
    Concave,
    /// Below the line between neighbouring points.
    Convex,
    /// On the line, or not distinguishable from it with the given repetitions.
    Straight,
}

/// A range of round-trip times with the same bend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// Round-trip time of the first point.
    pub from: Duration,
    /// Round-trip time of the last point. Neighbouring regions overlap by the step in which the
    /// bend changes, because three points do not show its exact position.
    pub to: Duration,
    /// Bend of the region.
    pub bend: Bend,
}

/// The shape of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Regions in ascending order of round-trip time.
    pub regions: Vec<Region>,
    /// The two neighbouring points between which the profile turns from concave to convex. This is
    /// the split with the least convexity before it and the least concavity after it. If the whole
    /// profile is convex, the first point twice; if it is concave, the last point twice. `None` for
    /// a straight line or fewer than three points.
    pub transition: Option<(Duration, Duration)>,
}

/// Returns for each inner point its height above the line between its neighbours, as a share of the
/// capacity. A positive value is concave.
pub fn bends(points: &[Point]) -> Vec<f64> {
    points
        .windows(3)
        .map(|three| {
            let whole = (three[2].rtt - three[0].rtt).as_secs_f64();
            let part = (three[1].rtt - three[0].rtt).as_secs_f64() / whole;
            three[1].share - (three[0].share + (three[2].share - three[0].share) * part)
        })
        .collect()
}

/// Bends smaller than this are rounding errors, because shares are about 1.
const ROUNDING: f64 = 1e-12;

fn bend_of(deviation: f64) -> Bend {
    match deviation {
        d if d > ROUNDING => Bend::Concave,
        d if d < -ROUNDING => Bend::Convex,
        _ => Bend::Straight,
    }
}

/// Returns the shape of a profile whose points are exact.
pub fn shape(profile: &NormalisedProfile) -> Shape {
    let bends = bends(profile.points());
    let certain = bends.iter().map(|deviation| bend_of(*deviation));
    shape_of_bends(profile.points(), &bends, &certain.collect::<Vec<_>>())
}

/// Returns the shape of a profile with the given bends at its inner points. `told` has `Straight`
/// for each bend that the repetitions do not distinguish from zero.
pub(super) fn shape_of_bends(points: &[Point], bends: &[f64], told: &[Bend]) -> Shape {
    let mut regions: Vec<Region> = Vec::new();
    for (index, bend) in told.iter().copied().enumerate() {
        let (from, to) = (points[index].rtt, points[index + 2].rtt);
        match regions.last_mut() {
            Some(region) if region.bend == bend => region.to = to,
            _ => regions.push(Region { from, to, bend }),
        }
    }
    let transition = transition_index(bends).map(|split| transition_at(points, split));
    Shape {
        regions,
        transition,
    }
}

/// Returns the number of inner points before the transition, or `None` if no point bends.
pub(super) fn transition_index(bends: &[f64]) -> Option<usize> {
    if bends.iter().all(|b| bend_of(*b) == Bend::Straight) {
        return None;
    }
    // Starts with the split before the first inner point, so that all points should be convex. When
    // the split passes a concave point, its misfit disappears.
    let square = |deviation: f64| deviation * deviation;
    let mut misfit: f64 = bends.iter().filter(|b| **b > 0.0).map(|b| square(*b)).sum();
    let (mut best, mut least) = (0, misfit);
    for (index, deviation) in bends.iter().enumerate() {
        misfit -= deviation.signum() * square(*deviation);
        if misfit < least - ROUNDING {
            (best, least) = (index + 1, misfit);
        }
    }
    Some(best)
}

/// Returns the two points around a transition after `split` inner points.
pub(super) fn transition_at(points: &[Point], split: usize) -> (Duration, Duration) {
    let last = points.len() - 1;
    match split {
        0 => (points[0].rtt, points[0].rtt),
        split if split + 1 == last => (points[last].rtt, points[last].rtt),
        split => (points[split].rtt, points[split + 1].rtt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn shape_of(values: &[(u64, f64)]) -> Shape {
        let points = values.iter().map(|(rtt, share)| Point {
            rtt: milliseconds(*rtt),
            share: *share,
        });
        shape(&NormalisedProfile::new(points).unwrap())
    }

    #[test]
    fn a_concave_profile_that_turns_convex() {
        // The profile is 1 - x² up to 30 ms, then a hyperbola.
        let shape = shape_of(&[
            (0, 1.0),
            (10, 0.98),
            (20, 0.92),
            (30, 0.80),
            (60, 0.4),
            (120, 0.2),
            (240, 0.1),
        ]);
        let bends: Vec<Bend> = shape.regions.iter().map(|r| r.bend).collect();
        assert_eq!(bends, [Bend::Concave, Bend::Convex]);
        assert_eq!(shape.regions[0].from, milliseconds(0));
        assert_eq!(shape.regions[0].to, milliseconds(60));
        assert_eq!(shape.regions[1].from, milliseconds(30));
        assert_eq!(shape.regions[1].to, milliseconds(240));
        assert_eq!(shape.transition, Some((milliseconds(30), milliseconds(60))));
    }

    #[test]
    fn a_profile_without_a_turn_has_its_transition_at_an_end() {
        let convex = shape_of(&[(1, 1.0), (2, 0.5), (4, 0.25), (8, 0.125)]);
        assert_eq!(convex.regions.len(), 1);
        assert_eq!(convex.transition, Some((milliseconds(1), milliseconds(1))));
        let concave = shape_of(&[(0, 1.0), (1, 0.9), (2, 0.7), (3, 0.4)]);
        assert_eq!(concave.transition, Some((milliseconds(3), milliseconds(3))));
    }

    #[test]
    fn a_small_dent_does_not_move_the_turn() {
        // A point is 0.001 below the line between its neighbours within a concave region.
        let shape = shape_of(&[
            (0, 1.0),
            (10, 0.969),
            (20, 0.94),
            (30, 0.80),
            (40, 0.5),
            (50, 0.4),
            (60, 0.35),
        ]);
        assert_eq!(shape.transition, Some((milliseconds(30), milliseconds(40))));
    }

    #[test]
    fn a_line_is_straight() {
        let line = shape_of(&[(0, 1.0), (10, 0.9), (30, 0.7), (100, 0.0)]);
        assert_eq!(line.regions.len(), 1);
        assert_eq!(line.regions[0].bend, Bend::Straight);
        assert_eq!(line.transition, None);
        assert_eq!(shape_of(&[(0, 1.0), (1, 0.5)]).transition, None);
    }
}
