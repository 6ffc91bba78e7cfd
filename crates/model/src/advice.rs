//! Advice for an administrator about a path: the bottleneck, the sysctl that helps, and its
//! expected effect.

use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::kernel::{BufferEnd, BufferLimits, WindowAdvice};
use crate::response::{Congestion, mean_window, streams_for_loss};

/// Ratio of the desired window to the bytes in flight. CUBIC keeps 0.7 of a window after a loss,
/// and 1 / 0.7 is 1.43.
pub const WINDOW_MARGIN: f64 = 1.5;

/// Ratio above which an observed window is larger than the usual share of the buffer. The kernel
/// keeps a smaller share of small buffers for itself.
const NOTABLY_MORE: f64 = 1.05;

/// Utilisation of a host's cores above which the host has no free cores to move data.
const BUSY: f64 = 0.9;

/// Share of lost segments above which loss is reported. Below it, CUBIC still has windows of 0.2 GB
/// at 366 ms.
const NOTABLE_LOSS: f64 = 1e-6;

/// Minimum increase of the round-trip time under load that shows a queue. The increase must also
/// exceed a quarter. A smaller increase is caused by the hosts.
const NOTABLE_QUEUE: Duration = Duration::from_millis(5);

/// Measurements of a path in one direction, and of the hosts at its ends.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFacts {
    /// Least round-trip time.
    pub rtt: Duration,
    /// Median round-trip time while the path was full.
    pub loaded_rtt: Duration,
    /// Highest settled rate, in bytes of TCP payload per second.
    pub bytes_per_second: f64,
    /// Number of streams that reached this rate.
    pub streams: u32,
    /// Rate of a single stream in bytes per second, if it was measured.
    pub one_stream: Option<f64>,
    /// Share of segments, 0 to 1, that were lost without a queue that could have dropped them. If
    /// the kernel does not report unnecessary retransmissions, they are included.
    pub loss: f64,
    /// Size of a segment's payload in bytes.
    pub segment: u32,
    /// Congestion control of the sender.
    pub congestion: Congestion,
    /// Other congestion controls that the sender's kernel offers.
    pub congestions: Vec<String>,
    /// Buffer limits of the sending host.
    pub sender: BufferLimits,
    /// Buffer limits of the receiving host.
    pub receiver: BufferLimits,
    /// Share of its cores that the process on the busier host used, 0 to 1.
    pub processor: Option<f64>,
    /// TCP options (RFC 2018, RFC 7323) that the two hosts did not negotiate, by the sysctl that
    /// enables them.
    pub refused_options: Vec<&'static str>,
}

/// A sysctl setting that helps.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// Host to change: `sending` or `receiving`.
    pub host: &'static str,
    /// Name of the sysctl.
    pub sysctl: &'static str,
    /// New value of the sysctl.
    pub value: String,
    /// Expected rate of one stream with this setting, in bytes per second, if it is known.
    pub one_stream: Option<f64>,
}

/// A piece of advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Subject of the advice: `window`, `loss`, `queue`, `processor`, `option` or `segment`.
    pub topic: &'static str,
    /// Advice in sentences.
    pub text: String,
    /// Settings that help.
    pub remedies: Vec<Remedy>,
}

/// Returns the advice for a path, the most useful first.
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

/// Applies paper 000, equation 1, with windows instead of buffers and with a margin: BDP × 1.5 ≤
/// window × streams.
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
    // An observed window takes precedence over the usual share of the buffer.
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
            "even the windows of {} streams together are less than 1.5 times the data in flight: \
            use {} or more",
            facts.streams,
            (wanted / window.0 as f64).ceil()
        )
    } else {
        format!("{} streams compensate for it", facts.streams)
    };
    let text = format!(
        "{sysctl} is limited to {} on the {host} host, so one stream's window is limited to about {} and \
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

/// Returns the advice about the rate that a stream reaches under random loss.
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
        let way = "bbr, which the sending host has, does not slow down for such loss: \
                   `--congestion bbr`, or `sysctl -w net.ipv4.tcp_congestion_control=bbr` there";
        (way, vec![remedy])
    } else {
        (
            "the sending host does not allow bbr: `modprobe tcp_bbr` and `sysctl -w \
            net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"` there would enable it",
            Vec::new(),
        )
    };
    let text = format!(
        "{:.4} % of the segments were lost without a queue, so the loss is random. With this loss, \
        {} carries about {} in one stream, and needs {streams} streams for the measured rate; {way}.",
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
            "Under load the round-trip time rises from {} to {}: {} wait in a queue on the path and \
            delay other traffic. The path is full: more streams do not help. `--nice` keeps the \
            queue empty.",
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
            "A host's cores were {:.0} % busy: they limit the rate to {}, and the path may carry \
            more. `--data-security clear` on a trusted network shows the cost of \
            encryption{large}.",
            busy * 100.0,
            rate(facts.bytes_per_second),
        ),
        remedies: Vec::new(),
    })
}

/// Bytes of TCP payload in a packet of 1500 bytes with IPv6 and timestamps. A smaller segment means
/// that the path adds headers.
const USUAL_SEGMENT: u32 = 1428;

fn segment(facts: &PathFacts) -> Option<Advice> {
    (facts.segment > 0 && facts.segment < USUAL_SEGMENT).then(|| Advice {
        topic: "segment",
        text: format!(
            "A segment has {} bytes; {USUAL_SEGMENT} to 1448 are usual. There is a tunnel on the \
            path, or a small MTU. Windows grow by segments, so every ramp takes longer.",
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
            "The two hosts did not negotiate the TCP option that {sysctl} enables: set \
            `sysctl -w {sysctl}=1` on both, or check for a firewall that removes the option."
        ),
        remedies: vec![remedy("sending"), remedy("receiving")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the facts of a path with 1 Gbit/s and 100 ms between hosts with the usual limits.
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
    fn a_small_window_is_reported_with_its_remedy() {
        let advice = advise(&facts());
        assert_eq!(topics(&facts()), ["window"]);
        let [remedy] = advice[0].remedies.as_slice() else {
            panic!("{advice:?}");
        };
        // 1.5 × 11.7 MB divided by 0.69, the share of the buffer, is 25.4 MB, which is rounded up
        // to 32 MiB.
        assert_eq!(remedy.value, "4096 16384 33554432");
        assert_eq!((remedy.host, remedy.one_stream), ("sending", Some(117e6)));
        assert!(
            advice[0].text.contains("8 streams compensate"),
            "{advice:?}"
        );
        assert!(advice[0].text.contains("at most 232"), "{advice:?}");
    }

    #[test]
    fn too_few_streams_for_small_windows_are_reported() {
        let few = PathFacts {
            streams: 4,
            ..facts()
        };
        let text = &advise(&few)[0].text;
        // 17.55 MB need seven windows of 2.89 MB.
        assert!(text.contains("4 streams together are less"), "{text}");
        assert!(text.contains("use 7 or more"), "{text}");
    }

    #[test]
    fn an_observed_window_takes_precedence_over_the_usual_share() {
        let small = BufferLimits {
            tcp_send: Some(512 << 10),
            ..facts().sender
        };
        // 0.69 of the buffer allows 3.6 MB/s at 100 ms.
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
        // 5.1 MB need eleven such windows.
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
    fn sufficient_limits_need_no_advice() {
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
    fn random_loss_suggests_bbr_and_a_queue_does_not() {
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
        // The queue is 80 ms at 117 MB/s.
        assert!(advise(&full)[0].text.contains("wait in a queue"));
    }

    #[test]
    fn busy_hosts_small_segments_and_refused_options_are_reported() {
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
