//! The record of a run: a table for people, and the same numbers for programs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::samples::{Sample, Samples};
use super::work::{ALL, Kind};

/// Maximum cost of a copy, as a multiple of the sum of its pieces.
const BAR: f64 = 1.5;

/// Date, commit and machine of a run.
pub struct About {
    /// Year, month and day.
    pub date: String,
    /// The commit, with `-dirty` where there were changes.
    pub commit: String,
    /// Processors.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
}

/// Least, median and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread([f64; 3]);

impl Spread {
    /// Returns the spread of the values; `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let middle = *values.get(values.len() / 2)?;
        Some(Spread([*values.first()?, middle, *values.last()?]))
    }

    /// The middle.
    pub fn median(self) -> f64 {
        self.0[1]
    }

    /// Returns all three values with this number of decimals.
    pub fn text(self, decimals: usize) -> String {
        let [least, median, greatest] = self.0;
        format!("{median:.decimals$} ({least:.decimals$}–{greatest:.decimals$})")
    }
}

/// A piece of a copy: its measurements, and the cost to subtract.
struct Piece {
    name: &'static str,
    own: &'static str,
    without: Option<&'static str>,
    tool: Option<&'static str>,
}

const PIECES: [Piece; 6] = [
    piece("read", "read", None, Some("fio-read")),
    piece("digest", "digest", None, Some("b3sum")),
    piece("TLS", "tls", Some("socket"), Some("openssl")),
    piece("socket", "socket", None, Some("iperf3")),
    piece("write", "write", None, Some("fio-write")),
    piece("sync", "sync", None, None),
];

const fn piece(
    name: &'static str,
    own: &'static str,
    without: Option<&'static str>,
    tool: Option<&'static str>,
) -> Piece {
    Piece {
        name,
        own,
        without,
        tool,
    }
}

/// A copy and how often each of [`PIECES`] is in it. Both ends hash.
const COPIES: [(&str, [f64; 6]); 4] = [
    ("zero-clear", [0.0, 2.0, 0.0, 1.0, 0.0, 0.0]),
    ("zero-tls", [0.0, 2.0, 1.0, 1.0, 0.0, 0.0]),
    ("files-clear", [1.0, 2.0, 0.0, 1.0, 1.0, 1.0]),
    ("files-tls", [1.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
];

/// Writes `DATE-pieces.md` and `DATE-pieces.json`.
///
/// # Errors
///
/// If they cannot be written, or a measurement is missing.
pub fn write(directory: &Path, about: &About, samples: &Samples) -> Result<(), String> {
    let costs = PIECES.map(|piece| costs_of(&piece, samples));
    let best = costs.map(|(own, tool)| tool.map_or(own, |tool| tool.min(own)));
    let own = costs.map(|(own, _)| own);
    let text = format!(
        "{}{}{}{}",
        heading(about),
        table(samples),
        pieces_table(&costs, &best),
        copies_table(samples, &best, &own)
    );
    print!("{text}");
    let stem = format!("{}-pieces", about.date);
    let save = |name: String, text: String| {
        let path = directory.join(name);
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    save(format!("{stem}.md"), text)?;
    let value = numbers(about, samples, &best);
    save(format!("{stem}.json"), format!("{value:#}\n"))
}

fn heading(about: &About) -> String {
    format!(
        "# What a copy costs beside its pieces\n\n\
         {}, commit {}, {}, Linux {}. Made by `cargo xtask bench pieces`: warm, \
         interleaved, the first round thrown away; median (least–greatest).\n\n",
        about.date, about.commit, about.machine, about.kernel
    )
}

fn spread(samples: &Samples, name: &str, of: fn(Sample) -> f64) -> Option<Spread> {
    Spread::of(samples.of(name).into_iter().map(of).collect())
}

fn table(samples: &Samples) -> String {
    let mut text = "| what | by | CPU s/GB | GB/s |\n|---|---|---|---|\n".to_owned();
    for work in ALL {
        let by = match work.kind {
            Kind::Own => "our loop",
            Kind::Tool => "tool",
            Kind::Copy(..) => "longhaul cp, both ends",
        };
        let cost = spread(samples, work.name, Sample::cost);
        let rate = spread(samples, work.name, Sample::rate);
        let _ = match (cost, rate) {
            (Some(cost), Some(rate)) => writeln!(
                text,
                "| {} | {by} | {} | {} |",
                work.name,
                cost.text(3),
                rate.text(3)
            ),
            _ => writeln!(text, "| {} | {by} | not installed | |", work.name),
        };
    }
    text += "\n`tls` has the socket in it; `b3sum` reads its file; `openssl` is one encryption \
             taken twice; `create` and `small-tls` are 20,000 files of 4096 bytes, so divide \
             CPU s/GB by 244.14 for CPU ms a file; `small-tls` makes every file durable, \
             `create` none.\n\n";
    text
}

/// Returns CPU seconds per GB of this project's own loop and of the tool.
fn costs_of(piece: &Piece, samples: &Samples) -> (f64, Option<f64>) {
    let median = |name| spread(samples, name, Sample::cost).map(Spread::median);
    let own = median(piece.own).unwrap_or(f64::NAN);
    let without = piece.without.and_then(median).unwrap_or(0.0);
    (own - without, piece.tool.and_then(median))
}

fn pieces_table(costs: &[(f64, Option<f64>); 6], best: &[f64; 6]) -> String {
    let mut text = "| piece | our loop, CPU s/GB | tool | best |\n|---|---|---|---|\n".to_owned();
    for ((piece, (own, tool)), best) in PIECES.iter().zip(costs).zip(best) {
        let tool = tool.map_or("–".to_owned(), |tool| format!("{tool:.3}"));
        let _ = writeln!(text, "| {} | {own:.3} | {tool} | {best:.3} |", piece.name);
    }
    text += "\n`TLS` is what encryption and decryption add to the socket.\n\n";
    text
}

fn sum(times: &[f64; 6], costs: &[f64; 6]) -> f64 {
    let products = times.iter().zip(costs).map(|(times, cost)| times * cost);
    products.sum()
}

fn copies_table(samples: &Samples, best: &[f64; 6], own: &[f64; 6]) -> String {
    let mut text = format!(
        "| copy | CPU s/GB | sum of the best pieces | ratio (bar {BAR}) | ratio to our own loops |\n\
         |---|---|---|---|---|\n"
    );
    for (name, times) in &COPIES {
        let Some(cost) = spread(samples, name, Sample::cost) else {
            continue;
        };
        let sums = [sum(times, best), sum(times, own)];
        let _ = writeln!(
            text,
            "| {name} | {:.3} | {:.3} | {:.2} | {:.2} |",
            cost.median(),
            sums[0],
            cost.median() / sums[0],
            cost.median() / sums[1]
        );
    }
    text
}

fn numbers(about: &About, samples: &Samples, best: &[f64; 6]) -> Value {
    let works: Vec<Value> = ALL
        .iter()
        .map(|work| {
            let list: Vec<Value> = samples
                .of(work.name)
                .iter()
                .map(|s| json!({ "bytes": s.bytes, "wall_seconds": s.wall, "cpu_seconds": s.cpu }))
                .collect();
            json!({ "name": work.name, "samples": list })
        })
        .collect();
    let ratios: Vec<Value> = COPIES
        .iter()
        .filter_map(|(name, times)| {
            let cost = spread(samples, name, Sample::cost)?.median();
            let sum = sum(times, best);
            Some(
                json!({ "copy": name, "cpu_seconds_per_gb": cost, "sum_of_pieces": sum,
                "ratio": cost / sum }),
            )
        })
        .collect();
    json!({
        "version": 1, "date": about.date, "commit": about.commit, "machine": about.machine,
        "kernel": about.kernel, "bar": BAR, "works": works, "ratios": ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_least_median_and_greatest() {
        assert_eq!(
            Spread::of(vec![3.0, 1.0, 2.0]),
            Some(Spread([1.0, 2.0, 3.0]))
        );
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_sum_counts_each_occurrence_of_a_piece() {
        let costs = [1.0, 10.0, 100.0, 0.0, 0.0, 0.0];
        assert_eq!(sum(&COPIES[3].1, &costs), 121.0);
    }
}
