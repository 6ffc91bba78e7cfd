//! An analysis as text for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::{Analysis, BestAt, Comparison, DOUBTS_SHOWN, MethodProfile, by_kind};
use crate::best::Best;
use crate::profile::{Bend, Difference, Figure, ProfileFigures};
use crate::stats::Interval;

/// Formats a round-trip time in milliseconds: `0.4`, `91.6`, `183`.
pub fn milliseconds(rtt: Duration) -> String {
    let value = rtt.as_secs_f64() * 1e3;
    let rounded = (value * 1e3).round() / 1e3;
    format!("{rounded}")
}

/// Formats several round-trip times with their unit.
pub(super) fn rtt_list(rtts: &[Duration]) -> String {
    let list: Vec<String> = rtts.iter().map(|rtt| milliseconds(*rtt)).collect();
    format!("{} ms", list.join(", "))
}

/// Formats the whole analysis in lines of at most about 100 columns, with doubts first.
pub fn to_text(analysis: &Analysis) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
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

/// Describes the result of a sweep at each round-trip time, one sentence each.
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
                "{begin}: {} with {} Mbit/s; {}; as good: {}; cheapest of these ({}): {}; the sweep \
                overestimated this rate by {:+.1} [{:+.1}, {:+.1}] Mbit/s",
                names(&[best.fastest]),
                mbit(&best.rate),
                ahead_in_words(best, &analysis.labels),
                match best.as_good.get(1..) {
                    None | Some([]) => "no other".to_owned(),
                    Some(others) => names(others),
                },
                at.cost,
                names(&[best.cheapest]),
                best.luck.estimate / 1e6,
                best.luck.interval.low / 1e6,
                best.luck.interval.high / 1e6
            ),
            Err(missing) => format!(
                "{begin}: not known yet; measure the fastest again (`again` in the sweep's file): {}",
                names(missing)
            ),
        }
    };
    analysis.best.iter().map(sentence).collect()
}

/// Describes the lead of the fastest configuration over the next.
fn ahead_in_words(best: &Best, labels: &[String]) -> String {
    // A configuration that was not measured again may have been faster in the sweep.
    let nearest = best.ahead.iter().filter(|(_, ahead)| ahead.estimate >= 0.0);
    let nearest = nearest.min_by(|(_, a), (_, b)| a.estimate.total_cmp(&b.estimate));
    match nearest {
        None => "ahead of no other".to_owned(),
        Some((place, ahead)) => format!(
            "ahead of {} by {:+.1} [{:+.1}, {:+.1}], {}",
            labels[*place],
            ahead.estimate / 1e6,
            ahead.interval.low / 1e6,
            ahead.interval.high / 1e6,
            if ahead.is_paired {
                "paired"
            } else {
                "not paired"
            }
        ),
    }
}

/// Formats a figure of bits per second in Mbit/s, with its interval.
fn mbit(figure: &Figure) -> String {
    to_digits(&figure.scaled(1e-6), 1)
}

/// Writes throughput by loss, one line for each loss rate.
fn write_loss(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    for line in &analysis.over_loss {
        writeln!(out, "\n{}", line.sentence())?;
        writeln!(
            out,
            "  {:>9} {:>4} {:>24} {:>9} {:>9}",
            "loss", "runs", "Mbit/s", "std error", "law"
        )?;
        for point in &line.points {
            let short = |rate: f64| format!("{:.1}", rate / 1e6);
            let none = || "–".to_owned();
            writeln!(
                out,
                "  {:>9} {:>4} {:>24} {:>9} {:>9}",
                format!("{:e}", point.loss),
                point.runs,
                mbit(&point.mean),
                point.standard_error.map_or_else(none, short),
                line.rate(point.loss).map_or_else(none, short)
            )?;
        }
    }
    if analysis.over_loss.is_empty() {
        Ok(())
    } else {
        writeln!(out, "\n{}", super::loss_laws())
    }
}

/// Formats a figure and its interval with four decimals.
fn shown(figure: &Figure) -> String {
    to_digits(figure, 4)
}

/// Formats a figure and its interval. Omits an interval of zero width, as a single run has.
fn to_digits(figure: &Figure, digits: usize) -> String {
    let Interval { low, high } = figure.interval;
    let estimate = figure.estimate;
    if low == high {
        format!("{estimate:.digits$}")
    } else {
        format!("{estimate:.digits$} [{low:.digits$}, {high:.digits$}]")
    }
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
    write_beside(method, out)?;
    if let Some(scheme) = &method.scheme {
        let case = if method.host_limited { "(b)" } else { "(a)" };
        let tcp = method.tcp.map_or("", |index| &analysis.memory[index].label);
        writeln!(out, "  Θ_F, case {case}, against {tcp}")?;
        write_figures(scheme, 0.0, out)?;
    }
    Ok(())
}

/// Writes the costs of the runs, one line for each round-trip time that has them, and the
/// utilisation of the layers.
fn write_beside(method: &MethodProfile, out: &mut String) -> std::fmt::Result {
    let cpu = &method.cpu_seconds_per_gigabyte.means;
    let again = &method.retransmitted_segments.means;
    if !(cpu.is_empty() && again.is_empty()) {
        writeln!(
            out,
            "  {:>8} {:>24} {:>30}",
            "RTT ms", "CPU s/GB", "segments sent again"
        )?;
    }
    for point in &method.figures.points {
        let cost = |means: &BTreeMap<Duration, Figure>, digits: usize| {
            let none = || "–".to_owned();
            let mean = means.get(&point.rtt);
            mean.map_or_else(none, |figure| to_digits(figure, digits))
        };
        if cpu.contains_key(&point.rtt) || again.contains_key(&point.rtt) {
            writeln!(
                out,
                "  {:>8} {:>24} {:>30}",
                milliseconds(point.rtt),
                cost(cpu, 2),
                cost(again, 1)
            )?;
        }
    }
    for layer in &method.layers {
        let busy = layer.busy.scaled(100.0);
        writeln!(
            out,
            "  {:>12} busy {:.1} % [{:.1}, {:.1}] of the runs' time",
            layer.layer, busy.estimate, busy.interval.low, busy.interval.high
        )?;
    }
    Ok(())
}

/// Writes two tables with one line for each point: the most important figures first, then the
/// others. Includes rates if the capacity is not zero.
fn write_figures(figures: &ProfileFigures, capacity: f64, out: &mut String) -> std::fmt::Result {
    let rate = if capacity > 0.0 { "Mbit/s" } else { "" };
    writeln!(
        out,
        "  {:>8} {:>4} {rate:>9} {:>24} {:>24}",
        "RTT ms", "runs", "share", "C_UC"
    )?;
    for (point, coefficients) in figures.rows() {
        let (runs, rate) = if capacity > 0.0 {
            (
                point.summary.count.to_string(),
                format!("{:.1}", point.mean.estimate * capacity / 1e6),
            )
        } else {
            (String::new(), String::new())
        };
        let line = format!(
            "  {:>8} {runs:>4} {rate:>9} {:>24} {:>24}",
            milliseconds(point.rtt),
            shown(&point.mean),
            coefficients.map_or_else(String::new, |row| shown(&row.c_uc))
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let median = figures.points.iter().any(|point| point.median.is_some());
    writeln!(
        out,
        "  {:>8} {:>24} {:>24} {:>24}",
        "RTT ms",
        if median { "median share" } else { "" },
        "C_CC",
        "C_U"
    )?;
    for (point, coefficients) in figures.rows() {
        let line = format!(
            "  {:>8} {:>24} {:>24} {:>24}",
            milliseconds(point.rtt),
            point.median.as_ref().map_or_else(String::new, shown),
            coefficients.map_or_else(String::new, |row| {
                row.c_cc.as_ref().map_or_else(|| "–".to_owned(), shown)
            }),
            coefficients.map_or_else(String::new, |row| shown(&row.c_u))
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "  {}", shape_sentence(figures))
}

/// Describes the shape of a profile in words.
pub fn shape_sentence(figures: &ProfileFigures) -> String {
    let name = |bend| match bend {
        Bend::Concave => "concave",
        Bend::Convex => "convex",
        Bend::Straight => "not distinguished from straight",
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
        return if regions.is_empty() {
            "too few round-trip times for a shape".to_owned()
        } else {
            regions.join(", ")
        };
    };
    let share = figures
        .transitions
        .iter()
        .find(|(turn, _)| *turn == (before, after))
        .map_or(0.0, |(_, share)| share * 100.0);
    let first = figures.points.first().map(|p| p.rtt);
    let turn = if before != after {
        format!(
            "turns from concave to convex between {} and {} ms",
            milliseconds(before),
            milliseconds(after)
        )
    } else if Some(before) == first {
        "convex from the start".to_owned()
    } else {
        "concave to the end".to_owned()
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

/// Describes the proven bound, and how to make the intervals narrower.
pub fn confidence_sentences(analysis: &Analysis, figures: &ProfileFigures) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(bound) = figures.c_uc_bound {
        let vacuous = if bound.is_vacuous() {
            ": vacuous, because it covers all possible values"
        } else {
            ""
        };
        sentences.push(format!(
            "proved without assumptions on the distribution (Hoeffding, {} %): C_UC ± {:.3}{vacuous}",
            analysis.resampling.level * 100.0,
            bound.half_width
        ));
    }
    let mut advice = if figures.points.iter().all(|point| point.summary.count > 1) {
        format!(
            "{} more repetitions at each RTT would halve the intervals",
            figures.more_to_halve
        )
    } else {
        "one repetition has no interval, so the uncertainty is unknown".to_owned()
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

/// Writes the table of paper 001's Fig. 2: C_UC, the part that TCP adds, and the unused part.
fn write_summary(analysis: &Analysis, out: &mut String) -> std::fmt::Result {
    // A profile with one round-trip time has no coefficients.
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
        "  {:>24} {:>26} {:>24}  method",
        "C_UC", "TCP adds", "unused"
    )?;
    for method in &analysis.transfers {
        let Some(last) = method.figures.coefficients.last() else {
            continue;
        };
        let none = || "–".to_owned();
        let adds = method.tcp_adds.as_ref().map_or_else(none, signed);
        let unused = method.unused.as_ref().map_or_else(none, shown);
        writeln!(
            out,
            "  {:>24} {adds:>26} {unused:>24}  {}",
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
    let at = |rtt: &Duration| format!("{} ms", milliseconds(*rtt));
    let points = comparison.difference.points.iter();
    let points = points.map(|(rtt, difference)| (at(rtt), difference));
    let c_uc = comparison.difference.c_uc.iter();
    for (name, difference) in points.chain(c_uc.map(|d| ("C_UC".to_owned(), d))) {
        writeln!(out, "  {name:>9} {}", told(difference, signed(difference)))?;
    }
    for (what, differences) in [
        ("CPU s/GB", &comparison.costs.cpu_seconds_per_gigabyte),
        (
            "segments sent again",
            &comparison.costs.retransmitted_segments,
        ),
    ] {
        for (rtt, difference) in differences {
            let figure = signed_to_digits(difference, 2);
            writeln!(out, "  {:>9} {what} {}", at(rtt), told(difference, figure))?;
        }
    }
    Ok(())
}

/// Formats a difference with its sign and its interval, with four decimals.
fn signed(difference: &Difference) -> String {
    signed_to_digits(difference, 4)
}

fn signed_to_digits(difference: &Difference, digits: usize) -> String {
    let Interval { low, high } = difference.interval;
    let estimate = difference.estimate;
    if difference.repetitions < 2 {
        format!("{estimate:+.digits$}")
    } else {
        format!("{estimate:+.digits$} [{low:+.digits$}, {high:+.digits$}]")
    }
}

/// Formats a difference with a note if it is paired or not distinguished from zero.
fn told(difference: &Difference, figure: String) -> String {
    let paired = if difference.is_paired { " paired" } else { "" };
    let told = match (difference.is_told_apart(), difference.too_few()) {
        (true, _) => String::new(),
        (false, None) => " not distinguished".to_owned(),
        (false, Some(reason)) => format!(" not distinguished ({reason})"),
    };
    format!("{figure}{paired}{told}")
}
