//! Predicts a copy from data that are quickly available, and records earlier copies.
//!
//! - [`survey`]: counts files and bytes of a dataset, within limits
//! - [`sampling`]: samples the dataset's kinds of data and their compression
//! - [`history`]: the file of earlier transfers
//! - [`beginning`]: the initial numbers of flows, from earlier transfers
//! - [`choice`]: the numbers of flows by a published rule
//! - [`foresight`]: a copy's forecast, compared with its outcome
//! - [`limiting`]: the layer that limited a transfer
//! - [`profiles`]: capabilities of hosts, as `longhaul bench` measured them

pub mod beginning;
pub mod choice;
pub mod foresight;
pub mod history;
pub mod limiting;
pub mod profiles;
pub mod sampling;
pub mod survey;
pub mod uncoded;
