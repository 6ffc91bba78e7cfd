//! Parses a lab from settings by name. The names are the options of `longhaul lab`; sweep
//! files use them too.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use longhaul_units::parse_span;

use crate::background::Background;
use crate::scenario::{MOST_ADDRESSES, Scenario, ScenarioError, parse_block, parse_site};
use crate::storage::plan::StoragePlan;

/// Minimum MTU in bytes: the size that every IPv4 host accepts (RFC 791).
pub const SMALLEST_MTU: u16 = 576;

/// Maximum number of background streams. Each has a thread that writes.
pub const MOST_BACKGROUND_STREAMS: u16 = 256;

/// Settings that may be given several times.
const LISTS: [&str; 5] = ["path", "sysctl", "host-sysctl", "block", "storage"];

/// Settings of a lab and of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabSettings {
    /// Description of the lab.
    pub scenario: Scenario,
    /// Kernel parameters of the whole machine by name. They are restored at the end.
    pub host_sysctls: Vec<(String, String)>,
}

impl LabSettings {
    /// Parses pairs of names and values.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is unknown, its value is invalid, it is given twice
    /// and accepts one value, or the combination is invalid.
    pub fn read<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LabSettings, ScenarioError> {
        let mut read = LabSettings::default();
        let mut pause = None;
        let mut seen = BTreeSet::new();
        for (key, value) in settings {
            if !seen.insert(key) && !LISTS.contains(&key) {
                return Err(ScenarioError::Twice(key.to_owned()));
            }
            match key {
                "background-on-off" => {
                    pause = Some(parse_on_off(value).map_err(wrong(key, value))?);
                }
                _ => read.apply(key, value)?,
            }
        }
        match (&mut read.scenario.background, pause) {
            (Some(background), on_off) => background.on_off = on_off,
            (None, Some(_)) if !seen.contains("background") => {
                return Err(ScenarioError::NoBackground);
            }
            (None, _) => {}
        }
        read.scenario.path.links()?;
        read.scenario.directions()?;
        Ok(read)
    }

    fn apply(&mut self, key: &str, value: &str) -> Result<(), ScenarioError> {
        let wrong = wrong(key, value);
        let scenario = &mut self.scenario;
        match key {
            "path" => scenario.pairs.push(value.parse()?),
            "veth" => scenario.veth = value.parse().map_err(|_| wrong("write true".into()))?,
            "hosts" => scenario.hosts = value.parse()?,
            "congestion" => scenario.congestion = value.to_owned(),
            "window" => scenario.window = value.parse().map_err(wrong)?,
            "sysctl" => scenario.sysctls.push(value.parse().map_err(wrong)?),
            "host-sysctl" => {
                let sysctl = parse_host_sysctl(value).map_err(wrong)?;
                self.host_sysctls.push(sysctl);
            }
            "mtu" => {
                scenario.mtu = within(value, SMALLEST_MTU..=u16::MAX).map_err(wrong)?;
            }
            "addresses" => {
                let most = MOST_ADDRESSES as u16;
                scenario.addresses = usize::from(within(value, 1..=most).map_err(wrong)?);
            }
            "block" => scenario.blocks.push(parse_block(value).map_err(wrong)?),
            "nat" => scenario.nat = Some(parse_nat(value).map_err(wrong)?),
            "background" => {
                let streams = within(value, 0..=MOST_BACKGROUND_STREAMS).map_err(wrong)?;
                scenario.background = (streams > 0).then_some(Background {
                    streams,
                    on_off: None,
                });
            }
            "storage" => {
                let plan = value.parse::<StoragePlan>();
                let plan = plan.map_err(|error| wrong(error.to_string()))?;
                scenario.storage.push(plan);
            }
            "seed" => {
                scenario.seed = value
                    .parse()
                    .map_err(|_| wrong("write a whole number".into()))?;
            }
            _ => scenario.path.apply_one(key, value)?,
        }
        Ok(())
    }
}

fn wrong(key: &str, value: &str) -> impl Fn(String) -> ScenarioError + use<> {
    let (key, value) = (key.to_owned(), value.to_owned());
    move |reason| ScenarioError::Value {
        key: key.clone(),
        value: value.clone(),
        reason,
    }
}

fn within(text: &str, range: RangeInclusive<u16>) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
}

/// Parses the letter of the site behind NAT and returns its index.
///
/// # Errors
///
/// Returns a message if the text is not a site's letter.
pub fn parse_nat(text: &str) -> Result<usize, String> {
    parse_site(text).ok_or_else(|| "write a site's letter, a to h".to_owned())
}

/// Parses the sending time and the pause of background traffic, for example `2s/1s`.
///
/// # Errors
///
/// Returns a message that names the problem.
pub fn parse_on_off(text: &str) -> Result<(Duration, Duration), String> {
    let (on, off) = text
        .split_once('/')
        .ok_or("write ON/OFF, for example 2s/1s")?;
    let span = |text| parse_span(text).map_err(|error| error.to_string());
    let (on, off) = (span(on)?, span(off)?);
    if on.is_zero() {
        return Err("the sending time must be more than 0".to_owned());
    }
    Ok((on, off))
}

/// Parses a kernel parameter of the whole machine. Only parameters that network
/// namespaces do not have are accepted.
///
/// # Errors
///
/// Returns a message that names the problem.
pub fn parse_host_sysctl(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if !(name.starts_with("net.core.") || name == "net.ipv4.tcp_mem") {
        return Err(
            "only net.core.* and net.ipv4.tcp_mem can be set for the machine: use --sysctl for \
             the others"
                .to_owned(),
        );
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_of_a_lab_are_parsed() {
        let settings = [
            ("rtt", "20ms"),
            ("rate", "1gbit"),
            ("path", "a-c:rtt=30ms"),
            ("hosts", "1x1x2"),
            ("congestion", "reno"),
            ("window", "4MiB"),
            ("sysctl", "net.ipv4.tcp_sack=0"),
            ("sysctl", "b:net.ipv4.tcp_dsack=0"),
            ("host-sysctl", "net.core.rmem_max=9"),
            ("mtu", "9000"),
            ("addresses", "2"),
            ("block", "b:4960"),
            ("nat", "a"),
            ("background-on-off", "2s/1s"),
            ("background", "3"),
            ("storage", "/a:rate=1MBps"),
            ("seed", "7"),
        ];
        let read = LabSettings::read(settings).unwrap();
        let scenario = &read.scenario;
        assert_eq!(scenario.path.rtt, Duration::from_millis(20));
        assert_eq!(scenario.sysctls.len(), 2);
        assert_eq!(
            (scenario.mtu, scenario.addresses, scenario.seed),
            (9000, 2, 7)
        );
        let on_off = Some((Duration::from_secs(2), Duration::from_secs(1)));
        let background = Background { streams: 3, on_off };
        assert_eq!(scenario.background, Some(background));
        assert_eq!(
            read.host_sysctls,
            [("net.core.rmem_max".into(), "9".into())]
        );
        assert_eq!(LabSettings::read([]).unwrap(), LabSettings::default());
        let cable = LabSettings::read([("veth", "true")]).unwrap();
        assert!(cable.scenario.veth);
    }

    #[test]
    fn invalid_settings_of_a_lab_are_rejected() {
        let refused: [(&[(&str, &str)], &str); 8] = [
            (&[("speed", "1")], "speed"),
            (&[("rtt", "1ms"), ("rtt", "2ms")], "twice"),
            (&[("mtu", "500")], "576"),
            (&[("addresses", "10")], "from 1 to 9"),
            (&[("host-sysctl", "net.ipv4.tcp_sack=0")], "--sysctl"),
            (&[("background-on-off", "1s/1s")], "background"),
            (&[("veth", "true"), ("rtt", "1ms")], "--veth"),
            (&[("nat", "7")], "letter"),
        ];
        for (settings, part) in refused {
            let error = LabSettings::read(settings.iter().copied()).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
