//! Storage in a scenario: a directory that is as slow as one wants.
//!
//! - [`device`]: what a request costs, as a pure queue in virtual time
//! - [`mirror`]: a directory mounted elsewhere (FUSE) behind such a device
//! - [`nodes`]: the names of that file system's inodes
//! - [`plan`]: what storage a lab has, as one writes it
//! - [`gluster`]: a parallel file system, its nodes in namespaces
//! - [`running`]: all of a lab's, from mount to end
//!
//! FUSE was chosen because only a model can have what the papers' storage had: a limit for each
//! flow, one for all, and a rate that falls with flows (paper 004, Eq. 3). A limit on a loop
//! device (blkio) is one rate for all.
//!
//! # Accuracy
//!
//! Reads and writes go past the page cache. Each request of an application (or the kernel's pieces
//! of it, up to 1 MiB) is a request to the device, and a second read is as slow as the first. The
//! next request makes up for a wake-up that was tens of microseconds late. FUSE limits a directory
//! to about 1 to 2 GB/s, and 20 to 60 µs for an operation. Writes are as durable as the directory
//! behind.

pub mod device;
pub mod gluster;
pub mod mirror;
pub mod nodes;
pub mod plan;
pub mod running;

use std::str::FromStr;
use std::time::Duration;

use longhaul_units::{ByteRate, parse_span};

use device::ChannelSettings;

/// A device: `read-rate=200MBps,write-rate=100MBps,latency=5ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageSettings {
    /// Reading.
    pub read: ChannelSettings,
    /// Writing.
    pub write: ChannelSettings,
    /// What opening, creating, renaming, removing or syncing takes, 0 to an hour.
    pub operation_latency: Duration,
}

/// A description of a device that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseStorageError {
    /// It has no `=`, or a name that is none.
    #[error(
        "\"{0}\" is not known of a storage device: write rate=, read-rate=, write-rate=, \
         flow-rate=, read-flow-rate=, write-flow-rate=, latency=, operation-latency= or \
         contention=, separated by commas"
    )]
    Name(String),
    /// The value is none.
    #[error("{name}: {cause}")]
    Value {
        /// Of what.
        name: String,
        /// What is wrong, with the remedy.
        cause: String,
    },
}

/// No request waits longer, so that a typing error is no hang.
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

impl FromStr for StorageSettings {
    type Err = ParseStorageError;

    /// Reads `NAME=VALUE` separated by commas; an empty text is a device
    /// without limits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut settings = StorageSettings::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(ParseStorageError::Name(part.to_owned()));
            };
            settings.set(name, value)?;
        }
        Ok(settings)
    }
}

impl StorageSettings {
    /// Changes one setting.
    ///
    /// # Errors
    ///
    /// Where there is none of that name, or its value makes no sense.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParseStorageError> {
        let wrong = |cause: String| ParseStorageError::Value {
            name: name.to_owned(),
            cause,
        };
        let rate = || {
            let rate = value.parse::<ByteRate>();
            rate.map(Some).map_err(|error| wrong(error.to_string()))
        };
        let span = || match parse_span(value) {
            Ok(span) if span <= LONGEST_LATENCY => Ok(span),
            Ok(_) => Err(wrong("at most an hour".to_owned())),
            Err(error) => Err(wrong(error.to_string())),
        };
        match name {
            "rate" => {
                self.read.rate = rate()?;
                self.write.rate = self.read.rate;
            }
            "read-rate" => self.read.rate = rate()?,
            "write-rate" => self.write.rate = rate()?,
            "flow-rate" => {
                self.read.flow_rate = rate()?;
                self.write.flow_rate = self.read.flow_rate;
            }
            "read-flow-rate" => self.read.flow_rate = rate()?,
            "write-flow-rate" => self.write.flow_rate = rate()?,
            "latency" => {
                self.read.latency = span()?;
                self.write.latency = self.read.latency;
            }
            "operation-latency" => self.operation_latency = span()?,
            "contention" => {
                let gamma = value.parse::<f64>().ok();
                let gamma = gamma.filter(|gamma| gamma.is_finite() && *gamma >= 0.0);
                let gamma = gamma.ok_or_else(|| wrong("write γ, 0 or more".to_owned()))?;
                self.read.contention = Some(gamma);
                self.write.contention = Some(gamma);
            }
            other => return Err(ParseStorageError::Name(other.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_device() {
        let text = "rate=200MBps,write-rate=100MB/s,flow-rate=50MBps,latency=5ms,contention=4";
        let settings: StorageSettings = text.parse().unwrap();
        assert_eq!(settings.read.rate, ByteRate::new(200e6));
        assert_eq!(settings.write.rate, ByteRate::new(100e6));
        assert_eq!(settings.write.flow_rate, ByteRate::new(50e6));
        assert_eq!(settings.read.latency, Duration::from_millis(5));
        assert_eq!(settings.write.contention, Some(4.0));
        assert_eq!("".parse(), Ok(StorageSettings::default()));
    }

    #[test]
    fn names_what_it_does_not_understand() {
        for (text, said) in [
            ("speed=1", "speed"),
            ("rate", "rate"),
            ("rate=fast", "fast"),
            ("latency=2h", "an hour"),
            ("latency=x", "x"),
            ("contention=-1", "γ"),
            ("contention=nan", "γ"),
        ] {
            let error = text.parse::<StorageSettings>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
