//! Describes a transfer as a value: the operation, the sources, the destination and the options. A
//! [`TransferSpec`] is plain data that can be stored and sent as JSON (FORMAT.md,
//! "Specifications"). The command line, a job and a daemon's request each build one and pass it to
//! [`crate::client::run`].
//!
//! - [`TransferSpec::validate`] is the only way to obtain a [`ValidSpec`]
//! - [`SpecError`] names the invalid field and the reason

mod error;
mod fake_super;
pub mod names;
mod valid;
pub mod written;

use std::time::Duration;

use longhaul_engine::session::LEFTOVERS_EXPIRE;
use longhaul_model::policy::Policy;
use longhaul_proto::handshake::USUAL_CHECKPOINT_BYTES;
use longhaul_proto::options::{Operation, Selection, Stack, TransferOptions};
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::rate_limit::BandwidthLimit;
use crate::settings::ConnectionSettings;

pub use error::SpecError;
pub use fake_super::FakeSuper;
pub use valid::{Direction, ValidSpec};

/// The version of specifications that this release writes and reads.
pub const VERSION: u32 = 1;

/// Default memory for the blocks of one end of one session, in bytes.
pub const USUAL_MEMORY: u64 = 128 << 20;

/// A transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSpec {
    /// Format version: [`VERSION`].
    pub version: u32,
    /// Options that both ends know.
    #[serde(flatten)]
    pub options: TransferOptions,
    /// Sources, 1 or more, all at one host. A comparison has exactly one.
    pub sources: Vec<Endpoint>,
    /// Destination of the copy, or the other side of the comparison.
    pub destination: Endpoint,
    /// Limits on rate, memory, time, errors and attempts.
    #[serde(default)]
    pub limits: Limits,
    /// Flow counts that the user fixed.
    #[serde(default)]
    pub flows: FixedFlows,
    /// Policy that chooses the flow counts that are not fixed.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub policy: Policy,
    /// Capacity of the path for [`Policy::Bdp`], in bytes per second; `None`: the rate that earlier
    /// copies reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_rate: Option<u64>,
    /// Task of a transfer between clusters, at most [`MAXIMUM_TASK_BYTES`] long. Sessions of
    /// different tasks are different transfers, and sessions of one task take over from each other,
    /// also if they run on different hosts. `None` for every other transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Settings for connecting to hosts and authenticating them.
    #[serde(default)]
    pub connection: ConnectionSettings,
}

/// Maximum length of [`TransferSpec::task`] in bytes.
pub const MAXIMUM_TASK_BYTES: usize = 64;

/// Limits on rate, memory, time, errors and attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum rate of the whole transfer, in bytes per second, at least 1000; `None`: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BandwidthLimit>,
    /// Memory for blocks at this end, in bytes.
    pub memory: u64,
    /// Maximum number of bytes of large files that may be received and not yet durable, at least 1.
    pub checkpoint: u64,
    /// Age at which leftovers of killed copies are removed, in milliseconds; `None`: never.
    pub leftovers_expire: Option<u64>,
    /// Maximum number of entries that may fail. One more failure ends the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Time after which the transfer stops in an orderly way, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<u64>,
    /// Maximum number of attempts of the whole transfer, at least 1, for temporary failures;
    /// `None`: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Pause between two attempts, in milliseconds; `None`: one second, doubled each time, up to a
    /// minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries_sleep: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            rate: None,
            memory: USUAL_MEMORY,
            checkpoint: USUAL_CHECKPOINT_BYTES,
            leftovers_expire: u64::try_from(LEFTOVERS_EXPIRE.as_millis()).ok(),
            errors: None,
            stop_after: None,
            retries: None,
            retries_sleep: None,
        }
    }
}

impl Limits {
    /// Smallest rate of a share, in bytes per second.
    const LEAST_SHARE: u64 = 1000;

    /// Returns the limits of one of several sessions that run at the same time. Limits of time,
    /// errors and attempts apply to the whole transfer and are removed.
    #[must_use]
    pub fn share(self, sessions: u32) -> Limits {
        let share = |rate: BandwidthLimit| {
            let rate = rate.bytes_per_second() / u64::from(sessions.max(1));
            let rate = rate.max(Limits::LEAST_SHARE);
            BandwidthLimit::of_bytes_per_second(rate).ok().flatten()
        };
        Limits {
            rate: self.rate.and_then(share),
            errors: None,
            stop_after: None,
            retries: None,
            retries_sleep: None,
            ..self
        }
    }

    /// Returns the age at which leftovers expire; `None`: never.
    pub fn expiry(&self) -> Option<Duration> {
        self.leftovers_expire.map(Duration::from_millis)
    }
}

/// Flow counts that the user fixed, each from 1 to 512. A `None` is chosen while the transfer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FixedFlows {
    /// Distribution of an end's threads over its layers.
    pub stack: Stack,
    /// Number of reader threads at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<u32>,
    /// Number of compressor threads at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressors: Option<u32>,
    /// Number of streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Number of threads at the destination that decompress and verify.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decompressors: Option<u32>,
    /// Number of writer threads at the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Block size in bytes, a power of two from 64 KiB to 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
}

/// True if the policy is the default, which is not written.
fn is_usual(policy: &Policy) -> bool {
    *policy == Policy::default()
}

impl TransferSpec {
    /// Creates a copy of these sources with default options.
    pub fn copy(sources: Vec<Endpoint>, destination: Endpoint) -> TransferSpec {
        TransferSpec {
            version: VERSION,
            options: TransferOptions::default(),
            sources,
            destination,
            limits: Limits::default(),
            flows: FixedFlows::default(),
            policy: Policy::default(),
            path_rate: None,
            task: None,
            connection: ConnectionSettings::default(),
        }
    }

    /// Creates a recursive comparison of a source with another endpoint.
    pub fn comparison(source: Endpoint, other: Endpoint) -> TransferSpec {
        TransferSpec {
            options: TransferOptions {
                operation: Operation::Verify,
                selection: Selection {
                    recursive: true,
                    ..Selection::default()
                },
                ..TransferOptions::default()
            },
            ..TransferSpec::copy(vec![source], other)
        }
    }

    /// Checks that every field is within its range and is consistent with the other fields.
    ///
    /// # Errors
    ///
    /// Returns an error for the first invalid field.
    pub fn validate(self) -> Result<ValidSpec, SpecError> {
        ValidSpec::new(self)
    }
}
