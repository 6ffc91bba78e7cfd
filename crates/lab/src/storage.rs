//! Storage of a scenario: directories with the speed of a modelled device.
//!
//! - [`device`]: duration of requests, as a queue in virtual time
//! - [`mirror`]: a FUSE mount of a directory behind such a device
//! - [`nodes`]: names of the inodes of that mount
//! - [`plan`]: storage of a lab as the user writes it
//! - [`gluster`]: a parallel file system with nodes in namespaces
//! - [`running`]: all storage of a running lab
//!
//! FUSE was chosen because only a model has the limits of the papers' storage: one per
//! flow, one for all flows, and a rate that falls with flows (paper 004, Eq. 3). The
//! limit of a loop device (blkio) is one rate for all.
//!
//! # Accuracy
//!
//! Reads and writes bypass the page cache. Each request of an application, split by the
//! kernel into pieces of at most 1 MiB, is a request to the device; a second read is as
//! slow as the first. If a thread wakes up tens of microseconds late, the next request
//! compensates for it. FUSE limits a directory to about 1 to 2 GB/s, and adds 20 to 60 µs
//! per operation. Writes are as durable as in the directory behind the mount.

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

/// Settings of a device, written as `read-rate=200MBps,write-rate=100MBps,latency=5ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageSettings {
    /// Settings for reading.
    pub read: ChannelSettings,
    /// Settings for writing.
    pub write: ChannelSettings,
    /// Duration of opening, creating, renaming, removing or syncing a file, 0 to an hour.
    pub operation_latency: Duration,
}

/// Reasons why a device cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseStorageError {
    /// The setting has no `=` or its name is unknown.
    #[error(
        "\"{0}\" is not a setting of a storage device: write rate=, read-rate=, write-rate=, \
         flow-rate=, read-flow-rate=, write-flow-rate=, latency=, operation-latency= or \
         contention=, separated by commas"
    )]
    Name(String),
    /// The value is invalid.
    #[error("{name}: {cause}")]
    Value {
        /// Name of the setting.
        name: String,
        /// Description of the problem and the remedy.
        cause: String,
    },
}

/// Maximum latency, so that a typing error does not block a lab.
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

impl FromStr for StorageSettings {
    type Err = ParseStorageError;

    /// Parses `NAME=VALUE` separated by commas. An empty text means a device without
    /// limits.
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
    /// Returns an error if the setting is unknown or its value is invalid.
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
            Ok(_) => Err(wrong("write at most an hour".to_owned())),
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
                let gamma =
                    gamma.ok_or_else(|| wrong("write γ as a number of 0 or more".to_owned()))?;
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
    fn parses_a_device() {
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
    fn errors_name_the_invalid_setting_or_value() {
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
