//! Throughput profiles Θ(τ): throughput over round-trip time, and the
//! coefficients of paper 001 (its section 3) that sum one up.
//!
//! **What C_UC rewards.** It is linear in the points of a profile, so that it has
//! weights ([`c_uc_weights`]). Over the seven round-trip times of the paper, 0.4
//! to 366 ms, they are −0.23, 0.03, 0.05, 0.09, 0.19, 0.38 and 0.00, plus 0.25:
//! the throughput at the shortest RTT counts *against* a method, that at the
//! longest not at all, and two points carry most of the rest. A method that is
//! slow where the path is short gets a better C_UC. So it is reported beside
//! Θ_E and Θ_T at each RTT, never instead of them.

mod coefficients;
mod confidence;
mod scheme;
mod shape;

pub use crate::stats::{Difference, Figure};
pub use coefficients::{
    C_UC_CONSTANT, Coefficients, MeanRule, NormalisedProfile, Point, ProfileError, c_uc_weights,
    coefficients, coefficients_up_to,
};
pub use confidence::{
    Cell, CoefficientFigures, PointFigure, ProfileDifference, ProfileFigures, ProfileSample,
    SampleError, c_uc_difference, c_uc_figure, compare, profile_figures, scheme_figures,
};
pub use scheme::{SchemeError, scheme_profile};
pub use shape::{Bend, Region, Shape, bends, shape};
