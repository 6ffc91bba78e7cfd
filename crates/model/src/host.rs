//! The capacities of a host, fitted to the samples in its host profile (`longhaul bench`;
//! FORMAT.md, "Host profiles").
//!
//! - `report`: the capacities as text and JSON

mod report;

use longhaul_measure::stats::median;
use serde_json::Value;

use crate::capacity::FlowCapacity;
use crate::fit::{Fitted, Observation, cost_per_file, fit};

/// Maximum number of samples read from one profile. A benchmark of several hours has some
/// thousands.
const MOST_SAMPLES: usize = 100_000;

/// Maximum number of codecs read.
const MOST_CODECS: usize = 64;

/// Size in bytes of the mover's blocks, with which disks are measured.
const BLOCK: u64 = 1 << 20;

/// The capacities of a host. Values that were not measured are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostModel {
    /// Name of the host.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Number of cores that a process may use, at least 1.
    pub cores: u32,
    /// Rate of reading from its storage, by number of flows.
    pub read: Option<Fitted>,
    /// Rate of writing to its storage, by number of flows.
    pub write: Option<Fitted>,
    /// Seconds that a flow needs to open a small file for reading.
    pub open_seconds: Option<f64>,
    /// Seconds that a flow needs to create a small file and make it durable together with many
    /// others.
    pub commit_seconds: Option<f64>,
    /// Rate of TLS at one end, by number of streams.
    pub tls: Option<Fitted>,
    /// CPU seconds per byte of TLS.
    pub tls_cpu: Option<f64>,
    /// Codecs measured on sample data.
    pub codecs: Vec<CodecModel>,
}

/// The measurements of a codec on sample data.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecModel {
    /// Name and level of the codec.
    pub name: String,
    /// Compression ratio: bytes before divided by bytes after.
    pub ratio: f64,
    /// Rate of compression by number of flows, in uncompressed bytes.
    pub compress: Fitted,
    /// CPU seconds per uncompressed byte.
    pub compress_cpu: f64,
    /// Rate of decompression by number of flows, in bytes after decompression.
    pub decompress: Fitted,
    /// CPU seconds per byte after decompression.
    pub decompress_cpu: f64,
}

/// A sample and the description of its job.
struct Measured<'a> {
    about: &'a Value,
    sample: &'a Value,
}

impl Measured<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        let value = self.sample[name].as_f64()?;
        (value.is_finite() && value > 0.0).then_some(value)
    }

    fn flows(&self) -> Option<u32> {
        let flows = self.about["flows"]
            .as_u64()
            .or(self.about["streams"].as_u64())?;
        u32::try_from(flows).ok().filter(|flows| *flows > 0)
    }

    fn is(&self, kind: &str) -> bool {
        self.about["kind"] == kind
    }

    /// Converts the sample to an observation: bytes divided by the seconds of this name.
    fn observed(&self, seconds: &str) -> Option<Observation> {
        Some(Observation {
            flows: self.flows()?,
            rate: self.number("bytes")? / self.number(seconds)?,
        })
    }
}

/// Returns the samples of all jobs of a section, without warm-ups.
fn samples(section: &Value) -> Vec<Measured<'_>> {
    let jobs = section["jobs"].as_object();
    let mut found = Vec::new();
    for job in jobs.into_iter().flat_map(serde_json::Map::values) {
        let all = job["samples"].as_array().map_or(&[][..], Vec::as_slice);
        let counted = if all.len() > 1 { &all[1..] } else { all };
        let about = &job["about"];
        found.extend(counted.iter().map(|sample| Measured { about, sample }));
    }
    found.truncate(MOST_SAMPLES);
    found
}

impl HostModel {
    /// Reads a profile. If there are several disks, uses the one whose directory contains `path`
    /// most closely, or the last one if none does or no path is given.
    ///
    /// # Errors
    ///
    /// If the document is not a host profile.
    pub fn of_profile(profile: &Value, path: Option<&str>) -> Result<HostModel, String> {
        if profile["kind"] != "host" || profile["schema"] != 1 {
            return Err("it is not a host profile: make one with `longhaul bench`".to_owned());
        }
        let host = &profile["host"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cores = host["cores"]
            .as_u64()
            .and_then(|cores| u32::try_from(cores).ok());
        let mut model = HostModel {
            name: word(&host["name"]),
            kernel: word(&host["kernel"]),
            cores: cores.unwrap_or(1).max(1),
            ..HostModel::default()
        };
        let sections = profile["sections"].as_object();
        let sections = || sections.into_iter().flatten();
        let disks = sections().filter(|(name, _)| name.starts_with("disk "));
        let disk = disks.max_by_key(|(_, section)| nearness(section, path));
        if let Some((_, section)) = disk {
            model.read_disk(&samples(section));
        }
        for (name, section) in sections() {
            match name.split(' ').next() {
                Some("tls") => model.read_tls(&samples(section)),
                Some("codec") => model.read_codecs(&samples(section)),
                _ => {}
            }
        }
        Ok(model)
    }

    fn read_disk(&mut self, samples: &[Measured]) {
        self.read = storage(samples, "read");
        self.write = storage(samples, "write");
        self.open_seconds = per_file(samples, "open and read");
        self.commit_seconds = per_file(samples, "create, sync together");
    }

    fn read_tls(&mut self, samples: &[Measured]) {
        let encrypted = || samples.iter().filter(|it| it.is("TLS"));
        // Both ends were on this host, and each had half of its cores.
        self.tls = fitted(
            encrypted()
                .filter_map(|it| it.observed("wall_seconds"))
                .collect(),
        );
        let cpu: Vec<f64> = encrypted()
            .filter_map(|it| Some(it.number("cpu_seconds")? / it.number("bytes")? / 2.0))
            .collect();
        self.tls_cpu = median(&cpu);
    }

    fn read_codecs(&mut self, samples: &[Measured]) {
        let mut names: Vec<&str> = samples
            .iter()
            .filter_map(|it| it.about["codec"].as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(MOST_CODECS);
        for name in names {
            let of_codec = || samples.iter().filter(|it| it.about["codec"] == name);
            let share = |of: &str| -> Option<f64> {
                let shares = of_codec().filter_map(|it| Some(it.number(of)? / it.number("bytes")?));
                median(&shares.collect::<Vec<_>>())
            };
            let by =
                |seconds: &str| fitted(of_codec().filter_map(|it| it.observed(seconds)).collect());
            let (Some(compress), Some(decompress), Some(left)) = (
                by("wall_seconds"),
                by("decode_wall_seconds"),
                share("encoded_bytes"),
            ) else {
                continue;
            };
            self.codecs.push(CodecModel {
                name: name.to_owned(),
                ratio: 1.0 / left,
                compress: with_cores(compress, self.cores),
                compress_cpu: share("cpu_seconds").unwrap_or(0.0),
                decompress: with_cores(decompress, self.cores),
                decompress_cpu: share("decode_cpu_seconds").unwrap_or(0.0),
            });
        }
    }
}

/// Extends the rate of one thread to as many threads as there are cores, if nothing else was
/// measured.
fn with_cores(mut fitted: Fitted, cores: u32) -> Fitted {
    if let FlowCapacity::Constant { rate } = fitted.best.capacity {
        fitted.best.capacity = FlowCapacity::Linear {
            alpha: rate,
            gamma: 0.0,
            most: cores,
        };
    }
    fitted
}

/// Returns how closely a disk's directory contains a path: the length of the directory, or 0.
fn nearness(section: &Value, path: Option<&str>) -> usize {
    let directory = section["about"]["path"].as_str().unwrap_or_default();
    match path {
        Some(path) if std::path::Path::new(path).starts_with(directory) => directory.len() + 1,
        _ => 0,
    }
}

fn fitted(observations: Vec<Observation>) -> Option<Fitted> {
    fit(&observations).ok()
}

/// Fits the samples with direct I/O if there are any, because the page cache is not the disk; else
/// the buffered samples.
fn storage(samples: &[Measured], kind: &str) -> Option<Fitted> {
    let of = |direct: bool| -> Vec<Observation> {
        let wanted = samples.iter().filter(|it| {
            it.is(kind)
                && it.about["block_bytes"].as_u64() == Some(BLOCK)
                && it.sample["was_direct"].as_bool().unwrap_or(false) == direct
        });
        wanted
            .filter_map(|it| it.observed("wall_seconds"))
            .collect()
    };
    fitted(of(true)).or_else(|| fitted(of(false)))
}

/// Returns the seconds of a flow per small file: the median over the samples of this kind. If files
/// of several sizes were measured, excludes the time for their bytes.
fn per_file(samples: &[Measured], kind: &str) -> Option<f64> {
    let of_kind = || samples.iter().filter(|it| it.is(kind));
    let each: Vec<f64> = of_kind()
        .filter_map(|it| {
            let flows = f64::from(it.flows()?);
            Some(it.number("wall_seconds")? * flows / it.number("files")?)
        })
        .collect();
    let sizes: Vec<(f64, f64)> = of_kind()
        .filter(|it| it.flows() == Some(1))
        .filter_map(|it| {
            let bytes = it.number("bytes")?;
            Some((
                bytes / it.number("files")?,
                bytes / it.number("wall_seconds")?,
            ))
        })
        .collect();
    cost_per_file(1, &sizes)
        .map(|(seconds, _)| seconds)
        .or_else(|| median(&each))
}
