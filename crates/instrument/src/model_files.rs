//! Reads files of the model: host profiles, fits of records and graphs.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_model::graph::{Graph, file};
use longhaul_model::host::HostModel;
use longhaul_model::records::RecordFits;
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::planning::profiles::existing;
use longhaul_transfer::stop::{Exit, Stop};
use serde_json::Value;

use crate::records::open;

/// Maximum size of a host profile or file of fits in bytes.
const MOST_PROFILE_BYTES: u64 = 64 << 20;

/// Reads a host's model from its profile. Of several disks, the one that holds `path` is
/// used.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be read or has other content.
pub fn host_model(file: &Path, path: Option<&Path>) -> Result<HostModel, Stop> {
    let named = |text: String| Stop::new(Exit::Usage, format!("{}: {text}", file.display()));
    let mut text = String::new();
    let read = open(file)?
        .take(MOST_PROFILE_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", file.display())))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    let path = path.map(|path| path.to_string_lossy());
    HostModel::of_profile(&value, path.as_deref()).map_err(named)
}

/// Reads the model of an endpoint's host. For an endpoint on this host, the disk is that
/// of the path, or of its nearest existing parent.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be read or has other content.
pub fn end_model(file: &Path, endpoint: &Endpoint) -> Result<HostModel, Stop> {
    let path = endpoint.local_path();
    let here = path.and_then(|path| existing(Path::new(OsStr::from_bytes(path))));
    host_model(file, here.as_deref())
}

/// Reads the fits that `longhaul model fit` wrote.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be read or has other content.
pub fn record_fits(file: &Path) -> Result<RecordFits, Stop> {
    let mut text = String::new();
    let read = open(file)?
        .take(MOST_PROFILE_BYTES)
        .read_to_string(&mut text);
    let named = |exit, text: String| Stop::new(exit, format!("{}: {text}", file.display()));
    read.map_err(|error| named(Exit::Local, error.to_string()))?;
    RecordFits::of_text(&text).map_err(|error| named(Exit::Usage, error))
}

/// Reads a graph in TOML or JSON.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be read or has other content.
pub fn read_graph(path: &Path) -> Result<Graph, Stop> {
    let mut text = String::new();
    // One byte more than the limit, so that the parser reports the excess.
    let mut bounded = open(path)?.take(file::MOST_BYTES as u64 + 1);
    let read = bounded.read_to_string(&mut text);
    read.map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", path.display())))?;
    Graph::from_text(&text)
        .map_err(|error| Stop::new(Exit::Usage, format!("{}: {error}", path.display())))
}
