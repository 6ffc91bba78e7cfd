//! What a path to a daemon can do, and what would help.
//!
//! - [`span`]: how long a session is measured
//! - [`trial`]: what its samples say
//! - [`result`]: what all of them say, with advice (`longhaul_model::advice`)
//! - [`known`]: the path as in a sweep's file
//! - [`records`]: each repetition as a record of a run
//! - [`text`], [`json`]: the result for people and for programs

pub mod json;
pub mod known;
pub mod records;
pub mod result;
pub mod span;
pub mod text;
pub mod trial;
