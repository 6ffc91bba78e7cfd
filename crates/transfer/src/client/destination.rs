//! Opens the destination of a command if it is on this host.

use std::sync::Arc;

use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_proto::handshake::{Landing, Operation};

use super::owner::{owner, user_name};
use super::run::Task;
use crate::endpoint::local::open_file_of_stream;
use crate::endpoint::{Sink, SinkOpening};
use crate::settings::ConnectionSettings;
use crate::spec::FilterAt;
use crate::stop::{Exit, Stop};

impl Task {
    /// Opens the destination. `sink` is `None` if a process at another host opens it.
    pub(super) fn open_destination(
        &self,
        sink: Option<&dyn Sink>,
        landing: Landing,
    ) -> Result<Destination, Stop> {
        let key = self.key()?;
        let arrival = Arrival {
            principal: self.here.principal().map_or_else(user_name, str::to_owned),
            source: key.source,
            anywhere: key.anywhere.unwrap_or(key.source),
            owner: owner(),
            set_ids: self.set_ids(),
            keeper: Arc::new(self.keeper()?),
            backup: self.backup(),
            on_commit: self.spec.asked_on_commit(),
            filter: self.spec.asked_filter(FilterAt::Destination),
            filtered: self.spec.is_filtered(),
        };
        let missing = || {
            let text = "zero: is a source; a destination without a disk is null:";
            Stop::new(Exit::Usage, text)
        };
        let sink = sink.ok_or_else(missing)?;
        let task = self;
        sink.open(&Landed { task, landing }, arrival)
    }
}

/// Opens the destination of a task on this host.
struct Landed<'a> {
    task: &'a Task,
    landing: Landing,
}

impl SinkOpening for Landed<'_> {
    fn may_measure(&self) -> Result<(), Stop> {
        self.task.here.may_measure()
    }

    fn open_path(&self, path: &[u8], arrival: Arrival) -> Result<Destination, Stop> {
        if self.task.pipe.is_some() {
            return open_file_of_stream(path, arrival);
        }
        let settings = &self.task.settings;
        let verifies = settings.operation == Operation::Verify;
        let deletes = settings.deletion.is_some() && !verifies;
        let how = (settings.operation, self.landing, deletes);
        self.task.here.destination(path, how, arrival)
    }

    fn connection(&self) -> &ConnectionSettings {
        &self.task.spec.connection
    }
}
