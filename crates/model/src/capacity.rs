//! What a layer carries, by its number of flows.
//!
//! - [`flows`]: the forms for disks, channels, computation and parallel file systems
//! - [`tcp`]: streams on a path: window, loss, NIC
//! - `finite`: what loss leaves of a transfer that is too short for its law
//!
//! Rates are bytes per second. A number of flows is a whole number: no flows carry nothing,
//! although Eqs. 10 and 18 of paper 004 allow none, where its Eq. 3 would have its maximum.

mod finite;
pub mod flows;
pub mod tcp;

pub use flows::FlowCapacity;
pub use tcp::{PathCapacity, Window};

/// What a node of the graph carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// By the number of flows alone.
    Flows(FlowCapacity),
    /// TCP streams over a path.
    Path(PathCapacity),
}

impl Capacity {
    /// Bytes per second of `flows` flows, 0 or more; infinite where nothing limits them. Zero flows
    /// carry nothing.
    pub fn at(&self, flows: u32) -> f64 {
        match self {
            Capacity::Flows(form) => form.at(flows),
            Capacity::Path(path) => path.at(flows),
        }
    }

    /// The same form with all of its rates times a factor, greater than zero.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Capacity {
        match self {
            Capacity::Flows(form) => Capacity::Flows(form.scaled(factor)),
            Capacity::Path(path) => Capacity::Path(PathCapacity {
                path: path.path * factor,
                nic: path.nic * factor,
                window: path.window.scaled(factor),
                // The loss law's rate is one of segments.
                segment: path.segment * factor,
                ..path.clone()
            }),
        }
    }
}

/// Seconds that one flow needs for a file of `bytes` in a layer that carries `rate` bytes per
/// second with `flows` flows and spends `per_file` seconds on each file: opening, walking, making
/// durable. As a rate of all flows together, bytes per second.
///
/// Each flow carries `rate / flows` and so takes `bytes * flows / rate + per_file` for a file;
/// `flows` of them work in parallel.
pub fn with_cost_per_file(rate: f64, flows: u32, bytes: f64, per_file: f64) -> f64 {
    if flows == 0 || rate <= 0.0 {
        return 0.0;
    }
    if per_file <= 0.0 {
        return rate;
    }
    if bytes <= 0.0 {
        return 0.0;
    }
    let seconds_per_byte = 1.0 / rate + per_file / (f64::from(flows) * bytes);
    1.0 / seconds_per_byte
}

/// Bytes per second of a layer that may have `credits` messages of `message` bytes in flight over a
/// round trip of `seconds`; infinite without a distance.
pub fn of_credits(credits: u32, message: f64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return f64::INFINITY;
    }
    f64::from(credits) * message / seconds
}

/// Bytes per second of a disk that answers each request of `bytes` after `seconds`, with `requests`
/// of them under way (Little's law).
pub fn of_requests(requests: u32, bytes: f64, seconds: f64) -> f64 {
    of_credits(requests, bytes, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_per_file_halves_the_rate_where_it_takes_as_long_as_the_bytes() {
        // 1 MB at 100 MB/s takes 10 ms, and 10 ms more.
        let rate = with_cost_per_file(100e6, 1, 1e6, 0.01);
        assert!((rate - 50e6).abs() < 1.0, "{rate}");
        // Four flows pay it beside each other.
        let rate = with_cost_per_file(100e6, 4, 1e6, 0.01);
        assert!((rate - 80e6).abs() < 1.0, "{rate}");
        assert_eq!(with_cost_per_file(100e6, 0, 1e6, 0.01), 0.0);
        assert_eq!(with_cost_per_file(100e6, 2, 0.0, 0.01), 0.0);
        assert_eq!(with_cost_per_file(100e6, 2, 1e6, 0.0), 100e6);
    }

    #[test]
    fn credits_carry_a_message_each_in_a_round_trip() {
        assert_eq!(of_credits(16, 1e6, 0.1), 160e6);
        assert_eq!(of_credits(16, 1e6, 0.0), f64::INFINITY);
        assert_eq!(of_requests(8, 1e6, 0.01), 800e6);
    }
}
