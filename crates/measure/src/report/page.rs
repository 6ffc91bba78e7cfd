//! Writes the HTML page of a report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::Heading;
use crate::analysis::{
    Analysis, Comparison, CostDifferences, DOUBTS_SHOWN, Measured, MethodProfile, NamedDoubt,
    best_sentences, by_kind, confidence_sentences, loss_laws, milliseconds, shape_sentence,
};
use crate::plot::{Plot, SYMBOLS, Table, escape};
use crate::profile::{Difference, Figure, ProfileFigures};
use crate::stats::FEWEST_TOLD_APART;

/// Style sheet of the page. Sizes are chosen for A4 with 170 mm of text.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; color: #1a1a1a;
  background: #fff; max-width: 760px; margin: 2.5rem auto; padding: 0 20px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .3rem; }
p, ul { margin: .4rem 0; }
.quiet, figcaption { color: #595959; font-size: .87rem; }
.doubts { border-left: 4px solid #d55e00; padding: .2rem 0 .2rem 1rem; list-style: none; }
.doubts li { margin: .5rem 0; }
.doubts b { font-weight: 600; }
table { border-collapse: collapse; font-size: .87rem; margin: .5rem 0; width: 100%;
  font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .5rem; text-align: right; vertical-align: baseline; }
th { font-weight: 600; border-bottom: 1px solid #1a1a1a; }
tr + tr td { border-top: 1px solid #e6e6e6; }
th:first-child, td:first-child { padding-left: 0; }
td.word, th.word { text-align: left; }
sub { font-size: .72em; line-height: 0; }
small { color: #595959; font-size: .82rem; white-space: nowrap; }
.stacked small { display: block; }
.scope th { border-bottom: 0; white-space: nowrap; vertical-align: top; padding-left: 0; width: 1%; }
figure { margin: 1.4rem 0 2rem; break-inside: avoid; }
details { font-size: .87rem; margin: .3rem 0; } summary { color: #595959; cursor: pointer; }
figure svg { width: 100%; height: auto; display: block; }
@media print { body { margin: 0; max-width: none; padding: 0; font-size: 10pt; }
  h2, h3 { break-after: avoid; } table { break-inside: avoid; } }
@page { size: A4; margin: 18mm 20mm; }
";

/// Formats the whole page.
pub fn page(heading: &Heading, analysis: &Analysis, plots: &[Plot]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut out, heading, analysis, plots);
    out
}

fn write_page(
    out: &mut String,
    heading: &Heading,
    analysis: &Analysis,
    plots: &[Plot],
) -> std::fmt::Result {
    let title = escape(&heading.title);
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>"
    )?;
    for source in &heading.sources {
        writeln!(out, "<p class=\"quiet\">{}</p>", escape(source))?;
    }
    write_scope(out, heading)?;
    writeln!(
        out,
        "<p class=\"quiet\">{} runs in the figures, {} warm-ups left out; {} % intervals from {} \
         bootstrap draws, seed {}.</p>",
        analysis.runs,
        analysis.warm_ups,
        analysis.resampling.level * 100.0,
        analysis.resampling.draws,
        analysis.resampling.seed
    )?;
    write_doubts(out, analysis)?;
    write_methods(out, analysis)?;
    if !plots.is_empty() {
        writeln!(out, "<h2>Figures</h2>")?;
    }
    for plot in plots {
        writeln!(
            out,
            "<figure id=\"{}\">\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n{}</figure>",
            escape(&plot.name),
            typeset(&plot.title),
            plot.svg,
            typeset(&plot.caption),
            numbers(&plot.table)
        )?;
    }
    for comparison in &analysis.comparisons {
        write_comparison(out, analysis, comparison)?;
    }
    let best = best_sentences(analysis);
    if !best.is_empty() {
        writeln!(out, "<h2>Best of the sweep</h2>")?;
    }
    for sentence in best {
        writeln!(out, "<p>{}.</p>", typeset(&capital(&sentence)))?;
    }
    write_loss(out, analysis)?;
    for (symbol, methods) in [
        ("Θ<sub>E</sub>", &analysis.transfers),
        ("Θ<sub>T</sub>", &analysis.memory),
    ] {
        for method in methods {
            write_profile(out, analysis, method, symbol)?;
        }
    }
    write_reading(out)?;
    writeln!(out, "</body>\n</html>")
}

/// Writes the scope of the runs as a table.
fn write_scope(out: &mut String, heading: &Heading) -> std::fmt::Result {
    if !heading.scope.is_empty() {
        writeln!(out, "<table class=\"scope\">")?;
        for (name, text) in &heading.scope {
            writeln!(
                out,
                "<tr><th class=\"word\">{}</th><td class=\"word\">{}</td></tr>",
                escape(name),
                text.lines().map(escape).collect::<Vec<_>>().join("<br>")
            )?;
        }
        writeln!(out, "</table>")?;
    }
    Ok(())
}

/// Formats the numbers of a figure as a table. The table is collapsed because it is long.
fn numbers(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cell = |(place, text): (usize, &String)| {
            if place < table.words {
                format!("<{tag} class=\"word\">{}</{tag}>", typeset(text))
            } else {
                format!("<{tag}>{}</{tag}>", typeset(text).replace('-', "−"))
            }
        };
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    let head = row(&table.columns, "th");
    format!("<details><summary>Numbers</summary>\n<table>{head}{rows}</table></details>\n")
}

/// Writes the fitted laws. Their points are in the figures.
fn write_loss(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    if analysis.over_loss.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Throughput over loss</h2>")?;
    let sentences = analysis.over_loss.iter().map(|line| line.sentence());
    for sentence in sentences.chain([loss_laws()]) {
        writeln!(out, "<p>{}.</p>", typeset(&capital(&sentence)))?;
    }
    Ok(())
}

fn write_doubts(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    writeln!(out, "<h2>Doubts</h2>")?;
    if analysis.doubts.is_empty() {
        return writeln!(out, "<p>There are no doubts.</p>");
    }
    writeln!(out, "<ul class=\"doubts\">")?;
    for group in by_kind(&analysis.doubts) {
        let (shown, more) = group.split_at(group.len().min(DOUBTS_SHOWN));
        writeln!(out, "<li>{}", doubt_lines(shown))?;
        if !more.is_empty() {
            writeln!(
                out,
                "<details><summary>and {} more</summary>{}</details>",
                more.len(),
                doubt_lines(more)
            )?;
        }
        if let Some(first) = group.first() {
            let advice = escape(&capital(&first.doubt.advice()));
            writeln!(out, "<div class=\"quiet\">{advice}.</div></li>")?;
        }
    }
    writeln!(out, "</ul>")
}

fn doubt_lines(doubts: &[&NamedDoubt]) -> String {
    let line = |named: &&NamedDoubt| {
        let runs = named.runs_in_words();
        let runs = runs.map_or_else(String::new, |runs| format!(", {runs}"));
        let (about, doubt) = (escape(&named.about), escape(&named.doubt.to_string()));
        format!("<b>{about}</b>{runs}: {doubt}.")
    };
    let lines: Vec<String> = doubts.iter().map(line).collect();
    lines.join("<br>\n")
}

/// Capitalises the first letter of a sentence.
fn capital(sentence: &str) -> String {
    let mut rest = sentence.chars();
    let first = rest.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + rest.as_str()
}

/// Escapes a text and formats the subscripts of symbols.
fn typeset(text: &str) -> String {
    let mut out = escape(text);
    for (symbol, (head, lower)) in SYMBOLS {
        out = out.replace(symbol, &format!("{head}<sub>{lower}</sub>"));
    }
    out
}

/// Formats a figure and its interval. Omits an interval of zero width, as a single run has.
fn cell(figure: &Figure, digits: usize) -> String {
    if figure.interval.low == figure.interval.high {
        number(figure.estimate, digits)
    } else {
        with_range(figure, digits)
    }
}

/// Formats a difference and its interval. Omits the interval if a side has only one run.
fn difference_cell(difference: &Difference, digits: usize) -> String {
    let figure = Figure {
        estimate: difference.estimate,
        interval: difference.interval,
    };
    if difference.repetitions < 2 {
        number(figure.estimate, digits)
    } else {
        with_range(&figure, digits)
    }
}

fn with_range(figure: &Figure, digits: usize) -> String {
    let [low, high] =
        [figure.interval.low, figure.interval.high].map(|value| number(value, digits));
    let estimate = number(figure.estimate, digits);
    format!("{estimate} <small>[{low}, {high}]</small>")
}

/// Formats a number. A number that rounds to zero gets no sign.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.trim_matches(|c| "-0.".contains(c)).is_empty() {
        format!("{:.digits$}", 0.0)
    } else {
        text.replace('-', "−")
    }
}

/// Writes one line for each method: its mean share of the capacity, its C_UC and its costs.
fn write_methods(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let rows = analysis.transfers.iter();
    let rows = rows.filter_map(|m| Some((m, m.figures.coefficients.last()?)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Methods</h2>\n<table class=\"stacked\"><tr><th class=\"word\">method</th><th>mean share of capacity</th>\
         <th>C<sub>UC</sub></th><th>C<sub>CC</sub></th><th>CPU s/GB</th><th>segments sent again</th></tr>"
    )?;
    for (method, last) in rows {
        let used = last.c_u.complement();
        let cost = |measured: &Measured, digits| {
            let none = || "–".to_owned();
            measured
                .over_all
                .as_ref()
                .map_or_else(none, |mean| cell(mean, digits))
        };
        writeln!(
            out,
            "<tr><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&method.label),
            cell(&used, 3),
            cell(&last.c_uc, 3),
            last.c_cc
                .as_ref()
                .map_or_else(|| "–".to_owned(), |c_cc| cell(c_cc, 3)),
            cost(&method.cpu_seconds_per_gigabyte, 2),
            cost(&method.retransmitted_segments, 0)
        )?;
    }
    writeln!(out, "</table>")
}

fn write_comparison(
    out: &mut String,
    analysis: &Analysis,
    comparison: &Comparison,
) -> std::fmt::Result {
    let label = |index: usize| escape(&analysis.transfers[index].label);
    writeln!(
        out,
        "<h3>{} less {}</h3>\n<table><tr><th class=\"word\">at</th><th>difference</th>\
         <th class=\"word\">runs</th><th class=\"word\">distinguished</th></tr>",
        label(comparison.first),
        label(comparison.second)
    )?;
    let mut row = |name: &str, difference: &Difference| {
        writeln!(
            out,
            "<tr><td class=\"word\">{name}</td><td>{}</td><td class=\"word\">{}</td>\
             <td class=\"word\">{}</td></tr>",
            difference_cell(difference, 4),
            if difference.is_paired {
                "paired by round"
            } else {
                "not paired"
            },
            match (difference.is_told_apart(), difference.too_few()) {
                (true, _) => "yes".to_owned(),
                (false, None) => "no".to_owned(),
                (false, Some(reason)) => format!("no: {reason}"),
            }
        )
    };
    for (rtt, difference) in &comparison.difference.points {
        row(&format!("{} ms", milliseconds(*rtt)), difference)?;
    }
    if let Some(difference) = &comparison.difference.c_uc {
        row("C<sub>UC</sub>", difference)?;
    }
    writeln!(out, "</table>")?;
    write_cost_differences(out, &comparison.costs)
}

/// Writes the differences of the costs of two methods, one line for each round-trip time.
fn write_cost_differences(out: &mut String, costs: &CostDifferences) -> std::fmt::Result {
    let mut rows: BTreeMap<Duration, [String; 2]> = BTreeMap::new();
    let both = [
        (&costs.cpu_seconds_per_gigabyte, 2),
        (&costs.retransmitted_segments, 1),
    ];
    for (place, (differences, digits)) in both.into_iter().enumerate() {
        for (rtt, difference) in differences {
            let told = match (difference.is_told_apart(), difference.too_few()) {
                (true, _) => String::new(),
                (false, None) => ", not distinguished".to_owned(),
                (false, Some(reason)) => format!(", not distinguished: {reason}"),
            };
            let paired = if difference.is_paired {
                ""
            } else {
                ", not paired"
            };
            let row = rows.entry(*rtt).or_default();
            row[place] = format!("{}{told}{paired}", difference_cell(difference, digits));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<table><tr><th class=\"word\">at</th><th>CPU s/GB</th><th>segments sent again</th></tr>"
    )?;
    for (rtt, [cpu, again]) in rows {
        let rtt = milliseconds(rtt);
        writeln!(
            out,
            "<tr><td class=\"word\">{rtt} ms</td><td>{cpu}</td><td>{again}</td></tr>"
        )?;
    }
    writeln!(out, "</table>")
}

fn write_profile(
    out: &mut String,
    analysis: &Analysis,
    method: &MethodProfile,
    symbol: &str,
) -> std::fmt::Result {
    writeln!(
        out,
        "<h3>{symbol} of {}</h3>\n<p class=\"quiet\">Shares of {}; coefficients over \
         [τ<sub>L</sub>, τ]. {}.</p>",
        escape(&method.label),
        method.capacity,
        typeset(&capital(&shape_sentence(&method.figures)))
    )?;
    write_figures(out, &method.figures)?;
    write_beside(out, method)?;
    for sentence in confidence_sentences(analysis, &method.figures) {
        writeln!(
            out,
            "<p class=\"quiet\">{}.</p>",
            typeset(&capital(&sentence))
        )?;
    }
    let Some(scheme) = &method.scheme else {
        return Ok(());
    };
    let tcp = method.tcp.map_or("", |index| &analysis.memory[index].label);
    let case = if method.host_limited {
        "(b): the slower host limits, so that it is divided out too"
    } else {
        "(a): the hosts are no limit"
    };
    writeln!(
        out,
        "<h3>Θ<sub>F</sub> of {}</h3>\n<p class=\"quiet\">Θ<sub>E</sub> over Θ<sub>T</sub> of {}, case {case}. {}.</p>",
        escape(&method.label),
        escape(tcp),
        typeset(&capital(&shape_sentence(scheme)))
    )?;
    write_figures(out, scheme)
}

fn write_figures(out: &mut String, figures: &ProfileFigures) -> std::fmt::Result {
    writeln!(
        out,
        "<table><tr><th>τ (ms)</th><th>share</th><th>C<sub>CC</sub></th><th>C<sub>U</sub></th><th>C<sub>UC</sub></th></tr>"
    )?;
    for (point, coefficients) in figures.rows() {
        write!(
            out,
            "<tr><td>{}</td><td>{}</td>",
            milliseconds(point.rtt),
            cell(&point.mean, 3)
        )?;
        match coefficients {
            Some(row) => writeln!(
                out,
                "<td>{}</td><td>{}</td><td>{}</td></tr>",
                row.c_cc
                    .as_ref()
                    .map_or_else(|| "–".to_owned(), |c_cc| cell(c_cc, 3)),
                cell(&row.c_u, 3),
                cell(&row.c_uc, 4)
            )?,
            None => writeln!(out, "<td></td><td></td><td></td></tr>")?,
        }
    }
    writeln!(out, "</table>")
}

/// Writes the medians and the costs of the runs.
fn write_beside(out: &mut String, method: &MethodProfile) -> std::fmt::Result {
    writeln!(
        out,
        "<table><tr><th>τ (ms)</th><th>runs</th><th>median share</th><th>CPU s/GB</th>\
         <th>segments sent again</th></tr>"
    )?;
    for point in &method.figures.points {
        let cost = |measured: &Measured, digits| {
            let none = || "–".to_owned();
            let mean = measured.means.get(&point.rtt);
            mean.map_or_else(none, |mean| cell(mean, digits))
        };
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            milliseconds(point.rtt),
            point.summary.count,
            point
                .median
                .map_or_else(String::new, |median| cell(&median, 3)),
            cost(&method.cpu_seconds_per_gigabyte, 2),
            cost(&method.retransmitted_segments, 1)
        )?;
    }
    writeln!(out, "</table>")
}

fn write_reading(out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>How to read this</h2>\n\
         <p>Throughput is goodput: file bytes over wall time, from the command's start until the \
         data are durable. C<sub>U</sub> is the unused share of the capacity, C<sub>CC</sub> how far the profile lies \
         above (+) or below (−) the line between its ends, and C<sub>UC</sub> = ½([1 − C<sub>U</sub>] + [½ + C<sub>CC</sub>]) \
         (Rao et al., ICDCN 2019). C<sub>UC</sub> is linear in the profile’s points; over round-trip times \
         of 0.4 to 366 ms the first has the weight −0.23 and the last 0.00, so a slow start \
         raises it. It complements the throughputs and does not replace them.</p>\n\
         <p>Intervals come from resampling the repetitions; with few repetitions they are too \
         narrow. Two methods are distinguished if each has at least {FEWEST_TOLD_APART} repetitions and the interval \
         of their difference excludes zero. For equal methods this happens by chance in 1 of 20 cases with \
         many repetitions, and in 1 of 6 with five.</p>"
    )
}
