//! The fitted capacities of a host as text and JSON.

use std::fmt::Write;

use longhaul_units::counted;
use serde_json::{Value, json};

use super::HostModel;
use crate::fit::{Fit, Fitted};

impl HostModel {
    /// Returns the components with their fits. `None` if a component was not measured.
    fn components(&self) -> Vec<(String, Option<&Fitted>)> {
        let mut all = vec![
            ("read".to_owned(), self.read.as_ref()),
            ("write".to_owned(), self.write.as_ref()),
            ("TLS".to_owned(), self.tls.as_ref()),
        ];
        for codec in &self.codecs {
            all.push((format!("{} compress", codec.name), Some(&codec.compress)));
            all.push((
                format!("{} decompress", codec.name),
                Some(&codec.decompress),
            ));
        }
        all
    }

    /// Formats one line for each component, with its doubts below.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {}, kernel {}\n",
            self.name,
            counted(self.cores, "core"),
            self.kernel
        );
        // Writing to a String cannot fail.
        for (name, fitted) in self.components() {
            let Some(fitted) = fitted else {
                let _ = writeln!(text, "  {name}: not measured");
                continue;
            };
            let best = &fitted.best;
            let _ = writeln!(
                text,
                "  {name}: {}; {}, typically {:.1} % off",
                best.formula(),
                counted(best.residuals.len(), "measurement"),
                best.spread * 100.0
            );
            for doubt in &fitted.doubts {
                let _ = writeln!(text, "    doubt: {doubt}");
            }
        }
        for (name, seconds) in [("open", self.open_seconds), ("commit", self.commit_seconds)] {
            if let Some(seconds) = seconds {
                let _ = writeln!(text, "  {name}: {:.3} ms a file and flow", seconds * 1e3);
            }
        }
        text
    }

    /// Converts the capacities to JSON.
    pub fn to_json(&self) -> Value {
        let components: serde_json::Map<String, Value> = self
            .components()
            .into_iter()
            .map(|(name, fitted)| (name, fitted.map_or(Value::Null, fitted_json)))
            .collect();
        json!({
            "name": self.name,
            "kernel": self.kernel,
            "cores": self.cores,
            "components": components,
            "open_seconds_per_file": self.open_seconds,
            "commit_seconds_per_file": self.commit_seconds,
            "tls_cpu_seconds_per_byte": self.tls_cpu,
            "codecs": self.codecs.iter().map(|codec| json!({
                "name": codec.name,
                "ratio": codec.ratio,
                "compress_cpu_seconds_per_byte": codec.compress_cpu,
                "decompress_cpu_seconds_per_byte": codec.decompress_cpu,
            })).collect::<Value>(),
        })
    }
}

fn fitted_json(fitted: &Fitted) -> Value {
    let best = &fitted.best;
    json!({
        "form": best.form(),
        "parameters": best.parameters.iter().map(|it| json!({
            "name": it.name,
            "value": it.value,
            "low": it.interval.map(|interval| interval.low),
            "high": it.interval.map(|interval| interval.high),
        })).collect::<Value>(),
        "residuals": best.residuals,
        "spread": best.spread,
        "uncertainty": best.uncertainty,
        "criterion": best.aicc,
        "others": fitted.others.iter().map(|it| json!({
            "form": it.form(),
            "criterion": it.aicc,
        })).collect::<Value>(),
        "doubts": fitted.doubts.iter().map(ToString::to_string).collect::<Value>(),
    })
}

impl Fit {
    /// Formats the form with its parameters and their intervals, in bytes per second and flows.
    fn formula(&self) -> String {
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|it| match it.interval {
                Some(interval) => format!(
                    "{} = {} ({} to {})",
                    it.name,
                    short(it.value),
                    short(interval.low),
                    short(interval.high)
                ),
                None => format!("{} = {}", it.name, short(it.value)),
            })
            .collect();
        format!("{}, {}", self.form(), parameters.join(", "))
    }
}

/// Formats a number with about three digits and a prefix for large values.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:.3} G", value / 1e9),
        size if size >= 1e6 => format!("{:.1} M", value / 1e6),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
