//! Chooses the numbers of flows of a copy by a published rule, for comparison with the controllers
//! of a running copy (`docs/model.md`).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use longhaul_model::chosen::Chosen;
use longhaul_model::history::{Way, remember};
use longhaul_model::kernel::window_limit;
use longhaul_model::limit::Limit;
use longhaul_model::policy::{FIXED_FLOWS, Policy, globus, streams_for_bdp};
use longhaul_net::host_limits::HostLimits;
use longhaul_system::named_files::to_read;
use longhaul_units::{BitRate, ParseRateError};

use super::foresight::buffer_limits;
use super::history::Past;
use super::survey::{SurveyLimits, survey};
use crate::spec::{Direction, FixedFlows, ValidSpec};
use crate::stop::{Exit, Stop};

/// Limits of the survey for a rule. A rule needs only a rough number and size of files.
const LOOK: SurveyLimits = SurveyLimits {
    time: Duration::from_millis(15),
    entries: 20_000,
};

/// Maximum number of streams that a rule chooses; daemons refuse more.
const MOST_STREAMS: u32 = 512;

/// A policy as the user writes it: `model`, `bdp`, `bdp:RATE`, `globus`, `fixed`, `gradient`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AskedPolicy {
    /// The policy.
    pub policy: Policy,
    /// Capacity of the path, in bytes per second.
    pub path_rate: Option<u64>,
}

impl FromStr for AskedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<AskedPolicy, String> {
        let Some((name, rate)) = text.split_once(':') else {
            return Ok(AskedPolicy {
                policy: text.parse()?,
                path_rate: None,
            });
        };
        let rate: BitRate = rate
            .parse()
            .map_err(|error: ParseRateError| error.to_string())?;
        match name.parse()? {
            Policy::Bdp => Ok(AskedPolicy {
                policy: Policy::Bdp,
                // The user gives the rate of the line, which includes headers.
                path_rate: Some((rate.bits_per_second() / 8.0 * PAYLOAD) as u64),
            }),
            policy => Err(format!("{policy} takes no rate: only bdp:RATE does")),
        }
    }
}

/// Share of TCP payload on an Ethernet line at an MTU of 1500.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// Reads the numbers of flows from a plan's file, or from a graph's file, which is solved.
///
/// # Errors
///
/// Fails if the file cannot be read, or is neither a plan nor a graph.
pub fn read_plan(file: &Path) -> Result<Chosen, Stop> {
    let named = |text: String| format!("{}: {text}", file.display());
    let local = |error: std::io::Error| Stop::new(Exit::Local, named(error.to_string()));
    let mut text = String::new();
    let mut bounded = to_read(file).map_err(local)?.take(MOST_PLAN_BYTES);
    bounded.read_to_string(&mut text).map_err(local)?;
    Chosen::of_text(&text).map_err(|error| Stop::new(Exit::Usage, named(error)))
}

/// Maximum size of a plan or graph, in bytes.
const MOST_PLAN_BYTES: u64 = 16 << 20;

impl FixedFlows {
    /// Fills flow counts that are not fixed with those of a plan.
    #[must_use]
    pub fn or_planned(self, plan: &Chosen) -> FixedFlows {
        let of = |layer: Limit| plan.flows.get(&layer).copied();
        FixedFlows {
            readers: self.readers.or_else(|| of(Limit::Read)),
            compressors: self.compressors.or_else(|| of(Limit::Compress)),
            streams: self.streams.or_else(|| of(Limit::Wire)),
            decompressors: self.decompressors.or_else(|| of(Limit::Decompress)),
            writers: self.writers.or_else(|| of(Limit::Write)),
            ..self
        }
    }
}

/// The numbers of flows that a policy chose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Flow counts of the layers, including the fixed ones.
    pub flows: FixedFlows,
    /// Maximum number of large files that are transferred at a time.
    pub large_files: Option<u32>,
    /// Bandwidth-delay product that gives the number of streams.
    pub product: Option<Product>,
    /// If true, one number of flows for all layers is searched while the copy runs.
    pub climbs: bool,
}

/// The rule of paper 000, Eq. 1: the windows of all streams hold the bandwidth-delay product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Capacity of the path, in bytes per second.
    pub rate: f64,
    /// Window of one stream, in bytes.
    pub window: f64,
}

impl Product {
    /// Returns the number of streams for a path with this round trip, at least 1.
    pub fn streams(&self, rtt: Duration) -> u32 {
        streams_for_bdp(self.rate, rtt.as_secs_f64(), self.window).clamp(1, MOST_STREAMS)
    }
}

/// Default window of a stream, in bytes: the usable part of Linux's limit of 4 MiB.
const USUAL_WINDOW: f64 = 2.9e6;

/// Applies the policy to a transfer. `sources` are its sources on this host; empty if they are at
/// another host.
///
/// # Errors
///
/// Fails if the rule needs a value that neither the user nor the history gives.
pub fn choose(spec: &ValidSpec, sources: &[PathBuf], past: &Past) -> Result<Choice, Stop> {
    let fixed = spec.flows;
    // Returns the fixed numbers, and these for layers that are not fixed.
    let with = |layers: u32, streams: Option<u32>| FixedFlows {
        readers: fixed.readers.or(Some(layers)),
        compressors: fixed.compressors.or(Some(layers)),
        streams: fixed.streams.or(streams),
        decompressors: fixed.decompressors.or(Some(layers)),
        writers: fixed.writers.or(Some(layers)),
        ..fixed
    };
    let choice = Choice {
        flows: fixed,
        ..Choice::default()
    };
    Ok(match spec.policy {
        Policy::Model => choice,
        Policy::Gradient => Choice {
            climbs: true,
            ..choice
        },
        Policy::Fixed => Choice {
            flows: with(FIXED_FLOWS, Some(FIXED_FLOWS)),
            ..choice
        },
        Policy::Globus => {
            // For a source at another host, assume neither many small files nor large ones.
            let found = survey(sources, LOOK).ok().filter(|_| !sources.is_empty());
            let (files, bytes) = found.map_or((1.0, 1e8), |found| (found.files, found.bytes));
            let options = globus(files, bytes / files.max(1.0));
            let outstanding = options.concurrency.saturating_mul(options.pipelining);
            Choice {
                flows: with(options.concurrency, Some(options.streams())),
                large_files: Some(outstanding),
                ..choice
            }
        }
        Policy::Bdp => Choice {
            flows: with(1, None),
            product: match spec.direction() {
                Direction::Local => None,
                _ if fixed.streams.is_some() => None,
                direction => Some(product(spec, direction, past)?),
            },
            ..choice
        },
    })
}

fn product(spec: &ValidSpec, direction: Direction, past: &Past) -> Result<Product, Stop> {
    let receives = direction == Direction::Pull;
    let host = spec.other_host().unwrap_or_default();
    let way = if receives { Way::From } else { Way::To };
    let remembered = match spec.path_rate {
        Some(_) => None,
        None => remember(past.transfers(), host, way).path,
    };
    let rate = spec.path_rate.map(|rate| rate as f64);
    let rate = rate.or_else(|| remembered.as_ref().and_then(|path| path.payload));
    let rate = rate.ok_or_else(|| {
        let text = format!(
            "--policy bdp goes by what the path carries, and no copy with {host} is remembered: \
             write --policy bdp:RATE, such as bdp:10gbit, or copy once without it"
        );
        Stop::new(Exit::Usage, text)
    })?;
    let own = buffer_limits(&HostLimits::read());
    let own = window_limit(&own, &own).map(|limit| limit.window.0 as f64);
    let window = remembered.and_then(|path| path.window);
    let window = window.map(|window| window.least).or(own);
    Ok(Product {
        rate,
        window: window.unwrap_or(USUAL_WINDOW),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;
    use crate::endpoint::Endpoint;
    use crate::spec::TransferSpec;

    fn spec(policy: Policy) -> TransferSpec {
        let end = |text: &str| Endpoint::parse(OsStr::new(text)).unwrap();
        TransferSpec {
            policy,
            ..TransferSpec::copy(vec![end("data")], end("host.invalid:archive"))
        }
    }

    fn chosen(spec: TransferSpec, sources: &[PathBuf]) -> Choice {
        choose(&spec.validate().unwrap(), sources, &Past::default()).unwrap()
    }

    #[test]
    fn the_globus_policy_depends_on_the_files_and_keeps_fixed_flows() {
        let place = tempfile::tempdir().unwrap();
        for file in 0..120 {
            fs::write(place.path().join(file.to_string()), [0; 1000]).unwrap();
        }
        let mut asked = spec(Policy::Globus);
        asked.flows.writers = Some(7);
        let small = chosen(asked, &[place.path().to_owned()]);
        let flows = small.flows;
        assert_eq!(
            (flows.readers, flows.streams, flows.writers),
            (Some(2), Some(4), Some(7))
        );
        assert_eq!(small.large_files, Some(40));
        let unknown = chosen(spec(Policy::Globus), &[]);
        assert_eq!(
            (unknown.flows.streams, unknown.large_files),
            (Some(8), Some(20))
        );
    }

    #[test]
    fn the_bdp_policy_accepts_a_rate() {
        let refused = choose(
            &spec(Policy::Bdp).validate().unwrap(),
            &[],
            &Past::default(),
        )
        .unwrap_err();
        assert!(refused.text.contains("bdp:RATE"), "{}", refused.text);
        let mut asked = spec(Policy::Bdp);
        asked.path_rate = Some(117_000_000);
        let choice = chosen(asked, &[]);
        assert_eq!(choice.flows.readers, Some(1));
        let product = Product {
            window: 2.9e6,
            ..choice.product.unwrap()
        };
        assert_eq!(product.streams(Duration::from_millis(100)), 5);
        assert_eq!(product.streams(Duration::from_secs(1000)), MOST_STREAMS);
    }

    #[test]
    fn a_policy_is_parsed_with_its_rate() {
        let read = |text: &str| text.parse::<AskedPolicy>();
        assert_eq!(read("globus").unwrap().policy, Policy::Globus);
        let asked = read("bdp:1gbit").unwrap();
        assert_eq!(
            (asked.policy, asked.path_rate),
            (Policy::Bdp, Some(117_685_305))
        );
        assert!(read("globus:1gbit").unwrap_err().contains("no rate"));
        assert!(read("bdp:fast").is_err());
        assert!(read("best").unwrap_err().contains("write one of"));
    }

    #[test]
    fn the_other_policies_need_no_scan() {
        assert_eq!(chosen(spec(Policy::Model), &[]), Choice::default());
        assert!(chosen(spec(Policy::Gradient), &[]).climbs);
        let fixed = chosen(spec(Policy::Fixed), &[]).flows;
        assert_eq!((fixed.readers, fixed.streams), (Some(4), Some(4)));
    }
}
