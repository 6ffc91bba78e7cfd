//! Explains an invalid specification to a user of the command line.

use crate::spec::SpecError;

/// Describes the error with the options of `cp` instead of the fields.
pub fn by_options(error: &SpecError) -> String {
    match error {
        SpecError::NoSource => "name a source and, last, a destination",
        SpecError::Mixed => {
            "some sources are here and some at another host: copy them with two commands"
        }
        SpecError::DifferentHosts => {
            "the sources are at different hosts: copy them with one command each"
        }
        SpecError::SameName(text) => text,
        SpecError::NullSource => "null: is a destination; a source of zeros is zero:SIZE",
        SpecError::ZeroDestination => "zero: is a source; a destination without a disk is null:",
        SpecError::OnlySource => "a server of HTTP or S3 can only be a source",
        SpecError::DigestsNeeded => {
            "--verify, --manifest, --checksum and --move need digests: leave out --integrity checksum"
        }
        SpecError::Paired => {
            "with --stack paired each stream has one thread at either end: leave out --readers, \
             --compressors, --decompressors, --writers, --policy and --plan, or --stack paired"
        }
        SpecError::PipeAlone => "- is one stream of data: with it there is one source",
        SpecError::PipeOnce => {
            "- is read or written once: --dry-run, --verify and --manifest need files; the \
             summary tells the digest of what came from standard input"
        }
        SpecError::PipePaired => {
            "with --stack paired a pipe that nobody reads would stop the streams: leave out \
             --stack, or copy to a file"
        }
        SpecError::PipeCompared => {
            "- is a stream: what is compared are files and trees that are there"
        }
        SpecError::ClearOverSsh => {
            "over SSH data are always encrypted: leave --data-security clear out, or copy to a \
             daemon (longhaul serve --allow-clear)"
        }
        SpecError::PipeJudged => {
            "- and null: have no size and time: --checksum, --update and the like are for files"
        }
        SpecError::Assembly(text) => text,
        SpecError::Move(text) => return format!("--move: {text}"),
        SpecError::Retries(text) => return format!("--retries: {text}"),
        SpecError::Deletion(text) => return format!("--delete: {text}"),
        SpecError::Backup(text) => return format!("--backup: {text}"),
        SpecError::OnCommit(text) => return format!("--on-commit: {text}"),
        SpecError::FilterCommand(text) => return format!("--filter-cmd: {text}"),
        SpecError::Filter(text) | SpecError::Keep(text) => text,
        SpecError::FilesOfOne => {
            "the files of --files-from lie beneath one source: name one, and the destination"
        }
        SpecError::Version(_)
        | SpecError::OneSource
        | SpecError::Range { .. }
        | SpecError::DryRun
        | SpecError::Compared
        | SpecError::Trust
        | SpecError::Certificate
        | SpecError::NicePaths => return error.to_string(),
    }
    .to_owned()
}
