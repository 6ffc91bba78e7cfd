//! What is known of a large file that has partly arrived.
//!
//! Two files lie beside the destination until it is whole:
//!
//! ```text
//! .longhaul-<32 hex>.journal           what of it is durable, and who owns it
//! .longhaul-<32 hex>-<16 hex>.part     the data; the journal tells the last 16
//! ```
//!
//! The 32 digits are the hash of the destination's name and the principal, so
//! partial data is found whatever the other arguments are. The 16 are new with
//! each journal, so that a journal and data that do not belong together can
//! never meet, however a crash mixes old names with new ones: an old journal
//! names an old part. That is why making and removing them needs no sync.
//!
//! Two locks (`flock`), which the kernel ends when a process dies:
//!
//! - the journal's is the **gate**: held for the moment in which a journal or
//!   the names are changed, and for nothing longer;
//! - the part's is the **sign of life**: held while its owner keeps it open.
//!
//! [`claim`] makes a caller the owner. A restart of the same copy takes over at
//! once, also from an owner that seems alive: it appends a record with a higher
//! epoch. That changes the journal's length, and the length is the **fence**:
//! only owners append, so an owner that finds more than it wrote is none any
//! more. It is fenced at its next [`Partial::ensure_owned`], and surely before
//! it can append or commit. A write to the part that it had in flight does no
//! harm: same source, same identity, same bytes. (If one lands after the new
//! owner has set the times of the whole file, the time is wrong, and a later
//! run sends the file again.)
//!
//! The order that makes a block durable, of which the caller does the first
//! step and [`Partial::append_durable`] the rest: sync the part; sync the names
//! (once); append to the journal; sync the journal.
//!
//! - [`entry`]: the records, their layout and limits
//! - [`names`]: the names of staging files
//! - [`gate`]: the lock under which journals change
//! - [`reader`], [`writer`]: a journal's records, in and out
//! - [`recovery`]: who becomes the owner, and of what
//! - [`partial`]: what an owner can do
//! - [`mod@doing`]: which step failed, when the storage did
//! - [`digests`]: digests of finished files, while their copy is not complete
//! - [`mod@leftovers`]: listing and removing what was left behind

pub mod digests;
pub mod doing;
pub mod entry;
pub mod gate;
pub mod leftovers;
pub mod names;
pub mod partial;
pub mod reader;
pub mod recovery;
pub mod writer;

#[cfg(test)]
mod tests;

pub use doing::StepError;
pub use entry::Owner;
pub use gate::missing_lock;
pub use leftovers::{Leftover, LeftoverKind, expire, leftovers, sweep};
pub use names::{Key, temporary};
pub use partial::{Committed, Finalised, JournalError, Partial};
pub use recovery::{Claim, ClaimError, claim};
