//! A forecast, alone or beside an outcome, as lines of text and as JSON.

use longhaul_units::ByteCount;
use serde_json::{Value, json};

use super::{Forecast, LayerFigures, Outcome};
use crate::explain::{CompressionGain, Range, rate_text, span_text};
use crate::limit::Limit;

impl Forecast {
    /// Formats the plan in a few lines: time, goodput, bottleneck, flows, doubts.
    pub fn lines(&self) -> Vec<String> {
        let bytes: f64 = self.graph.parts.iter().map(|part| part.bytes).sum();
        let (seconds, goodput) = (self.prediction.seconds, self.prediction.goodput);
        let flows: Vec<String> = self
            .layers()
            .iter()
            .map(|(layer, figures)| format!("{layer} {}", figures.flows))
            .collect();
        let rate = self.prediction.rate;
        let mut lines = vec![
            if self.is_dataset_known {
                format!(
                    "plan: {} in {}{}, {}{}",
                    ByteCount(bytes as u64),
                    span_text(seconds.likely),
                    between(seconds, span_text),
                    rate_text(goodput.likely),
                    between(goodput, rate_text),
                )
            } else {
                format!(
                    "plan: large files at {}{}; the dataset is not known yet",
                    rate_text(rate.likely),
                    between(rate, rate_text)
                )
            },
            format!(
                "plan: limited by {}; flows: {}",
                names(&self.limits),
                flows.join(", ")
            ),
        ];
        lines.extend(self.codecs());
        let doubts = self.doubts.iter();
        lines.extend(doubts.map(|doubt| format!("plan: doubt: {doubt}")));
        lines
    }

    /// Formats the codec of each part and their gain in two lines. Empty without codecs.
    fn codecs(&self) -> Vec<String> {
        let Some(gain) = self.compression else {
            return Vec::new();
        };
        let uses = self.optimum.codecs.iter().map(|&(it, _)| {
            let part = &self.graph.parts[it.part].name;
            match self.graph.codec_of(it) {
                Some(codec) => {
                    format!("{part} by {}, {:.2} times smaller", codec.name, codec.ratio)
                }
                None => format!("{part} as they are"),
            }
        });
        let uses: Vec<String> = uses.collect();
        vec![
            format!("plan: {}", uses.join("; ")),
            format!("plan: {}", gain.text()),
        ]
    }

    /// Formats a table of the prediction and the outcome, layer by layer.
    pub fn beside(&self, outcome: &Outcome) -> Vec<String> {
        let off = |predicted: f64, measured: f64| {
            if predicted > 0.0 {
                format!("{:+.0} %", (measured / predicted - 1.0) * 100.0)
            } else {
                String::new()
            }
        };
        let (seconds, goodput) = (self.prediction.seconds, self.prediction.goodput);
        let measured = outcome.goodput();
        let limit = outcome.limit.map_or("nothing", Limit::name);
        let row = |name: &str, predicted: &str, measured: &str, off: &str| {
            format!("{name:<12} {predicted:>22} {measured:>22}  {off}")
        };
        let mut lines = vec![
            row("", "predicted", "outcome", ""),
            row(
                "time",
                &span_text(seconds.likely),
                &span_text(outcome.seconds),
                &off(seconds.likely, outcome.seconds),
            ),
            row(
                "goodput",
                &rate_text(goodput.likely),
                &rate_text(measured),
                &off(goodput.likely, measured),
            ),
            row("limited by", &names(&self.limits), limit, ""),
        ];
        for (layer, predicted, measured) in self.each(outcome) {
            lines.push(row(layer.name(), &cell(predicted), &cell(measured), ""));
        }
        lines.push("each layer: flows, utilisation, rate at full utilisation".to_owned());
        lines
    }

    /// Converts the forecast to JSON, in bytes, seconds and bytes per second.
    pub fn to_json(&self) -> Value {
        let range = |it: Range| json!({ "low": it.low, "likely": it.likely, "high": it.high });
        let known = |value: Value| {
            if self.is_dataset_known {
                value
            } else {
                Value::Null
            }
        };
        let limits: Vec<&str> = self.limits.iter().map(|it| it.name()).collect();
        let layers: Value = self
            .layers()
            .iter()
            .map(|(layer, it)| json!({ "layer": layer.name(), "predicted": figures(Some(*it)) }))
            .collect();
        json!({
            "bytes": known(json!(self.graph.parts.iter().map(|part| part.bytes).sum::<f64>())),
            "seconds": known(range(self.prediction.seconds)),
            "goodput_bytes_per_second": known(range(self.prediction.goodput)),
            "rate_bytes_per_second": range(self.prediction.rate),
            "limits": limits,
            "layers": layers,
            "compression": self.compression.map(CompressionGain::to_json),
            "doubts": self.doubts,
        })
    }

    /// Converts the forecast and the outcome to JSON.
    pub fn beside_json(&self, outcome: &Outcome) -> Value {
        let layers: Value = self
            .each(outcome)
            .into_iter()
            .map(|(layer, predicted, measured)| {
                json!({
                    "layer": layer.name(),
                    "predicted": figures(predicted),
                    "outcome": figures(measured),
                })
            })
            .collect();
        let mut value = self.to_json();
        value["layers"] = layers;
        value["limit"] = json!(outcome.limit.map(Limit::name));
        value["outcome_bytes"] = json!(outcome.bytes);
        value["outcome_seconds"] = json!(outcome.seconds);
        value["outcome_goodput_bytes_per_second"] = json!(outcome.goodput());
        value
    }

    /// Returns the figures of each layer that is in the forecast or in the outcome.
    fn each(&self, outcome: &Outcome) -> Vec<(Limit, Option<LayerFigures>, Option<LayerFigures>)> {
        let predicted = self.layers();
        let of = |all: &[(Limit, LayerFigures)], layer: Limit| {
            all.iter().find(|it| it.0 == layer).map(|it| it.1)
        };
        let each = Limit::LAYERS
            .into_iter()
            .map(|layer| (layer, of(&predicted, layer), of(&outcome.layers, layer)));
        each.filter(|(_, predicted, measured)| predicted.is_some() || measured.is_some())
            .collect()
    }
}

impl Outcome {
    /// Returns the bytes divided by the total time, in bytes per second.
    pub fn goodput(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }
}

fn between(range: Range, text: fn(f64) -> String) -> String {
    let (low, high) = (text(range.low), text(range.high));
    if low == high {
        String::new()
    } else {
        format!(" ({low} to {high})")
    }
}

fn names(limits: &[Limit]) -> String {
    let names: Vec<&str> = limits.iter().map(|limit| limit.name()).collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(" and ")
    }
}

fn cell(figures: Option<LayerFigures>) -> String {
    let Some(it) = figures else {
        return "-".to_owned();
    };
    let carry = it.could_carry.map_or("-".to_owned(), rate_text);
    format!("{}x {:>3.0} % {:>10}", it.flows, it.busy * 100.0, carry)
}

fn figures(figures: Option<LayerFigures>) -> Value {
    match figures {
        None => Value::Null,
        Some(it) => json!({
            "flows": it.flows,
            "utilisation": it.busy,
            "could_carry_bytes_per_second": it.could_carry,
        }),
    }
}
