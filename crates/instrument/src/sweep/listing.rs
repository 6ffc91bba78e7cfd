//! Lists the runs of a sweep without performing them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use longhaul_measure::best::MEASURED_AGAIN;

use super::best_again::{best_again, groups};
use super::estimate::{Estimate, spoken};
use super::file::SweepFile;
use super::ledger::{Found, Ledger};
use super::plan::{Cell, Plan, Planned};

/// Returns the identity of a run, which is unique within its sweep.
pub fn identity(file: &SweepFile, plan: &Plan, run: Planned) -> String {
    let key = plan.cells[run.cell].key();
    let digest = blake3::hash(key.as_bytes()).to_hex();
    let again = if run.again { "again-" } else { "" };
    format!(
        "{}/{again}{}.{}/{}",
        file.name,
        run.round,
        run.number,
        &digest[..12]
    )
}

/// Returns the methods that cannot run here, each with a program that is not installed.
pub fn missing(file: &SweepFile, plan: &Plan) -> HashMap<String, String> {
    let is_used = |name: &str| {
        plan.cells
            .iter()
            .any(|cell| methods_of(cell).any(|m| m == name))
    };
    let used = file.methods.iter().filter(|method| is_used(&method.name));
    used.filter_map(|method| {
        let program = method.needs.iter().find(|program| !is_installed(program))?;
        Some((method.name.clone(), program.clone()))
    })
    .collect()
}

/// Returns the methods that run in a configuration: the measured one and the background
/// methods.
pub fn methods_of(cell: &Cell) -> impl Iterator<Item = &String> {
    let beside = cell.cross.iter().flat_map(|cross| &cross.beside);
    std::iter::once(&cell.method.name).chain(beside)
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&paths)
        .chain(usual)
        .any(|directory| directory.join(program).is_file())
}

/// Returns the list of runs, given the existing records.
///
/// # Errors
///
/// Returns an error if the records cannot be read.
pub fn list(file: &SweepFile, plan: &Plan, records: &Path) -> Result<String, String> {
    let found = Ledger::look(records)?;
    let missing = missing(file, plan);
    let mut listing = Listing {
        file,
        plan,
        done: found.runs.iter().map(|run| run.run.id.clone()).collect(),
        estimate: Estimate::default(),
        missing: &missing,
        counts: Counts::default(),
    };
    listing.estimate.learn(&found.runs);
    let mut text = match file.about.as_str() {
        "" => String::new(),
        about => format!("{about}\n"),
    };
    for place in 0..plan.cells.len() {
        let own = plan.runs.iter().filter(|run| run.cell == place);
        text += &listing.line("", place, own.copied());
    }
    let mut names: Vec<(&String, &String)> = missing.iter().collect();
    names.sort();
    for (method, program) in names {
        text += &format!("{method} is skipped: {program} is not installed\n");
    }
    text += &listing.best_again(&found);
    let Counts {
        open,
        done,
        skipped,
        time,
    } = listing.counts;
    let runs = if open == 1 { "run" } else { "runs" };
    text += &format!(
        "{} configurations, {open} {runs} to make, about {}",
        plan.cells.len(),
        spoken(time)
    );
    if done > 0 {
        text += &format!("; {done} in {} already", records.display());
    }
    if skipped > 0 {
        text += &format!("; {skipped} skipped");
    }
    Ok(text + "\n")
}

/// Number of runs by state.
#[derive(Default)]
struct Counts {
    open: usize,
    done: usize,
    skipped: usize,
    /// Expected time of the open runs.
    time: Duration,
}

struct Listing<'a> {
    file: &'a SweepFile,
    plan: &'a Plan,
    done: HashSet<String>,
    estimate: Estimate,
    missing: &'a HashMap<String, String>,
    counts: Counts,
}

impl Listing<'_> {
    fn is_skipped(&self, cell: &Cell) -> bool {
        methods_of(cell).any(|method| self.missing.contains_key(method))
    }

    /// Returns the line of a configuration and counts its runs.
    fn line(&mut self, prefix: &str, place: usize, runs: impl Iterator<Item = Planned>) -> String {
        let cell = &self.plan.cells[place];
        let is_done = |run: &Planned| self.done.contains(&identity(self.file, self.plan, *run));
        let (done, rest): (Vec<Planned>, Vec<Planned>) = runs.partition(is_done);
        let state = match (self.is_skipped(cell), done.len(), rest.len()) {
            (_, _, 0) => ": done".to_owned(),
            (true, ..) => ": skipped".to_owned(),
            (false, 0, _) => String::new(),
            (false, done, rest) => format!(": {rest} of {} runs left", done + rest),
        };
        self.counts.done += done.len();
        if self.is_skipped(cell) {
            self.counts.skipped += rest.len();
        } else {
            self.counts.open += rest.len();
            self.counts.time += self.estimate.of(cell) * rest.len() as u32;
        }
        format!("{prefix}{}{state}\n", cell.title())
    }

    /// Lists the repetitions of the fastest configurations. If other runs are still open,
    /// returns only their number and expected time.
    fn best_again(&mut self, found: &Found) -> String {
        if self.file.again == 0 {
            return String::new();
        }
        if self.counts.open > 0 {
            return self.best_again_to_come();
        }
        let mut runs: HashMap<usize, Vec<Planned>> = HashMap::new();
        for run in best_again(self.file, self.plan, &rates(self.file, self.plan, found)) {
            runs.entry(run.cell).or_default().push(run);
        }
        let mut places: Vec<usize> = runs.keys().copied().collect();
        places.sort_unstable();
        let lines = places.into_iter().map(|place| {
            let own = runs.remove(&place).unwrap_or_default();
            self.line("again ", place, own.into_iter())
        });
        lines.collect()
    }

    fn best_again_to_come(&self) -> String {
        let (mut count, mut time) = (0, Duration::ZERO);
        for group in groups(self.plan, |place| !self.is_skipped(&self.plan.cells[place])) {
            let runs = MEASURED_AGAIN as u32 * self.file.again as u32;
            let all: Duration = group
                .iter()
                .map(|place| self.estimate.of(&self.plan.cells[*place]))
                .sum();
            count += runs;
            time += all / group.len() as u32 * runs;
        }
        match count {
            0 => String::new(),
            _ => format!(
                "at the end, the three fastest configurations of each path {} more times: {count} \
                 runs, about {}, not included in these figures:\n",
                self.file.again,
                spoken(time)
            ),
        }
    }
}

/// Returns the goodputs that count for the choice of the fastest, by configuration.
fn rates(file: &SweepFile, plan: &Plan, found: &Found) -> HashMap<usize, Vec<f64>> {
    let deciding = found.runs.iter().filter_map(super::deciding_rate);
    let swept: HashMap<&str, f64> = deciding.collect();
    let mut rates: HashMap<usize, Vec<f64>> = HashMap::new();
    for run in &plan.runs {
        if let Some(rate) = swept.get(identity(file, plan, *run).as_str()) {
            rates.entry(run.cell).or_default().push(*rate);
        }
    }
    rates
}
