//! Validates a specification.

use std::ops::Deref;

use super::names::check_names;
use super::{FixedFlows, MAXIMUM_TASK_BYTES, SpecError, TransferSpec, VERSION};
use crate::endpoint::{Endpoint, Link};
use crate::settings::DataSecurity;
use longhaul_engine::send::source::last_name;
use longhaul_model::policy::Policy;
use longhaul_proto::coding::Compression;
use longhaul_proto::command::FileCommand;
use longhaul_proto::criteria::{Criteria, WIDEST_WINDOW};
use longhaul_proto::digest::Integrity;
use longhaul_proto::filter::SelectionError;
use longhaul_proto::options::{Digests, ELEMENT_BYTES, FilterAt, Operation, Stack};

/// Maximum number of flows of a layer.
const MOST_FLOWS: u32 = 512;

/// Valid block sizes, in bytes.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 64 << 10..=16 << 20;

/// A specification whose fields are all within their ranges. All its sources are at one host;
/// [`ValidSpec::direction`] returns the direction of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSpec {
    spec: TransferSpec,
    direction: Direction,
}

/// Direction in which data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Within this host.
    Local,
    /// From this host to another one.
    Push,
    /// From another host to this one.
    Pull,
    /// Between two other hosts.
    ThirdParty,
}

impl Deref for ValidSpec {
    type Target = TransferSpec;

    fn deref(&self) -> &TransferSpec {
        &self.spec
    }
}

impl ValidSpec {
    pub(super) fn new(mut spec: TransferSpec) -> Result<ValidSpec, SpecError> {
        leave_out_unnamed_devices(&mut spec);
        if spec.version != VERSION {
            return Err(SpecError::Version(spec.version));
        }
        let direction = direction_of(&spec)?;
        check_sides(&spec)?;
        check_filter(&spec, direction)?;
        check_keep(&spec)?;
        check_verification(&spec)?;
        check_criteria(&spec)?;
        check_deletion(&spec, direction)?;
        check_backup(&spec)?;
        check_on_commit(&spec)?;
        check_filter_command(&spec)?;
        check_move(&spec)?;
        check_assembly(&spec)?;
        check_retries(&spec, direction)?;
        check_pipes(&spec)?;
        check_flows(&spec.flows)?;
        check_policy(&spec)?;
        check_numbers(&spec)?;
        check_connection(&spec)?;
        check_task(&spec)?;
        Ok(ValidSpec { spec, direction })
    }

    /// Returns the direction in which data move.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the name of the other host that takes part in the session; `None` if both ends are
    /// opened by this process.
    pub fn other_host(&self) -> Option<&str> {
        let mut ends = self.spec.sources.iter().chain([&self.spec.destination]);
        ends.find_map(|end| end.host().map(|host| host.name()))
    }

    /// Returns the reason why a transfer between clusters is not possible with these options.
    pub fn fault_between_clusters(&self) -> Option<&'static str> {
        let options = &self.spec.options;
        if options.move_away {
            return Some("--move is not available: remove it");
        }
        if options.on_commit.is_some() || options.filter_command.is_some() {
            return Some("--on-commit and --filter-cmd are not available: remove them");
        }
        (!options.selection.recursive).then_some("only directories are copied: add -r")
    }

    /// True if files that are newer at the destination stay.
    pub fn updates(&self) -> bool {
        self.spec.options.criteria.update
    }

    /// Returns the specification, to be changed and validated again.
    pub fn into_spec(self) -> TransferSpec {
        self.spec
    }
}

/// Drops the devices unless the user requested them by name, if a source may belong to another
/// person. A device gives access to a disk of the destination's host.
fn leave_out_unnamed_devices(spec: &mut TransferSpec) {
    let is_foreign = |source: &Endpoint| source.promises().foreign;
    if !spec.options.keep.devices_named && spec.sources.iter().any(is_foreign) {
        spec.options.keep.devices = false;
    }
}

fn direction_of(spec: &TransferSpec) -> Result<Direction, SpecError> {
    Ok(match Link::between(&spec.sources, &spec.destination)? {
        Link::Local => Direction::Local,
        Link::Push(_) => Direction::Push,
        Link::Pull(_) => Direction::Pull,
        Link::ThirdParty(..) => Direction::ThirdParty,
    })
}

fn check_sides(spec: &TransferSpec) -> Result<(), SpecError> {
    if spec.options.operation == Operation::Verify && spec.sources.len() > 1 {
        return Err(SpecError::OneSource);
    }
    Endpoint::resolve(&spec.sources, &spec.destination)?;
    check_names(spec.sources.iter().filter_map(Endpoint::path)).map_err(SpecError::SameName)
}

fn check_filter(spec: &TransferSpec, direction: Direction) -> Result<(), SpecError> {
    if spec.options.filter.files.is_some() && spec.sources.len() > 1 {
        return Err(SpecError::FilesOfOne);
    }
    let bad = |error: SelectionError| SpecError::Filter(error.to_string());
    let filter = &spec.options.filter;
    filter.parse().map_err(bad)?;
    match (spec.options.operation, direction) {
        (_, Direction::Local) => Ok(()),
        // The sending end is here and has the list. The other end of a comparison gets the rules.
        (Operation::Copy | Operation::DryRun, Direction::Push) => Ok(()),
        (_, Direction::Push | Direction::Pull) => filter.check_size().map_err(bad),
        // The job's request carries the list.
        (_, Direction::ThirdParty) if !filter.fits_a_request() => {
            let text = "the filters and the list of files are too long for a copy between two \
                        other hosts: split the list, or run the command on one of them";
            Err(SpecError::Filter(text.to_owned()))
        }
        (_, Direction::ThirdParty) => Ok(()),
    }
}

fn check_keep(spec: &TransferSpec) -> Result<(), SpecError> {
    let keep = &spec.options.keep;
    let parsed = keep.clone().read();
    parsed.map_err(|error| SpecError::Keep(error.to_string()))?;
    match spec.options.operation {
        Operation::Verify if keep.fake_source || !keep.is_usual() => {
            let text = "a comparison is of names and contents";
            Err(SpecError::Keep(text.to_owned()))
        }
        _ if keep.fake_source && spec.options.selection.copy_links => {
            let text = "--fake-super at the source: its links are files, which nobody can follow: \
                        leave --copy-links out";
            Err(SpecError::Keep(text.to_owned()))
        }
        _ => Ok(()),
    }
}

fn check_verification(spec: &TransferSpec) -> Result<(), SpecError> {
    let wanted = spec.options.verification;
    let needs_digests = wanted.read_back || wanted.digests == Digests::All;
    match (spec.options.operation, wanted.integrity) {
        (Operation::DryRun, _) if needs_digests => Err(SpecError::DryRun),
        (_, Integrity::Checksum) if needs_digests => Err(SpecError::DigestsNeeded),
        _ => Ok(()),
    }
}

fn check_criteria(spec: &TransferSpec) -> Result<(), SpecError> {
    let asked = spec.options.criteria;
    let places = spec.sources.iter().chain([&spec.destination]);
    let is_file = |place: &Endpoint| place.promises().files;
    match (spec.options.operation, spec.options.verification.integrity) {
        _ if asked.window > WIDEST_WINDOW => Err(SpecError::Range {
            field: "criteria.window",
            text: "it is a day at most",
        }),
        (_, Integrity::Checksum) if asked.checksum => Err(SpecError::DigestsNeeded),
        (Operation::Verify, _) if asked != Criteria::default() => Err(SpecError::Compared),
        _ if !asked.is_usual() && !places.into_iter().all(is_file) => Err(SpecError::PipeJudged),
        _ => Ok(()),
    }
}

fn check_deletion(spec: &TransferSpec, direction: Direction) -> Result<(), SpecError> {
    let Some(deletion) = &spec.options.deletion else {
        return Ok(());
    };
    let fills = |source: &Endpoint| source.path().is_some_and(|path| last_name(path).is_none());
    let is_tree = |place: &Endpoint| place.promises().trees;
    let mut places = spec.sources.iter().chain([&spec.destination]);
    let refused = |text| Err(SpecError::Deletion(text));
    if spec.options.operation == Operation::Verify || !spec.options.selection.recursive {
        return refused("only a copy of directories deletes: add -r (recursive)");
    }
    if !places.all(is_tree) {
        return refused("-, null: and zero: are no directories");
    }
    if spec.options.filter.files.is_some() {
        return refused("of listed files nobody knows what is too much: leave the list out");
    }
    if spec.sources.len() > 1 && spec.sources.iter().any(fills) {
        return refused(
            "several sources fill the destination: what one of them does not have, another may \
             have; copy each into a directory of its own",
        );
    }
    match direction {
        Direction::Local => Ok(()),
        Direction::Push | Direction::Pull | Direction::ThirdParty => {
            let options = &spec.options;
            let asked = deletion.protecting(&options.filter, options.backup.as_ref());
            let size = asked.check_size();
            size.map_err(|error| SpecError::Filter(error.to_string()))
        }
    }
}

fn check_backup(spec: &TransferSpec) -> Result<(), SpecError> {
    let Some(asked) = &spec.options.backup else {
        return Ok(());
    };
    let refused = |text| Err(SpecError::Backup(text));
    if spec.options.operation == Operation::Verify {
        return refused("a comparison replaces nothing");
    }
    let mut places = spec.sources.iter().chain([&spec.destination]);
    if places.any(|place| !place.promises().files) {
        return refused("only what is copied as files is kept: not with - and null:");
    }
    if asked.is_valid() {
        Ok(())
    } else {
        refused("a suffix has at most 128 bytes and no slash, and is not empty without a directory")
    }
}

fn check_on_commit(spec: &TransferSpec) -> Result<(), SpecError> {
    let Some(asked) = &spec.options.on_commit else {
        return Ok(());
    };
    let refused = |text| Err(SpecError::OnCommit(text));
    if spec.options.operation == Operation::Verify {
        return refused("a comparison commits nothing");
    }
    if !makes_files(spec) {
        return refused("it runs for files that get a name of their own: not with - and null:");
    }
    if !spec.destination.promises().local_files {
        return refused("no command can run at an FTP or GridFTP server");
    }
    fault_of(asked, &spec.flows).map_or(Ok(()), refused)
}

const COMMAND_BOUNDS: &str = "a command has 1 to 4096 bytes, 1 to 64 of them run at a time, and each \
                              takes from 1 ms to 7 days";

/// Returns the reason why a command cannot run.
fn fault_of(asked: &FileCommand, flows: &FixedFlows) -> Option<&'static str> {
    if flows.stack == Stack::Paired {
        return Some(
            "with --stack paired a slow command would stop the streams, and nobody would hear of an \
             end: leave out --stack",
        );
    }
    (!asked.is_valid()).then_some(COMMAND_BOUNDS)
}

fn check_task(spec: &TransferSpec) -> Result<(), SpecError> {
    let bytes = spec.task.as_ref().map_or(1, String::len);
    if (1..=MAXIMUM_TASK_BYTES).contains(&bytes) {
        Ok(())
    } else {
        Err(SpecError::Range {
            field: "task",
            text: "it has 1 to 64 bytes",
        })
    }
}

/// True if the copied data become files with names.
fn makes_files(spec: &TransferSpec) -> bool {
    let is_file = |place: &Endpoint| place.promises().files;
    let mut places = spec.sources.iter().chain([&spec.destination]);
    places.all(is_file) && !spec.destination.is_discarded_remotely()
}

fn check_filter_command(spec: &TransferSpec) -> Result<(), SpecError> {
    let Some(asked) = &spec.options.filter_command else {
        return Ok(());
    };
    let refused = |text| Err(SpecError::FilterCommand(text));
    let wanted = spec.options.verification;
    let compares =
        wanted.read_back || wanted.digests == Digests::All || spec.options.criteria.checksum;
    if compares || spec.options.criteria.size_only {
        return refused(
            "the destination holds what the command wrote, which is no more like the source: leave \
             out --verify, --manifest, --checksum and --size-only",
        );
    }
    if spec.options.move_away {
        return refused("what the command leaves out would be lost: it is not for --move");
    }
    let at_server = !spec.destination.promises().local_files;
    if spec.options.filter_at == FilterAt::Destination && makes_files(spec) && at_server {
        return refused("no command can run at an FTP or GridFTP server");
    }
    let is_generated = spec.sources.iter().any(Endpoint::is_generated);
    let no_files = spec.options.filter_at == FilterAt::Source && is_generated;
    if spec.options.operation == Operation::Verify || !makes_files(spec) || no_files {
        return refused(
            "it is for copies of files that get a name of their own: not with -, null: and, at the \
             source, zero:",
        );
    }
    fault_of(asked, &spec.flows).map_or(Ok(()), refused)
}

fn check_assembly(spec: &TransferSpec) -> Result<(), SpecError> {
    if spec.options.assembly.is_none() {
        return Ok(());
    }
    let refused = |text| Err(SpecError::Assembly(text));
    let mut places = spec.sources.iter().chain([&spec.destination]);
    let filter = &spec.options.filter;
    let names_one = filter.files.as_ref().is_some_and(|files| files.len() == 1);
    let is_tree = spec.options.selection.recursive && (!names_one || filter.files_recursive);
    if spec.sources.len() > 1 || is_tree {
        return refused("several sessions copy parts of one file: it is the only source");
    }
    if places.any(|place| !place.promises().files) || !spec.destination.promises().destination {
        return refused(
            "-, null:, zero: and FTP servers have no partial files that sessions share",
        );
    }
    if !spec.options.is_valid() {
        return refused(
            "parts are powers of two of at least 1 MiB at multiples of their length, and are not \
             combined with --move, --delete, --filter-command, and --on-commit for a part",
        );
    }
    Ok(())
}

fn check_move(spec: &TransferSpec) -> Result<(), SpecError> {
    if !spec.options.move_away {
        return Ok(());
    }
    let is_tree = |place: &Endpoint| place.promises().trees;
    let mut places = spec.sources.iter().chain([&spec.destination]);
    let refused = |text| Err(SpecError::Move(text));
    if spec.options.operation == Operation::Verify {
        return refused("a comparison changes nothing");
    }
    if !places.all(is_tree) {
        return refused("-, null: and zero: are no files");
    }
    if spec
        .sources
        .iter()
        .any(|source| !source.promises().local_files)
    {
        return refused("files at a server of FTP, GridFTP, HTTP or S3 cannot be removed");
    }
    if spec.options.deletion.is_some() {
        return refused("what was moved away would be deleted at the destination");
    }
    if spec.options.keep.hard_links {
        return refused("of several names of one file only one would be read: leave -H out");
    }
    if spec.options.selection.copy_links {
        return refused("what links lead to is not moved: copy links as links");
    }
    match spec.options.verification.integrity {
        Integrity::Checksum => Err(SpecError::DigestsNeeded),
        Integrity::Digest => Ok(()),
    }
}

fn check_retries(spec: &TransferSpec, direction: Direction) -> Result<(), SpecError> {
    let is_once = |place: &Endpoint| !place.promises().repeatable;
    let mut places = spec.sources.iter().chain([&spec.destination]);
    let text = match spec.limits.retries {
        None | Some(1) => return Ok(()),
        Some(0) => "it is 1 or more",
        Some(_) if spec.options.operation == Operation::Verify => "a comparison is done once",
        Some(_) if places.any(is_once) => "- is read or written once: leave it out",
        // An introduction is valid for one session only.
        Some(_) if direction == Direction::ThirdParty => {
            "it is for copies from or to this host: between two remote hosts each try is a job of \
             its own, so run the command again"
        }
        Some(_) => return Ok(()),
    };
    Err(SpecError::Retries(text))
}

fn check_pipes(spec: &TransferSpec) -> Result<(), SpecError> {
    let is_pipe = |place: &Endpoint| place.promises().standard_stream;
    let from = spec.sources.iter().any(is_pipe);
    let to = is_pipe(&spec.destination);
    if !from && !to {
        return Ok(());
    }
    let wanted = spec.options.verification;
    let twice = wanted.read_back || wanted.digests == Digests::All;
    match spec.options.operation {
        Operation::Verify => Err(SpecError::PipeCompared),
        _ if spec.sources.len() > 1 => Err(SpecError::PipeAlone),
        Operation::DryRun => Err(SpecError::PipeOnce),
        Operation::Copy if twice => Err(SpecError::PipeOnce),
        Operation::Copy if to && spec.flows.stack == Stack::Paired => Err(SpecError::PipePaired),
        Operation::Copy => Ok(()),
    }
}

fn check_flows(flows: &FixedFlows) -> Result<(), SpecError> {
    let FixedFlows {
        stack,
        readers,
        compressors,
        streams,
        decompressors,
        writers,
        block_bytes,
    } = *flows;
    let layers = [
        ("flows.readers", readers),
        ("flows.compressors", compressors),
        ("flows.decompressors", decompressors),
        ("flows.writers", writers),
    ];
    if stack == Stack::Paired && layers.iter().any(|(_, count)| count.is_some()) {
        return Err(SpecError::Paired);
    }
    for (field, count) in layers.into_iter().chain([("flows.streams", streams)]) {
        if count.is_some_and(|count| !(1..=MOST_FLOWS).contains(&count)) {
            let text = "it is from 1 to 512";
            return Err(SpecError::Range { field, text });
        }
    }
    let fits = |bytes: u32| bytes.is_power_of_two() && BLOCK_BYTES.contains(&bytes);
    match block_bytes {
        Some(bytes) if !fits(bytes) => Err(SpecError::Range {
            field: "flows.block_bytes",
            text: "a block has a power of two of bytes, from 64 KiB to 16 MiB",
        }),
        _ => Ok(()),
    }
}

fn check_policy(spec: &TransferSpec) -> Result<(), SpecError> {
    if spec.flows.stack == Stack::Paired && spec.policy != Policy::Model {
        return Err(SpecError::Paired);
    }
    match spec.path_rate {
        Some(rate) if rate == 0 || spec.policy != Policy::Bdp => Err(SpecError::Range {
            field: "path_rate",
            text: "it is 1 or more, and of the policy bdp",
        }),
        _ => Ok(()),
    }
}

fn check_numbers(spec: &TransferSpec) -> Result<(), SpecError> {
    let range = |field, text| Err(SpecError::Range { field, text });
    let options = &spec.options;
    if let Some(Err(text)) = options.compression.map(Compression::check) {
        return range("compression", text);
    }
    let valid = |bytes: u8| ELEMENT_BYTES.contains(&bytes);
    if !options.element_bytes.is_none_or(valid) {
        return range("element_bytes", "an element has 1, 2, 4 or 8 bytes");
    }
    if spec.limits.checkpoint == 0 {
        return range("limits.checkpoint", "it is 1 or more");
    }
    Ok(())
}

fn check_connection(spec: &TransferSpec) -> Result<(), SpecError> {
    let connection = &spec.connection;
    let trusts = [
        connection.fingerprint.is_some(),
        connection.accept_new,
        connection.authority.is_some(),
    ];
    if trusts.into_iter().filter(|given| *given).count() > 1 {
        return Err(SpecError::Trust);
    }
    if connection.certificate.is_some() != connection.key.is_some() {
        return Err(SpecError::Certificate);
    }
    if connection.nice && connection.mptcp {
        return Err(SpecError::NicePaths);
    }
    let is_encrypted = |endpoint: &Endpoint| endpoint.promises().always_encrypted;
    let clear = connection.data_security == DataSecurity::Clear;
    let mut ends = spec.sources.iter().chain([&spec.destination]);
    // Between two remote hosts it depends on how the two connect.
    let one_remote = !spec
        .sources
        .iter()
        .chain([&spec.destination])
        .all(|end| end.place().is_some());
    if clear && one_remote && ends.any(is_encrypted) {
        Err(SpecError::ClearOverSsh)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::keeping::Keeping;

    use super::*;

    #[test]
    fn files_at_an_ftp_server_are_not_moved() {
        let [server, here] = ["ftp://host/a", "b"].map(|text| Endpoint::parse(text.as_ref()));
        let mut spec = TransferSpec::copy(vec![server.unwrap()], here.unwrap());
        spec.options.move_away = true;
        assert!(matches!(spec.validate(), Err(SpecError::Move(_))));
    }

    #[test]
    fn the_other_host_takes_part_in_the_session() {
        for (source, to, host) in [
            ("ftp://server/a", "longhaul://daemon/b", Some("daemon")),
            ("me@login:a", "b", Some("login")),
            ("ftp://server/a", "b", None),
        ] {
            let [source, to] = [source, to].map(|text| Endpoint::parse(text.as_ref()).unwrap());
            let spec = TransferSpec::copy(vec![source], to).validate().unwrap();
            assert_eq!(spec.other_host(), host);
        }
    }

    #[test]
    fn devices_of_a_daemon_are_copied_only_by_name() {
        let [here, ssh, daemon] = ["a", "host:b", "longhaul://host/c"]
            .map(|text| Endpoint::parse(text.as_ref()).unwrap());
        for (source, to, named, copied) in [
            (&here, &daemon, false, true),
            (&ssh, &here, false, true),
            (&daemon, &here, false, false),
            (&daemon, &here, true, true),
            (&daemon, &ssh, false, false),
            (&daemon, &daemon, false, false),
            (&ssh, &daemon, false, true),
        ] {
            for fakes in [false, true] {
                let mut spec = TransferSpec::copy(vec![source.clone()], to.clone());
                spec.options.keep = Keeping {
                    devices: true,
                    specials: true,
                    devices_named: named,
                    fake_destination: fakes,
                    ..Keeping::default()
                };
                let keep = spec.validate().unwrap().options.keep.clone();
                assert_eq!(
                    (keep.devices, keep.specials),
                    (copied, true),
                    "{source:?} {to:?}"
                );
            }
        }
    }
}
