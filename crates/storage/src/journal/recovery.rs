//! Determines the owner of a partial file, and the parts of the file that can be reused.
//!
//! ```text
//! found                                           claim
//! no journal                                      new journal and part
//! an empty one (its write never reached the disk) all parts of that name
//!                                                 removed, then as above
//! no valid header (its write was torn)            the same, and the journal
//! another version of the format                   error; `longhaul clean`
//! no part: it was committed, or removed by hand   discarded, then as above
//! journal or part is a hard link                  its name removed, then as above
//! same source, identity and integrity             taken over, also from the living
//! same source, changed or checked otherwise       discarded, then as above
//! other source, its owner alive                   error that names the owner
//! other source, its owner dead or superseded      discarded, then as above
//! ```
//!
//! A shared claim takes over only from the dead, and joins owners that share the file.
//!
//! To discard means to fence the owner and to remove both files. The new journal continues the
//! sequence of epochs.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::SourceIdentity;

use longhaul_proto::digest::Integrity;
use longhaul_proto::ledger::DurableBlock;

use super::doing::{StepError, appending, doing};
use super::entry::{Entry, Header, Owner, UnfitError};
use super::gate::{Entering, Gate, create_held, take_lock, take_shared_lock};
use super::leftovers::parts_of;
use super::names::Key;
use super::partial::Partial;
use super::reader::{Found, Replay, replay};
use super::writer::Writer;
use crate::{Creation, DataMode, Directory, StoredFile};

/// Maximum number of attempts of a claim. An attempt is repeated if another process removed the
/// files that it found. Each repetition means that another claim made progress, so reaching this
/// limit indicates a fault.
const MAXIMUM_ATTEMPTS: u32 = 1000;

/// Number of bytes of a partial file that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Request of a receiver for the partial file of a large file.
pub struct Claim<'a> {
    /// Directory of the destination.
    pub directory: Arc<dyn Directory>,
    /// Name of the destination in `directory`, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Principal that copies, at most 255 bytes.
    pub principal: &'a str,
    /// Hash of the source's host and path.
    pub source: [u8; 32],
    /// State of the source.
    pub identity: SourceIdentity,
    /// Method that checks the blocks.
    pub integrity: Integrity,
    /// Owner that makes the claim.
    pub owner: Owner,
    /// Numbers of the sessions that this session has replaced. Their claims are void, although they
    /// may still be running.
    pub superseded: &'a [u64],
    /// If true, this claim removes the leftovers of the sessions of a discarded journal, even if
    /// they had another source.
    pub inherits: bool,
    /// Mode in which the data will be written.
    pub data_mode: DataMode,
    /// Owners beside this one.
    pub sharing: Sharing,
}

/// Owners of a partial file beside the one that claims it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The claim excludes all other owners.
    #[default]
    Alone,
    /// Several owners write different ranges of the file.
    Shared,
    /// The claim excludes all other owners. If an earlier owner still has the file open, the
    /// durable data are copied to a new file, because a write of that owner may end at any time
    /// later.
    Apart,
}

/// Reasons why a name could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another source is being copied to this name.
    #[error("another source is being copied to this name by {holder}; wait for it or end it")]
    InUse {
        /// Owner of that copy.
        holder: Owner,
    },
    /// The journal was written by another version of longhaul.
    #[error(
        "partial data of this file has a journal of format {version}, which this longhaul does \
         not know; finish with the longhaul that wrote it, or remove it with `longhaul clean`"
    )]
    Version {
        /// Version of the journal's format.
        version: u16,
    },
    /// Other processes claimed the name during every attempt.
    #[error("the name was claimed by others {MAXIMUM_ATTEMPTS} times meanwhile")]
    Contended,
    /// A name in the claim is empty or too long.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] StepError),
}

/// Makes the caller the owner of a destination's partial data.
///
/// # Errors
///
/// [`ClaimError`]. Existing files are then unchanged, except that data of another source or state
/// may have been discarded.
pub fn claim(claim: &Claim<'_>) -> Result<Partial, ClaimError> {
    let key = Key::new(claim.name, claim.principal);
    let mut claiming = Claiming {
        claim,
        key,
        journal: key.journal(),
        last_epoch: 0,
        inherited: Vec::new(),
    };
    for _ in 0..MAXIMUM_ATTEMPTS {
        if let Some(partial) = claiming.attempt()? {
            return Ok(partial);
        }
    }
    Err(ClaimError::Contended)
}

/// A claim in progress.
struct Claiming<'a> {
    claim: &'a Claim<'a>,
    key: Key,
    journal: Box<[u8]>,
    /// Highest epoch seen.
    last_epoch: u64,
    /// Sessions of discarded journals.
    inherited: Vec<u64>,
}

/// Action for an existing journal.
enum Decision {
    TakeOver(Arc<dyn StoredFile>),
    Discard { part_exists: bool },
}

impl Claiming<'_> {
    /// Makes one attempt. `None` means that obstacles were removed and that the caller must try
    /// again.
    fn attempt(&mut self) -> Result<Option<Partial>, ClaimError> {
        let was_there = self.claim.directory.status_of(&self.journal).is_ok();
        let gate = Gate::enter(&*self.claim.directory, &self.journal, Entering::MayCreate)
            .map_err(doing("waiting for the journal"))?;
        let linked = gate.file().has_other_names();
        if linked.map_err(doing("reading the journal"))? {
            // The file belongs to another user or is kept as a copy, so only its name is removed.
            self.remove(&self.journal)?;
            return Ok(None);
        }
        match replay(&**gate.file()).map_err(doing("reading the journal"))? {
            Found::Version(version) => Err(ClaimError::Version { version }),
            Found::Nothing if was_there => self.clear_torn(&gate),
            Found::Nothing => self.begin_or_clear(&gate),
            Found::Journal(found) => {
                self.last_epoch = self.last_epoch.max(found.epoch);
                match self.decide(&found)? {
                    Decision::TakeOver(part) if self.claim.sharing == Sharing::Shared => {
                        self.join(&gate, *found, part).map(Some)
                    }
                    Decision::TakeOver(part) => self.take_over(&gate, *found, part).map(Some),
                    Decision::Discard { part_exists } => {
                        if self.claim.inherits {
                            self.inherited.clone_from(&found.sessions);
                        }
                        self.discard(&gate, &found, part_exists)?;
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Begins if the journal is empty, and removes it otherwise. An empty journal was created by
    /// this gate, or by a process that died before its first write, so its length is not used for a
    /// fence. Any other file may be in use, and is replaced by a new inode.
    fn begin_or_clear(&self, gate: &Gate) -> Result<Option<Partial>, ClaimError> {
        let status = gate.file().status();
        if status.map_err(doing("reading the journal"))?.size == 0 {
            return self.begin(gate).map(Some);
        }
        self.remove(&self.journal)?;
        Ok(None)
    }

    /// Removes the parts of a journal whose content was lost in a crash, because no journal will
    /// ever name them again. Scans the whole directory, which is acceptable after a crash.
    fn clear_torn(&self, gate: &Gate) -> Result<Option<Partial>, ClaimError> {
        let listing = "listing the directory for what a crash left";
        let parts = parts_of(&*self.claim.directory, self.key).map_err(doing(listing))?;
        for part in parts {
            self.remove(&part)?;
        }
        self.begin_or_clear(gate)
    }

    fn begin(&self, gate: &Gate) -> Result<Partial, ClaimError> {
        let part_number = new_part_number(&self.claim.owner);
        let part = self.key.part(part_number);
        let begun = self.write_beginning(gate, part_number);
        if begun.is_err() {
            // No other process can own the files that this gate guards. `longhaul clean` removes
            // any that cannot be removed here.
            let _ = self.claim.directory.remove_file(&part);
            let _ = self.claim.directory.remove_file(&self.journal);
        }
        begun
    }

    /// Writes the journal before the part, so that a process that dies never leaves a part without
    /// a journal.
    fn write_beginning(&self, gate: &Gate, part_number: u64) -> Result<Partial, ClaimError> {
        let mut writer = self.writer(gate, 0)?;
        let mut beginning = vec![Entry::Header(self.header(part_number))];
        let mut epoch = self.last_epoch.saturating_add(1);
        for session in &self.inherited {
            beginning.push(Entry::Owner {
                epoch,
                owner: Owner::former(*session),
            });
            epoch = epoch.saturating_add(1);
        }
        beginning.push(self.ownership(epoch));
        let shares = self.claim.sharing == Sharing::Shared;
        if shares {
            epoch = epoch.saturating_add(1);
            beginning.push(Entry::Shared { epoch });
        }
        let appended = writer.append(beginning);
        appended.map_err(appending::<ClaimError>("writing the journal"))?;
        let name = self.key.part(part_number);
        let directory = &self.claim.directory;
        let file = directory.create_file(&name, Creation::New, self.claim.data_mode);
        let file = file.map_err(doing("creating the partial file"))?;
        if shares {
            let partial = self.share(writer, file, name, (epoch, Vec::new()))?;
            return Ok(partial.after(self.inherited.clone()));
        }
        let alive = take_lock(&*file).map_err(doing("locking the partial file"))?;
        let owned = (epoch, Vec::new(), alive);
        let partial = Partial::new(directory.clone(), writer, file, name, owned);
        let partial = partial.map_err(doing("reading the partial file's status"))?;
        Ok(partial.after(self.inherited.clone()))
    }

    /// Becomes one of the owners that share a file.
    fn share(
        &self,
        writer: Writer,
        file: Arc<dyn StoredFile>,
        name: Box<[u8]>,
        (epoch, blocks): (u64, Vec<DurableBlock>),
    ) -> Result<Partial, ClaimError> {
        let locked = take_shared_lock(&*file).map_err(doing("locking the partial file"))?;
        let directory = self.claim.directory.clone();
        let owned = (epoch, blocks, locked);
        let partial = Partial::new(directory, writer.sharing(epoch), file, name, owned);
        let partial = partial.map_err(doing("reading the partial file's status"))?;
        Ok(partial.shared())
    }

    /// Joins the owners that share the file. A last owner that does not share it must be dead.
    fn join(
        &self,
        gate: &Gate,
        found: Replay,
        part: Arc<dyn StoredFile>,
    ) -> Result<Partial, ClaimError> {
        let locked = take_shared_lock(&*part).map_err(doing("locking the partial file"))?;
        if !locked {
            return Err(ClaimError::InUse {
                holder: found.owner,
            });
        }
        let blocks = blocks_within(&*part, found.blocks)?;
        let mut writer = self.writer(gate, found.valid_bytes)?;
        let mut epoch = found.epoch;
        if !found.shared {
            epoch = self.last_epoch.saturating_add(1);
            let appended = writer.append([Entry::Shared { epoch }]);
            appended.map_err(appending::<ClaimError>("writing the journal"))?;
        }
        if !blocks.is_empty() {
            writer.rewrite().map_err(doing("syncing the journal"))?;
        }
        let name = self.key.part(found.header.part);
        let partial = self.share(writer, part, name, (epoch, blocks))?;
        Ok(partial.after(found.sessions))
    }

    fn decide(&self, found: &Replay) -> Result<Decision, ClaimError> {
        let name = self.key.part(found.header.part);
        let directory = &self.claim.directory;
        let part = match directory.create_file(&name, Creation::Existing, self.claim.data_mode) {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Decision::Discard { part_exists: false });
            }
            Err(error) => return Err(doing("opening the partial file")(error).into()),
        };
        let linked = part.has_other_names();
        if linked.map_err(doing("reading the partial file's status"))? {
            return Ok(Decision::Discard { part_exists: true });
        }
        if found.header == self.header(found.header.part) {
            return Ok(Decision::TakeOver(part));
        }
        let fenced = found.header.source == self.claim.source
            || self
                .claim
                .superseded
                .contains(&found.owner.session_number());
        if !fenced && !take_lock(&*part).map_err(doing("locking the partial file"))? {
            let holder = found.owner.clone();
            return Err(ClaimError::InUse { holder });
        }
        Ok(Decision::Discard { part_exists: true })
    }

    /// Takes over the existing data. Its blocks will be reported as durable, so a journal with
    /// blocks is synced here. The data was synced before the blocks were recorded.
    fn take_over(
        &self,
        gate: &Gate,
        found: Replay,
        part: Arc<dyn StoredFile>,
    ) -> Result<Partial, ClaimError> {
        let blocks = blocks_within(&*part, found.blocks)?;
        let writer = self.fence(gate, found.valid_bytes)?;
        if !blocks.is_empty() {
            writer.rewrite().map_err(doing("syncing the journal"))?;
        }
        let mut alive = take_lock(&*part).map_err(doing("locking the partial file"))?;
        let name = self.key.part(found.header.part);
        let mut part = part;
        if !alive && self.claim.sharing == Sharing::Apart {
            part = self.copy_apart(&*part, &blocks, &name)?;
            alive = true;
        }
        let owned = (self.last_epoch.saturating_add(1), blocks, alive);
        let partial = Partial::new(self.claim.directory.clone(), writer, part, name, owned);
        let partial = partial.map_err(doing("reading the partial file's status"))?;
        Ok(partial.after(found.sessions))
    }

    /// Copies the durable blocks to a new file, which takes the part's name. Returns the new file,
    /// whose lock is held.
    fn copy_apart(
        &self,
        part: &dyn StoredFile,
        blocks: &[DurableBlock],
        name: &[u8],
    ) -> Result<Arc<dyn StoredFile>, ClaimError> {
        let directory = &self.claim.directory;
        let interim = self.key.part(new_part_number(&self.claim.owner));
        let file = create_held(&**directory, &interim, self.claim.data_mode);
        let file = file.map_err(doing("creating the partial file"))?;
        let copied = copy_blocks(part, &*file, blocks)
            .and_then(|()| file.sync_data())
            .and_then(|()| directory.rename(&interim, &**directory, name));
        if let Err(error) = copied {
            // `longhaul clean` finds the file if it cannot be removed.
            let _ = directory.remove_file(&interim);
            return Err(doing("copying the data of the partial file")(error).into());
        }
        Ok(file)
    }

    /// Discards both files. The part is removed first: the next claim discards a journal without a
    /// part, but a part without a journal stays until it expires.
    fn discard(&self, gate: &Gate, found: &Replay, part_exists: bool) -> Result<(), ClaimError> {
        self.fence(gate, found.valid_bytes)?;
        if part_exists {
            self.remove(&self.key.part(found.header.part))?;
        } else {
            // The part may have just got its final name. The process that renamed it relies on the
            // journal if the rename is lost in a crash.
            let synced = self.claim.directory.sync();
            synced.map_err(doing("syncing the directory"))?;
        }
        self.remove(&self.journal)
    }

    /// Fences the former owner: it loses all of its rights to the file.
    fn fence(&self, gate: &Gate, valid_bytes: u64) -> Result<Writer, ClaimError> {
        let mut writer = self.writer(gate, valid_bytes)?;
        let epoch = self.last_epoch.saturating_add(1);
        let appended = writer.append([self.ownership(epoch)]);
        appended.map_err(appending::<ClaimError>("writing the journal"))?;
        Ok(writer)
    }

    fn writer(&self, gate: &Gate, length: u64) -> Result<Writer, ClaimError> {
        // The gate closes its own handle, and the owner needs one for longer.
        let directory = &self.claim.directory;
        let writer = directory
            .create_file(&self.journal, Creation::Existing, DataMode::Buffered)
            .and_then(|file| Writer::new(file, gate.inode(), self.key, length));
        Ok(writer.map_err(doing("opening the journal"))?)
    }

    fn remove(&self, name: &[u8]) -> Result<(), ClaimError> {
        match self.claim.directory.remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(doing("removing partial data that is of no use")(error).into())
            }
            _ => Ok(()),
        }
    }

    fn ownership(&self, epoch: u64) -> Entry {
        Entry::Owner {
            epoch,
            owner: self.claim.owner.clone(),
        }
    }

    fn header(&self, part: u64) -> Header {
        Header {
            part,
            integrity: self.claim.integrity,
            source: self.claim.source,
            identity: self.claim.identity,
            name: self.claim.name.into(),
            principal: self.claim.principal.into(),
        }
    }
}

/// Returns the recorded blocks that a part is long enough to have.
fn blocks_within(
    part: &dyn StoredFile,
    mut blocks: Vec<DurableBlock>,
) -> Result<Vec<DurableBlock>, StepError> {
    let status = part.status();
    let status = status.map_err(doing("reading the partial file's status"))?;
    blocks.retain(|block| block.end() <= status.size);
    Ok(blocks)
}

/// Copies blocks to the same offsets of another file.
fn copy_blocks(
    from: &dyn StoredFile,
    to: &dyn StoredFile,
    blocks: &[DurableBlock],
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    for block in blocks {
        let mut offset = block.offset;
        while offset < block.end() {
            let wanted = (block.end() - offset).min(COPY_BYTES as u64) as usize;
            let read = from.read_at(&mut buffer[..wanted], offset)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_at(&buffer[..read], offset)?;
            offset += read as u64;
        }
    }
    Ok(())
}

/// Returns a unique number, derived from session, process and a counter.
fn new_part_number(owner: &Owner) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 2025 number of a part");
    hasher.update(&owner.session);
    hasher.update(&owner.process.to_le_bytes());
    hasher.update(&owner.started.seconds.to_le_bytes());
    hasher.update(&owner.started.nanoseconds.to_le_bytes());
    hasher.update(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    hasher.update(owner.host.as_bytes());
    let mut number = [0; 8];
    number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(number)
}
