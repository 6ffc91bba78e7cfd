//! Copies a tree: `cargo run -p longhaul-transfer --example copy_tree -- SRC DST`. Each argument is
//! a path or an endpoint of `longhaul cp`.

use std::process::ExitCode;
use std::sync::Arc;

use longhaul_engine::session::Event;
use longhaul_transfer::client::observer::{Control, Observer, Outcome, Running};
use longhaul_transfer::client::run::{self, Place};
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::spec::TransferSpec;
use longhaul_transfer::stop::{Exit, Stop};

/// Prints the names of copied files.
struct Names;

impl Observer for Names {
    fn event(&self, event: &Event) {
        if let Event::Committed { path, .. } = event {
            println!("{path}");
        }
    }

    fn begun(&self, _: &Running) {}

    fn concluded(&self, _: &Outcome<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

fn copy(source: &str, destination: &str) -> Result<Exit, Stop> {
    let endpoint = |text: &str| {
        let parsed = Endpoint::parse(text.as_ref());
        parsed.map_err(|error| Stop::because(Exit::Usage, error))
    };
    let mut spec = TransferSpec::copy(vec![endpoint(source)?], endpoint(destination)?);
    spec.options.selection.recursive = true;
    let observer: Arc<dyn Observer> = Arc::new(Names);
    let control = Control::default();
    let spec = spec.validate();
    let spec = spec.map_err(|error| Stop::because(Exit::Usage, error))?;
    run::run(spec, Place::default(), &control, &observer)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, destination] = arguments.as_slice() else {
        eprintln!("name a source and a destination");
        return Exit::Usage.into();
    };
    copy(source, destination).map_or_else(
        |stop| {
            eprintln!("{}", stop.text);
            stop.exit.into()
        },
        ExitCode::from,
    )
}
