//! Opens the destination of a command if it is on this host.

use std::sync::Arc;

use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_proto::handshake::{Landing, Operation};
use longhaul_storage::roots::OpenRoot;

use super::local_paths;
use super::owner::{owner, user_name};
use super::run::Task;
use crate::endpoint::local::open_file_of_stream;
use crate::endpoint::{Sink, SinkOpening};
use crate::settings::ConnectionSettings;
use crate::spec::SpecError;
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
            anywhere: key.anywhere.unwrap_or(key.source),
            set_ids: self.set_ids(),
            keeper: Arc::new(self.keeper()?),
            ..Arrival::new(owner(), key.source, &self.spec.options)
        };
        let missing = || Stop::because(Exit::Usage, SpecError::ZeroDestination);
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
        let how = (self.landing, &self.task.spec.options);
        self.task.here.destination(path, how, arrival)
    }

    fn changes(&self) -> bool {
        self.task.spec.options.operation == Operation::Copy
    }

    fn open_in(
        &self,
        root: &dyn OpenRoot,
        path: &[u8],
        arrival: Arrival,
    ) -> Result<Destination, Stop> {
        if self.task.pipe.is_some() {
            let text = "standard input cannot become a file at an FTP or GridFTP server";
            return Err(Stop::new(Exit::Usage, text));
        }
        let how = (self.landing, &self.task.spec.options);
        local_paths::destination_in(root, path, how, arrival)
    }

    fn streams(&self) -> Option<u32> {
        self.task.spec.flows.streams
    }

    fn connection(&self) -> &ConnectionSettings {
        &self.task.spec.connection
    }
}
