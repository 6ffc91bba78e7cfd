//! `longhaul cp`.

use longhaul_engine::session::TransferSettings;
use longhaul_proto::block::Codec;
use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::{Landing, Purport};

use super::run::{Fixed, Task, layer_settings, remote_flows};
use crate::arguments::{CopyArguments, IntegrityArgument};
use crate::between::steer;
use crate::between::words::Asked;
use crate::endpoint::Endpoint;
use crate::messages::{Exit, Stop, finish};
use crate::report::Report;

/// Runs it.
pub fn run(arguments: CopyArguments) -> Exit {
    finish(copy(arguments))
}

fn copy(arguments: CopyArguments) -> Result<Exit, Stop> {
    let asked = Asked::copy(&arguments);
    if let Some(sides) = asked.sides()? {
        return steer::run(&asked, &sides);
    }
    drop(asked);
    let report = Report::new(arguments.json, arguments.quiet, arguments.manifest.clone())?;
    let report = report.naming(arguments.verbose);
    task(arguments)?.run(&report)
}

/// What is to be done.
pub fn task(arguments: CopyArguments) -> Result<Task, Stop> {
    let integrity = match arguments.integrity {
        IntegrityArgument::Digest => Integrity::Digest,
        IntegrityArgument::Checksum => Integrity::Checksum,
    };
    if integrity == Integrity::Checksum && (arguments.verify || arguments.manifest.is_some()) {
        let text = "--verify and --manifest need digests: leave out --integrity checksum";
        return Err(Stop::new(Exit::Usage, text));
    }
    let parse = |path| Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error));
    let mut sources = arguments
        .paths
        .iter()
        .map(|path| parse(path))
        .collect::<Result<Vec<_>, _>>()?;
    let destination = sources.pop().filter(|_| !sources.is_empty());
    let destination = destination
        .ok_or_else(|| Stop::new(Exit::Usage, "name a source and, last, a destination"))?;
    let landing = match sources.as_slice() {
        [_] => Landing::WithinOrAs,
        _ => Landing::Within,
    };
    let purport = match arguments.dry_run {
        true => Purport::DryRun,
        false => Purport::Copy,
    };
    let settings = TransferSettings {
        purport,
        codec: arguments.compress.unwrap_or(Codec::Plain),
        integrity,
        checkpoint_bytes: arguments.checkpoint.0.max(1),
        silence: arguments.connection.timeout,
        direct: arguments.direct,
        digests: arguments.manifest.is_some() || arguments.json && integrity == Integrity::Digest,
        // Only a manifest is not complete without.
        reads_for_digests: arguments.manifest.is_some(),
        verify_written: arguments.verify,
        expiry: arguments.expire_leftovers.0,
        ..layer_settings(&arguments.layers)
    };
    let remote_flows = remote_flows(&arguments.layers);
    let (recursive, copy_links) = (arguments.recursive, arguments.copy_links);
    let connection = arguments.connection;
    Ok(Task {
        sources,
        destination,
        recursive,
        copy_links,
        landing,
        settings,
        remote_flows,
        fixed: Fixed::new(&arguments.layers),
        connection,
        introduction: None,
    })
}
