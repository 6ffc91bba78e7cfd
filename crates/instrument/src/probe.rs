//! Measures a path to a daemon and suggests improvements.
//!
//! - [`prober`]: measures every path, direction and number of streams
//! - [`session`]: one session that moves zeros and discards them
//! - [`span`]: duration of a session's measurement
//! - [`trial`]: results of one session's samples
//! - [`result`]: results of all sessions, with advice (`longhaul_model::advice`)
//! - [`known`]: the path as described in a sweep file
//! - [`external`]: results of other instruments
//! - [`records`]: each repetition as a record of a run
//! - [`text`], [`json`]: the result as text and as JSON

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
