//! What a path to a daemon can do, and what would help.
//!
//! - [`prober`]: every path, way and number of streams
//! - [`session`]: one session that moves zeros into nothing
//! - [`span`]: how long a session is measured
//! - [`trial`]: what its samples say
//! - [`result`]: what all of them say, with advice (`longhaul_model::advice`)
//! - [`known`]: the path as in a sweep's file
//! - [`external`]: what other instruments measured
//! - [`records`]: each repetition as a record of a run
//! - [`text`], [`json`]: the result for people and for programs

pub mod external;
pub mod json;
pub mod known;
pub mod prober;
pub mod records;
pub mod result;
pub mod session;
pub mod span;
pub mod text;
pub mod trial;
pub mod unqueued;
