//! Capacity of a layer as a function of its number of flows.
//!
//! - [`flows`]: functions for disks, channels, computation and parallel file systems
//! - [`tcp`]: streams on a path, limited by window, loss and NIC
//! - `finite`: transfers that are too short for the steady-state law of loss
//!
//! Rates are bytes per second. The number of flows is a whole number. Zero flows have a capacity of
//! zero: Eqs. 10 and 18 of paper 004 allow zero flows, for which its Eq. 3 would have its maximum.

mod finite;
pub mod flows;
pub mod tcp;

pub use flows::FlowCapacity;
pub use tcp::{PACKET_HEADERS, PathCapacity, USUAL_FRAMING, Window, framing_of};

/// The capacity of a node of the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// A function of the number of flows only.
    Flows(FlowCapacity),
    /// TCP streams over a path.
    Path(PathCapacity),
}

impl Capacity {
    /// Returns the capacity of `flows` flows in bytes per second. Infinite if there is no limit;
    /// zero for zero flows.
    pub fn at(&self, flows: u32) -> f64 {
        match self {
            Capacity::Flows(form) => form.at(flows),
            Capacity::Path(path) => path.at(flows),
        }
    }

    /// Returns the same function with all rates multiplied by a factor greater than zero.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Capacity {
        match self {
            Capacity::Flows(form) => Capacity::Flows(form.scaled(factor)),
            Capacity::Path(path) => Capacity::Path(PathCapacity {
                path: path.path * factor,
                nic: path.nic * factor,
                window: path.window.scaled(factor),
                // The law of loss gives a rate of segments.
                segment: path.segment * factor,
                ..path.clone()
            }),
        }
    }
}

/// Returns the rate in bytes per second of a layer with at most `credits` messages of `message`
/// bytes in flight and a round-trip time of `seconds`. Infinite for a round-trip time of zero.
pub fn of_credits(credits: u32, message: f64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return f64::INFINITY;
    }
    f64::from(credits) * message / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_credit_carries_one_message_per_round_trip() {
        assert_eq!(of_credits(16, 1e6, 0.1), 160e6);
        assert_eq!(of_credits(16, 1e6, 0.0), f64::INFINITY);
    }
}
