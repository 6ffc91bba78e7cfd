//! `longhaul history`: lists recorded copies with other hosts.

use longhaul_model::history::PastTransfer;
use longhaul_transfer::planning::history;
use longhaul_units::counted;
use serde_json::json;

use crate::arguments::HistoryArguments;
use crate::messages::{Exit, Stop, finish, print_json, print_line, say};

/// Runs `longhaul history`.
pub fn run(arguments: &HistoryArguments) -> Exit {
    finish(show(arguments))
}

fn show(arguments: &HistoryArguments) -> Result<Exit, Stop> {
    let local = |error: std::io::Error| {
        let file = history::file().unwrap_or_default();
        Stop::new(Exit::Local, format!("{}: {error}", file.display()))
    };
    if let Some(host) = &arguments.forget {
        let host = Some(host.as_str()).filter(|host| *host != "all");
        let count = history::forget(host).map_err(local)?;
        print_line!("forgotten: {}", counted(count, "transfer"));
        return Ok(Exit::Done);
    }
    let found = history::read().map_err(local)?;
    for line in &found.damaged {
        say(&format!(
            "line {line} of the history is damaged and was skipped"
        ));
    }
    let is_wanted =
        |past: &&PastTransfer| arguments.host.as_ref().is_none_or(|it| *it == past.host);
    for past in found.transfers.iter().filter(is_wanted) {
        if arguments.json {
            print_json(&json!(past));
        } else {
            print_line!("{past}");
        }
    }
    Ok(Exit::Done)
}
