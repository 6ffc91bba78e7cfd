//! Describes a transfer as a value: the operation, the sources, the destination and the options. A
//! [`TransferSpec`] is plain data that can be stored and sent as JSON (FORMAT.md,
//! "Specifications"). The command line, a job and a daemon's request each build one and pass it to
//! [`crate::client::run`].
//!
//! - [`TransferSpec::validate`] is the only way to obtain a [`ValidSpec`]
//! - [`SpecError`] names the invalid field and the reason

mod backup;
mod commands;
mod criteria;
mod deletion;
mod error;
mod filter;
mod keep;
pub mod names;
mod valid;
pub mod written;

use std::time::Duration;

use longhaul_engine::session::LEFTOVERS_EXPIRE;
use longhaul_model::policy::Policy;
use longhaul_proto::handshake;
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::rate_limit::BandwidthLimit;
use crate::settings::ConnectionSettings;

pub use backup::Backup;
pub use commands::{FileCommand, FilterAt, USUAL_COMMAND_SPAN, USUAL_JOBS};
pub use criteria::Criteria;
pub use deletion::Deletion;
pub use error::SpecError;
pub use filter::Filter;
pub use keep::{FakeSuper, Keep};
pub use valid::{Direction, ValidSpec};

/// The version of specifications that this release writes and reads.
pub const VERSION: u32 = 1;

/// Default memory for the blocks of one end of one session, in bytes.
pub const USUAL_MEMORY: u64 = 128 << 20;

/// Default for [`Limits::checkpoint`], in bytes.
pub const USUAL_CHECKPOINT: u64 = 256 << 20;

/// A transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSpec {
    /// Format version: [`VERSION`].
    pub version: u32,
    /// Operation to perform.
    #[serde(default)]
    pub operation: Operation,
    /// Sources, 1 or more, all at one host. A comparison has exactly one.
    pub sources: Vec<Endpoint>,
    /// Destination of the copy, or the other side of the comparison.
    pub destination: Endpoint,
    /// Selects the parts of the sources to copy.
    #[serde(default)]
    pub selection: Selection,
    /// Excludes files and directories from the transfer.
    #[serde(default)]
    pub filter: Filter,
    /// Attributes to preserve in addition to data, mode and time.
    #[serde(default)]
    pub keep: Keep,
    /// Rules that decide if an existing destination entry is replaced.
    #[serde(default)]
    pub criteria: Criteria,
    /// If true, reports the name of each entry that the walk leaves out.
    #[serde(default)]
    pub report_omitted: bool,
    /// If true, removes sources once they are durable at the destination.
    #[serde(default)]
    pub move_away: bool,
    /// Deletions at the destination after the copy; `None`: nothing is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Backups of replaced and deleted destination entries; `None`: no backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Command that runs at the destination for each committed file; `None`: no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_commit: Option<FileCommand>,
    /// Command whose output becomes the file's content; `None`: no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_command: Option<FileCommand>,
    /// End at which `filter_command` runs.
    #[serde(default, skip_serializing_if = "FilterAt::is_usual")]
    pub filter_at: FilterAt,
    /// Verification of blocks and files.
    #[serde(default)]
    pub verification: Verification,
    /// Compression of blocks, used if it makes a block smaller; `None`: no compression.
    #[serde(
        default = "usual_compression",
        skip_serializing_if = "is_usual_compression"
    )]
    pub compression: Option<Compression>,
    /// Element size of numeric arrays, in bytes, for the transform before a codec: 1 (no arrays),
    /// 2, 4 or 8. `None`: determined from samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_bytes: Option<u8>,
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
    /// If true, bypasses the page cache on file systems that support it.
    #[serde(default)]
    pub direct_io: bool,
    /// Settings for connecting to hosts and authenticating them.
    #[serde(default)]
    pub connection: ConnectionSettings,
}

/// The operation of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Copies files.
    #[default]
    Copy,
    /// Determines the changes that a copy would make, without making them.
    DryRun,
    /// Compares two files or trees by their digests, without changing either.
    Verify,
}

impl From<Operation> for handshake::Operation {
    fn from(operation: Operation) -> handshake::Operation {
        match operation {
            Operation::Copy => handshake::Operation::Copy,
            Operation::DryRun => handshake::Operation::DryRun,
            Operation::Verify => handshake::Operation::Verify,
        }
    }
}

/// Selects the parts of the sources to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// If true, copies directories with their contents. A comparison always does.
    pub recursive: bool,
    /// If true, follows symbolic links below the sources instead of copying them as links.
    pub copy_links: bool,
    /// If true, files keep their set-user-ID and set-group-ID bits for any owner.
    pub keep_set_ids: bool,
}

/// Verification settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// Checksums of blocks and files.
    pub integrity: Integrity,
    /// If true, reads written data back before a file is complete.
    pub read_back: bool,
    /// Digests to report.
    pub digests: Digests,
}

/// Checksums of blocks and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// A BLAKE3 hash for each block and each file.
    #[default]
    Digest,
    /// An XXH3 checksum for each block, without digests of files.
    Checksum,
}

/// Selects the file digests to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Digests {
    /// No digests.
    #[default]
    None,
    /// Digests that the transfer computes anyway.
    Known,
    /// Digests of all files. Files that were at the destination already are read for this.
    All,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Compression {
    /// Chooses the most profitable codec for each block while the transfer runs.
    Auto,
    /// zstd with a level from -100 to 22, except 0.
    Zstd(i32),
    /// LZ4.
    Lz4,
}

/// Default compression of blocks.
pub const USUAL_COMPRESSION: Option<Compression> = Some(Compression::Auto);

fn usual_compression() -> Option<Compression> {
    USUAL_COMPRESSION
}

fn is_usual_compression(compression: &Option<Compression>) -> bool {
    *compression == USUAL_COMPRESSION
}

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
            checkpoint: USUAL_CHECKPOINT,
            leftovers_expire: u64::try_from(LEFTOVERS_EXPIRE.as_millis()).ok(),
            errors: None,
            stop_after: None,
            retries: None,
            retries_sleep: None,
        }
    }
}

impl Limits {
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

/// Distribution of an end's threads over its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// Each layer has its own threads.
    #[default]
    Layered,
    /// Each stream has one thread that runs all layers.
    Paired,
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
            operation: Operation::Copy,
            sources,
            destination,
            selection: Selection::default(),
            filter: Filter::default(),
            keep: Keep::default(),
            criteria: Criteria::default(),
            report_omitted: false,
            move_away: false,
            deletion: None,
            backup: None,
            on_commit: None,
            filter_command: None,
            filter_at: FilterAt::default(),
            verification: Verification::default(),
            compression: USUAL_COMPRESSION,
            element_bytes: None,
            limits: Limits::default(),
            flows: FixedFlows::default(),
            policy: Policy::default(),
            path_rate: None,
            direct_io: false,
            connection: ConnectionSettings::default(),
        }
    }

    /// Creates a recursive comparison of a source with another endpoint.
    pub fn comparison(source: Endpoint, other: Endpoint) -> TransferSpec {
        TransferSpec {
            operation: Operation::Verify,
            selection: Selection {
                recursive: true,
                ..Selection::default()
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
