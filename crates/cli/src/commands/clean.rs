//! `longhaul clean`: lists or removes leftovers of interrupted copies.

use longhaul_transfer::clean::{self, Cleaning, Told};
use longhaul_units::ByteCount;

use crate::arguments::CleanArguments;
use crate::messages::{Exit, Stop, finish, print_line, say};

/// Runs `longhaul clean`.
pub fn run(arguments: CleanArguments) -> Exit {
    finish(clean(&arguments))
}

fn clean(arguments: &CleanArguments) -> Result<Exit, Stop> {
    let cleaning = Cleaning {
        directory: &arguments.directory,
        remove: arguments.remove,
        older_than: arguments.older_than,
    };
    let told = Told {
        leftover: &mut |line| print_line!("{line}"),
        failure: &mut |line| say(line),
    };
    let cleaned = clean::clean(&cleaning, told)?;
    let (verb, done) = if arguments.remove {
        ("removed", cleaned.removed)
    } else {
        ("found", cleaned.found)
    };
    print_line!("{done} {verb}, {}", ByteCount(cleaned.bytes));
    Ok(match cleaned.failed {
        0 => Exit::Done,
        _ => Exit::Partial,
    })
}
