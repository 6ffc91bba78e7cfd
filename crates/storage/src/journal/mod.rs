//! The state of a partly received large file.
//!
//! Two files are next to the destination until it is complete:
//!
//! ```text
//! .longhaul-<32 hex>.journal           the durable parts of the file, and its owner
//! .longhaul-<32 hex>-<16 hex>.part     the data; the journal contains the 16 digits
//! ```
//!
//! The 32 digits are the hash of the destination's name and the principal, so partial data is found
//! independently of the other arguments. The 16 digits are new with each journal: an old journal
//! names an old part. A journal can therefore never be combined with the data of another one, even
//! if a crash mixes old and new names. That is why creating and removing them needs no sync.
//!
//! Two locks (`flock`), which the kernel releases when a process dies:
//!
//! - the journal's lock is the **gate**: held only while a journal or the names are being changed;
//! - the part's lock is the **sign of life**: held while the owner has the part open.
//!
//! [`claim`] makes a caller the owner. A restart of the same copy takes over at once, even from an
//! owner that seems alive: it appends a record with a higher epoch. This changes the journal's
//! length, which is the **fence**: only owners append, so an owner that finds more than it wrote
//! has lost the file. It is fenced at its next [`Partial::ensure_owned`], and always before it can
//! append or commit. A write to the part that was in progress is harmless: same source, same
//! identity, same bytes. (If it ends after the new owner has set the times of the complete file,
//! the time is wrong, and a later run sends the file again.)
//!
//! Several owners may **share** a file, of which each writes other ranges (a cluster's receivers).
//! They append to one journal under its gate, and hold the part's lock together. A claim of a
//! single owner fences all of them. If one of them still has the part open, the single owner copies
//! the durable data to a new file ([`Sharing::Apart`]).
//!
//! The steps that make a block durable are: sync the part; sync the names (once); append to the
//! journal; sync the journal. The caller does the first step, and [`Partial::append_durable`] the
//! others.
//!
//! - [`entry`]: the records, their layout and limits
//! - [`names`]: the names of staging files
//! - [`gate`]: the lock under which journals change
//! - [`reader`], [`writer`]: reads and appends a journal's records
//! - [`recovery`]: determines the owner, and the data that can be reused
//! - [`partial`]: operations of an owner
//! - [`mod@doing`]: names the step at which the storage failed
//! - [`digests`]: digests of finished files, while their copy is not complete
//! - [`mod@leftovers`]: lists and removes the files of interrupted runs

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
pub use recovery::{Claim, ClaimError, Sharing, claim};
