//! `longhaul token`: makes a secret for a principal, and its hash for the daemon.

use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_net::token::Token;
use longhaul_units::rfc3339;
use serde_json::json;

use crate::arguments::TokenArguments;
use crate::messages::{Exit, Stop, finish, print_line};

/// Runs `longhaul token`.
pub fn run(arguments: &TokenArguments) -> Exit {
    finish(make(arguments))
}

/// Prints a token and its hash. All text goes to standard output; lines with `#` are explanations.
fn make(arguments: &TokenArguments) -> Result<Exit, Stop> {
    let name = &arguments.principal;
    let token = Token::generate().map_err(|error| Stop::because(Exit::Local, error))?;
    let hash = token
        .hash()
        .map_err(|error| Stop::because(Exit::Local, error))?;
    print_line!(
        "# send only to {name}, over a secure channel: a line for the user's tokens file; HOST is as in the URLs"
    );
    print_line!("HOST:4960 {name} {}", token.reveal());
    print_line!();
    print_line!("# for the daemon's principals.toml, with the principal's roots");
    print_line!("[[principal]]");
    // JSON strings are valid in TOML.
    print_line!("name = {}", json!(name));
    match arguments
        .expires
        .and_then(|span| SystemTime::now().checked_add(span))
    {
        None => print_line!("token = \"{hash}\""),
        Some(at) => {
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let at = rfc3339(at.as_secs().cast_signed());
            print_line!("tokens = [{{ hash = \"{hash}\", expires = {at} }}]");
        }
    }
    Ok(Exit::Done)
}
