//! An analysis as text for a terminal.

use std::fmt::Write;
use std::time::Duration;

use super::{Analysis, BestAt, Comparison, DOUBTS_SHOWN, MethodProfile, by_kind};
use crate::profile::{Bend, Figure, ProfileFigures};

/// A round-trip time in milliseconds: `0.4`, `91.6`, `183`.
pub fn milliseconds(rtt: Duration) -> String {
    let value = rtt.as_secs_f64() * 1e3;
    let rounded = (value * 1e3).round() / 1e3;
    format!("{rounded}")
}

/// Several round-trip times with their unit.
pub(super) fn rtt_list(rtts: &[Duration]) -> String {
    let list: Vec<String> = rtts.iter().map(|rtt| milliseconds(*rtt)).collect();
    format!("{} ms", list.join(", "))
}

/// Everything, as lines of at most about 100 columns: doubts first.
pub fn to_text(analysis: &Analysis) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_all(analysis, &mut out);
    out
}

fn write_all(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    write_doubts(analysis, out)?;
    let level = analysis.resampling.level * 100.0;
    writeln!(
        out,
        "{} runs in the figures, {} warm-ups left out; intervals {level} %, {} draws, seed {}",
        analysis.runs, analysis.warm_ups, analysis.resampling.draws, analysis.resampling.seed
    )?;
    for method in &analysis.transfers {
        write_method(analysis, method, "Θ_E", out)?;
    }
    for method in &analysis.memory {
        write_method(analysis, method, "Θ_T", out)?;
    }
    write_summary(analysis, out)?;
    for comparison in &analysis.comparisons {
        write_comparison(analysis, comparison, out)?;
    }
    for sentence in best_sentences(analysis) {
        writeln!(out, "\n{sentence}")?;
    }
    write_loss(analysis, out)
}

fn write_doubts(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    for group in by_kind(&analysis.doubts) {
        for named in group.iter().take(DOUBTS_SHOWN) {
            let runs = named.runs_in_words();
            let runs = runs.map_or_else(String::new, |runs| format!(" ({runs})"));
            writeln!(out, "doubt: {}: {}{runs}", named.about, named.doubt)?;
        }
        let more = group.len().saturating_sub(DOUBTS_SHOWN);
        if more > 0 {
            writeln!(out, "       and {more} more of this kind (--json has all)")?;
        }
        if let Some(first) = group.first() {
            writeln!(out, "       {}", first.doubt.advice())?;
        }
    }
    if !analysis.doubts.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

/// What the sweep comes to at each round-trip time.
pub fn best_sentences(analysis: &Analysis) -> Vec<String> {
    let names = |places: &[usize]| -> String {
        let names: Vec<&str> = places
            .iter()
            .map(|place| analysis.labels[*place].as_str())
            .collect();
        names.join(", ")
    };
    let sentence = |at: &BestAt| {
        let at_rtt = std::iter::once(format!("{} ms", milliseconds(at.rtt)));
        let place: Vec<String> = at_rtt.chain(at.given.iter().cloned()).collect();
        let begin = format!("best of {} at {}", at.compared, place.join(", "));
        match &at.best {
            Ok(best) => format!(
                "{begin}: {}; as good: {}; cheapest of these ({}): {}; the sweep had promised {:+.1} \
                 Mbit/s",
                names(&[best.fastest]),
                match best.as_good.get(1..) {
                    None | Some([]) => "no other".to_owned(),
                    Some(others) => names(others),
                },
                at.cost,
                names(&[best.cheapest]),
                best.luck / 1e6
            ),
            Err(missing) => format!(
                "{begin}: not told yet; measure the fastest again (`again` in the sweep's file): {}",
                names(missing)
            ),
        }
    };
    analysis.best.iter().map(sentence).collect()
}

/// Throughput over loss, a line a rate of it.
fn write_loss(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    for line in &analysis.over_loss {
        writeln!(out, "\n{}", line.sentence())?;
        writeln!(
            out,
            "  {:>9} {:>4} {:>9} {:>9} {:>9}",
            "loss", "runs", "Mbit/s", "std error", "law"
        )?;
        for point in &line.points {
            let mbit = |rate: f64| format!("{:.1}", rate / 1e6);
            let none = || "–".to_owned();
            writeln!(
                out,
                "  {:>9} {:>4} {:>9} {:>9} {:>9}",
                format!("{:e}", point.loss),
                point.runs,
                mbit(point.mean),
                point.standard_error.map_or_else(none, mbit),
                line.rate(point.loss).map_or_else(none, mbit)
            )?;
        }
    }
    match analysis.over_loss.is_empty() {
        true => Ok(()),
        false => writeln!(out, "\n{}", super::loss_laws()),
    }
}

/// A figure with its interval, to four digits after the point.
fn shown(figure: &Figure) -> String {
    format!(
        "{:.4} [{:.4}, {:.4}]",
        figure.estimate, figure.interval.low, figure.interval.high
    )
}

fn write_method(
    analysis: &Analysis,
    method: &MethodProfile,
    symbol: &str,
    out: &mut String,
) -> std::fmt::Result {
    writeln!(
        out,
        "\n{}: {symbol} over {}, coefficients over [τ_L, τ]",
        method.label, method.capacity
    )?;
    write_figures(&method.figures, method.capacity.bits_per_second(), out)?;
    write_confidence(analysis, &method.figures, out)?;
    if let Some(scheme) = &method.scheme {
        let case = if method.host_limited { "(b)" } else { "(a)" };
        let tcp = method.tcp.map_or("", |index| &analysis.memory[index].label);
        writeln!(out, "  Θ_F, case {case}, against {tcp}")?;
        write_figures(scheme, 0.0, out)?;
    }
    Ok(())
}

/// A line a point; rates where the capacity is not zero.
fn write_figures(figures: &ProfileFigures, capacity: f64, out: &mut String) -> std::fmt::Result {
    let rate = if capacity > 0.0 { "Mbit/s" } else { "" };
    writeln!(
        out,
        "  {:>8} {:>4} {rate:>9} {:>24} {:>9} {:>9} {:>24}",
        "RTT ms", "runs", "share", "C_CC", "C_U", "C_UC"
    )?;
    for (point, coefficients) in figures.rows() {
        let (runs, rate) = match capacity > 0.0 {
            true => (
                point.summary.count.to_string(),
                format!("{:.1}", point.mean.estimate * capacity / 1e6),
            ),
            false => (String::new(), String::new()),
        };
        write!(
            out,
            "  {:>8} {runs:>4} {rate:>9} {:>24}",
            milliseconds(point.rtt),
            shown(&point.mean)
        )?;
        match coefficients {
            Some(row) => writeln!(
                out,
                " {:>9.4} {:>9.4} {:>24}",
                row.c_cc.estimate,
                row.c_u.estimate,
                shown(&row.c_uc)
            )?,
            None => writeln!(out)?,
        }
    }
    writeln!(out, "  {}", shape_sentence(figures))
}

/// What a profile's shape is, in words.
pub fn shape_sentence(figures: &ProfileFigures) -> String {
    let name = |bend| match bend {
        Bend::Concave => "concave",
        Bend::Convex => "convex",
        Bend::Straight => "not told from straight",
    };
    let regions: Vec<String> = figures
        .shape
        .regions
        .iter()
        .map(|region| {
            let (from, to) = (milliseconds(region.from), milliseconds(region.to));
            format!("{} {from}–{to} ms", name(region.bend))
        })
        .collect();
    let Some((before, after)) = figures.shape.transition else {
        return match regions.is_empty() {
            true => "too few round-trip times to tell a shape".to_owned(),
            false => regions.join(", "),
        };
    };
    let share = figures
        .transitions
        .iter()
        .find(|(turn, _)| *turn == (before, after))
        .map_or(0.0, |(_, share)| share * 100.0);
    let first = figures.points.first().map(|p| p.rtt);
    let turn = match before == after {
        true if Some(before) == first => "convex from the start".to_owned(),
        true => "concave to the end".to_owned(),
        false => format!(
            "turns from concave to convex between {} and {} ms",
            milliseconds(before),
            milliseconds(after)
        ),
    };
    format!("{turn} ({share:.0} % of the draws); {}", regions.join(", "))
}

fn write_confidence(
    analysis: &Analysis,
    figures: &ProfileFigures,
    out: &mut String,
) -> std::fmt::Result {
    for sentence in confidence_sentences(analysis, figures) {
        writeln!(out, "  {sentence}")?;
    }
    Ok(())
}

/// What can be proved, and what would make it surer.
pub fn confidence_sentences(analysis: &Analysis, figures: &ProfileFigures) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(bound) = figures.c_uc_bound {
        let vacuous = if bound.is_vacuous() {
            ": vacuous, it says nothing"
        } else {
            ""
        };
        sentences.push(format!(
            "proved without assumptions on the distribution (Hoeffding, {} %): C_UC ± {:.3}{vacuous}",
            analysis.resampling.level * 100.0,
            bound.half_width
        ));
    }
    let mut advice = match figures.points.iter().all(|point| point.summary.count > 1) {
        true => format!(
            "{} more repetitions at each RTT would halve the intervals",
            figures.more_to_halve
        ),
        false => "one repetition has no interval: what stands there is no certainty".to_owned(),
    };
    if let Some((rtt, share)) = figures.least_certain {
        advice.push_str(&format!(
            "; {:.0} % of C_UC's variance comes from {} ms",
            share * 100.0,
            milliseconds(rtt)
        ));
    }
    sentences.push(advice);
    sentences
}

/// The table of paper 001's Fig. 2: C_UC, what TCP adds, what is unused.
fn write_summary(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    // Of one round-trip time there is none.
    let mut methods = analysis.transfers.iter();
    if methods.all(|method| method.figures.coefficients.is_empty()) {
        return Ok(());
    }
    writeln!(
        out,
        "\nC_UC over all RTTs (read it beside the shares: a slow start raises it)"
    )?;
    writeln!(
        out,
        "  {:>24} {:>9} {:>9}  method",
        "C_UC", "TCP adds", "unused"
    )?;
    for method in &analysis.transfers {
        let Some(last) = method.figures.coefficients.last() else {
            continue;
        };
        let tcp = method
            .tcp
            .and_then(|index| analysis.memory[index].figures.coefficients.last());
        let (adds, unused) = match tcp {
            Some(tcp) => (
                format!("{:+.4}", tcp.c_uc.estimate - last.c_uc.estimate),
                format!("{:.4}", 1.0 - tcp.c_uc.estimate.max(last.c_uc.estimate)),
            ),
            None => ("–".to_owned(), "–".to_owned()),
        };
        writeln!(
            out,
            "  {:>24} {adds:>9} {unused:>9}  {}",
            shown(&last.c_uc),
            method.label
        )?;
    }
    Ok(())
}

fn write_comparison(
    analysis: &Analysis,
    comparison: &Comparison,
    out: &mut String,
) -> std::fmt::Result {
    let label = |index: usize| &analysis.transfers[index].label;
    writeln!(
        out,
        "\n{} less {}, shares of the capacity",
        label(comparison.first),
        label(comparison.second)
    )?;
    let points = comparison.difference.points.iter();
    let points = points.map(|(rtt, d)| (format!("{} ms", milliseconds(*rtt)), d));
    let c_uc = comparison.difference.c_uc.iter();
    for (name, difference) in points.chain(c_uc.map(|d| ("C_UC".to_owned(), d))) {
        let paired = if difference.is_paired { "paired" } else { "" };
        let told = match difference.is_told_apart() {
            true => "",
            false => " not told apart",
        };
        writeln!(
            out,
            "  {name:>9} {:+.4} [{:+.4}, {:+.4}] {paired}{told}",
            difference.estimate, difference.interval.low, difference.interval.high
        )?;
    }
    Ok(())
}
