//! From runs to everything that a report says of them.

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

/// One configuration's profile with all that belongs to it.
#[derive(Clone, Debug)]
pub struct MethodProfile {
    /// Its place in [`Runs::configurations`].
    pub configuration: usize,
    /// Its short name.
    pub label: String,
    /// Shares are of this.
    pub capacity: BitRate,
    /// The repetitions.
    pub sample: ProfileSample,
    /// Θ_E, or Θ_T of a memory-to-memory method.
    pub figures: ProfileFigures,
    /// Θ_T that it is measured against: its place in [`Analysis::memory`].
    pub tcp: Option<usize>,
    /// Θ_F, where there is a Θ_T at every point.
    pub scheme: Option<ProfileFigures>,
    /// Θ_H of the slower of its hosts, for the same data and storage; `None` if it was not
    /// measured. In bits per second; the interval is the median's exact bootstrap interval.
    pub slower_host: Option<Figure>,
    /// Whether Θ_F was also divided by the slower host's Θ_H (case (b) of paper
    /// 001, section 3.2).
    pub host_limited: bool,
    /// C_UC of that Θ_T less its own: what TCP adds; `None` without Θ_T, or with only one
    /// round-trip time.
    pub tcp_adds: Option<Difference>,
    /// 1 less the greater C_UC of the two; `None` if there is nothing to add.
    pub unused: Option<Figure>,
    /// CPU seconds of both ends for each 10^9 bytes.
    pub cpu_seconds_per_gigabyte: Measured,
    /// Segments sent again in a run.
    pub retransmitted_segments: Measured,
    /// How busy its layers were, by name.
    pub layers: Vec<LayerFigures>,
}

/// Two methods compared: the first less the second.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Place in [`Analysis::transfers`].
    pub first: usize,
    /// Place in [`Analysis::transfers`].
    pub second: usize,
    /// By how much they differ.
    pub difference: ProfileDifference,
    /// By how much what they cost does.
    pub costs: CostDifferences,
}

/// A doubt and what it concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDoubt {
    /// A configuration's label, with a round-trip time where it is one cell's.
    pub about: String,
    /// The doubt.
    pub doubt: Doubt,
    /// How many runs have one like it; zero where it is of all of them together.
    pub runs: u64,
}

impl NamedDoubt {
    /// The number of runs with this doubt, in words, if it is about runs.
    pub fn runs_in_words(&self) -> Option<String> {
        match self.runs {
            0 => None,
            1 => Some("1 run".to_owned()),
            runs => Some(format!("{runs} runs")),
        }
    }
}

/// At most this many doubts of one kind are shown. The others are counted.
pub const DOUBTS_SHOWN: usize = 3;

/// Doubts of one kind together, in the order of the first of each.
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

/// What runs say.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// How intervals were drawn.
    pub resampling: Resampling,
    /// How many runs are in the figures.
    pub runs: usize,
    /// How many warm-ups were left out.
    pub warm_ups: u64,
    /// File transfers, by descending mean utilisation.
    pub transfers: Vec<MethodProfile>,
    /// Memory-to-memory throughput, in the order first met.
    pub memory: Vec<MethodProfile>,
    /// Every transfer against the first, at the round-trip times that both were measured at,
    /// over paths of one capacity.
    pub comparisons: Vec<Comparison>,
    /// The best of a sweep, by round-trip time.
    pub best: Vec<BestAt>,
    /// Throughput over loss, where several rates of it were measured.
    pub over_loss: Vec<LossLine>,
    /// The short name of every configuration.
    pub labels: Vec<String>,
    /// Why to mistrust all this.
    pub doubts: Vec<NamedDoubt>,
}

/// Throughput may exceed a capacity by as much as headers and clocks differ.
const CAPACITY_ROUNDING: f64 = 0.01;

/// Reduces runs to figures.
///
/// # Errors
///
/// Where the runs of a configuration make no profile.
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

/// The runs of one configuration as cells; only those that are done.
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
    /// Puts a doubt of the reader of records before all others.
    pub fn doubt_first(&mut self, about: &str, doubt: Doubt) {
        let about = about.to_owned();
        let named = NamedDoubt {
            about,
            doubt,
            runs: 0,
        };
        self.doubts.insert(0, named);
    }

    /// Doubts of the records, and those that only many of them together raise.
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
            // At the round-trip times that both were measured at.
            let own = common(&best.sample, &other.sample)?;
            let (Some(own), true) = (own, best.capacity == other.capacity) else {
                continue;
            };
            let others = restricted(&other.sample, &own)?;
            let mut difference = compare(&own, &others, &self.resampling)?;
            let lone = |sample: &ProfileSample| sample.cells().len() > own.cells().len();
            if lone(&best.sample) || lone(&other.sample) {
                // Over other intervals than either's own it is another coefficient.
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

/// The first, at the round-trip times of both; `None` if there are none.
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

/// `wide` at the round-trip times of `narrow`.
fn restricted(wide: &ProfileSample, narrow: &ProfileSample) -> Result<ProfileSample, SampleError> {
    let kept = |rtt| narrow.cells().iter().any(|cell| cell.rtt == rtt);
    let cells = wide.cells().iter().filter(|cell| kept(cell.rtt));
    ProfileSample::new(cells.cloned().collect())
}

/// Five numbers of a box plot: the quartiles, and the farthest values within one
/// and a half times their distance of them (Tukey's rule); what lies beyond.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxFigures {
    /// The lower whisker's end.
    pub low: f64,
    /// The quantile at 1/4.
    pub lower_quartile: f64,
    /// The median.
    pub median: f64,
    /// Its interval, where it is known.
    pub median_interval: Option<Interval>,
    /// The quantile at 3/4.
    pub upper_quartile: f64,
    /// The upper whisker's end.
    pub high: f64,
    /// Values beyond the whiskers, ascending.
    pub beyond: Vec<f64>,
    /// All values, ascending, where they are too few for a box; else none.
    pub runs: Vec<f64>,
}

/// Of fewer values there is no box: its quartiles would be made up between them.
pub const FEWEST_BOXED: usize = 5;

impl BoxFigures {
    /// Of values in any order, with their median's interval; `None` of nothing.
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
