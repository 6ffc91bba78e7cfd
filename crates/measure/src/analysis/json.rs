//! An analysis as JSON for other programs. FORMAT.md lists the fields.

use serde_json::{Value, json};

use std::time::Duration;

use super::{Analysis, BestAt, Comparison, LossLine, Measured, MethodProfile, cubic_bend};
use crate::profile::{Bend, Difference, Figure, PointFigure, ProfileFigures};

/// Converts a whole analysis to JSON.
pub fn to_json(analysis: &Analysis) -> Value {
    let methods = |methods: &[MethodProfile]| -> Vec<Value> {
        methods.iter().map(|m| method(analysis, m)).collect()
    };
    let comparisons = analysis.comparisons.iter();
    let comparisons: Vec<Value> = comparisons.map(|c| comparison(analysis, c)).collect();
    let doubts = analysis.doubts.iter().map(|named| {
        json!({
            "about": named.about,
            "doubt": named.doubt,
            "text": named.doubt.to_string(),
            "advice": named.doubt.advice(),
            "runs": named.runs,
        })
    });
    json!({
        "doubts": doubts.collect::<Vec<_>>(),
        "runs": analysis.runs,
        "warm_ups": analysis.warm_ups,
        "level": analysis.resampling.level,
        "draws": analysis.resampling.draws,
        "seed": analysis.resampling.seed,
        "transfers": methods(&analysis.transfers),
        "memory": methods(&analysis.memory),
        "comparisons": comparisons,
        "over_loss": analysis.over_loss.iter().map(over_loss).collect::<Vec<_>>(),
        "best": analysis.best.iter().map(|at| best(analysis, at)).collect::<Vec<_>>(),
    })
}

fn comparison(analysis: &Analysis, comparison: &Comparison) -> Value {
    let by_rtt = |differences: &[(Duration, Difference)]| -> Vec<Value> {
        let at = |(rtt, d): &(Duration, Difference)| {
            let mut value = difference(d);
            value["rtt_seconds"] = json!(rtt.as_secs_f64());
            value
        };
        differences.iter().map(at).collect()
    };
    json!({
        "first": analysis.transfers[comparison.first].label,
        "second": analysis.transfers[comparison.second].label,
        "points": by_rtt(&comparison.difference.points),
        "c_uc": comparison.difference.c_uc.as_ref().map(difference),
        "cpu_seconds_per_gigabyte": by_rtt(&comparison.costs.cpu_seconds_per_gigabyte),
        "retransmitted_segments": by_rtt(&comparison.costs.retransmitted_segments),
    })
}

fn over_loss(line: &LossLine) -> Value {
    let points = line.points.iter().map(|point| {
        json!({
            "loss": point.loss,
            "repetitions": point.runs,
            "mean_bits_per_second": figure(&point.mean),
            "standard_error_bits_per_second": point.standard_error,
        })
    });
    json!({
        "label": line.label,
        "rtt_seconds": line.rtt.as_secs_f64(),
        "capacity_bits_per_second": line.capacity.bits_per_second(),
        "congestion_control": line.congestion,
        "cubic_bend_loss": cubic_bend(line.rtt),
        "points": points.collect::<Vec<_>>(),
        "law": line.law.map(|law| json!({
            "factor_bits_per_second": law.factor,
            "factor_low_bits_per_second": law.factor_interval.low,
            "factor_high_bits_per_second": law.factor_interval.high,
            "exponent": law.exponent,
            "exponent_standard_error": law.exponent_error,
            "exponent_low": law.exponent_interval.low,
            "exponent_high": law.exponent_interval.high,
            "residual": law.residual,
            "points": law.points,
            "least_loss": law.losses.0,
        })),
    })
}

fn best(analysis: &Analysis, at: &BestAt) -> Value {
    let names = |places: &[usize]| -> Vec<&str> {
        places
            .iter()
            .map(|place| analysis.labels[*place].as_str())
            .collect()
    };
    let mut value = json!({
        "rtt_seconds": at.rtt.as_secs_f64(),
        "given": at.given,
        "compared": at.compared,
    });
    match &at.best {
        Ok(best) => {
            value["fastest"] = json!(analysis.labels[best.fastest]);
            value["as_good"] = json!(names(&best.as_good));
            value["cheapest"] = json!(analysis.labels[best.cheapest]);
            value["cost"] = json!(at.cost);
            value["rate_bits_per_second"] = figure(&best.rate);
            value["luck_bits_per_second"] = difference(&best.luck);
            let ahead = best.ahead.iter().map(|(place, ahead)| {
                let mut value = difference(ahead);
                value["of"] = json!(analysis.labels[*place]);
                value
            });
            value["ahead_bits_per_second"] = ahead.collect();
        }
        Err(missing) => value["measure_again"] = json!(names(missing)),
    }
    value
}

fn method(analysis: &Analysis, method: &MethodProfile) -> Value {
    let mut value = figures(&method.figures);
    value["label"] = json!(method.label);
    value["capacity_bits_per_second"] = json!(method.capacity.bits_per_second());
    value["tcp"] = json!(method.tcp.map(|index| &analysis.memory[index].label));
    value["scheme"] = json!(method.scheme.as_ref().map(figures));
    value["slower_host_bits_per_second"] = json!(method.slower_host.as_ref().map(figure));
    value["host_limited"] = json!(method.host_limited);
    value["tcp_adds_c_uc"] = json!(method.tcp_adds.as_ref().map(difference));
    value["unused_c_uc"] = json!(method.unused.as_ref().map(figure));
    value["cpu_seconds_per_gigabyte"] = measured(&method.cpu_seconds_per_gigabyte);
    value["retransmitted_segments"] = measured(&method.retransmitted_segments);
    let layers = method.layers.iter().map(|layer| {
        json!({
            "layer": layer.layer,
            "mean": figure(&layer.busy),
            "points": by_rtt(layer.by_rtt.iter()),
        })
    });
    value["layers"] = layers.collect();
    value
}

fn measured(measured: &Measured) -> Value {
    json!({
        "points": by_rtt(measured.means.iter()),
        "mean": measured.over_all.as_ref().map(figure),
    })
}

fn by_rtt<'a>(figures: impl Iterator<Item = (&'a Duration, &'a Figure)>) -> Vec<Value> {
    let at = |(rtt, of): (&Duration, &Figure)| {
        let mut value = figure(of);
        value["rtt_seconds"] = json!(rtt.as_secs_f64());
        value
    };
    figures.map(at).collect()
}

/// Converts a point of a profile. A point of Θ_F has only a mean, because Θ_F is not measured
/// directly.
fn point(point: &PointFigure) -> Value {
    let mut value = json!({
        "rtt_seconds": point.rtt.as_secs_f64(),
        "mean": figure(&point.mean),
    });
    if let Some(median) = &point.median {
        value["repetitions"] = json!(point.summary.count);
        value["standard_error"] = json!(point.summary.standard_error);
        value["median"] = figure(median);
        value["robust_spread"] = json!(point.summary.robust_spread);
    }
    value
}

fn figures(figures: &ProfileFigures) -> Value {
    let coefficients = figures.coefficients.iter().map(|row| {
        json!({
            "upto_rtt_seconds": row.upto.as_secs_f64(),
            "c_cc": row.c_cc.as_ref().map(figure),
            "c_u": figure(&row.c_u),
            "c_uc": figure(&row.c_uc),
        })
    });
    let regions = figures.shape.regions.iter().map(|region| {
        json!({
            "from_rtt_seconds": region.from.as_secs_f64(),
            "to_rtt_seconds": region.to.as_secs_f64(),
            "bend": match region.bend {
                Bend::Concave => "concave",
                Bend::Convex => "convex",
                Bend::Straight => "straight",
            },
        })
    });
    let transitions = figures.transitions.iter().map(|((before, after), share)| {
        json!({
            "between_rtt_seconds": [before.as_secs_f64(), after.as_secs_f64()],
            "share_of_draws": share,
        })
    });
    json!({
        "points": figures.points.iter().map(point).collect::<Vec<_>>(),
        "coefficients": coefficients.collect::<Vec<_>>(),
        "c_uc_hoeffding_half_width": figures.c_uc_bound.map(|bound| bound.half_width),
        "c_uc_hoeffding_vacuous": figures.c_uc_bound.map(|bound| bound.is_vacuous()),
        "regions": regions.collect::<Vec<_>>(),
        "transitions": transitions.collect::<Vec<_>>(),
        "repetitions_to_halve_intervals": figures.more_to_halve,
        "least_certain": figures.least_certain.map(|(rtt, share)| {
            json!({ "rtt_seconds": rtt.as_secs_f64(), "share_of_variance": share })
        }),
    })
}

fn figure(figure: &Figure) -> Value {
    json!({
        "estimate": figure.estimate,
        "low": figure.interval.low,
        "high": figure.interval.high,
    })
}

fn difference(difference: &Difference) -> Value {
    json!({
        "estimate": difference.estimate,
        "low": difference.interval.low,
        "high": difference.interval.high,
        "paired": difference.is_paired,
        "told_apart": difference.is_told_apart(),
    })
}
