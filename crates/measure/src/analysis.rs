//! Computes all figures of a report from the runs.

mod costs;
mod json;
mod loss;
mod reference;
mod sweep;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::BitRate;

use crate::doubt::Doubt;
use crate::profile::{
    Cell, ProfileDifference, ProfileFigures, ProfileSample, SampleError, compare, profile_figures,
};
use crate::record::{Ended, Measures};
use crate::runs::{Run, Runs};
use crate::stats::{Difference, Figure, Interval, Resampling, quantile, sorted};
pub use costs::{CostDifferences, LayerFigures, Measured};
pub use json::to_json;
pub use loss::{
    CUBIC_EXPONENT, LossLaw, LossLine, LossPoint, MATHIS_EXPONENT, cubic_bend, lines_over_loss,
    loss_laws,
};
pub use sweep::{BestAt, best_of_sweep};
pub use text::{best_sentences, confidence_sentences, milliseconds, shape_sentence, to_text};

/// The profile of one configuration, with the figures derived from it.
#[derive(Clone, Debug)]
pub struct MethodProfile {
    /// Index in [`Runs::configurations`].
    pub configuration: usize,
    /// Short name of the configuration.
    pub label: String,
    /// Capacity of the path. Shares are throughputs divided by it.
    pub capacity: BitRate,
    /// The repetitions.
    pub sample: ProfileSample,
    /// Θ_E of a transfer, or Θ_T of a memory-to-memory method.
    pub figures: ProfileFigures,
    /// Index in [`Analysis::memory`] of the Θ_T that this transfer is compared with.
    pub tcp: Option<usize>,
    /// Θ_F, if Θ_T was measured at every round-trip time of this profile.
    pub scheme: Option<ProfileFigures>,
    /// Θ_H of the slower of the two hosts, in bits per second, for the same data and storage.
    /// `None` if it was not measured. The interval is the exact bootstrap interval of the median.
    pub slower_host: Option<Figure>,
    /// True if Θ_F was also divided by the slower host's Θ_H (case (b) of paper 001, section 3.2).
    pub host_limited: bool,
    /// C_UC of Θ_T minus C_UC of this profile: the part that TCP adds. `None` without Θ_T, or with
    /// only one round-trip time.
    pub tcp_adds: Option<Difference>,
    /// 1 minus the greater of the two values of C_UC. `None` if C_UC is not defined.
    pub unused: Option<Figure>,
    /// CPU seconds of both ends per 10^9 bytes.
    pub cpu_seconds_per_gigabyte: Measured,
    /// Number of retransmitted segments per run.
    pub retransmitted_segments: Measured,
    /// Utilisation of each layer.
    pub layers: Vec<LayerFigures>,
}

/// The comparison of two methods: the first minus the second.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Index of the first method in [`Analysis::transfers`].
    pub first: usize,
    /// Index of the second method in [`Analysis::transfers`].
    pub second: usize,
    /// Difference of the profiles.
    pub difference: ProfileDifference,
    /// Difference of the costs.
    pub costs: CostDifferences,
}

/// A doubt and the configuration or cell that it concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDoubt {
    /// Label of the configuration, with the round-trip time if the doubt concerns one cell.
    pub about: String,
    /// The doubt.
    pub doubt: Doubt,
    /// Number of runs whose records have this kind of doubt. Zero if the doubt concerns all runs
    /// together.
    pub runs: u64,
}

impl NamedDoubt {
    /// Returns the number of runs as text, such as `2 runs`. Returns `None` if the doubt concerns
    /// all runs together.
    pub fn runs_in_words(&self) -> Option<String> {
        match self.runs {
            0 => None,
            1 => Some("1 run".to_owned()),
            runs => Some(format!("{runs} runs")),
        }
    }
}

/// Maximum number of doubts of one kind that are shown. The others are only counted.
pub const DOUBTS_SHOWN: usize = 3;

/// Groups doubts by kind. Groups are in the order of their first doubts.
pub fn by_kind(doubts: &[NamedDoubt]) -> Vec<Vec<&NamedDoubt>> {
    let mut kinds: Vec<Vec<&NamedDoubt>> = Vec::new();
    for named in doubts {
        let kind = std::mem::discriminant(&named.doubt);
        let same = |kinds: &&mut Vec<&NamedDoubt>| {
            let first = kinds.first();
            first.is_some_and(|first| std::mem::discriminant(&first.doubt) == kind)
        };
        match kinds.iter_mut().find(same) {
            Some(group) => group.push(named),
            None => kinds.push(vec![named]),
        }
    }
    kinds
}

/// All figures and doubts derived from a set of runs.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Resampling settings of all intervals.
    pub resampling: Resampling,
    /// Number of runs that the figures include.
    pub runs: usize,
    /// Number of warm-up runs that the figures exclude.
    pub warm_ups: u64,
    /// File transfers, by descending mean utilisation.
    pub transfers: Vec<MethodProfile>,
    /// Memory-to-memory throughput, in the order of first appearance.
    pub memory: Vec<MethodProfile>,
    /// Comparisons of each transfer with the first, at the round-trip times of both and over paths
    /// of the same capacity.
    pub comparisons: Vec<Comparison>,
    /// Best configurations of a sweep, for each round-trip time.
    pub best: Vec<BestAt>,
    /// Throughput as a function of loss, if several loss rates were measured.
    pub over_loss: Vec<LossLine>,
    /// Short name of each configuration.
    pub labels: Vec<String>,
    /// Reasons to mistrust the figures.
    pub doubts: Vec<NamedDoubt>,
}

/// Throughput may exceed the capacity by this share, because of headers and inaccurate clocks.
const CAPACITY_ROUNDING: f64 = 0.01;

/// Computes all figures and doubts from runs.
///
/// # Errors
///
/// If the runs of a configuration do not form a valid profile.
pub fn analyse(runs: &Runs, resampling: &Resampling) -> Result<Analysis, SampleError> {
    let labels = runs.labels();
    let mut by_configuration: Vec<Vec<&Run>> = vec![Vec::new(); runs.configurations().len()];
    for run in runs.runs() {
        by_configuration[run.configuration].push(run);
    }
    let mut analysis = Analysis {
        resampling: *resampling,
        runs: 0,
        warm_ups: runs.warm_ups(),
        transfers: Vec::new(),
        memory: Vec::new(),
        comparisons: Vec::new(),
        best: best_of_sweep(runs, resampling),
        over_loss: Vec::new(),
        labels: labels.clone(),
        doubts: Vec::new(),
    };
    for (index, own) in by_configuration.iter().enumerate() {
        let configuration = &runs.configurations()[index];
        analysis.note_doubts(runs, index, &labels[index], own);
        if configuration.measures == Measures::Storage {
            continue;
        }
        let method = method_profile(runs, index, &labels[index], own, resampling)?;
        let Some(method) = method else { continue };
        let counted = method.sample.cells().iter().map(|cell| cell.shares.len());
        analysis.runs += counted.sum::<usize>();
        match configuration.measures {
            Measures::Memory => analysis.memory.push(method),
            _ => analysis.transfers.push(method),
        }
    }
    let utilisation = |method: &MethodProfile| {
        let last = method.figures.coefficients.last();
        last.map_or_else(
            || {
                method
                    .figures
                    .points
                    .first()
                    .map_or(0.0, |p| p.mean.estimate)
            },
            |last| 1.0 - last.c_u.estimate,
        )
    };
    analysis
        .transfers
        .sort_by(|a, b| utilisation(b).total_cmp(&utilisation(a)));
    analysis.over_loss = lines_over_loss(runs, &analysis);
    analysis.relate_to_tcp(runs, &by_configuration)?;
    analysis.compare_all()?;
    Ok(analysis)
}

/// Groups the completed runs of one configuration by round-trip time. Excludes runs that were
/// measured again.
fn cells(own: &[&Run], capacity: BitRate) -> Vec<Cell> {
    let mut by_rtt: BTreeMap<Duration, Vec<&Run>> = BTreeMap::new();
    for run in own
        .iter()
        .filter(|run| run.ended == Ended::Done && !run.again)
    {
        by_rtt.entry(run.rtt).or_default().push(run);
    }
    let share = |run: &&Run| run.goodput.bits_per_second() / capacity.bits_per_second();
    by_rtt
        .into_iter()
        .map(|(rtt, runs)| {
            let rounds: Vec<u64> = runs.iter().filter_map(|run| run.round).collect();
            Cell {
                rtt,
                shares: runs.iter().map(share).collect(),
                rounds: if rounds.len() == runs.len() {
                    rounds
                } else {
                    Vec::new()
                },
            }
        })
        .collect()
}

fn method_profile(
    runs: &Runs,
    index: usize,
    label: &str,
    own: &[&Run],
    resampling: &Resampling,
) -> Result<Option<MethodProfile>, SampleError> {
    let capacity = runs.configurations()[index].capacity;
    let cells = cells(own, capacity);
    if cells.is_empty() {
        return Ok(None);
    }
    let sample = ProfileSample::new(cells)?;
    let figures = profile_figures(&sample, resampling)?;
    Ok(Some(MethodProfile {
        configuration: index,
        label: label.to_owned(),
        capacity,
        sample,
        figures,
        tcp: None,
        scheme: None,
        slower_host: None,
        host_limited: false,
        tcp_adds: None,
        unused: None,
        cpu_seconds_per_gigabyte: Measured::of(own, resampling, |run| run.cpu_seconds_per_gigabyte),
        retransmitted_segments: Measured::of(own, resampling, |run| {
            run.retransmitted_segments.map(|segments| segments as f64)
        }),
        layers: runs
            .layers(index)
            .filter_map(|(layer, uses)| LayerFigures::of(layer, uses, resampling))
            .collect(),
    }))
}

impl Analysis {
    /// Inserts a doubt about the input records before all others.
    pub fn doubt_first(&mut self, about: &str, doubt: Doubt) {
        let about = about.to_owned();
        let named = NamedDoubt {
            about,
            doubt,
            runs: 0,
        };
        self.doubts.insert(0, named);
    }

    /// Adds the doubts of the records and the doubts that arise from several runs together.
    fn note_doubts(&mut self, runs: &Runs, index: usize, label: &str, own: &[&Run]) {
        let mut note = |about: &str, doubt: Doubt, count: u64| {
            self.doubts.push(NamedDoubt {
                about: about.to_owned(),
                doubt,
                runs: count,
            });
        };
        for known in runs.doubts(index) {
            note(label, known.doubt.clone(), known.runs);
        }
        let failed = own.iter().filter(|run| run.ended != Ended::Done).count() as u64;
        if failed > 0 {
            let of = own.len() as u64;
            note(label, Doubt::FailedRuns { failed, of }, 0);
        }
        let mut raised: Vec<(Doubt, Vec<Duration>)> = Vec::new();
        for cell in cells(own, runs.configurations()[index].capacity) {
            let is_measured_here = runs.configurations()[index].measures != Measures::Storage;
            let greatest = cell.shares.iter().copied().fold(0.0, f64::max);
            let above = (is_measured_here && greatest > 1.0 + CAPACITY_ROUNDING)
                .then_some(Doubt::AboveCapacity { share: greatest });
            for doubt in Doubt::of_series(&cell.shares).into_iter().chain(above) {
                let kind = std::mem::discriminant(&doubt);
                let known = raised
                    .iter_mut()
                    .find(|(known, _)| std::mem::discriminant(known) == kind);
                match known {
                    Some((_, rtts)) => rtts.push(cell.rtt),
                    None => raised.push((doubt, vec![cell.rtt])),
                }
            }
        }
        for (doubt, rtts) in raised {
            note(&format!("{label} at {}", text::rtt_list(&rtts)), doubt, 0);
        }
    }

    fn compare_all(&mut self) -> Result<(), SampleError> {
        let Some(best) = self.transfers.first() else {
            return Ok(());
        };
        for (index, other) in self.transfers.iter().enumerate().skip(1) {
            // Compares at the round-trip times that both transfers have.
            let own = common(&best.sample, &other.sample)?;
            let (Some(own), true) = (own, best.capacity == other.capacity) else {
                continue;
            };
            let others = restricted(&other.sample, &own)?;
            let mut difference = compare(&own, &others, &self.resampling)?;
            let lone = |sample: &ProfileSample| sample.cells().len() > own.cells().len();
            if lone(&best.sample) || lone(&other.sample) {
                // C_UC over other round-trip times than those of the profile is a different
                // coefficient.
                difference.c_uc = None;
            }
            self.comparisons.push(Comparison {
                first: 0,
                second: index,
                difference,
                costs: CostDifferences::of(best, other, &self.resampling),
            });
        }
        Ok(())
    }
}

/// Reduces the first sample to the round-trip times that both have. Returns `None` if they have no
/// common round-trip time.
fn common(
    first: &ProfileSample,
    second: &ProfileSample,
) -> Result<Option<ProfileSample>, SampleError> {
    let has = |rtt| second.cells().iter().any(|cell| cell.rtt == rtt);
    let cells = first.cells().iter().filter(|cell| has(cell.rtt));
    let cells: Vec<Cell> = cells.cloned().collect();
    if cells.is_empty() {
        Ok(None)
    } else {
        ProfileSample::new(cells).map(Some)
    }
}

/// Reduces `wide` to the round-trip times of `narrow`.
fn restricted(wide: &ProfileSample, narrow: &ProfileSample) -> Result<ProfileSample, SampleError> {
    let kept = |rtt| narrow.cells().iter().any(|cell| cell.rtt == rtt);
    let cells = wide.cells().iter().filter(|cell| kept(cell.rtt));
    ProfileSample::new(cells.cloned().collect())
}

/// The figures of a box plot: the quartiles, the whiskers and the outliers. A whisker ends at the
/// farthest value within 1.5 interquartile ranges of the box (Tukey's rule).
#[derive(Clone, Debug, PartialEq)]
pub struct BoxFigures {
    /// End of the lower whisker.
    pub low: f64,
    /// The 1/4 quantile.
    pub lower_quartile: f64,
    /// The median.
    pub median: f64,
    /// Interval of the median, if it is known.
    pub median_interval: Option<Interval>,
    /// The 3/4 quantile.
    pub upper_quartile: f64,
    /// End of the upper whisker.
    pub high: f64,
    /// Values beyond the whiskers, in ascending order.
    pub beyond: Vec<f64>,
    /// All values in ascending order if there are too few for a box, else empty.
    pub runs: Vec<f64>,
}

/// Minimum number of values for a box. The quartiles of fewer values would be interpolations only.
pub const FEWEST_BOXED: usize = 5;

impl BoxFigures {
    /// Computes the figures of values in any order. Returns `None` if there are no values.
    pub fn of(values: &[f64], median_interval: Option<Interval>) -> Option<BoxFigures> {
        let ascending = sorted(values);
        let lower_quartile = quantile(&ascending, 0.25)?;
        let upper_quartile = quantile(&ascending, 0.75)?;
        let is_few = ascending.len() < FEWEST_BOXED;
        let reach = 1.5 * (upper_quartile - lower_quartile);
        let is_within =
            |v: &f64| is_few || (lower_quartile - reach..=upper_quartile + reach).contains(v);
        let mut within = ascending.iter().copied().filter(|v| is_within(v));
        let low = within.next()?;
        Some(BoxFigures {
            low,
            high: within.next_back().unwrap_or(low),
            lower_quartile,
            median: quantile(&ascending, 0.5)?,
            median_interval,
            upper_quartile,
            beyond: ascending
                .iter()
                .copied()
                .filter(|v| !is_within(v))
                .collect(),
            runs: if is_few { ascending } else { Vec::new() },
        })
    }
}
