//! Θ_F: the efficiency of a file transfer scheme relative to TCP (paper 001, section 3.2).

use std::time::Duration;

use super::coefficients::{NormalisedProfile, Point, ProfileError};

/// Reasons why Θ_F cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// Θ_T has no point at a round-trip time of Θ_E.
    #[error(
        "no memory-to-memory throughput was measured at {0:?}: run the same sweep with method \
         iperf3 (or longhaul from zero: to null:)"
    )]
    NoTcp(Duration),
    /// The memory-to-memory throughput is zero.
    #[error("the memory-to-memory throughput at {0:?} is zero")]
    TcpIsZero(Duration),
    /// The file throughput of a host is not a share above 0.
    #[error("{0} is not a file throughput of a host, which is a share of the capacity above 0")]
    Host(f64),
    /// The quotient is not a valid profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Computes Θ̃_F(τ) at the points of `end_to_end`.
///
/// `slower_host` is min{Θ̃_H1, Θ̃_H2}, the file throughput of the slower host as a share of the
/// path's capacity, if it was measured. In case (a) of the paper, the hosts are at least as fast as
/// TCP everywhere, or were not measured, and Θ̃_F = Θ̃_E/Θ̃_T. In case (b), the slower host is the
/// limit: min Θ̃_H < Θ̃_T at the shortest RTT, and Θ̃_F = Θ̃_E/(Θ̃_T · min Θ̃_H). In case (b) the
/// result can exceed 1. The product of two shares is less than both, but a transfer can reach their
/// minimum.
///
/// # Errors
///
/// If Θ_T is missing or zero at a point of Θ_E, or the host's share is not finite and greater than
/// 0.
pub fn scheme_profile(
    end_to_end: &NormalisedProfile,
    tcp: &NormalisedProfile,
    slower_host: Option<f64>,
) -> Result<NormalisedProfile, SchemeError> {
    if let Some(host) = slower_host.filter(|host| !(host.is_finite() && *host > 0.0)) {
        return Err(SchemeError::Host(host));
    }
    let nearest = tcp.points().first().map_or(0.0, |point| point.share);
    let divisor = slower_host.filter(|host| *host < nearest).unwrap_or(1.0);
    let mut points = Vec::with_capacity(end_to_end.points().len());
    for &Point { rtt, share } in end_to_end.points() {
        let found = tcp.points().iter().find(|point| point.rtt == rtt);
        let carried = found.ok_or(SchemeError::NoTcp(rtt))?.share;
        if carried == 0.0 {
            return Err(SchemeError::TcpIsZero(rtt));
        }
        points.push(Point {
            rtt,
            share: share / (carried * divisor),
        });
    }
    Ok(NormalisedProfile::new(points)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(shares: &[f64]) -> NormalisedProfile {
        let points = shares.iter().enumerate().map(|(index, share)| Point {
            rtt: Duration::from_millis(10 * index as u64),
            share: *share,
        });
        NormalisedProfile::new(points).unwrap()
    }

    fn shares(profile: &NormalisedProfile) -> Vec<f64> {
        profile.points().iter().map(|p| p.share).collect()
    }

    #[test]
    fn fast_hosts_are_case_a() {
        let (end_to_end, tcp) = (profile(&[0.9, 0.4]), profile(&[0.9, 0.8]));
        for host in [None, Some(0.9), Some(2.0)] {
            let scheme = scheme_profile(&end_to_end, &tcp, host).unwrap();
            assert_eq!(shares(&scheme), [1.0, 0.5], "{host:?}");
        }
    }

    #[test]
    fn a_slow_host_is_case_b() {
        let (end_to_end, tcp) = (profile(&[0.5, 0.4]), profile(&[1.0, 0.8]));
        let scheme = scheme_profile(&end_to_end, &tcp, Some(0.5)).unwrap();
        assert_eq!(shares(&scheme), [1.0, 1.0]);
    }

    #[test]
    fn errors_name_the_missing_measurement() {
        let end_to_end = profile(&[0.5, 0.4]);
        let rtt = Duration::from_millis(10);
        let absent = scheme_profile(&end_to_end, &profile(&[1.0]), None);
        assert_eq!(absent, Err(SchemeError::NoTcp(rtt)));
        let zero = scheme_profile(&end_to_end, &profile(&[1.0, 0.0]), None);
        assert_eq!(zero, Err(SchemeError::TcpIsZero(rtt)));
        let host = scheme_profile(&end_to_end, &end_to_end, Some(0.0));
        assert_eq!(host, Err(SchemeError::Host(0.0)));
    }
}
