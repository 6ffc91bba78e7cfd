//! Progress while a transfer runs: a line on the terminal, or events.

use std::time::Duration;

use longhaul_transfer::client::observer::Running;
use longhaul_transfer::rendering::progress::{Recent, arrived};
use longhaul_transfer::third_party::viewer::Outlet;

use super::{print_json, progress_json};
use crate::messages::progress_line;

/// How often the line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// How often an event is printed.
const PRINT_EVERY: Duration = Duration::from_secs(1);

/// Draws or prints until the transfer is over.
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

/// Progress lines between two events for others.
const LINES_AN_EVENT: u32 = 4;

/// Tells others until the transfer is over.
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
