//! What a copy is expected to do, from what is known cheaply; what earlier ones did.
//!
//! - [`survey`]: what a dataset is, by a bounded look
//! - [`sampling`]: what it holds, and what codecs would make of it, by samples
//! - [`history`]: the file of earlier transfers
//! - [`beginning`]: with how many flows a copy begins, by what is remembered
//! - [`choice`]: who chooses a copy's numbers of flows
//! - [`foresight`]: a copy's forecast, next to its outcome
//! - [`limiting`]: the layer that held a transfer up
//! - [`profiles`]: what hosts can do, as `longhaul bench` measured it

pub mod beginning;
pub mod choice;
pub mod foresight;
pub mod history;
pub mod limiting;
pub mod profiles;
pub mod sampling;
pub mod survey;
pub mod uncoded;
