//! The commands that run on a user's host, one file each.

pub mod again;
pub mod ahead;
pub mod asked;
pub mod bench;
pub mod clean;
pub mod connection;
pub mod cp;
pub mod credentials;
pub mod fingerprint;
pub mod here;
pub mod itself;
pub mod jobs;
pub mod lab;
pub mod ls;
pub mod peer;
pub mod probe;
pub mod profile;
pub mod records;
pub mod run;
pub mod sources;
pub mod steering;
pub mod stream;
pub mod sweep;
pub mod token;
pub mod transfer_key;
pub mod verify;
