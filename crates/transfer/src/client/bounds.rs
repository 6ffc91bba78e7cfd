//! Number of streams and block size of a transfer.

use std::time::Duration;

use longhaul_model::control::start::{
    BlockSize, LARGEST_BLOCK_BYTES, initial_streams, most_streams,
};
use longhaul_model::response::Congestion;
use longhaul_proto::message::MAXIMUM_CONGESTION_BYTES;
use longhaul_proto::options::Stack;
use longhaul_units::ByteCount;

use super::ahead::StreamsFor;
use super::connection::Opened;
use super::layering::Layering;
use super::run::Task;
use super::steering::Bounds;

/// Maximum number of streams started before the session exists.
const MOST_AHEAD: u32 = 32;

impl Task {
    pub(super) fn bounds(&self, opened: &Opened) -> Bounds {
        let by_memory = most_streams(self.settings.budget, opened.block_bytes);
        let limit = self.spec.limits.rate;
        let bound = limit.map_or(u32::MAX, |limit| limit.most_streams(opened.block_bytes));
        let maximum = opened.welcome.maximum_streams.min(bound).max(1);
        let product = self.choice.product;
        let by_product = product.map(|product| product.streams(opened.rtt));
        let fixed = self.flows().streams.or(by_product);
        let maximum_streams = fixed.unwrap_or(by_memory).min(maximum);
        // In a pull, the other end's kernel controls the congestion windows.
        let governing = if self.destination.place().is_some() {
            opened.stream.handle.governed_by()
        } else {
            opened.welcome.congestion.clone()
        };
        let governing = governing.filter(|name| name.len() <= MAXIMUM_CONGESTION_BYTES);
        let named = self.spec.connection.congestion.clone().or(governing);
        let congestion = named.map(|name| Congestion::of_name(&name));
        let free = if self.spec.connection.nice {
            1
        } else {
            self.or_planned(
                opened.rtt,
                initial_streams(opened.rtt, None, congestion.as_ref()),
            )
        };
        Bounds {
            streams: fixed,
            initial: fixed.unwrap_or(free).min(maximum_streams),
            maximum_streams,
            congestion: self.spec.connection.congestion.clone(),
            nice: self.spec.connection.nice,
            rtt: opened.rtt,
            layering: match (self.flows().stack, self.choice.climbs) {
                (Stack::Paired, _) => Layering::Still,
                (Stack::Layered, true) => Layering::Climbing,
                (Stack::Layered, false) => Layering::Controlled(self.flows()),
            },
        }
    }

    /// Returns the initial number of streams of the plan, or `usual` without one.
    fn or_planned(&self, rtt: Duration, usual: u32) -> u32 {
        let begins = self.begins.as_ref();
        begins.map_or(usual, |begins| begins.streams(rtt, usual))
    }

    /// Returns the rule for the block size, given the memory of an end in bytes.
    pub(super) fn blocks(&self, memory: ByteCount) -> BlockSize {
        // Encoded blocks have a separate pool with half of the memory.
        let pools = if self.settings.codec.compresses() {
            2
        } else {
            1
        };
        let limit = self.spec.limits.rate;
        let free = BlockSize::Free {
            memory: ByteCount(memory.0 / pools),
            most: limit.map_or(LARGEST_BLOCK_BYTES, |limit| {
                limit.block_bytes(LARGEST_BLOCK_BYTES)
            }),
        };
        self.flows().block_bytes.map_or(free, BlockSize::Fixed)
    }

    /// Returns the number of streams to start with the first one. `None` if the streams need
    /// tickets from the session, or for `--nice`.
    pub(super) fn streams_ahead(&self, clear: bool) -> Option<StreamsFor> {
        if clear || self.spec.connection.nice {
            return None;
        }
        let (fixed, budget) = (self.flows().streams, self.settings.budget);
        let product = self.choice.product;
        let blocks = self.blocks(self.settings.budget);
        let named = self.spec.connection.congestion.as_deref();
        let named = named.map(Congestion::of_name);
        let sends = self.destination.place().is_some();
        let begins = self.begins;
        Some(Box::new(move |rtt, own| {
            let congestion = named.clone().or(own.filter(|_| sends));
            let usual = initial_streams(rtt, None, congestion.as_ref());
            let free = begins.map_or(usual, |begins| begins.streams(rtt, usual));
            let by_memory = most_streams(budget, blocks.on(rtt));
            let by_product = product.map(|product| product.streams(rtt));
            let wanted = fixed.or(by_product).unwrap_or(free);
            wanted.min(by_memory).min(MOST_AHEAD)
        }))
    }
}
