//! Quantities in a graph's file: a number and a unit, as described in `docs/quantities.md`.

use std::fmt;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, parse_share, parse_span};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units of a quantity: names and factors.
type Units = &'static [(&'static str, f64)];

/// Units of rates.
const RATES: Units = &[
    ("Gbit/s", 125e6),
    ("Mbit/s", 125e3),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("kB/s", 1e3),
    ("B/s", 1.0),
];

/// Units of sizes.
const SIZES: Units = &[
    ("TB", 1e12),
    ("GiB", 1_073_741_824.0),
    ("GB", 1e9),
    ("MiB", 1_048_576.0),
    ("MB", 1e6),
    ("KiB", 1024.0),
    ("B", 1.0),
];

/// Units of times.
const TIMES: Units = &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];

/// Units of CPU seconds per byte.
const COSTS: Units = &[("s/GB", 1e-9), ("s/MB", 1e-6)];

/// Returns the shortest text that represents the value exactly.
fn written(value: f64, units: Units) -> String {
    let of_unit = |(name, one): &(&str, f64)| {
        let number = value / one;
        // Rounds away errors of the division in the last digits.
        let rounded = (number * 1e9).round() / 1e9;
        let is_same = (rounded * one - value).abs() <= value.abs() * 1e-12;
        let number = if is_same { rounded } else { number };
        format!("{number} {name}")
    };
    let texts = units.iter().map(of_unit);
    texts.min_by_key(String::len).unwrap_or_default()
}

/// The parser and formatter of one kind of quantity.
pub trait Kind {
    /// Description of the expected text, for messages.
    const EXPECTED: &'static str;

    /// Parses a text.
    ///
    /// # Errors
    ///
    /// The fault, and the correct format.
    fn read(text: &str) -> Result<f64, String>;

    /// Formats a value so that `read` returns it.
    fn write(value: f64) -> String;
}

/// A quantity of one kind.
pub struct Quantity<K> {
    /// Value in bytes, seconds, or units derived from them.
    pub value: f64,
    kind: std::marker::PhantomData<K>,
}

impl<K> Quantity<K> {
    /// Creates a quantity with this value.
    pub fn new(value: f64) -> Quantity<K> {
        Quantity {
            value,
            kind: std::marker::PhantomData,
        }
    }
}

impl<K: Kind> Serialize for Quantity<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&K::write(self.value))
    }
}

impl<'de, K: Kind> Deserialize<'de> for Quantity<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadQuantity(std::marker::PhantomData))
    }
}

struct ReadQuantity<K>(std::marker::PhantomData<K>);

impl<K: Kind> Visitor<'_> for ReadQuantity<K> {
    type Value = Quantity<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in quotes, with its unit", K::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        K::read(text.trim()).map(Quantity::new).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.bare(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.bare(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        self.bare(number)
    }
}

impl<K: Kind> ReadQuantity<K> {
    /// Handles a number without quotes. Zero needs no unit.
    fn bare<E: de::Error>(self, number: f64) -> Result<Quantity<K>, E> {
        if number == 0.0 {
            return Ok(Quantity::new(0.0));
        }
        // The parser's error for the same number in quotes names the missing unit.
        match K::read(&number.to_string()) {
            Ok(value) => Ok(Quantity::new(value)),
            Err(text) => Err(E::custom(format!("{text} (in quotes)"))),
        }
    }
}

/// A rate in bytes per second. May be negative, because paper 004's fitted constants may be.
pub struct OfRate;

impl Kind for OfRate {
    const EXPECTED: &'static str = "a rate as \"10 Gbit/s\" or \"500 MB/s\"";

    fn read(text: &str) -> Result<f64, String> {
        let (sign, amount) = match text.strip_prefix('-') {
            Some(amount) => (-1.0, amount.trim_start()),
            None => (1.0, text),
        };
        let rate: Result<BitRate, _> = amount.parse();
        rate.map(|rate| sign * rate.bits_per_second() / 8.0)
            .map_err(|error| error.to_string())
    }

    fn write(value: f64) -> String {
        written(value, RATES)
    }
}

/// A size in bytes.
pub struct OfSize;

impl Kind for OfSize {
    const EXPECTED: &'static str = "a size as \"40 TB\" or \"16 MiB\"";

    fn read(text: &str) -> Result<f64, String> {
        let size: Result<ByteCount, _> = text.parse();
        size.map(|size| size.0 as f64)
            .map_err(|error| error.to_string())
    }

    fn write(value: f64) -> String {
        written(value.round(), SIZES)
    }
}

/// A time in seconds.
pub struct OfTime;

impl Kind for OfTime {
    const EXPECTED: &'static str = "a time as \"91.6 ms\"";

    fn read(text: &str) -> Result<f64, String> {
        parse_span(text)
            .map(|span: Duration| span.as_secs_f64())
            .map_err(|error| error.to_string())
    }

    fn write(value: f64) -> String {
        // Rounds to nanoseconds, the resolution of the parser.
        written((value * 1e9).round() / 1e9, TIMES)
    }
}

/// CPU seconds per byte.
pub struct OfCost;

impl Kind for OfCost {
    const EXPECTED: &'static str = "CPU time per byte as \"0.27 s/GB\"";

    fn read(text: &str) -> Result<f64, String> {
        let known = COSTS.iter().find_map(|(name, one)| {
            let number = text.strip_suffix(name)?.trim();
            let digits = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            let value: f64 = number.parse().ok().filter(|_| digits)?;
            Some(value * one)
        });
        known
            .filter(|value| value.is_finite())
            .ok_or_else(|| format!("\"{text}\" is not a CPU time per byte: write 0.27 s/GB"))
    }

    fn write(value: f64) -> String {
        written(value, COSTS)
    }
}

/// A share of a whole, 0 to 1.
pub struct OfShare;

impl Kind for OfShare {
    const EXPECTED: &'static str = "a share as \"0.01%\" or 1e-4";

    fn read(text: &str) -> Result<f64, String> {
        parse_share(text).map_err(|error| error.to_string())
    }

    fn write(value: f64) -> String {
        longhaul_units::share_text(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_quantities_are_read_back_unchanged() {
        for value in [117.6875e6, 1.0 / 3.0 * 1e9, 640e6, 1.5, -20e6] {
            let text = OfRate::write(value);
            let read = OfRate::read(&text).unwrap();
            assert!((read / value - 1.0).abs() < 1e-12, "{text}");
        }
        assert_eq!(OfRate::write(1.25e9), "10 Gbit/s");
        assert_eq!(OfSize::write(40e12), "40 TB");
        assert_eq!(OfTime::write(0.0916), "91.6 ms");
        assert_eq!(OfCost::write(0.27e-9), "0.27 s/GB");
        let read = OfCost::read("0.27 s/GB").unwrap();
        assert!((read / 0.27e-9 - 1.0).abs() < 1e-12);
        assert_eq!(OfShare::read("0.01%"), Ok(1e-4));
    }

    #[test]
    fn errors_name_missing_units() {
        assert!(OfRate::read("10").unwrap_err().contains("no unit"));
        assert!(OfCost::read("0.27").unwrap_err().contains("s/GB"));
        assert!(OfCost::read("nan s/GB").is_err() && OfCost::read("-1 s/GB").is_err());
    }
}
