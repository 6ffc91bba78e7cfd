//! Conclusions from facts, without I/O, so that every finding can be tested without a
//! network.

use std::time::Duration;

use longhaul_model::advice::Advice;
use longhaul_units::BitRate;

use super::host::HostFacts;
use ports::{Inward, Tried, inward, outward};
use programs::programs;
use resources::host;
use rights::{Rights, rights};

pub mod ports;
mod programs;
mod resources;
pub mod rights;

/// Maximum difference between the clocks in seconds. A larger one makes comparisons of
/// file times misleading.
const CLOCK_SECONDS: f64 = 1.0;

/// Fraction of lost segments above which a policer is suspected, if there is no queue and
/// more streams do not help.
const POLICED_LOSS: f64 = 1e-3;

/// Maximum ratio of the rate of several streams to the rate of one stream for which a
/// policer is suspected.
const POLICED_GAIN: f64 = 1.3;

/// A queue lengthens the round trip by at least a quarter and 5 ms.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE: Duration = Duration::from_millis(5);

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The check passed.
    Good,
    /// A change would make copies faster or safer.
    Advice,
    /// Copies fail, or cannot use this path.
    Problem,
    /// The check was not possible; the text gives the reason.
    NotChecked,
}

impl Weight {
    /// Returns the name used in the output.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Good => "ok",
            Weight::Advice => "advice",
            Weight::Problem => "problem",
            Weight::NotChecked => "not checked",
        }
    }
}

/// Result of a check. Advice and problems contain a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    NotChecked,
    Advice(String),
    Problem(String),
}

/// A finding about one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Topic, one or two words.
    pub topic: &'static str,
    /// Explanation in sentences.
    pub text: String,
    verdict: Verdict,
}

impl Finding {
    /// Returns the importance.
    pub fn weight(&self) -> Weight {
        match self.verdict {
            Verdict::Good => Weight::Good,
            Verdict::NotChecked => Weight::NotChecked,
            Verdict::Advice(_) => Weight::Advice,
            Verdict::Problem(_) => Weight::Problem,
        }
    }

    /// Returns the remedy, which every advice and problem has.
    pub fn remedy(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Good | Verdict::NotChecked => None,
            Verdict::Advice(remedy) | Verdict::Problem(remedy) => Some(remedy),
        }
    }
}

fn found(topic: &'static str, text: impl Into<String>, verdict: Verdict) -> Finding {
    Finding {
        topic,
        text: text.into(),
        verdict,
    }
}

pub(super) fn good(topic: &'static str, text: impl Into<String>) -> Finding {
    found(topic, text, Verdict::Good)
}

pub(super) fn bad(
    topic: &'static str,
    text: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    found(topic, text, Verdict::Problem(remedy.into()))
}

fn advice(topic: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    found(topic, text, Verdict::Advice(remedy.into()))
}

/// Creates a finding for a check that was not possible, with the reason.
pub fn not_checked(topic: &'static str, why: impl Into<String>) -> Finding {
    found(topic, why, Verdict::NotChecked)
}

/// A fact, or the reason why it is unknown.
pub type Known<T> = Result<T, String>;

/// The longhaul program of the remote host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Software {
    /// This release.
    Same,
    /// Another release, with its version.
    Other(String),
    /// Not installed.
    Absent,
    /// Installed but not usable, with its error.
    Broken(String),
}

/// Measurement of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `to` or `from` the remote host.
    pub direction: &'static str,
    /// Rate in bytes per second.
    pub bytes_per_second: f64,
    /// Smallest number of streams that reached this rate.
    pub streams: u32,
    /// Largest number of streams that was measured.
    pub most_streams: u32,
    /// Rate of one stream in bytes per second.
    pub one_stream: Option<f64>,
    /// Fraction of segments lost while no queue can have dropped them, 0 to 1.
    pub loss: f64,
    /// Segment size in bytes; 0 if no data arrived.
    pub segment: u32,
    /// Round-trip times: the minimum, and the median under load.
    pub rtt: (Duration, Duration),
    /// Congestion control of the sending end.
    pub congestion: String,
    /// Advice about the limits of the path.
    pub advice: Vec<Advice>,
}

/// TCP options that both ends of a connection agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True if windows above 64 KiB are possible.
    pub scaling: bool,
    /// Path MTU in bytes, according to this end's kernel.
    pub path_mtu: u64,
}

/// Lead of the far clock over this clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// Lead in seconds; negative if the far clock is behind.
    pub ahead: f64,
    /// Maximum error of the lead in seconds.
    pub uncertainty: f64,
}

/// All collected facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Description of the connection to the remote host; `None` for this host.
    pub reached: Option<Known<String>>,
    /// longhaul on the remote host.
    pub software: Option<Known<Software>>,
    /// Facts of this host.
    pub here: Known<HostFacts>,
    /// Facts of the far host; `None` for this host.
    pub far: Option<Known<HostFacts>>,
    /// Connections from this host to the remote host.
    pub outward: Option<Known<Vec<Tried>>>,
    /// Connections from the remote host to this host.
    pub inward: Option<Known<Inward>>,
    /// True if the remote host's system ends the processes of a login when the login ends.
    pub mortal: bool,
    /// Permissions at a daemon; `None` without a daemon.
    pub rights: Option<Known<Rights>>,
    /// Lead of the remote host's clock.
    pub clock: Option<Known<Lead>>,
    /// TCP options that both ends agreed on.
    pub options: Option<Known<Options>>,
    /// Measurements of each direction.
    pub measured: Vec<Known<Measured>>,
}

/// Returns the findings in the order of a manual diagnosis.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(reached) = &facts.reached {
        found.push(match reached {
            Ok(how) => good("login", how.clone()),
            Err(why) => bad(
                "login",
                why.clone(),
                "find the cause with `ssh -v HOST true`, or in the daemon's log; then run this \
                 again",
            ),
        });
    }
    found.extend(facts.software.as_ref().map(software));
    if let Some(far) = &facts.far {
        found.extend(programs(far, facts.software.as_ref()));
    }
    found.extend(facts.outward.as_ref().map_or_else(Vec::new, outward));
    found.extend(facts.inward.as_ref().map_or_else(Vec::new, inward));
    if facts.mortal {
        found.push(advice(
            "login",
            "the remote host ends what a login started when the login ends (KillUserProcesses)",
            "run `loginctl enable-linger` on the remote host",
        ));
    }
    found.extend(facts.rights.as_ref().map_or_else(Vec::new, rights));
    found.extend(facts.clock.as_ref().map(clock));
    let options = facts.options.as_ref();
    found.extend(options.map(|options| scaling(options, facts.far.as_ref(), &facts.here)));
    found.extend(mtu(facts));
    for measured in &facts.measured {
        found.extend(path(measured));
    }
    // A path belongs to the remote host if there is one.
    match &facts.far {
        Some(far) => {
            found.extend(host(far, "the remote host", true));
            found.extend(host(&facts.here, "this host", false));
        }
        None => found.extend(host(&facts.here, "this host", facts.reached.is_none())),
    }
    found
}

fn software(known: &Known<Software>) -> Finding {
    let remedy = "--install-remote puts this release into the user's cache there";
    match known {
        Ok(Software::Same) => good("longhaul", "the same release is on the remote host"),
        Ok(Software::Other(release)) => bad(
            "longhaul",
            format!(
                "{release} is on the remote host, and this is {}",
                env!("CARGO_PKG_VERSION")
            ),
            remedy,
        ),
        Ok(Software::Absent) => bad(
            "longhaul",
            "longhaul is not installed on the remote host",
            remedy,
        ),
        Ok(Software::Broken(why)) => bad(
            "longhaul",
            format!("no session can be started: {why}"),
            "try `longhaul --version` on the remote host; name a binary with --remote-longhaul",
        ),
        Err(why) => not_checked("longhaul", why.clone()),
    }
}

fn clock(known: &Known<Lead>) -> Finding {
    let lead = match known {
        Ok(lead) => lead,
        Err(why) => return not_checked("clock", why.clone()),
    };
    let Lead { ahead, uncertainty } = *lead;
    let text = if ahead >= 0.0 {
        format!("the far clock is {ahead:.3} s ahead, ± {uncertainty:.3} s")
    } else {
        format!(
            "the far clock is {:.3} s behind, ± {uncertainty:.3} s",
            -ahead
        )
    };
    if ahead.abs() > CLOCK_SECONDS + uncertainty {
        advice("clock", text, "let chrony or ntpd set both clocks")
    } else {
        good("clock", text)
    }
}

fn scaling(
    known: &Known<Options>,
    far: Option<&Known<HostFacts>>,
    here: &Known<HostFacts>,
) -> Finding {
    let options = match known {
        Ok(options) => options,
        Err(why) => return not_checked("window scaling", why.clone()),
    };
    let sysctl = "net.ipv4.tcp_window_scaling";
    let allows = |facts: Option<&HostFacts>| facts.and_then(|facts| facts.number(sysctl, 0));
    let far = far.and_then(|far| far.as_ref().ok());
    let (far, here) = (allows(far), allows(here.as_ref().ok()));
    match (options.scaling, here, far) {
        (true, ..) => good("window scaling", "both ends agreed on windows above 64 KiB"),
        (false, Some(0), _) => bad(
            "window scaling",
            "this host forbids windows above 64 KiB",
            format!("sysctl -w {sysctl}=1 on this host"),
        ),
        (false, _, Some(0)) => bad(
            "window scaling",
            "the remote host forbids windows above 64 KiB",
            format!("sysctl -w {sysctl}=1 on the remote host"),
        ),
        (false, Some(_), Some(_)) => bad(
            "window scaling",
            "both hosts offer windows above 64 KiB, and something between strips the option",
            "find a firewall that normalises TCP, and let it pass the options of SYN packets unchanged",
        ),
        (false, ..) => bad(
            "window scaling",
            "the ends did not agree on windows above 64 KiB",
            format!("{sysctl} must be 1 at both ends, and firewalls must pass the option"),
        ),
    }
}

/// Returns the finding about packet sizes. Large packets pass if data were moved
/// directly. They are lost if the connection opened and no data arrived.
fn mtu(facts: &Facts) -> Option<Finding> {
    let options = facts.options.as_ref()?;
    let moved = facts.measured.iter().flatten();
    let largest = moved.map(|measured| measured.segment).max();
    let largest = largest.filter(|segment| *segment > 0);
    Some(match (largest, options) {
        (Some(segment), Ok(options)) => good(
            "mtu",
            format!(
                "packets with {segment} bytes of data pass, and this end's kernel assumes a path \
                 MTU of {} bytes",
                options.path_mtu
            ),
        ),
        (Some(segment), Err(_)) => {
            good("mtu", format!("packets with {segment} bytes of data pass"))
        }
        (None, Err(why)) => not_checked("mtu", why.clone()),
        (None, Ok(_)) => not_checked("mtu", "no data were moved directly"),
    })
}

fn rate(bytes_per_second: f64) -> String {
    BitRate::new(bytes_per_second * 8.0).map_or_else(String::new, |rate| rate.to_string())
}

fn path(known: &Known<Measured>) -> Vec<Finding> {
    let measured = match known {
        Ok(measured) => measured,
        Err(why) => return vec![not_checked("path", why.clone())],
    };
    if measured.segment == 0 {
        return vec![bad(
            "mtu",
            format!(
                "{} the remote host, connections open and then no data arrive: large packets seem to \
                 be lost (an MTU black hole)",
                measured.direction
            ),
            "sysctl -w net.ipv4.tcp_mtu_probing=1 at both ends, and let firewalls pass ICMP \"fragmentation \
             needed\"",
        )];
    }
    let (least, loaded) = measured.rtt;
    let mut found = vec![good(
        "path",
        format!(
            "{} the remote host, {} with {} {}; round trip {:.1} ms, {:.1} ms under load; packets \
             with {} bytes of data pass{}",
            measured.direction,
            rate(measured.bytes_per_second),
            measured.streams,
            if measured.streams == 1 {
                "stream"
            } else {
                "streams"
            },
            least.as_secs_f64() * 1e3,
            loaded.as_secs_f64() * 1e3,
            measured.segment,
            match measured.congestion.as_str() {
                "" => String::new(),
                name => format!("; the sender uses {name}"),
            },
        ),
    )];
    if let Some(policed) = policer(measured) {
        found.push(policed);
    }
    for one in &measured.advice {
        let remedies: Vec<String> = one
            .remedies
            .iter()
            .map(|remedy| {
                format!(
                    "sysctl -w {}=\"{}\" at the {} host",
                    remedy.sysctl, remedy.value, remedy.host
                )
            })
            .collect();
        let remedy = if remedies.is_empty() {
            without_sysctl(one.topic).to_owned()
        } else {
            remedies.join("; ")
        };
        found.push(advice(one.topic, one.text.clone(), remedy));
    }
    found
}

/// Returns the remedy for advice that has no sysctl.
fn without_sysctl(topic: &str) -> &'static str {
    match topic {
        "queue" => "--nice, if others share the path and need a short one",
        "processor" => {
            "faster cores, or --data-security clear to a daemon where the network is trusted"
        }
        "segment" => "look for a tunnel, and raise the MTU of networks that you manage",
        "loss" => "ask the network's operators which link loses packets; more streams carry more",
        _ => "ask the network's operators",
    }
}

/// Suspects a policer, which drops everything above a rate at once: there is loss without
/// a queue, and all streams together carry no more than one. A queue that is too short to
/// be seen has the same effect.
fn policer(measured: &Measured) -> Option<Finding> {
    let (least, loaded) = measured.rtt;
    let queue = QUEUE.max(least.mul_f64(QUEUE_SHARE));
    let one = measured.one_stream.filter(|_| measured.most_streams > 1)?;
    let shares = measured.bytes_per_second < one * POLICED_GAIN;
    let policed = measured.loss > POLICED_LOSS && loaded < least + queue && shares;
    policed.then(|| {
        advice(
            "policer",
            format!(
                "{} the remote host, a policer is suspected, or a very short queue: {:.2} % of the \
                 segments were lost while the round trip showed no queue, and {} streams carried \
                 no more than one",
                measured.direction,
                measured.loss * 100.0,
                measured.most_streams
            ),
            format!(
                "ask the network's operators for a limit near {}; --bwlimit below it, or \
                 --congestion bbr, avoids the losses",
                rate(measured.bytes_per_second)
            ),
        )
    })
}

#[cfg(test)]
mod tests;
