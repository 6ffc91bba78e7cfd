//! Copies within this host and with daemons: the options of `cp`, `ls` and `verify`, their failures
//! and their reports.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backup;
mod bwlimit;
mod criteria;
mod delete;
mod failures;
mod filter_command;
mod filters;
mod habits;
mod keeping;
mod kept;
mod kills;
mod landing;
mod limits;
mod lists;
mod ls;
mod modes;
mod move_away;
mod on_commit;
mod options;
mod quotas;
mod reports;
mod retries;
mod sources;
mod sparse;
mod stack;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod type_changes;
mod verify_filters;
