//! What to tell an administrator about a path: what holds it up, which sysctl
//! would help, and what that would give.

use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::kernel::{BufferEnd, BufferLimits, WindowAdvice};
use crate::response::{Congestion, mean_window, streams_for_loss};

/// Windows should hold this many times the bytes in flight: CUBIC keeps 0.7 of a window at a loss,
/// and 1 / 0.7 is 1.43.
pub const WINDOW_MARGIN: f64 = 1.5;

/// A window that was seen to be larger by this is larger than what a buffer's share allows: the
/// kernel keeps less of small buffers for itself.
const NOTABLY_MORE: f64 = 1.05;

/// A host whose cores are busier than this share has none left to move data.
const BUSY: f64 = 0.9;

/// Segments lost above this share are worth a word: below, CUBIC at 366 ms
/// still has windows of 0.2 GB.
const NOTABLE_LOSS: f64 = 1e-6;

/// A queue shows where the round trip under load is longer than without by this,
/// and by a quarter: less is the hosts' own.
const NOTABLE_QUEUE: Duration = Duration::from_millis(5);

/// What was measured of a path in one direction, and of its ends.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFacts {
    /// The least round trip.
    pub rtt: Duration,
    /// The median one while the path was full.
    pub loaded_rtt: Duration,
    /// Bytes of TCP payload per second, once they had settled: the best.
    pub bytes_per_second: f64,
    /// The streams that carried them.
    pub streams: u32,
    /// What one stream carried, where that was measured.
    pub one_stream: Option<f64>,
    /// The share of segments that were lost although no queue can have dropped them, 0 to 1. If the
    /// kernel does not report which segments were sent again unnecessarily, those count too.
    pub loss: f64,
    /// Bytes in a segment.
    pub segment: u32,
    /// What governs the sender's windows.
    pub congestion: Congestion,
    /// What else its kernel has.
    pub congestions: Vec<String>,
    /// The sending host's limits.
    pub sender: BufferLimits,
    /// The receiving host's limits.
    pub receiver: BufferLimits,
    /// The share of its cores that the busier host's process used, 0 to 1.
    pub processor: Option<f64>,
    /// Options of TCP (RFC 2018, RFC 7323) that the ends did not agree on, by the
    /// sysctl that allows them.
    pub refused_options: Vec<&'static str>,
}

/// A sysctl that would help.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// On which host: `sending` or `receiving`.
    pub host: &'static str,
    /// The sysctl.
    pub sysctl: &'static str,
    /// Its value.
    pub value: String,
    /// What one stream could carry then, where it says that, in bytes per second.
    pub one_stream: Option<f64>,
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What it is about: `window`, `loss`, `queue`, `processor`, `option`,
    /// `segment`.
    pub topic: &'static str,
    /// In sentences.
    pub text: String,
    /// What would help.
    pub remedies: Vec<Remedy>,
}

/// What there is to say, the most useful first.
pub fn advise(facts: &PathFacts) -> Vec<Advice> {
    let found = [
        processor(facts),
        window(facts, BufferEnd::Sender),
        window(facts, BufferEnd::Receiver),
        loss(facts),
        queue(facts),
        segment(facts),
    ];
    let options = facts.refused_options.iter().map(|&sysctl| option(sysctl));
    found.into_iter().flatten().chain(options).collect()
}

fn rate(bytes_per_second: f64) -> String {
    BitRate::new(bytes_per_second * 8.0).map_or_else(String::new, |rate| rate.to_string())
}

fn milliseconds(span: Duration) -> String {
    let value = span.as_secs_f64() * 1e3;
    let decimals = usize::from(value < 10.0);
    format!("{value:.decimals$} ms")
}

/// Paper 000, equation 1, with windows instead of buffers and a margin: BDP × 1.5
/// ≤ window × streams.
fn window(facts: &PathFacts, end: BufferEnd) -> Option<Advice> {
    let (limits, host, sysctl) = match end {
        BufferEnd::Sender => (&facts.sender, "sending", "net.ipv4.tcp_wmem"),
        BufferEnd::Receiver => (&facts.receiver, "receiving", "net.ipv4.tcp_rmem"),
    };
    let (window, limit) = match end {
        BufferEnd::Sender => (limits.send_window()?, limits.tcp_send?),
        BufferEnd::Receiver => (limits.receive_window()?, limits.tcp_receive?),
    };
    let seconds = facts.rtt.as_secs_f64();
    let wanted = WINDOW_MARGIN * facts.bytes_per_second * seconds;
    let share = window.0 as f64 / limit as f64;
    // What one stream had goes before what buffers usually allow.
    let had = facts.one_stream.map_or(0.0, |one| one * seconds);
    let (window, carries) = if had > NOTABLY_MORE * window.0 as f64 {
        (ByteCount(had as u64), "carried")
    } else {
        (window, "carries at most")
    };
    if seconds <= 0.0 || window.0 as f64 >= wanted {
        return None;
    }
    let advice = WindowAdvice {
        end,
        window,
        bytes_per_second: WINDOW_MARGIN * facts.bytes_per_second,
        rtt: facts.rtt,
        limit: Some(limit),
        fixed: false,
    };
    let value = advice.remedy();
    let least = match end {
        BufferEnd::Sender => "4096 16384",
        BufferEnd::Receiver => "4096 131072",
    };
    let alone = window.0 as f64 / seconds;
    let then = (value as f64 * share / seconds).min(facts.bytes_per_second);
    let together = window.0 as f64 * f64::from(facts.streams);
    let verdict = if together < wanted {
        format!(
            "even the windows of {} streams together are less than 1.5 times what is on its way: \
         use {} or more",
            facts.streams,
            (wanted / window.0 as f64).ceil()
        )
    } else {
        format!("{} streams make up for it", facts.streams)
    };
    let text = format!(
        "{sysctl} ends at {} on the {host} host, so that one stream's window ends at about {} and \
         {carries} {} at {}; {verdict}. `sysctl -w {sysctl}=\"{least} {value}\"` there would \
         let one stream carry up to {}.",
        ByteCount(limit),
        window,
        rate(alone.min(facts.bytes_per_second)),
        milliseconds(facts.rtt),
        rate(then),
    );
    let remedy = Remedy {
        host,
        sysctl,
        value: format!("{least} {value}"),
        one_stream: Some(then),
    };
    Some(Advice {
        topic: "window",
        text,
        remedies: vec![remedy],
    })
}

/// What random loss leaves of a stream.
fn loss(facts: &PathFacts) -> Option<Advice> {
    let window = mean_window(&facts.congestion, facts.loss, facts.rtt)?;
    let one = window * f64::from(facts.segment) / facts.rtt.as_secs_f64().max(1e-6);
    if facts.loss < NOTABLE_LOSS || one >= facts.bytes_per_second || has_queue(facts) {
        return None;
    }
    let segments = facts.bytes_per_second / f64::from(facts.segment.max(1));
    let streams = streams_for_loss(&facts.congestion, facts.loss, facts.rtt, segments);
    let (way, remedies) = if facts.congestions.iter().any(|name| name == "bbr") {
        let remedy = Remedy {
            host: "sending",
            sysctl: "net.ipv4.tcp_congestion_control",
            value: "bbr".to_owned(),
            one_stream: Some(facts.bytes_per_second),
        };
        let way = "bbr, which the sending host has, takes loss without a queue for what it is: \
                   `--congestion bbr`, or `sysctl -w net.ipv4.tcp_congestion_control=bbr` there";
        (way, vec![remedy])
    } else {
        (
            "the sending host lets nobody choose bbr: `modprobe tcp_bbr` and `sysctl -w \
         net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"` there would",
            Vec::new(),
        )
    };
    let text = format!(
        "{:.4} % of the segments were lost though no queue stood: random loss. {} then \
         carries about {} in one stream, and {streams} streams what was measured; {way}.",
        facts.loss * 100.0,
        facts.congestion,
        rate(one),
    );
    Some(Advice {
        topic: "loss",
        text,
        remedies,
    })
}

fn has_queue(facts: &PathFacts) -> bool {
    let more = facts.loaded_rtt.saturating_sub(facts.rtt);
    more > NOTABLE_QUEUE.max(facts.rtt / 4)
}

fn queue(facts: &PathFacts) -> Option<Advice> {
    let more = facts.loaded_rtt.saturating_sub(facts.rtt);
    has_queue(facts).then(|| Advice {
        topic: "queue",
        text: format!(
            "Under load the round trip rises from {} to {}: {} wait in a queue on the way, and \
             others wait behind them. The path is full: more streams give nothing; `--nice` \
             leaves the queue empty.",
            milliseconds(facts.rtt),
            milliseconds(facts.loaded_rtt),
            ByteCount((more.as_secs_f64() * facts.bytes_per_second) as u64),
        ),
        remedies: Vec::new(),
    })
}

fn processor(facts: &PathFacts) -> Option<Advice> {
    let busy = facts.processor.filter(|busy| *busy > BUSY)?;
    let large = if facts.segment < 2000 {
        "; larger packets (an MTU of 9000 on the whole path) cost less"
    } else {
        ""
    };
    Some(Advice {
        topic: "processor",
        text: format!(
            "A host's cores were {:.0} % busy: {} is what they can do, and the path may carry \
             more. `--data-security clear` on a trusted network shows how much of it is \
             encryption{large}.",
            busy * 100.0,
            rate(facts.bytes_per_second),
        ),
        remedies: Vec::new(),
    })
}

/// Bytes of TCP payload in a packet of 1500 with IPv6 and time stamps: less means
/// that something on the way takes room.
const USUAL_SEGMENT: u32 = 1428;

fn segment(facts: &PathFacts) -> Option<Advice> {
    (facts.segment > 0 && facts.segment < USUAL_SEGMENT).then(|| Advice {
        topic: "segment",
        text: format!(
            "A segment has {} bytes where {USUAL_SEGMENT} to 1448 are usual: a tunnel on the way, \
             or a small MTU. Windows grow by segments, so that every ramp takes longer.",
            facts.segment
        ),
        remedies: Vec::new(),
    })
}

fn option(sysctl: &'static str) -> Advice {
    let remedy = |host| Remedy {
        host,
        sysctl,
        value: "1".to_owned(),
        one_stream: None,
    };
    Advice {
        topic: "option",
        text: format!(
            "The two hosts did not agree on what {sysctl} allows: `sysctl -w {sysctl}=1` on both, \
             or a firewall between them takes it away."
        ),
        remedies: vec![remedy("sending"), remedy("receiving")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s at 100 ms between hosts with the usual limits.
    fn facts() -> PathFacts {
        let limits = BufferLimits {
            tcp_send: Some(4 << 20),
            tcp_receive: Some(64 << 20),
            ..BufferLimits::default()
        };
        PathFacts {
            rtt: Duration::from_millis(100),
            loaded_rtt: Duration::from_millis(101),
            bytes_per_second: 117e6,
            streams: 8,
            one_stream: Some(29e6),
            loss: 0.0,
            segment: 1448,
            congestion: Congestion::Cubic,
            congestions: vec!["cubic".into(), "bbr".into()],
            sender: limits,
            receiver: limits,
            processor: Some(0.3),
            refused_options: Vec::new(),
        }
    }

    fn topics(facts: &PathFacts) -> Vec<&'static str> {
        advise(facts).iter().map(|advice| advice.topic).collect()
    }

    #[test]
    fn a_window_that_is_too_small_is_named_with_its_remedy() {
        let advice = advise(&facts());
        assert_eq!(topics(&facts()), ["window"]);
        let [remedy] = advice[0].remedies.as_slice() else {
            panic!("{advice:?}");
        };
        // 1.5 × 11.7 MB at 0.69 of the buffer: 25.4 MB, so 32 MiB.
        assert_eq!(remedy.value, "4096 16384 33554432");
        assert_eq!((remedy.host, remedy.one_stream), ("sending", Some(117e6)));
        assert!(advice[0].text.contains("8 streams make up"), "{advice:?}");
        assert!(advice[0].text.contains("at most 232"), "{advice:?}");
    }

    #[test]
    fn streams_whose_windows_are_not_enough_together_are_told() {
        let few = PathFacts {
            streams: 4,
            ..facts()
        };
        let text = &advise(&few)[0].text;
        // 17.55 MB want seven windows of 2.89 MB.
        assert!(text.contains("4 streams together are less"), "{text}");
        assert!(text.contains("use 7 or more"), "{text}");
    }

    #[test]
    fn what_one_stream_carried_goes_before_what_buffers_usually_allow() {
        let small = BufferLimits {
            tcp_send: Some(512 << 10),
            ..facts().sender
        };
        // 3.6 MB/s are what 0.69 of the buffer would hold at 100 ms.
        let more = PathFacts {
            sender: small,
            one_stream: Some(5e6),
            bytes_per_second: 34e6,
            ..facts()
        };
        let text = &advise(&more)[0].text;
        assert!(
            text.contains("about 500 kB and carried 40.0 Mbit/s"),
            "{text}"
        );
        // 5.1 MB want eleven of them.
        assert!(text.contains("use 11 or more"), "{text}");
        let less = PathFacts {
            one_stream: Some(3e6),
            ..more
        };
        let text = &advise(&less)[0].text;
        assert!(
            text.contains("about 362 kB and carries at most 28.9"),
            "{text}"
        );
    }

    #[test]
    fn limits_that_suffice_need_no_word() {
        let near = PathFacts {
            rtt: Duration::from_millis(1),
            loaded_rtt: Duration::from_millis(1),
            ..facts()
        };
        assert!(advise(&near).is_empty(), "{:?}", advise(&near));
        let unknown = PathFacts {
            sender: BufferLimits::default(),
            receiver: BufferLimits::default(),
            ..facts()
        };
        assert!(advise(&unknown).is_empty());
    }

    #[test]
    fn random_loss_calls_for_bbr_and_a_queue_does_not() {
        let wide = BufferLimits {
            tcp_send: Some(1 << 30),
            tcp_receive: Some(1 << 30),
            ..BufferLimits::default()
        };
        let lossy = PathFacts {
            loss: 1e-4,
            sender: wide,
            receiver: wide,
            ..facts()
        };
        assert_eq!(topics(&lossy), ["loss"]);
        let advice = advise(&lossy);
        assert_eq!(advice[0].remedies[0].value, "bbr");
        let without = PathFacts {
            congestions: vec!["cubic".into()],
            ..lossy.clone()
        };
        assert!(advise(&without)[0].text.contains("modprobe tcp_bbr"));
        let full = PathFacts {
            loaded_rtt: Duration::from_millis(180),
            ..lossy
        };
        assert_eq!(topics(&full), ["queue"]);
        // 80 ms at 117 MB/s.
        assert!(advise(&full)[0].text.contains("wait in a queue"));
    }

    #[test]
    fn busy_hosts_small_segments_and_refused_options_are_told() {
        let near = Duration::from_millis(1);
        let facts = PathFacts {
            rtt: near,
            loaded_rtt: near,
            processor: Some(0.97),
            segment: 1300,
            refused_options: vec!["net.ipv4.tcp_sack"],
            ..facts()
        };
        assert_eq!(topics(&facts), ["processor", "segment", "option"]);
    }
}
