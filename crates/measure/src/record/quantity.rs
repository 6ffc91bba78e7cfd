//! Serialises quantities as JSON numbers: seconds, bits per second, bytes.

use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

fn rate<E: Error>(value: f64) -> Result<BitRate, E> {
    BitRate::new(value)
        .ok_or_else(|| E::custom(format!("{value} is not a rate in bits per second")))
}

/// Serialises a span of time as a number of seconds.
pub mod seconds {
    use super::{Deserialize, Deserializer, Duration, Error, Serializer};

    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
    }
}

/// Serialises a rate as a number of bits per second.
pub mod bits_per_second {
    use super::{BitRate, Deserialize, Deserializer, Serializer, rate};

    pub fn serialize<S: Serializer>(value: &BitRate, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(value.bits_per_second())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BitRate, D::Error> {
        rate(f64::deserialize(from)?)
    }
}

/// Serialises an optional rate as a number of bits per second.
pub mod bits_per_second_if_any {
    use super::{BitRate, Deserialize, Deserializer, Serialize, Serializer, rate};

    pub fn serialize<S: Serializer>(value: &Option<BitRate>, to: S) -> Result<S::Ok, S::Error> {
        value.map(BitRate::bits_per_second).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BitRate>, D::Error> {
        Option::<f64>::deserialize(from)?.map(rate).transpose()
    }
}

/// Serialises a byte count as an integer.
pub mod bytes {
    use super::{ByteCount, Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &ByteCount, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ByteCount, D::Error> {
        u64::deserialize(from).map(ByteCount)
    }
}

/// Serialises an optional byte count as an integer.
pub mod bytes_if_any {
    use super::{ByteCount, Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<ByteCount>, to: S) -> Result<S::Ok, S::Error> {
        value.map(|count| count.0).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteCount>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(ByteCount))
    }
}
