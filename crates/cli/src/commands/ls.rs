//! `longhaul ls`: lists the entries of an endpoint as they are found.

use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

use longhaul_engine::listing::Depth;
use longhaul_proto::listing::{Listed, ListedEntry};
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::list;
use longhaul_transfer::rendering::listing::{Style, harmless, shown};

use crate::arguments::ListArguments;
use crate::messages::{Exit, Stop, finish, say};

/// Runs `longhaul ls`.
pub fn run(arguments: &ListArguments) -> Exit {
    finish(list(arguments))
}

fn list(arguments: &ListArguments) -> Result<Exit, Stop> {
    let endpoint = Endpoint::parse_checked(&arguments.endpoint);
    let endpoint = endpoint.map_err(|error| Stop::because(Exit::Usage, error))?;
    let depth = Depth {
        recursive: arguments.recursive,
        details: arguments.long || arguments.json,
    };
    let mut printer = Printer::new(arguments, endpoint.local_path().is_none());
    let connection = arguments.connection.settings();
    let ended = list::list(&endpoint, &connection, depth, &mut |listed| {
        printer.tell(listed)
    });
    let flushed = printer.output.flush();
    let flushed = printer.check(flushed);
    if printer.is_unread {
        return Ok(Exit::Done);
    }
    ended?;
    flushed?;
    Ok(match printer.failed {
        0 => Exit::Done,
        _ => Exit::Partial,
    })
}

/// True if the reader of standard output, such as `head`, has closed it. This is not a failure.
fn is_unread(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

struct Printer {
    output: BufWriter<StdoutLock<'static>>,
    style: Style,
    /// True if entries arrive from another host, many at a time.
    flushes: bool,
    failed: u64,
    is_unread: bool,
}

impl Printer {
    fn new(arguments: &ListArguments, flushes: bool) -> Printer {
        let output = std::io::stdout();
        let style = Style {
            long: arguments.long,
            json: arguments.json,
            end: if arguments.null { 0 } else { b'\n' },
            escaped: output.is_terminal() && !arguments.null,
        };
        Printer {
            output: BufWriter::new(output.lock()),
            style,
            flushes,
            failed: 0,
            is_unread: false,
        }
    }

    fn tell(&mut self, listed: Listed) -> Result<(), Stop> {
        match listed {
            Listed::Entries(entries) => {
                for entry in &entries {
                    self.print(entry)?;
                }
                // Received entries are shown while others are in transit.
                if self.flushes {
                    let flushed = self.output.flush();
                    self.check(flushed)
                } else {
                    Ok(())
                }
            }
            Listed::Failed(failure) => {
                self.fail(&failure.text);
                Ok(())
            }
            Listed::End => Ok(()),
        }
    }

    fn fail(&mut self, text: &str) {
        self.failed += 1;
        // Earlier entries are shown before the failure.
        let _ = self.output.flush();
        say(&harmless(text.as_bytes()));
    }

    fn print(&mut self, entry: &ListedEntry) -> Result<(), Stop> {
        let line = shown(entry, self.style);
        let written = self.output.write_all(&line);
        self.check(written)
    }

    fn check(&mut self, written: std::io::Result<()>) -> Result<(), Stop> {
        written.map_err(|error| {
            self.is_unread = is_unread(&error);
            let text = format!("cannot write to standard output: {error}");
            Stop::new(Exit::Local, text)
        })
    }
}
