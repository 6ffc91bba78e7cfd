//! Makes a forecast beside a running transfer, which does not wait for it.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::session::Transfer;
use longhaul_model::transfer::Filter;
use longhaul_proto::options::{FilterAt, Operation};

use super::observer::Caller;
use super::run::Task;
use super::task::local_sources;
use crate::planning::foresight::{Facts, Foreseeing, Foreseen};
use crate::rate_limit::BandwidthLimit;

impl Task {
    /// Starts a forecast if the caller wants one.
    pub(super) fn foresee(
        &self,
        transfer: &Arc<Transfer>,
        rtt: Duration,
        caller: &Caller,
    ) -> Option<Foreseeing> {
        let observer = Arc::clone(caller.observer());
        if !observer.wants_forecast() || self.settings.operation != Operation::Copy {
            return None;
        }
        let facts = self.facts(transfer, rtt);
        let foresee = move || {
            let foreseen = Foreseen::new(&facts);
            observer.foreseen(&foreseen);
            foreseen
        };
        let thread = std::thread::Builder::new().name("plan".into());
        // If no thread starts, there is no forecast.
        thread.spawn(foresee).ok()
    }

    /// Returns the other host, without a user name.
    pub(super) fn other_host(&self) -> Option<String> {
        self.spec.other_host().map(str::to_owned)
    }

    /// True if the transfer is added to the history.
    pub(super) fn is_remembered(&self) -> bool {
        self.remembers && self.settings.operation == Operation::Copy
    }

    fn facts(&self, transfer: &Transfer, rtt: Duration) -> Facts {
        let receives = self.destination.place().is_none() && self.other_host().is_some();
        let zeros = match self.sources.as_slice() {
            [source] => source.generated().map(|bytes| bytes.0),
            _ => None,
        };
        Facts {
            host: self.other_host(),
            receives,
            rtt,
            past: self.past.clone(),
            limits: transfer.measurements().limits().clone(),
            congestion: self.spec.connection.congestion.clone(),
            sources: local_sources(&self.sources, &self.here),
            destination: local_sources(slice::from_ref(&self.destination), &self.here).pop(),
            zeros,
            cores: self.settings.cores,
            flows: self.flows(),
            rate: self.spec.limits.rate.map(BandwidthLimit::bytes_per_second),
            compression: self.compression(),
            filter: self
                .spec
                .options
                .filter_command
                .as_ref()
                .map(|command| Filter {
                    at_source: self.spec.options.filter_at == FilterAt::Source,
                    flows: command.jobs,
                    rate: None,
                }),
        }
    }
}
