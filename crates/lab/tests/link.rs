//! The link's promises: nothing is lost from the books, order stays, rate and
//! delay are exact, losses have the statistics they are asked for.

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

/// A spacing in nanoseconds and an IP length for each segment.
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

/// Offers all; gives the moments and fates.
fn run(link: &mut Link, offers: &[(u64, u32)]) -> Vec<(Moment, u32, Fate)> {
    let mut now = Moment(0);
    let mut fates = Vec::new();
    for (gap, length) in offers {
        now = now + Duration::from_nanos(*gap);
        fates.push((now, *length, link.offer(now, *length)));
    }
    fates
}

/// A queue as one would build it: packets wait, one is being sent, each leaves
/// when its bits are through.
struct WaitingRoom {
    limit: f64,
    bytes_a_second: f64,
    /// When each leaves, and its bytes on the wire.
    waiting: VecDeque<(f64, f64)>,
}

impl WaitingRoom {
    /// Seconds when it leaves; none where there is no room. And how close the
    /// decision was, in bytes.
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
            // Of the one being sent the rest counts.
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
    fn the_books_balance(settings in any_settings(), offers in offers(), seed: u64) {
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
    fn order_stays_but_for_what_is_held(
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

    /// Against the obvious queue, whose clock is a float: so times agree within
    /// 10 ns, and where a decision hangs on less than a byte either is right.
    #[test]
    fn it_queues_as_a_waiting_room_does(
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
                // They may differ on the last byte; from there on they go apart.
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

/// DESIGN, "Words": capacity is what TCP payload can carry. 1448 bytes of
/// payload are 1500 of IP and 1538 on the wire.
#[test]
fn payload_is_1448_of_1538() {
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

/// A million segments at a rate that no clock divides are off by less than a
/// nanosecond, and one for rounding.
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
fn a_lone_segment_takes_its_bits_and_the_delay() {
    let mut link = link(LinkSettings {
        rate: rate(1e9),
        delay: Duration::from_micros(500),
        queue: ByteCount(0),
        ..LinkSettings::default()
    });
    // (1462 + 38) bytes x 8 ns, and 500 us. The queue of 0 counts as one frame.
    assert_eq!(arrival(link.offer(Moment(1000), 1462)).at, Moment(513_000));
    assert_eq!(
        link.offer(Moment(1000), 1462),
        Fate::Lost(Reason::Queue),
        "no room beside the first"
    );
    assert_eq!(arrival(link.offer(Moment(13_000), 1462)).at.0, 525_000);
}

#[test]
fn a_cut_loses_what_comes_and_lets_arrive_what_left() {
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

/// Draws from a loss; gives how many were lost, and how many bursts they were.
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

/// Within 4 standard deviations of the binomial: one seed in 16,000 would fall
/// outside, and the seed is fixed.
#[test]
fn independent_losses_are_as_many_as_asked() {
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

/// Runs of bad states are geometric: a burst has a length of mean L and
/// variance L(L-1), and their number is known to about its root. Both within 4
/// deviations; two bursts with no good segment between count as one, which
/// happens never, since a good state lasts at least one segment.
#[test]
fn bursts_have_the_mean_and_the_length_asked_for() {
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
fn accidents_are_as_many_as_asked() {
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
        // Each has something that can be damaged.
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
    // Where both would happen it is the unseen one.
    near(c.corrupted, 0.03 * 0.96);
    near(c.corrupted_unseen, 0.04);
}

#[test]
fn what_makes_no_link_is_refused() {
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
