//! What facts mean: pure, so that every finding is tested without a network.

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

/// A clock that differs by more makes comparisons of file times misleading.
const CLOCK_SECONDS: f64 = 1.0;

/// Segments lost above this share, without a queue and whatever the number
/// of streams, are what a policer does.
const POLICED_LOSS: f64 = 1e-3;

/// More streams carry no more than this times what one does, where the rate is
/// policed.
const POLICED_GAIN: f64 = 1.3;

/// A queue lengthens the round trip by a quarter and 5 ms at least.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE: Duration = Duration::from_millis(5);

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Looked at, and as it should be.
    Good,
    /// Would be faster or safer otherwise.
    Advice,
    /// Copies fail, or cannot go this way.
    Problem,
    /// Not looked at; the text says why.
    NotChecked,
}

impl Weight {
    /// As in the output.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Good => "ok",
            Weight::Advice => "advice",
            Weight::Problem => "problem",
            Weight::NotChecked => "not checked",
        }
    }
}

/// What was found of one thing. What is in the way has a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    NotChecked,
    Advice(String),
    Problem(String),
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about, one word.
    pub topic: &'static str,
    /// In sentences.
    pub text: String,
    verdict: Verdict,
}

impl Finding {
    /// How much it matters.
    pub fn weight(&self) -> Weight {
        match self.verdict {
            Verdict::Good => Weight::Good,
            Verdict::NotChecked => Weight::NotChecked,
            Verdict::Advice(_) => Weight::Advice,
            Verdict::Problem(_) => Weight::Problem,
        }
    }

    /// What to do about it: of advice and of a problem always something.
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

/// Something that was not looked at, and why.
pub fn not_checked(topic: &'static str, why: impl Into<String>) -> Finding {
    found(topic, why, Verdict::NotChecked)
}

/// What was found out, or why it was not.
pub type Known<T> = Result<T, String>;

/// The longhaul of the far side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Software {
    /// This release.
    Same,
    /// Another one.
    Other(String),
    /// None.
    Absent,
    /// One that does not do its work, and what it says.
    Broken(String),
}

/// One direction, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `to` or `from` the far side.
    pub direction: &'static str,
    /// Bytes per second, and the streams that carried them.
    pub bytes_per_second: f64,
    /// Their number: the fewest that carried as much.
    pub streams: u32,
    /// The most that were tried.
    pub most_streams: u32,
    /// What one stream carried.
    pub one_stream: Option<f64>,
    /// Share of segments that were lost although no queue can have dropped them.
    pub loss: f64,
    /// Bytes in a segment; 0 where nothing arrived.
    pub segment: u32,
    /// Round trips: the least, and the median under load.
    pub rtt: (Duration, Duration),
    /// Congestion control of the sending end.
    pub congestion: String,
    /// What holds it up.
    pub advice: Vec<Advice>,
}

/// What both ends of a connection agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Windows above 64 KiB.
    pub scaling: bool,
    /// The largest packet that this end's kernel sends on the way.
    pub path_mtu: u64,
}

/// How far the far clock is ahead, in seconds, give or take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// Seconds.
    pub ahead: f64,
    /// Seconds that this may be wrong by.
    pub uncertainty: f64,
}

/// Everything that was found out.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How the far side is reached, in words; `None` if it is this host.
    pub reached: Option<Known<String>>,
    /// Its longhaul.
    pub software: Option<Known<Software>>,
    /// This host.
    pub here: Known<HostFacts>,
    /// The other one; `None` if there is none.
    pub far: Option<Known<HostFacts>>,
    /// Connections from here.
    pub outward: Option<Known<Vec<Tried>>>,
    /// Connections to here.
    pub inward: Option<Known<Inward>>,
    /// The far side's system ends what a login started.
    pub mortal: bool,
    /// What may be done at a daemon; `None` if there is none.
    pub rights: Option<Known<Rights>>,
    /// The far side's clock.
    pub clock: Option<Known<Lead>>,
    /// What ends agreed on.
    pub options: Option<Known<Options>>,
    /// Each direction.
    pub measured: Vec<Known<Measured>>,
}

/// What to tell, in the order in which one would look.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(reached) = &facts.reached {
        found.push(match reached {
            Ok(how) => good("login", how.clone()),
            Err(why) => bad(
                "login",
                why.clone(),
                "find out with `ssh -v HOST true`, or of a daemon with its log, what refuses; then run \
                 this again",
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
            "the far side ends what a login started when the login ends (KillUserProcesses)",
            "loginctl enable-linger, there",
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
    // The path named is the far side's, where there is one.
    match &facts.far {
        Some(far) => {
            found.extend(host(far, "the far side", true));
            found.extend(host(&facts.here, "this host", false));
        }
        None => found.extend(host(&facts.here, "this host", facts.reached.is_none())),
    }
    found
}

fn software(known: &Known<Software>) -> Finding {
    let remedy = "--install-remote puts this release into the user's cache there";
    match known {
        Ok(Software::Same) => good("longhaul", "the same release is on the far side"),
        Ok(Software::Other(release)) => bad(
            "longhaul",
            format!(
                "{release} is on the far side, and this is {}",
                env!("CARGO_PKG_VERSION")
            ),
            remedy,
        ),
        Ok(Software::Absent) => bad("longhaul", "there is none on the far side", remedy),
        Ok(Software::Broken(why)) => bad(
            "longhaul",
            format!("no session begins: {why}"),
            "try `longhaul --version` there; name a binary with --remote-longhaul",
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
        advice("clock", text, "have chrony or ntpd set both")
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
            format!("sysctl -w {sysctl}=1, here"),
        ),
        (false, _, Some(0)) => bad(
            "window scaling",
            "the far side forbids windows above 64 KiB",
            format!("sysctl -w {sysctl}=1, there"),
        ),
        (false, Some(_), Some(_)) => bad(
            "window scaling",
            "both hosts offer windows above 64 KiB, and something between strips the offer",
            "a firewall that normalises TCP: let it pass the options of SYN unchanged",
        ),
        (false, ..) => bad(
            "window scaling",
            "the ends did not agree on windows above 64 KiB",
            format!("{sysctl} must be 1 at both ends, and firewalls must pass the option"),
        ),
    }
}

/// Large packets pass where data were moved directly, and are lost where small
/// ones opened the connection and nothing followed.
fn mtu(facts: &Facts) -> Option<Finding> {
    let options = facts.options.as_ref()?;
    let moved = facts.measured.iter().flatten();
    let largest = moved.map(|measured| measured.segment).max();
    let largest = largest.filter(|segment| *segment > 0);
    Some(match (largest, options) {
        (Some(segment), Ok(options)) => good(
            "mtu",
            format!(
                "packets with {segment} bytes of data pass, and this end's kernel takes the path for \
                 one of {} bytes",
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
                "{} the far side connections open and then nothing arrives: large packets seem to \
                 be lost (an MTU black hole)",
                measured.direction
            ),
            "sysctl -w net.ipv4.tcp_mtu_probing=1 at both ends, and let ICMP \"fragmentation \
             needed\" through",
        )];
    }
    let (least, loaded) = measured.rtt;
    let mut found = vec![good(
        "path",
        format!(
            "{} the far side {} with {} {}; round trip {:.1} ms, {:.1} ms under load; packets \
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
                name => format!("; {name} sends"),
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

/// What to do where no sysctl would help.
fn without_sysctl(topic: &str) -> &'static str {
    match topic {
        "queue" => "--nice, if others share the path and need a short one",
        "processor" => {
            "faster cores, or --data-security clear to a daemon where the network is trusted"
        }
        "segment" => "look for a tunnel, and raise the MTU where it is yours",
        "loss" => "ask those who run the path for the link that loses; more streams carry more",
        _ => "ask those who run the path",
    }
}

/// A policer drops what is above a rate at once: loss, no queue, and streams that share the rate
/// whatever their number. A queue that is too short to be seen does the same.
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
                "{} the far side a policer is suspected, or a very short queue: {:.2} % of the \
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
