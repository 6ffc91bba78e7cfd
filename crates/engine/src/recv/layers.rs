//! Queues between the layers of a receiving end, and the threads of the layers.

use std::sync::OnceLock;

use longhaul_proto::message::Flows;
use longhaul_system::queue::Queue;

use super::commands::{self, Committed};
use super::compare::Listed;
use super::contents::ToRead;
use super::filter::{self, Unfiltered};
use super::verify::{ArrivedBlock, VerifiedBlock};
use crate::flows::{FlowGroup, LayerUse};

/// Queues between the layers.
pub(super) struct Queues {
    pub arrived: Queue<ArrivedBlock>,
    pub verified: Queue<VerifiedBlock>,
    pub listed: Queue<Listed>,
    /// Existing data that must be read.
    pub to_read: Queue<ToRead>,
    /// Files whose command has not run yet. Files that are pushed after the commands ended are
    /// dropped; their pending commands are recorded.
    pub commands: Queue<Committed>,
    /// Files that wait for their filter command.
    pub filtering: Queue<Unfiltered>,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues {
            arrived: Queue::default(),
            verified: Queue::default(),
            listed: Queue::default(),
            to_read: Queue::default(),
            commands: Queue::bounded(commands::MOST_WAITING),
            filtering: Queue::bounded(filter::most_waiting()),
        }
    }
}

impl Queues {
    /// Closes all queues.
    pub fn close(&self) {
        self.arrived.close();
        self.verified.close();
        self.listed.close();
        self.to_read.close();
        self.commands.close();
        self.filtering.close();
    }
}

/// Threads of the layers. Each group is set once, when the session starts.
#[derive(Default)]
pub(super) struct Layers {
    pub decompressors: OnceLock<FlowGroup>,
    pub writers: OnceLock<FlowGroup>,
    pub committers: OnceLock<FlowGroup>,
    pub small_committers: OnceLock<FlowGroup>,
    pub comparers: OnceLock<FlowGroup>,
    pub content_comparers: OnceLock<FlowGroup>,
    pub command_runners: OnceLock<FlowGroup>,
    pub filters: OnceLock<FlowGroup>,
}

impl Layers {
    /// Waits until the threads that handle blocks have ended.
    pub fn join_writers(&self) {
        join(&[&self.decompressors, &self.writers, &self.filters]);
    }

    /// Waits until the threads that handle written files have ended.
    pub fn join_committers(&self) {
        join(&[&self.small_committers, &self.committers]);
        join(&[&self.comparers, &self.content_comparers]);
        join(&[&self.command_runners]);
    }

    /// Sets the number of threads of each layer. If the system has no more threads, the existing
    /// ones continue.
    pub fn set_flows(&self, flows: Flows) {
        if let (Some(count), Some(group)) = (flows.decompressors, self.decompressors.get()) {
            let _ = group.set((count as usize).max(1));
        }
        if let (Some(count), Some(group)) = (flows.writers, self.writers.get()) {
            let _ = group.set((count as usize).max(1));
        }
        if let (Some(count), Some(group)) = (flows.committers, self.committers.get()) {
            // The committer of small files stays, and counts as one of them.
            let small = self.small_commits().map_or(0, |small| small.flows);
            let _ = group.set((count as usize).saturating_sub(small).max(1));
        }
    }

    /// Returns the use of the layers. `open` is the use of the streams, whose threads do the work
    /// of the layers if `is_paired`.
    pub fn uses(&self, open: LayerUse, is_paired: bool) -> Vec<LayerUse> {
        let usage = |group: &FlowGroup| {
            if is_paired {
                group.usage_of(open.flows)
            } else {
                group.usage()
            }
        };
        let of_blocks = [&self.decompressors, &self.writers].into_iter();
        let mut layers: Vec<LayerUse> = of_blocks
            .filter_map(|group| group.get().map(usage))
            .filter(|usage| usage.busy > 0 || !is_paired)
            .collect();
        let commits = self.committers.get();
        layers.extend(commits.map(FlowGroup::usage));
        let small = self.small_commits();
        if let (Some(commit), Some(small)) =
            (layers.last_mut().filter(|_| commits.is_some()), small)
        {
            // Both are one layer; the busier kind of file determines its utilization.
            commit.flows += small.flows;
            commit.busy += small.busy;
            commit.utilisation = commit.utilisation.max(small.utilisation);
        }
        layers.push(open);
        let commands = [&self.command_runners, &self.filters].into_iter();
        layers.extend(commands.filter_map(|group| group.get().map(FlowGroup::usage)));
        layers
    }

    /// Returns the use of the committer of small files, if it did any work. Otherwise the other
    /// committers alone measure the layer.
    fn small_commits(&self) -> Option<LayerUse> {
        let usage = self.small_committers.get().map(FlowGroup::usage);
        usage.filter(|usage| usage.busy > 0)
    }
}

/// Waits until the threads of these groups have ended.
fn join(groups: &[&OnceLock<FlowGroup>]) {
    for group in groups.iter().filter_map(|group| group.get()) {
        group.join();
    }
}
