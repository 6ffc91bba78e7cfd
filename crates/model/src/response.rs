//! Response functions: the mean window of one stream on a path with random loss, by its congestion
//! control.

use std::fmt;
use std::time::Duration;

/// The congestion control of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681: halves the window at each loss, and grows by a segment per round trip.
    Reno,
    /// RFC 9438: the default of Linux.
    Cubic,
    /// Follows the measured rate, and reacts only to heavy loss.
    Bbr,
    /// Another congestion control, by its kernel name.
    Other(String),
}

impl Congestion {
    /// Returns the congestion control with this kernel name.
    pub fn of_name(name: &str) -> Congestion {
        match name {
            "reno" => Congestion::Reno,
            "cubic" => Congestion::Cubic,
            "bbr" => Congestion::Bbr,
            other => Congestion::Other(other.to_owned()),
        }
    }

    /// True if the name is that of a congestion control of Linux.
    pub fn is_known(&self) -> bool {
        const OTHERS: [&str; 18] = [
            "bbr1",
            "bbr2",
            "bbr3",
            "bic",
            "cdg",
            "dctcp",
            "highspeed",
            "htcp",
            "hybla",
            "illinois",
            "lp",
            "nv",
            "prague",
            "scalable",
            "vegas",
            "veno",
            "westwood",
            "yeah",
        ];
        match self {
            Congestion::Other(name) => OTHERS.contains(&name.as_str()),
            Congestion::Reno | Congestion::Cubic | Congestion::Bbr => true,
        }
    }

    /// Returns the kernel name.
    pub fn name(&self) -> &str {
        match self {
            Congestion::Reno => "reno",
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
            Congestion::Other(name) => name,
        }
    }

    /// True if any lost segment counts as congestion, so that random loss keeps the window small.
    pub fn takes_loss_for_congestion(&self) -> bool {
        *self != Congestion::Bbr
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// CUBIC's constant C in segments per second cubed (RFC 9438, section 5).
pub const CUBIC_C: f64 = 0.4;

/// Factor by which CUBIC reduces its window after a loss (RFC 9438, section 4.6).
pub const CUBIC_BETA: f64 = 0.7;

/// Returns the mean window of one stream in segments, if each segment is lost with probability
/// `loss` (0 to 1) and the round-trip time is `rtt`. Returns `None` if loss does not limit the
/// window. Reno: Mathis et al., "The macroscopic behavior of the TCP congestion avoidance
/// algorithm" (1997), equation 3, with an acknowledgement for each segment, because Linux counts
/// bytes. CUBIC: RFC 9438, equation 5, with C and β of its section 5, and at least Reno's window
/// (section 4.3). Unknown congestion controls count as Reno, which has the smallest window.
pub fn mean_window(congestion: &Congestion, loss: f64, rtt: Duration) -> Option<f64> {
    if loss <= 0.0 || *congestion == Congestion::Bbr {
        return None;
    }
    let reno = (1.5 / loss).sqrt();
    let cubic_factor = (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25);
    Some(match congestion {
        Congestion::Cubic => reno.max(cubic_factor * (rtt.as_secs_f64() / loss).powf(0.75)),
        _ => reno,
    })
}

/// Returns the number of streams that together carry `segments_per_second` on such a path, or 1 if
/// loss does not limit them.
pub fn streams_for_loss(
    congestion: &Congestion,
    loss: f64,
    rtt: Duration,
    segments_per_second: f64,
) -> u32 {
    let in_flight = segments_per_second * rtt.as_secs_f64();
    mean_window(congestion, loss, rtt)
        .map_or(1, |window| (in_flight / window).ceil().max(1.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);
    /// Segments of 1448 bytes per second on a line of 1 Gbit/s at an MTU of 1500.
    const GIGABIT: f64 = 0.9415e9 / 8.0 / 1448.0;

    #[test]
    fn windows_agree_with_the_published_tables() {
        // RFC 9438, tables 1 and 2 (C = 0.4, in segments): CUBIC at 0.1 s and 0.01 s with a loss of
        // 1e-4 and 1e-6. Reno's column is 1.2 / sqrt(p).
        for (loss, milliseconds, window) in [
            (1e-4, 100, 187.0),
            (1e-6, 100, 5_926.0),
            (1e-6, 10, 1_200.0),
        ] {
            let rtt = Duration::from_millis(milliseconds);
            let found = mean_window(&Congestion::Cubic, loss, rtt).unwrap();
            assert!(
                (found / window - 1.0).abs() < 0.03,
                "{loss} {rtt:?}: {found}"
            );
        }
        let reno = mean_window(&Congestion::Reno, 1e-4, TENTH).unwrap();
        assert!((reno / 120.0 - 1.0).abs() < 0.03, "{reno}");
    }

    #[test]
    fn a_gigabit_with_loss_needs_tens_of_streams() {
        let cubic = |loss| streams_for_loss(&Congestion::Cubic, loss, TENTH, GIGABIT);
        assert_eq!(cubic(0.0), 1);
        assert!((40..50).contains(&cubic(1e-4)), "{}", cubic(1e-4));
        let reno = streams_for_loss(&Congestion::Reno, 1e-4, TENTH, GIGABIT);
        assert!((60..80).contains(&reno), "{reno}");
        assert_eq!(streams_for_loss(&Congestion::Bbr, 1e-4, TENTH, GIGABIT), 1);
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        for name in ["reno", "cubic", "bbr", "htcp"] {
            assert_eq!(Congestion::of_name(name).name(), name);
        }
    }
}
