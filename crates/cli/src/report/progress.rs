//! Progress of a running transfer: a line on the terminal, or events.

use std::time::Duration;

use longhaul_transfer::between_hosts::viewer::Outlet;
use longhaul_transfer::client::observer::Running;
use longhaul_transfer::rendering::progress::{Recent, arrived};

use super::{print_json, progress_json};
use crate::messages::progress_line;

/// Interval of progress lines on a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// Interval of progress events.
const PRINT_EVERY: Duration = Duration::from_secs(1);

/// Shows progress until the transfer ends.
pub fn follow(transfer: &Running, is_json: bool, terminal: bool) {
    let every = if is_json { PRINT_EVERY } else { DRAW_EVERY };
    let mut recent = Recent::default();
    while !transfer.wait_for(every) {
        let progress = transfer.progress();
        if is_json {
            print_json(&progress_json(&progress));
        } else if terminal {
            progress_line(&recent.line(progress));
        }
    }
}

/// Number of progress lines per event for followers of a job.
const LINES_AN_EVENT: u32 = 4;

/// Sends progress to followers of a job until the transfer ends.
pub fn tell(transfer: &Running, outlet: &dyn Outlet) {
    let mut recent = Recent::default();
    let mut drawings = 0;
    while !transfer.wait_for(DRAW_EVERY) {
        let progress = transfer.progress();
        outlet.done_bytes(arrived(&progress));
        drawings += 1;
        if drawings % LINES_AN_EVENT == 0 {
            outlet.event(progress_json(&progress).to_string());
        }
        outlet.line(recent.line(progress));
    }
}
