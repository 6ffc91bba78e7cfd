//! `longhaul cp`.

use std::ffi::OsString;

use longhaul_engine::session::TransferSettings;
use longhaul_proto::block::Codec;
use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::{Landing, Purport};

use super::here::Here;
use super::run::{Fixed, Task, check_stack, layer_settings, remote_flows};
use super::stream;
use crate::arguments::{BandwidthLimit, CopyArguments, IntegrityArgument, LayerArguments};
use crate::between::steer;
use crate::between::words::Asked;
use crate::endpoint::{Endpoint, check_colons};
use crate::messages::{Exit, Stop, finish};
use crate::report::Report;

/// Runs it.
pub fn run(arguments: CopyArguments) -> Exit {
    finish(copy(arguments))
}

fn copy(arguments: CopyArguments) -> Result<Exit, Stop> {
    check_ends(&arguments.paths)?;
    let asked = Asked::copy(&arguments);
    if let Some(sides) = asked.sides()? {
        return steer::run(&asked, &sides);
    }
    drop(asked);
    let manifest = arguments.manifest.clone().map(|file| {
        let named = file.display().to_string();
        (file, named)
    });
    let (json, quiet) = (arguments.json, arguments.quiet);
    let (names, limit) = (arguments.verbose, arguments.bwlimit);
    // What makes no sense makes no manifest either.
    let task = task(arguments)?;
    let report = Report::new(json, quiet, manifest)?;
    let report = report.naming(names).detailed(names).bound_to(limit);
    report.end_at_signal();
    task.run(&report)
}

/// Sees to it that neither the destination nor the only source is a host whose colon was
/// forgotten. Of several sources the missing ones are failures of their own.
///
/// # Errors
///
/// That one is.
pub fn check_ends(paths: &[OsString]) -> Result<(), Stop> {
    let checked = match paths {
        [_, _] | [] => paths,
        [.., destination] => std::slice::from_ref(destination),
    };
    check_colons(checked).map_err(|error| Stop::because(Exit::Usage, error))
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
    check_stack(&arguments.layers)?;
    let parse = |path| Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error));
    let mut sources = arguments
        .paths
        .iter()
        .map(|path| parse(path))
        .collect::<Result<Vec<_>, _>>()?;
    let destination = sources.pop().filter(|_| !sources.is_empty());
    let destination = destination
        .ok_or_else(|| Stop::new(Exit::Usage, "name a source and, last, a destination"))?;
    stream::check(&sources, &destination, &arguments)?;
    let landing = match sources.as_slice() {
        [_] => Landing::WithinOrAs,
        _ => Landing::Within,
    };
    let purport = match arguments.dry_run {
        true => Purport::DryRun,
        false => Purport::Copy,
    };
    let layers = bound_blocks(&arguments.layers, arguments.bwlimit);
    let mut settings = TransferSettings {
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
        limit: arguments.bwlimit.map(BandwidthLimit::bytes_per_second),
        ..layer_settings(&layers)
    };
    let remote_flows = remote_flows(&layers);
    let stream = stream::source(&sources, &mut settings);
    let recursive = arguments.recursive;
    let copy_links = arguments.copy_links;
    let keep_set_ids = arguments.keep_set_ids;
    let connection = arguments.connection;
    Ok(Task {
        sources,
        destination,
        recursive,
        copy_links,
        keep_set_ids,
        landing,
        settings,
        remote_flows,
        fixed: Fixed {
            limit: arguments.bwlimit,
            ..Fixed::new(&layers)
        },
        connection,
        stream,
        here: Here::default(),
        introduction: None,
    })
}

/// At a low rate blocks are small, so that each is done before long.
fn bound_blocks(layers: &LayerArguments, limit: Option<BandwidthLimit>) -> LayerArguments {
    let mut layers = layers.clone();
    if let (Some(limit), Some(wanted)) = (limit, &mut layers.block_size) {
        *wanted = limit.block_bytes(*wanted);
    }
    layers
}
