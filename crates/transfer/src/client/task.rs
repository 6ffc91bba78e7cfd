//! Converts a specification into the task of this end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_engine::flows::Count;
use longhaul_engine::session::{FlowCounts, TransferSettings};
use longhaul_model::policy::Policy;
use longhaul_proto::coding::Compression;
use longhaul_proto::filter::Filter;
use longhaul_proto::handshake::Landing;
use longhaul_proto::message::Flows;
use longhaul_proto::options::{Operation, Stack};
use longhaul_system::limits;
use longhaul_units::ByteCount;

use super::local_paths::{Here, has_leftovers};
use super::run::Task;
use crate::endpoint::{Endpoint, standard};
use crate::planning::beginning::Beginning;
use crate::planning::choice::{Choice, choose};
use crate::planning::history::Past;
use crate::rate_limit::BandwidthLimit;
use crate::spec::{Direction, FixedFlows, TransferSpec, ValidSpec};
use crate::stop::{Exit, Stop};

impl Task {
    /// Creates the task with the flows that its policy chooses.
    pub(super) fn chosen(spec: ValidSpec, here: Here) -> Result<Task, Stop> {
        let past = Past::default();
        let choice = choose(&spec, &local_sources(&spec.sources, &here), &past)?;
        let spec = TransferSpec {
            flows: choice.flows,
            ..spec.into_spec()
        };
        // Only the flows have changed, so the validation cannot fail for a new reason.
        let spec = spec.validate();
        let spec = spec.map_err(|error| Stop::because(Exit::Usage, error))?;
        Ok(Task {
            choice,
            past,
            ..Task::new(spec, here)
        })
    }

    /// Limits the number of open large files to that of the policy.
    pub(super) fn fewer_files(&self, most: usize) -> usize {
        let chosen = self.choice.large_files;
        chosen.map_or(most, |chosen| most.min(chosen as usize))
    }

    fn new(spec: ValidSpec, here: Here) -> Task {
        let (mut sources, mut destination) = (spec.sources.clone(), spec.destination.clone());
        let landing = match (spec.options.operation, sources.as_mut_slice()) {
            (Operation::Verify, [left]) => {
                let filtered = spec.options.filter != Filter::default();
                match_sides((left, &mut destination), &here, filtered)
            }
            (_, [_]) => Landing::WithinOrAs,
            _ => Landing::Within,
        };
        let mut settings = settings_of(&spec);
        let reads_input = |source: &Endpoint| source.promises().standard_stream;
        let pipe = sources
            .iter()
            .any(reads_input)
            .then(|| standard::open_input(&mut settings));
        Task {
            spec,
            sources,
            destination,
            landing,
            settings,
            pipe,
            here,
            remembers: false,
            choice: Choice::default(),
            past: Past::default(),
            begins: None,
        }
    }

    /// Applies the initial flows of the plan.
    pub(super) fn begin_as_planned(&mut self) {
        self.begins = self.planned_beginning();
        let is_free = self.spec.direction() == Direction::Pull && self.flows().writers.is_none();
        let writers = &mut self.settings.flows.writers;
        let begins = self.begins.filter(|_| is_free);
        if let Some(more) = begins.and_then(|begins| begins.more_writers(*writers)) {
            *writers = more as usize;
        }
    }

    /// Returns the initial settings of a copy that the model steers, if the history has copies with
    /// that host.
    fn planned_beginning(&self) -> Option<Beginning> {
        let steers = self.spec.policy == Policy::Model && self.flows().stack == Stack::Layered;
        if !steers || self.spec.connection.nice || !self.is_remembered() {
            return None;
        }
        let host = self.other_host()?;
        let receives = self.spec.direction() == Direction::Pull;
        Beginning::new(self.past.transfers().to_vec(), &host, receives)
    }

    /// Returns the initial flows of the other end's layers, fixed by the user or planned.
    pub(super) fn remote_flows(&self) -> Flows {
        let fixed = self.flows();
        Flows {
            readers: fixed.readers,
            compressors: fixed.compressors,
            streams: None,
            decompressors: fixed.decompressors,
            writers: fixed.writers.or_else(|| {
                let begins = self.begins.filter(|_| self.destination.place().is_some())?;
                begins.more_writers(FlowCounts::default().writers)
            }),
            committers: None,
        }
    }

    /// True if the destination has no entries yet, regardless of the sources.
    pub(super) fn seems_empty(&self) -> bool {
        if self.settings.criteria.existing {
            return false;
        }
        let is_unused = |path: &[u8]| {
            let Some(path) = self.here.path(path) else {
                return false;
            };
            let missing = path.symlink_metadata().is_err();
            missing && path.parent().is_none_or(|parent| !has_leftovers(parent))
        };
        let is_unused = self.destination.local_path().is_none_or(is_unused);
        is_unused && self.settings.operation == Operation::Copy
    }

    /// Returns the compression of this transfer. It is chosen automatically only for a copy over a
    /// network path.
    pub(super) fn compression(&self) -> Option<Compression> {
        let options = &self.spec.options;
        let may_choose = options.operation == Operation::Copy
            && self.spec.direction() != Direction::Local
            && !self.sources.iter().any(Endpoint::is_generated);
        let compression = options.compression;
        compression.filter(|asked| may_choose || *asked != Compression::Auto)
    }

    /// Returns the flows that the user fixed. At a low rate limit, blocks are smaller so that each
    /// completes soon.
    pub(super) fn flows(&self) -> FixedFlows {
        bound_flows(&self.spec)
    }
}

/// Returns the sources as paths of this host, or an empty list if any of them is elsewhere.
pub(super) fn local_sources(sources: &[Endpoint], here: &Here) -> Vec<PathBuf> {
    let local = |source: &Endpoint| here.path(source.local_path()?).map(Path::to_owned);
    let found: Option<Vec<PathBuf>> = sources.iter().map(local).collect();
    found.unwrap_or_default()
}

fn bound_flows(spec: &TransferSpec) -> FixedFlows {
    let mut flows = spec.flows;
    if let (Some(limit), Some(wanted)) = (spec.limits.rate, &mut flows.block_bytes) {
        *wanted = limit.block_bytes(*wanted);
    }
    flows
}

fn settings_of(spec: &TransferSpec) -> TransferSettings {
    let fixed = bound_flows(spec);
    let usual = TransferSettings::default();
    TransferSettings {
        checkpoint_bytes: spec.limits.checkpoint,
        silence: spec.connection.timeout,
        deletion: spec.options.protecting_deletion().map(Arc::new),
        expiry: match spec.options.operation {
            Operation::Verify => usual.expiry,
            Operation::Copy | Operation::DryRun => spec.limits.expiry(),
        },
        limit: spec.limits.rate.map(BandwidthLimit::bytes_per_second),
        flows: counts_of(&fixed),
        stack: fixed.stack,
        budget: limits::for_blocks(ByteCount(spec.limits.memory)),
        block_bytes: fixed
            .block_bytes
            .map_or(usual.block_bytes, |bytes| bytes as usize),
        ..TransferSettings::new(&spec.options)
    }
}

fn counts_of(fixed: &FixedFlows) -> FlowCounts {
    let mut flows = FlowCounts::default();
    let set = |count: &mut usize, wanted: Option<u32>| {
        if let Some(wanted) = wanted {
            *count = wanted as usize;
        }
    };
    if let Some(readers) = fixed.readers {
        flows.readers = Count::Fixed(readers as usize);
    }
    set(&mut flows.compressors, fixed.compressors);
    set(&mut flows.streams, fixed.streams);
    set(&mut flows.decompressors, fixed.decompressors);
    set(&mut flows.writers, fixed.writers);
    flows
}

/// Adjusts both sides of a verification so that a trailing slash makes no difference. Only a root
/// directory has no name that the other side could take. For a `filtered` verification, rules with
/// a leading slash apply to the source's entries, as in a copy. Returns the landing of the source.
fn match_sides(
    (left, right): (&mut Endpoint, &mut Endpoint),
    here: &Here,
    filtered: bool,
) -> Landing {
    // The paths of a principal are resolved beneath its roots, where links are not followed.
    if let Here::Anywhere = here {
        follow(left, right);
    }
    let fills = filtered && left.path().is_some_and(|path| path.ends_with(b"/"));
    let named = !fills && trim(left) && trim(right);
    if !named {
        fill(left);
    }
    if named { Landing::As } else { Landing::Within }
}

/// Resolves a source link if the path ends with a slash, or if the right path is local and not a
/// link. The target of the link is then verified. Otherwise the link itself is verified, as `cp -r`
/// copies it.
fn follow(left: &mut Endpoint, right: &Endpoint) {
    let as_path = |path: &[u8]| Path::new(OsStr::from_bytes(path)).to_owned();
    let Some(path) = left.local_path() else {
        return;
    };
    let is_no_link = |right: &[u8]| !as_path(right).is_symlink();
    let meant = path.ends_with(b"/") || right.local_path().is_some_and(is_no_link);
    let end = path.iter().rposition(|&byte| byte != b'/');
    let is_link = as_path(&path[..end.map_or(0, |last| last + 1)]).is_symlink();
    // A dangling link is verified as a link.
    if meant
        && is_link
        && let Ok(real) = as_path(path).canonicalize()
    {
        left.set_path(real.into_os_string().into_encoded_bytes());
    }
}

/// Removes trailing slashes. Returns false if no name is left.
fn trim(endpoint: &mut Endpoint) -> bool {
    let Some(path) = endpoint.path() else {
        return true;
    };
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let mut path = path.to_vec();
    path.truncate(end.max(1));
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let is_named = !matches!(name, b"" | b"." | b"..");
    endpoint.set_path(path);
    is_named
}

/// Appends a slash, so that the path stands for the contents of the directory.
fn fill(endpoint: &mut Endpoint) {
    if let Some(path) = endpoint.path()
        && !path.ends_with(b"/")
    {
        let filled = [path, b"/"].concat();
        endpoint.set_path(filled);
    }
}
