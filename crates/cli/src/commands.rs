//! The commands of longhaul, one module each.

pub mod bench;
pub mod clean;
pub mod cluster;
pub mod cp;
pub mod doctor;
pub mod fingerprint;
pub mod history;
pub mod jobs;
pub mod lab;
pub mod ls;
pub mod model;
pub mod plan;
pub mod probe;
pub mod profile;
pub mod records;
pub mod remote;
pub mod screen;
pub mod serve;
pub mod sweep;
pub mod token;
pub mod verify;
