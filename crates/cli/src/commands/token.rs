//! `longhaul token`: a principal's secret, and what a daemon keeps of it.

use longhaul_engine::net::token::Token;
use serde_json::json;

use crate::arguments::TokenArguments;
use crate::messages::{Exit, Stop, finish, print_line};

/// Runs it.
pub fn run(arguments: &TokenArguments) -> Exit {
    finish(make(arguments))
}

/// Everything goes to standard output; what is not for a file begins with `#`.
fn make(arguments: &TokenArguments) -> Result<Exit, Stop> {
    let name = &arguments.principal;
    let token = Token::generate().map_err(|error| Stop::because(Exit::Local, error))?;
    let hash = token
        .hash()
        .map_err(|error| Stop::because(Exit::Local, error))?;
    print_line!(
        "# for {name} alone, over a safe channel: a line for the user's tokens file, HOST as in the URLs"
    );
    print_line!("HOST:4960 {name} {}", token.reveal());
    print_line!();
    print_line!("# for the daemon's principals.toml, with the principal's roots");
    print_line!("[[principal]]");
    // TOML takes JSON's strings.
    print_line!("name = {}", json!(name));
    print_line!("token = \"{hash}\"");
    Ok(Exit::Done)
}
