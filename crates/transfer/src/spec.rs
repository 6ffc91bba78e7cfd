//! A transfer as a value: what is copied or compared, from where to where, and how. It
//! is plain data that can be stored and sent as JSON (FORMAT.md, "Specifications"); the
//! command line, a job and a daemon's request make one, and hand it to
//! [`crate::client::run`].
//!
//! - [`TransferSpec::validate`] is the only way to a [`ValidSpec`]
//! - [`SpecError`]: what is wrong, by field

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

/// Memory for the blocks of one end of one session where nobody says, in bytes.
pub const USUAL_MEMORY: u64 = 128 << 20;

/// Bytes of large files that may be taken in and not durable yet, where nobody says.
pub const USUAL_CHECKPOINT: u64 = 256 << 20;

/// A transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSpec {
    /// [`VERSION`].
    pub version: u32,
    /// What is done.
    #[serde(default)]
    pub operation: Operation,
    /// Where data come from, 1 or more, all at one place; a comparison has one.
    pub sources: Vec<Endpoint>,
    /// Where they go, or what the source is compared with.
    pub destination: Endpoint,
    /// What of the sources is copied.
    #[serde(default)]
    pub selection: Selection,
    /// What of them is left out.
    #[serde(default)]
    pub filter: Filter,
    /// What is kept of an entry beyond data, mode and time.
    #[serde(default)]
    pub keep: Keep,
    /// When something is copied over what has its name.
    #[serde(default)]
    pub criteria: Criteria,
    /// What the walk leaves out is reported, by each name.
    #[serde(default)]
    pub report_omitted: bool,
    /// Sources are removed once they are durable at the destination.
    #[serde(default)]
    pub move_away: bool,
    /// What is deleted at the destination after the copy; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// What is replaced or deleted at the destination is kept under another name; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// A command that runs at the destination for each file that is committed; none: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_commit: Option<FileCommand>,
    /// A command whose output becomes the file; none: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_command: Option<FileCommand>,
    /// Where that runs.
    #[serde(default, skip_serializing_if = "FilterAt::is_usual")]
    pub filter_at: FilterAt,
    /// How files are verified.
    #[serde(default)]
    pub verification: Verification,
    /// How blocks are compressed, where that makes them smaller; none: not at all.
    #[serde(
        default = "usual_compression",
        skip_serializing_if = "is_usual_compression"
    )]
    pub compression: Option<Compression>,
    /// Bytes of an element in arrays of numbers, for what goes before a codec: 1 (no arrays), 2, 4
    /// or 8; none: samples tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_bytes: Option<u8>,
    /// What the transfer may use.
    #[serde(default)]
    pub limits: Limits,
    /// Flows that were fixed.
    #[serde(default)]
    pub flows: FixedFlows,
    /// Who chooses those that were not.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub policy: Policy,
    /// What the path carries, in bytes per second, for [`Policy::Bdp`]; none: what earlier copies
    /// showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_rate: Option<u64>,
    /// Read and write past the page cache where the file system can.
    #[serde(default)]
    pub direct_io: bool,
    /// How hosts are reached and known.
    #[serde(default)]
    pub connection: ConnectionSettings,
}

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Files are copied.
    #[default]
    Copy,
    /// What a copy would do is found out; nothing is changed.
    DryRun,
    /// Two files or trees are compared by their digests; nothing is changed.
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

/// What of the sources is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Directories with everything in them. A comparison always does.
    pub recursive: bool,
    /// What links below the sources lead to, instead of the links.
    pub copy_links: bool,
    /// Files keep set-user-ID and set-group-ID bits for any owner.
    pub keep_set_ids: bool,
}

/// How files are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// How blocks and files are checked.
    pub integrity: Integrity,
    /// Read back what was written before it counts.
    pub read_back: bool,
    /// Which digests are reported.
    pub digests: Digests,
}

/// How blocks and files are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// BLAKE3 for each block and each file.
    #[default]
    Digest,
    /// XXH3 for each block, no digest of files.
    Checksum,
}

/// Which digests of files are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Digests {
    /// None.
    #[default]
    None,
    /// Those that come up.
    Known,
    /// All, also of files that were there already, which are read for it.
    All,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Compression {
    /// What is worth it, chosen for each block while the transfer runs.
    Auto,
    /// zstd with a level from -100 to 22, but not 0.
    Zstd(i32),
    /// lz4.
    Lz4,
}

/// How blocks are compressed where nobody says.
pub const USUAL_COMPRESSION: Option<Compression> = Some(Compression::Auto);

fn usual_compression() -> Option<Compression> {
    USUAL_COMPRESSION
}

fn is_usual_compression(compression: &Option<Compression>) -> bool {
    *compression == USUAL_COMPRESSION
}

/// What a transfer may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes per second of the whole transfer, 1000 or more; none: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BandwidthLimit>,
    /// Memory for blocks at this end, in bytes.
    pub memory: u64,
    /// Bytes of large files that may be taken in and not durable yet, 1 or more.
    pub checkpoint: u64,
    /// Milliseconds after which leftovers of killed copies are removed; none: never.
    pub leftovers_expire: Option<u64>,
    /// Entries that may fail; with more the transfer ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Milliseconds after which the transfer ends in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<u64>,
    /// Tries of the whole transfer, 1 or more, if it fails for a reason that may pass; none: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Milliseconds between two tries; none: a second, twice as long each time, up to a minute.
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
    /// When leftovers expire; none: never.
    pub fn expiry(&self) -> Option<Duration> {
        self.leftovers_expire.map(Duration::from_millis)
    }
}

/// Flows that were fixed; what is none is chosen while the transfer runs. Each is from 1
/// to 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FixedFlows {
    /// How an end's layers share its threads.
    pub stack: Stack,
    /// Threads that read, where the source is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<u32>,
    /// Threads that compress, where the source is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressors: Option<u32>,
    /// Streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Threads that decompress and verify, where the destination is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decompressors: Option<u32>,
    /// Threads that write, where the destination is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Bytes of a block, a power of two from 64 KiB to 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
}

/// How an end's layers share its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// Each layer has threads of its own.
    #[default]
    Layered,
    /// Each stream has one thread for all of them.
    Paired,
}

/// A specification without it means the same to releases that do not know it.
fn is_usual(policy: &Policy) -> bool {
    *policy == Policy::default()
}

impl TransferSpec {
    /// A copy of these sources, with everything else as usual.
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

    /// A comparison of a source with what lies at another place.
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

    /// Sees to it that every field is within its range and fits the others.
    ///
    /// # Errors
    ///
    /// The first field that does not.
    pub fn validate(self) -> Result<ValidSpec, SpecError> {
        ValidSpec::new(self)
    }
}
