//! Options of a transfer. The specification of a transfer, the request to the other host, and the
//! right of an introduced host contain the same value.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::assembly::Assembly;
use crate::backup::Backup;
use crate::coding::Compression;
use crate::command::FileCommand;
use crate::criteria::Criteria;
use crate::deletion::Deletion;
use crate::digest::Integrity;
use crate::filter::Filter;
use crate::keeping::Keeping;

/// Operation of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Copies files.
    #[default]
    #[n(0)]
    Copy,
    /// Compares by digest, and changes neither side.
    #[n(1)]
    Verify,
    /// Reports the changes that a copy would make.
    #[n(2)]
    DryRun,
}

/// Selects the parts of the sources to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// If true, copies directories with their contents. A comparison always does.
    #[n(0)]
    pub recursive: bool,
    /// If true, follows symbolic links below the sources instead of copying them as links.
    #[n(1)]
    pub copy_links: bool,
    /// If true, files keep their set-user-ID and set-group-ID bits for any owner.
    #[n(2)]
    pub keep_set_ids: bool,
}

/// Selects the file digests to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Digests {
    /// No digests.
    #[default]
    #[n(0)]
    None,
    /// Digests that the transfer computes anyway.
    #[n(1)]
    Known,
    /// Digests of all files. Files that were at the destination already are read for this.
    #[n(2)]
    All,
}

/// Verification settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// Checksums of blocks and files.
    #[n(0)]
    pub integrity: Integrity,
    /// If true, reads written data back past the cache before a file is complete.
    #[n(1)]
    pub read_back: bool,
    /// Digests to report.
    #[n(2)]
    pub digests: Digests,
}

/// The end at which files pass through a filter command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum FilterAt {
    /// The source, before files are sent.
    #[n(0)]
    Source,
    /// The destination, before files get their names.
    #[default]
    #[n(1)]
    Destination,
}

impl FilterAt {
    fn is_usual(&self) -> bool {
        *self == FilterAt::default()
    }
}

/// Distribution of an end's threads over its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// Each layer has threads of its own, with queues between them.
    #[default]
    #[n(0)]
    Layered,
    /// One thread per stream does the work of all layers for it (XDD's pairing, paper 001 section
    /// 2.1): at a source it reads, encodes, seals and sends; at a sink it receives, decodes and
    /// writes.
    #[n(1)]
    Paired,
}

/// Valid element sizes of numeric arrays, in bytes.
pub const ELEMENT_BYTES: [u8; 4] = [1, 2, 4, 8];

/// Default compression of blocks.
const USUAL_COMPRESSION: Option<Compression> = Some(Compression::Auto);

fn is_usual_compression(compression: &Option<Compression>) -> bool {
    *compression == USUAL_COMPRESSION
}

/// Options of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(default)]
pub struct TransferOptions {
    /// Operation to perform.
    #[n(0)]
    pub operation: Operation,
    /// Selects the parts of the sources to copy.
    #[n(1)]
    pub selection: Selection,
    /// Excludes files and directories from the transfer.
    #[n(2)]
    pub filter: Filter,
    /// Attributes to preserve in addition to data, mode and time.
    #[n(3)]
    pub keep: Keeping,
    /// Rules that decide if an existing destination entry is replaced.
    #[n(4)]
    pub criteria: Criteria,
    /// If true, reports the name of each entry that the walk leaves out.
    #[n(5)]
    pub report_omitted: bool,
    /// If true, removes sources once they are durable at the destination.
    #[n(6)]
    pub move_away: bool,
    /// Deletions at the destination after the copy; `None`: no deletions. A comparison reports the
    /// names as differences.
    #[n(7)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Backups of replaced and deleted destination entries; `None`: no backups.
    #[n(8)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Command that runs at the destination for each committed file; `None`: no command.
    #[n(9)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_commit: Option<FileCommand>,
    /// Command whose output becomes the file's content; `None`: no command. Its text is empty in a
    /// request if the command runs at the dialing end.
    #[n(10)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_command: Option<FileCommand>,
    /// End at which `filter_command` runs.
    #[n(11)]
    #[serde(skip_serializing_if = "FilterAt::is_usual")]
    pub filter_at: FilterAt,
    /// Verification of blocks and files.
    #[n(12)]
    pub verification: Verification,
    /// Compression of blocks, used if it makes a block smaller; `None`: no compression.
    #[n(13)]
    #[serde(skip_serializing_if = "is_usual_compression")]
    pub compression: Option<Compression>,
    /// Element size of numeric arrays, in bytes, for the transform before a codec: 1 (no arrays),
    /// 2, 4 or 8. `None`: determined from samples.
    #[n(14)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element_bytes: Option<u8>,
    /// If true, bypasses the page cache on file systems that support it.
    #[n(15)]
    pub direct_io: bool,
    /// Role of the session if several sessions copy parts of one file; `None`: it copies alone.
    #[n(16)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembly: Option<Assembly>,
}

impl Default for TransferOptions {
    fn default() -> TransferOptions {
        TransferOptions {
            operation: Operation::default(),
            selection: Selection::default(),
            filter: Filter::default(),
            keep: Keeping::default(),
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
            direct_io: false,
            assembly: None,
        }
    }
}

impl TransferOptions {
    /// Returns the options that the receiving end needs. The filter remains at the sending end, and
    /// the deletion carries its rules. The text of a command that runs at the sending end is
    /// removed.
    #[must_use]
    pub fn of_destination(&self) -> TransferOptions {
        let mut options = TransferOptions {
            filter: Filter::default(),
            report_omitted: false,
            element_bytes: None,
            deletion: self.protecting_deletion(),
            on_commit: self.commit_command().cloned(),
            ..self.clone()
        };
        if let (Some(command), FilterAt::Source) = (&mut options.filter_command, self.filter_at) {
            command.command = Vec::new().into();
        }
        options
    }

    /// Returns the options that the sending end needs. Backups and commands at the destination
    /// remain there.
    #[must_use]
    pub fn of_source(&self) -> TransferOptions {
        TransferOptions {
            deletion: self.protecting_deletion(),
            backup: None,
            on_commit: None,
            filter_command: self.filter_command_at(FilterAt::Source).cloned(),
            ..self.clone()
        }
    }

    /// Returns the options for a part of the files. Another session deletes and reports omitted
    /// entries. If `update` is true, files that are newer at the destination stay.
    #[must_use]
    pub fn of_part(self, update: bool) -> TransferOptions {
        TransferOptions {
            deletion: None,
            report_omitted: false,
            ..self.updating(update)
        }
    }

    /// Returns the options with which files that are newer at the destination stay, if `update` is
    /// true or the user requested it.
    #[must_use]
    pub fn updating(mut self, update: bool) -> TransferOptions {
        self.criteria.update |= update;
        self
    }

    /// Returns the options that [`TransferOptions::permits`] looks at. The rules of filters are
    /// removed, because they give no rights and may be long.
    #[must_use]
    pub fn without_rules(self) -> TransferOptions {
        TransferOptions {
            filter: Filter::default(),
            deletion: self.deletion.map(|deletion| Deletion {
                rules: Vec::new(),
                ..deletion
            }),
            ..self
        }
    }

    /// Returns the deletion with the names that the filter protects. A comparison with a filter
    /// reports the entries that a deletion would remove.
    pub fn protecting_deletion(&self) -> Option<Deletion> {
        let compares = self.operation == Operation::Verify && self.filter != Filter::default();
        let deletion = self.deletion.clone();
        let deletion = deletion.or(compares.then(Deletion::default))?;
        Some(deletion.protecting(&self.filter, self.backup.as_ref()))
    }

    /// Returns the command that runs for each committed file; `None` for an operation other than a
    /// copy.
    pub fn commit_command(&self) -> Option<&FileCommand> {
        let command = self.on_commit.as_ref();
        command.filter(|_| self.operation == Operation::Copy)
    }

    /// Returns the filter command that runs at the end `at`; `None` for comparisons.
    pub fn filter_command_at(&self, at: FilterAt) -> Option<&FileCommand> {
        let is_there = self.operation != Operation::Verify && self.filter_at == at;
        self.filter_command.as_ref().filter(|_| is_there)
    }

    /// True if a command filters files at the source, so that their sizes differ from the listed
    /// ones.
    pub fn is_filtered(&self) -> bool {
        self.filter_command_at(FilterAt::Source).is_some()
    }

    /// True if a copy may delete names at the destination.
    pub fn deletes(&self) -> bool {
        self.deletion.is_some() && self.operation != Operation::Verify
    }

    /// True if files that exist at the destination are also compared by content.
    pub fn compares_contents(&self) -> bool {
        let Verification {
            integrity,
            read_back,
            digests,
        } = self.verification;
        let wanted = read_back || self.move_away || digests == Digests::All;
        let copies = wanted && self.operation == Operation::Copy;
        (copies || self.criteria.checksum) && integrity == Integrity::Digest
    }

    /// True if these options permit a request with the options `asked`. All fields are listed, so
    /// that a new one cannot be forgotten. A field that is ignored gives no further rights.
    pub fn permits(&self, asked: &TransferOptions) -> bool {
        let TransferOptions {
            operation,
            selection,
            filter: _,
            keep,
            criteria: _,
            report_omitted: _,
            move_away,
            deletion: _,
            backup,
            on_commit,
            filter_command,
            filter_at: _,
            verification: _,
            compression: _,
            element_bytes: _,
            direct_io: _,
            assembly,
        } = asked;
        let allowed = self.selection;
        *operation == self.operation
            && (allowed.recursive || !selection.recursive)
            && (allowed.copy_links || !selection.copy_links)
            && (allowed.keep_set_ids || !selection.keep_set_ids)
            && (keep.is_usual() && !keep.fake_source || keep.is_within(&self.keep))
            && (self.deletes() || !asked.deletes())
            && (self.move_away || !move_away)
            && self.backup == *backup
            && self.on_commit == *on_commit
            && self.filter_command == *filter_command
            && self.is_filtered() == asked.is_filtered()
            && self.assembly == *assembly
    }

    /// True if every value is within its range, and the options are compatible.
    pub fn is_valid(&self) -> bool {
        let verifies = self.operation == Operation::Verify;
        let digests = self.verification.integrity == Integrity::Digest;
        self.keep.clone().read().is_ok()
            && self.filter.is_valid()
            && self.criteria.is_valid()
            // A move with deletion could delete the files that it moved.
            && !(self.move_away && self.deletion.is_some())
            && (digests || !self.move_away)
            && self.deletion.as_ref().is_none_or(|deletion| {
                let names_only = !deletion.excluded && deletion.maximum.is_none();
                self.selection.recursive && (names_only || !verifies) && deletion.is_valid()
            })
            && self.backup.as_ref().is_none_or(|backup| !verifies && backup.is_valid())
            && self.has_valid_filter_command()
            && self.on_commit.as_ref().is_none_or(|command| {
                self.operation == Operation::Copy && command.is_valid()
            })
            && self.compression.is_none_or(|compression| compression.check().is_ok())
            && self.element_bytes.is_none_or(|bytes| ELEMENT_BYTES.contains(&bytes))
            && self.has_valid_assembly()
    }

    /// True if the assembly is valid and compatible with the other options. An assembled file is
    /// the only source, so it has no names to delete, and commands see whole files only.
    fn has_valid_assembly(&self) -> bool {
        self.assembly.is_none_or(|assembly| {
            assembly.is_valid()
                && self.operation == Operation::Copy
                && !self.move_away
                && self.deletion.is_none()
                && self.filter_command.is_none()
                && (self.on_commit.is_none() || assembly == Assembly::Whole)
        })
    }

    /// True if the filter command is valid and compatible with the other options.
    fn has_valid_filter_command(&self) -> bool {
        self.filter_command.as_ref().is_none_or(|command| {
            let runs_elsewhere = self.is_filtered() && command.command.is_empty();
            (runs_elsewhere || command.is_valid())
                && self.operation != Operation::Verify
                && !self.compares_contents()
                && !self.criteria.size_only
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> TransferOptions {
        TransferOptions {
            filter: Filter {
                rules: vec![b"- *.o"[..].into()],
                newer_than: Some(-1),
                one_file_system: true,
                ..Filter::default()
            },
            keep: Keeping {
                extended: true,
                leaves_modes: true,
                fake_source: true,
                ..Keeping::default()
            },
            deletion: Some(Deletion::default()),
            backup: Some(Backup::default()),
            on_commit: Some(command(b"catalogue \xff")),
            filter_command: Some(command(b"gzip")),
            filter_at: FilterAt::Source,
            selection: Selection {
                recursive: true,
                ..Selection::default()
            },
            ..TransferOptions::default()
        }
    }

    fn command(text: &[u8]) -> FileCommand {
        FileCommand {
            command: text.into(),
            jobs: 1,
            milliseconds: 1,
        }
    }

    #[test]
    fn options_have_a_wire_form_and_a_json_form() {
        let options = options();
        let json = serde_json::to_value(&options).unwrap();
        assert_eq!(json["filter"]["rules"][0], "- *.o");
        assert_eq!(json["filter"].get("list_parts"), None);
        assert_eq!(json["keep"]["extended_attributes"], true);
        assert_eq!(json["keep"]["leave_modes"], true);
        assert_eq!(json["deletion"], serde_json::json!({ "excluded": false }));
        assert_eq!(json["on_commit"]["command"]["bytes"][10], 255);
        assert_eq!(json["filter_at"], "source");
        assert_eq!(json.get("compression"), None);
        let read: TransferOptions = serde_json::from_value(json).unwrap();
        assert_eq!(read, options);
        let wire = minicbor::to_vec(&options).unwrap();
        let read: TransferOptions = minicbor::decode(&wire).unwrap();
        assert_eq!(read, options);
        assert_eq!(
            serde_json::from_str::<TransferOptions>("{}").unwrap(),
            TransferOptions::default()
        );
    }

    #[test]
    fn each_end_gets_the_options_that_concern_it() {
        let destination = options().of_destination();
        assert!(destination.is_valid() && destination.is_filtered());
        assert!(destination.filter.is_everything());
        assert!(destination.filter_command.unwrap().command.is_empty());
        // The rule of the filter, and the rule that protects backups.
        assert_eq!(destination.deletion.unwrap().rules.len(), 2);
        let source = options().of_source();
        assert!(source.is_valid());
        assert_eq!((&source.backup, &source.on_commit), (&None, &None));
        assert_eq!(source.filter_command, options().filter_command);
    }

    #[test]
    fn an_introduced_host_may_not_request_more() {
        let allowed = options().of_destination();
        assert!(allowed.clone().without_rules().permits(&allowed));
        let changes: [fn(&mut TransferOptions); 10] = [
            |options| options.operation = Operation::DryRun,
            |options| options.selection.copy_links = true,
            |options| options.selection.keep_set_ids = true,
            |options| options.keep.devices = true,
            |options| options.keep.fake_source = false,
            |options| options.move_away = true,
            |options| options.backup = None,
            |options| options.on_commit = None,
            |options| options.filter_command = None,
            |options| options.filter_at = FilterAt::Destination,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut asked = allowed.clone();
            change(&mut asked);
            assert!(!allowed.permits(&asked), "{number}");
        }
        let mut less = allowed.clone();
        less.deletion = None;
        less.keep.extended = false;
        assert!(allowed.permits(&less) && !less.permits(&allowed));
    }
}
