//! Throughput profiles Θ(τ): throughput over round-trip time, and the
//! coefficients of paper 001 (its section 3) that sum one up.
//!
//! **Meaning of C_UC.** C_UC is linear in the points of a profile, so it has weights
//! ([`c_uc_weights`]). For the seven round-trip times of the paper, 0.4 to 366 ms, the weights are
//! −0.23, 0.03, 0.05, 0.09, 0.19, 0.38 and 0.00, plus a constant of 0.25. So throughput at the
//! shortest RTT *lowers* C_UC, throughput at the longest RTT has no effect, and two points
//! contribute most of the rest. A method that is slow over a short path gets a better C_UC. So
//! reports show C_UC beside Θ_E and Θ_T at each RTT, never instead of them.

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
