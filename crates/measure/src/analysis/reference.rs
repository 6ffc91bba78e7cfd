//! References of a transfer: Θ_T of the same path and data, and Θ_H of the same storage and data.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::ByteCount;

use super::{Analysis, MethodProfile, NamedDoubt, restricted, text};
use crate::best::PATH_KNOBS;
use crate::doubt::Doubt;
use crate::profile::{ProfileSample, SampleError, c_uc_difference, c_uc_figure, scheme_figures};
use crate::record::{Ended, Measures};
use crate::runs::{Configuration, Run, Runs};
use crate::stats::{Figure, Resampling, median, median_interval, sorted};

impl Analysis {
    /// Finds Θ_T and Θ_H of each transfer and computes Θ_F.
    pub(super) fn relate_to_tcp(
        &mut self,
        runs: &Runs,
        by_configuration: &[Vec<&Run>],
    ) -> Result<(), SampleError> {
        let configurations = runs.configurations();
        for transfer in &mut self.transfers {
            let own = &configurations[transfer.configuration];
            let Some(index) = reference(configurations, transfer, &self.memory) else {
                continue;
            };
            let memory = &self.memory[index];
            transfer.tcp = Some(index);
            transfer.slower_host = slower_host(
                configurations.iter().zip(by_configuration),
                own,
                &self.resampling,
            );
            let capacity = transfer.capacity.bits_per_second();
            let host = transfer.slower_host.map(|host| host.estimate / capacity);
            let nearest = memory.figures.points.first();
            let nearest = nearest.map_or(0.0, |point| point.mean.estimate);
            transfer.host_limited = host.is_some_and(|host| host < nearest);
            let tcp = restricted(&memory.sample, &transfer.sample)?;
            transfer.tcp_adds = c_uc_difference(&tcp, &transfer.sample, &self.resampling);
            let adds = transfer.tcp_adds.is_some_and(|adds| adds.estimate > 0.0);
            let greater = if adds { &tcp } else { &transfer.sample };
            let greater = c_uc_figure(greater, &self.resampling);
            transfer.unused = greater.map(Figure::complement);
            let figures = scheme_figures(&transfer.sample, &tcp, host, &self.resampling);
            transfer.scheme = figures.ok();
            let mut doubts = reference_doubts(own, &configurations[memory.configuration]);
            let rtts = transfer.sample.cells().iter().map(|cell| cell.rtt);
            let sizes = rtts.filter_map(|rtt| {
                let of = |configuration| runs.size_of_data(configuration, rtt);
                Some((rtt, of(transfer.configuration)?, of(memory.configuration)?))
            });
            doubts.extend(doubt_of_sizes(sizes));
            self.doubts
                .extend(doubts.into_iter().map(|doubt| NamedDoubt {
                    about: transfer.label.clone(),
                    doubt,
                    runs: 0,
                }));
        }
        Ok(())
    }
}

/// Returns the index in `memory` of a transfer's Θ_T. It must have the same path and cover the
/// transfer's round-trip times. Preference is, in this order: the same settings of hosts and path,
/// the same data, the same congestion control, the same number of streams, the highest rate. The
/// same data matter because a short transfer must be compared with an equally short one.
fn reference(
    configurations: &[Configuration],
    transfer: &MethodProfile,
    memory: &[MethodProfile],
) -> Option<usize> {
    let own = &configurations[transfer.configuration];
    let candidates = memory.iter().enumerate().filter(|(_, memory)| {
        is_reference(own, &configurations[memory.configuration])
            && covers(&memory.sample, &transfer.sample)
    });
    let rank = |memory: &MethodProfile| {
        let other = &configurations[memory.configuration];
        let streams = other.count("streams");
        let alike = (
            std::cmp::Reverse(path_knobs_apart(own, other).len()),
            other.value("dataset") == own.value("dataset"),
            other.value("congestion") == own.value("congestion"),
            streams.is_some() && streams == own.count("streams"),
        );
        let sum: f64 = memory.figures.points.iter().map(|p| p.mean.estimate).sum();
        (alike, sum)
    };
    let best = candidates.max_by(|(_, a), (_, b)| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    best.map(|(index, _)| index)
}

/// Returns min{Θ_H1, Θ_H2} of a transfer, measured with the same storage, and with the same data if
/// the record names data. Data matter because many files of 1 KB are created more slowly than a
/// large file is written. For each method, the best setting shows the ability of a host. Different
/// methods can stand for different hosts.
fn slower_host<'a>(
    measured: impl Iterator<Item = (&'a Configuration, &'a Vec<&'a Run>)>,
    transfer: &Configuration,
    resampling: &Resampling,
) -> Option<Figure> {
    let is_its = |storage: &Configuration| {
        let data = storage.value("dataset");
        storage.measures == Measures::Storage
            && storage.value("storage") == transfer.value("storage")
            && (data.is_none() || data == transfer.value("dataset"))
    };
    let mut by_method: BTreeMap<&str, Figure> = BTreeMap::new();
    for (storage, own) in measured.filter(|(configuration, _)| is_its(configuration)) {
        let done = own.iter().filter(|run| run.ended == Ended::Done);
        let rates: Vec<f64> = done.map(|run| run.goodput.bits_per_second()).collect();
        let interval = median_interval(&sorted(&rates), resampling.level);
        let (Some(estimate), Some(interval)) = (median(&rates), interval) else {
            continue;
        };
        let figure = Figure { estimate, interval };
        let known = by_method.entry(&storage.method).or_insert(figure);
        if figure.estimate > known.estimate {
            *known = figure;
        }
    }
    let figures = by_method.into_values();
    figures.min_by(|a, b| a.estimate.total_cmp(&b.estimate))
}

/// Sizes of the data of a transfer and its reference may differ by this share.
const SAME_SIZE_SHARE: f64 = 0.1;

/// Returns a doubt if Θ_T was measured with a different number of bytes than the transfer moves.
/// Each item has a round-trip time, the transfer's size and the reference's size.
fn doubt_of_sizes(
    mut sizes: impl Iterator<Item = (Duration, ByteCount, ByteCount)>,
) -> Option<Doubt> {
    let differ = |own: ByteCount, other: ByteCount| {
        own.0.abs_diff(other.0) as f64 > SAME_SIZE_SHARE * own.0 as f64
    };
    let (rtt, own, other) = sizes.find(|(_, own, other)| differ(*own, *other))?;
    let at = text::rtt_list(&[rtt]);
    Some(Doubt::DifferentReference {
        what: format!("at {at} it moves {other}, and the transfer moves {own}"),
    })
}

/// True if a memory-to-memory configuration was measured over the same path.
fn is_reference(transfer: &Configuration, memory: &Configuration) -> bool {
    let same = |name| transfer.traits.get(name) == memory.traits.get(name);
    transfer.capacity == memory.capacity && same("loss") && same("path") && same("queue")
}

/// Settings of the hosts that a sweep records as knobs (docs/sweep.md). Like the path, they affect
/// memory-to-memory throughput.
const HOST_KNOBS: [&str; 3] = ["sysctls", "hosts", "window"];

/// Returns the names of the host and path settings in which two configurations differ.
fn path_knobs_apart(one: &Configuration, two: &Configuration) -> Vec<&'static str> {
    let differs = |name: &&str| one.knobs.get(*name) != two.knobs.get(*name);
    let names = HOST_KNOBS.into_iter().chain(PATH_KNOBS);
    names.filter(differs).collect()
}

/// Returns doubts about each difference between a transfer and its Θ_T.
fn reference_doubts(transfer: &Configuration, memory: &Configuration) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for name in path_knobs_apart(transfer, memory) {
        let value = |of: &Configuration| {
            let knob = of.knobs.get(name);
            knob.map_or("not set".to_owned(), |knob| format!("\"{knob}\""))
        };
        doubts.push(Doubt::DifferentReference {
            what: format!(
                "its {name} is {}, and the transfer's is {}",
                value(memory),
                value(transfer)
            ),
        });
    }
    let (used, carried) = (transfer.value("congestion"), memory.value("congestion"));
    if let (Some(used), Some(carried)) = (used, carried)
        && used != carried
    {
        doubts.push(Doubt::DifferentCongestionControl {
            used,
            compared_with: carried,
        });
    }
    if let (Some(own), Some(other)) = (transfer.count("streams"), memory.count("streams"))
        && own != other
    {
        doubts.push(Doubt::DifferentReference {
            what: format!("it has {other} streams, and the transfer has {own}"),
        });
    }
    doubts
}

/// True if `wide` has every round-trip time of `narrow`.
fn covers(wide: &ProfileSample, narrow: &ProfileSample) -> bool {
    let has = |rtt| wide.cells().iter().any(|cell| cell.rtt == rtt);
    narrow.cells().iter().all(|cell| has(cell.rtt))
}
