//! Tests of the link: counters are consistent, order is kept, rate and delay are exact,
//! and losses have the configured statistics.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_lab::link::{
    Arrival, Fate, GilbertElliott, Link, LinkSettings, Loss, Reason, Reorder,
};
use longhaul_units::{BitRate, ByteCount, Moment};
use proptest::prelude::*;

fn rate(bits_per_second: f64) -> Option<BitRate> {
    BitRate::new(bits_per_second)
}

fn link(settings: LinkSettings) -> Link {
    Link::new(settings, 7).unwrap()
}

fn arrival(fate: Fate) -> Arrival {
    match fate {
        Fate::Arrives(arrival) => arrival,
        Fate::Lost(reason) => panic!("lost: {reason:?}"),
    }
}

/// A spacing in nanoseconds and an IP length in bytes for each segment.
fn offers() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0_u64..40_000, 40_u32..=1500), 1..400)
}

fn any_settings() -> impl Strategy<Value = LinkSettings> {
    let line = (1e6..2e10, 0_u64..400_000_000, 0.0..=1.0, 0_u64..200_000);
    let accidents = (0.0..0.3, 0.0..0.3, 0.0..0.3, 0.0..0.3);
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..0.5).prop_map(Loss::Independent),
        (1e-3..0.5, 1.0..20.0)
            .prop_map(|(mean, length)| Loss::Bursty(GilbertElliott::bursts(mean, length))),
    ];
    (line, accidents, loss).prop_map(|((bits, delay, jitter, queue), chances, loss)| {
        let delay = Duration::from_nanos(delay);
        LinkSettings {
            rate: rate(bits),
            delay,
            jitter: delay.mul_f64(jitter),
            loss,
            queue: ByteCount(queue),
            reorder: Some(Reorder {
                probability: chances.0,
                by: Duration::from_millis(2),
            }),
            duplicate: chances.1,
            corrupt: chances.2,
            corrupt_unseen: chances.3,
        }
    })
}

/// Offers all segments and returns their moments, lengths and fates.
fn run(link: &mut Link, offers: &[(u64, u32)]) -> Vec<(Moment, u32, Fate)> {
    let mut now = Moment(0);
    let mut fates = Vec::new();
    for (gap, length) in offers {
        now = now + Duration::from_nanos(*gap);
        fates.push((now, *length, link.offer(now, *length)));
    }
    fates
}

/// A straightforward queue as a reference: packets wait, one is being sent, and each
/// leaves when its last bit is sent.
struct WaitingRoom {
    limit: f64,
    bytes_a_second: f64,
    /// Time at which each packet leaves in seconds, and its bytes on the wire.
    waiting: VecDeque<(f64, f64)>,
}

impl WaitingRoom {
    /// Returns the time in seconds at which the packet leaves, or `None` if it does not
    /// fit; and the distance from the limit in bytes.
    fn offer(&mut self, now: f64, wire: f64) -> (Option<f64>, f64) {
        while self
            .waiting
            .front()
            .is_some_and(|(leaves, _)| *leaves <= now)
        {
            self.waiting.pop_front();
        }
        let mut occupied: f64 = self.waiting.iter().map(|(_, wire)| wire).sum();
        if let Some((leaves, wire)) = self.waiting.front() {
            // Only the unsent part of the packet in transmission counts.
            occupied -= wire - ((leaves - now) * self.bytes_a_second).min(*wire);
        }
        let room = self.limit - occupied - wire;
        if room < 0.0 {
            return (None, room);
        }
        let begins = self.waiting.back().map_or(now, |(leaves, _)| *leaves);
        let leaves = begins.max(now) + wire / self.bytes_a_second;
        self.waiting.push_back((leaves, wire));
        (Some(leaves), room)
    }
}

proptest! {
    #[test]
    fn the_counters_are_consistent(settings in any_settings(), offers in offers(), seed: u64) {
        let mut link = Link::new(settings, seed).unwrap();
        let mut counted = [0_u64; 5];
        let mut bytes = (0, 0);
        for (_, length, fate) in run(&mut link, &offers) {
            let wire = u64::from(length) + 38;
            bytes.0 += wire;
            match fate {
                Fate::Lost(Reason::Cut) => counted[0] += 1,
                Fate::Lost(Reason::Loss) => counted[1] += 1,
                Fate::Lost(Reason::Queue) => counted[2] += 1,
                Fate::Arrives(arrival) => {
                    counted[3] += 1;
                    counted[4] += u64::from(arrival.doubled);
                    bytes.1 += wire;
                }
            }
        }
        let c = link.counters();
        prop_assert_eq!(c.offered, offers.len() as u64);
        prop_assert_eq!(c.offered, c.delivered + c.cut + c.lost + c.queue_drops);
        prop_assert_eq!([c.cut, c.lost, c.queue_drops, c.delivered, c.doubled], counted);
        prop_assert_eq!((c.offered_bytes, c.delivered_bytes), bytes);
    }

    #[test]
    fn order_is_kept_except_for_segments_held_back(
        settings in any_settings(),
        later in any_settings(),
        offers in offers(),
    ) {
        let mut link = link(settings);
        let mut last = Moment(0);
        let half = offers.len() / 2;
        for (index, (gap, length)) in offers.iter().enumerate() {
            if index == half {
                link.set(later.clone()).unwrap();
            }
            let now = Moment(link_time(&offers, index, *gap));
            if let Fate::Arrives(arrival) = link.offer(now, *length) {
                prop_assert!(arrival.at >= now);
                if !arrival.held {
                    prop_assert!(arrival.at >= last, "{arrival:?} before {last:?}");
                    last = arrival.at;
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_fates(
        settings in any_settings(),
        offers in offers(),
        seed: u64,
    ) {
        let mut one = Link::new(settings.clone(), seed).unwrap();
        let mut other = Link::new(settings, seed).unwrap();
        prop_assert_eq!(run(&mut one, &offers), run(&mut other, &offers));
    }

    /// Compares with the reference queue, whose clock is a float: times agree within 10
    /// ns. If a decision depends on less than a byte, both results are correct.
    #[test]
    fn the_queue_agrees_with_the_reference_queue(
        bits in 1e8..1e10,
        limit in 3000_u64..60_000,
        offers in offers(),
    ) {
        let delay = Duration::from_millis(3);
        let settings = LinkSettings {
            rate: rate(bits),
            delay,
            queue: ByteCount(limit),
            ..LinkSettings::default()
        };
        let mut link = link(settings);
        let mut room = WaitingRoom {
            limit: limit as f64,
            bytes_a_second: bits / 8.0,
            waiting: VecDeque::new(),
        };
        for (now, length, fate) in run(&mut link, &offers) {
            let seconds = now.0 as f64 / 1e9;
            let (expected, spare) = room.offer(seconds, f64::from(length) + 38.0);
            match (fate, expected) {
                (Fate::Arrives(arrival), Some(leaves)) => {
                    let expected = (leaves + delay.as_secs_f64()) * 1e9;
                    prop_assert!((arrival.at.0 as f64 - expected).abs() < 10.0);
                }
                (Fate::Lost(Reason::Queue), None) => {}
                // The decisions may differ on the last byte; the states are different
                // afterwards.
                (fate, expected) => {
                    prop_assert!(spare.abs() < 1.0, "{fate:?} {expected:?} {spare}");
                    break;
                }
            }
        }
        prop_assert!(link.counters().highest_queue <= limit);
    }

    #[test]
    fn jitter_stays_within_its_bounds(
        jitter in 0_u64..50_000_000,
        offers in offers(),
        seed: u64,
    ) {
        let delay = Duration::from_millis(50);
        let jitter = Duration::from_nanos(jitter);
        let settings = LinkSettings { delay, jitter, ..LinkSettings::default() };
        let mut link = Link::new(settings, seed).unwrap();
        for (now, _, fate) in run(&mut link, &offers) {
            let travelled = arrival(fate).at - now;
            prop_assert!(travelled + Duration::from_nanos(1) >= delay - jitter);
            prop_assert!(travelled <= delay + jitter + Duration::from_nanos(1));
        }
    }
}

fn link_time(offers: &[(u64, u32)], index: usize, gap: u64) -> u64 {
    offers[..index].iter().map(|(gap, _)| gap).sum::<u64>() + gap
}

/// Capacity is the rate of TCP payload: 1448 bytes of payload are 1500 bytes of IP and
/// 1538 bytes on the wire.
#[test]
fn payload_is_1448_of_1538_bytes_on_the_wire() {
    let mut link = link(LinkSettings {
        rate: rate(1e10),
        ..LinkSettings::default()
    });
    let segments = 1_000_000_u64;
    let mut last = Moment(0);
    for _ in 0..segments {
        last = arrival(link.offer(Moment(0), 1500)).at;
    }
    let payload = (segments * 1448) as f64 * 8.0 / (last.0 as f64 / 1e9);
    let share = payload / 1e10;
    assert!((share - 1448.0 / 1538.0).abs() < 1e-9, "{share}");
}

/// After a million segments at a rate that divides no clock, the error is less than a
/// nanosecond, plus one nanosecond of rounding.
#[test]
fn the_rate_does_not_drift() {
    for bits in [1e9 / 3.0, 7e9, 9.999e9, 123_456_789.0] {
        let delay = Duration::from_millis(183);
        let mut link = link(LinkSettings {
            rate: rate(bits),
            delay,
            ..LinkSettings::default()
        });
        let mut last = Moment(0);
        for _ in 0..1_000_000 {
            last = arrival(link.offer(Moment(0), 1500)).at;
        }
        let exact = 1538e6 * 8e9 / bits + delay.as_nanos() as f64;
        let off = last.0 as f64 - exact;
        assert!((-0.5..=2.0).contains(&off), "{bits}: {off} ns");
    }
}

#[test]
fn a_single_segment_takes_its_sending_time_plus_the_delay() {
    let mut link = link(LinkSettings {
        rate: rate(1e9),
        delay: Duration::from_micros(500),
        queue: ByteCount(0),
        ..LinkSettings::default()
    });
    // (1462 + 38) bytes × 8 ns + 500 µs. The queue of 0 counts as one frame.
    assert_eq!(arrival(link.offer(Moment(1000), 1462)).at, Moment(513_000));
    assert_eq!(
        link.offer(Moment(1000), 1462),
        Fate::Lost(Reason::Queue),
        "the first segment fills the queue"
    );
    assert_eq!(arrival(link.offer(Moment(13_000), 1462)).at.0, 525_000);
}

#[test]
fn a_cut_loses_new_segments_but_not_those_in_flight() {
    let mut link = link(LinkSettings {
        delay: Duration::from_secs(1),
        ..LinkSettings::default()
    });
    let before = arrival(link.offer(Moment(0), 100)).at;
    link.cut_until(Moment(1000));
    assert_eq!(before, Moment(1_000_000_000));
    assert_eq!(link.offer(Moment(999), 100), Fate::Lost(Reason::Cut));
    assert!(matches!(link.offer(Moment(1000), 100), Fate::Arrives(_)));
    assert_eq!(link.counters().cut, 1);
}

/// Offers segments to a link with this loss. Returns the number of lost segments and of
/// bursts.
fn losses(loss: Loss, segments: u64) -> (u64, u64) {
    let mut link = link(LinkSettings {
        loss,
        ..LinkSettings::default()
    });
    let (mut bursts, mut before) = (0, false);
    for _ in 0..segments {
        let lost = matches!(link.offer(Moment(0), 1500), Fate::Lost(_));
        bursts += u64::from(lost && !before);
        before = lost;
    }
    (link.counters().lost, bursts)
}

/// The tolerance is 4 standard deviations of the binomial distribution: one seed in
/// 16,000 would be outside, and the seed is fixed.
#[test]
fn independent_losses_have_the_configured_mean() {
    for probability in [1e-5, 1e-3, 0.02, 0.5] {
        let segments = 4_000_000_u64;
        let (lost, _) = losses(Loss::Independent(probability), segments);
        let mean = segments as f64 * probability;
        let deviation = (mean * (1.0 - probability)).sqrt();
        assert!(
            (lost as f64 - mean).abs() < 4.0 * deviation,
            "{probability}: {lost}"
        );
    }
}

/// Durations of the bad state are geometric: a burst has mean length L and variance
/// L(L-1), and the standard deviation of the number of bursts is about its square root.
/// The tolerances are 4 deviations. Two bursts never merge, because a good state lasts at
/// least one segment.
#[test]
fn bursts_have_the_configured_mean_and_length() {
    for (mean, length) in [(1e-3, 8.0), (0.02, 3.0), (1e-4, 30.0)] {
        let segments = 8_000_000_u64;
        let model = GilbertElliott::bursts(mean, length);
        let (lost, bursts) = losses(Loss::Bursty(model), segments);
        let expected = segments as f64 * mean / length;
        let deviation = expected.sqrt();
        assert!(
            (bursts as f64 - expected).abs() < 4.0 * deviation,
            "{mean}/{length}: {bursts} bursts, not {expected}"
        );
        let seen = lost as f64 / bursts as f64;
        let error = (length * (length - 1.0) / bursts as f64).sqrt();
        assert!(
            (seen - length).abs() < 4.0 * error,
            "{mean}/{length}: {seen}"
        );
    }
}

#[test]
fn accidents_have_the_configured_probabilities() {
    let mut link = link(LinkSettings {
        delay: Duration::from_millis(1),
        reorder: Some(Reorder {
            probability: 0.01,
            by: Duration::from_micros(100),
        }),
        duplicate: 0.02,
        corrupt: 0.03,
        corrupt_unseen: 0.04,
        ..LinkSettings::default()
    });
    for _ in 0..1_000_000 {
        // Every segment counts as damageable here.
        if let Fate::Arrives(Arrival {
            damage: Some(damage),
            ..
        }) = link.offer(Moment(0), 1500)
        {
            link.note_damage(&damage);
        }
    }
    let c = link.counters();
    let near = |count: u64, probability: f64| {
        let deviation = (1e6 * probability * (1.0 - probability)).sqrt();
        assert!(
            (count as f64 - 1e6 * probability).abs() < 4.0 * deviation,
            "{count}, not {probability}"
        );
    };
    near(c.held, 0.01);
    near(c.doubled, 0.02);
    // If both kinds of damage occur, the segment counts as damaged unseen.
    near(c.corrupted, 0.03 * 0.96);
    near(c.corrupted_unseen, 0.04);
}

#[test]
fn invalid_link_settings_are_rejected() {
    let good = LinkSettings::default();
    for bad in [
        LinkSettings {
            rate: rate(0.0),
            ..good.clone()
        },
        LinkSettings {
            jitter: Duration::from_millis(1),
            ..good.clone()
        },
        LinkSettings {
            delay: Duration::from_secs(3601),
            ..good.clone()
        },
        LinkSettings {
            duplicate: 1.5,
            ..good.clone()
        },
        LinkSettings {
            loss: Loss::Independent(f64::NAN),
            ..good.clone()
        },
    ] {
        assert!(Link::new(bad.clone(), 0).is_err(), "{bad:?}");
    }
}

#[test]
fn a_queue_keeps_its_bytes_when_the_rate_changes() {
    let settings = |bits| LinkSettings {
        rate: bits,
        queue: ByteCount(1 << 20),
        ..LinkSettings::default()
    };
    let mut link = link(settings(rate(8e6)));
    for _ in 0..100 {
        arrival(link.offer(Moment(0), 962));
    }
    // A segment of 962 bytes takes 1000 bytes of the line: 1 ms at 8 Mbit/s.
    assert_eq!(link.backlog(Moment(0)), ByteCount(100_000));
    for changed in [rate(80e6), None, rate(8e5)] {
        link.set(settings(changed)).unwrap();
        assert_eq!(link.backlog(Moment(0)), ByteCount(100_000), "{changed:?}");
    }
    arrival(link.offer(Moment(0), 962));
    assert_eq!(link.backlog(Moment(0)), ByteCount(101_000));
    assert_eq!(link.backlog(Moment(60_000_000)), ByteCount(41_000));
    assert_eq!(link.backlog(Moment(105_000_000)), ByteCount(500));
    assert_eq!(link.backlog(Moment(200_000_000)), ByteCount(0));
}
