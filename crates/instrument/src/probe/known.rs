//! Facts about a path that are not measured: from a sweep file, so that the probe can be
//! compared with the sweep's runs, or from the user.

use std::path::Path;
use std::time::Duration;

use longhaul_measure::record::Measures;
use longhaul_transfer::endpoint::Remote;
use longhaul_transfer::stop::{Exit, Stop};
use longhaul_units::BitRate;

use crate::sweep::command::host_of;
use crate::sweep::file::{self, Unread};
use crate::sweep::plan::{Cell, Plan};

/// A known path to the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPath {
    /// The path of a sweep; `None` if the user gave only the capacity.
    pub swept: Option<SweptPath>,
    /// Maximum rate of TCP payload.
    pub capacity: BitRate,
}

/// A path of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweptPath {
    /// Name of the path in records.
    pub name: String,
    /// Round-trip time.
    pub rtt: Duration,
    /// Bytes of the sweep's transfers, in ascending order.
    pub bytes: Vec<u64>,
}

/// Returns the only path of a sweep file that leads to the daemon. `written` is the
/// endpoint in the user's notation.
///
/// # Errors
///
/// Returns an error if the file is invalid, or has no path or several paths to that
/// daemon.
pub fn of_sweep(file: &Path, written: &str, remote: &Remote) -> Result<KnownPath, Stop> {
    let usage = |text: String| Stop::new(Exit::Usage, text);
    let sweep = file::read(file).map_err(|unread| match unread {
        Unread::Closed(text) => Stop::new(Exit::Local, text),
        Unread::Wrong(text) => usage(text),
    })?;
    let shown = file.display();
    let plan = Plan::of(&sweep).map_err(|error| usage(format!("{shown}: {error}")))?;
    let leads_there = |cell: &&Cell| {
        let endpoint = cell.path.endpoint.as_deref();
        endpoint.is_some_and(|endpoint| host_of(endpoint).eq_ignore_ascii_case(remote.host.host()))
    };
    let mut cells: Vec<&Cell> = plan.cells.iter().filter(leads_there).collect();
    // An exact match of the notation takes precedence.
    if cells.iter().any(|cell| cell.path.text() == written) {
        cells.retain(|cell| cell.path.text() == written);
    }
    let Some(first) = cells.first() else {
        let host = remote.host.host();
        return Err(usage(format!(
            "{shown}: no path leads to {host}: give one of them endpoint = \"longhaul://{host}/…\", \
             or remove --sweep"
        )));
    };
    let path = &first.path;
    let alike = |cell: &&Cell| {
        let other = &cell.path;
        (other.text(), other.rtt, other.capacity) == (path.text(), path.rtt, path.capacity)
    };
    if let Some(other) = cells.iter().find(|cell| !alike(cell)) {
        return Err(usage(format!(
            "{shown}: {} and {} lead to that host, or one of them has several values of rtt or \
             capacity: name the endpoint exactly as in the file, or remove --sweep",
            path.text(),
            other.path.text()
        )));
    }
    let transfers = cells.iter();
    let transfers = transfers.filter(|cell| cell.method.measures == Measures::Transfer);
    let mut bytes: Vec<u64> = transfers.map(|cell| cell.bytes).collect();
    bytes.sort_unstable();
    bytes.dedup();
    Ok(KnownPath {
        swept: Some(SweptPath {
            name: path.text(),
            rtt: path.rtt,
            bytes,
        }),
        capacity: path.capacity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_transfer::endpoint::Endpoint;
    use std::ffi::OsStr;

    const FILE: &str = r#"
        name = "real"
        [[paths]]
        endpoint = "longhaul://dtn.example.org/data"
        rtt = "50ms"
        capacity = "10gbit"
        [[paths]]
        endpoint = "longhaul://[2001:db8::7]:7000/data"
        rtt = "20ms"
        capacity = "1gbit"
        [[data]]
        name = "large"
        link-time = "10s"
        [[methods]]
        name = "longhaul"
        longhaul = true
        knobs = { streams = [1, 8] }
    "#;

    fn known(text: &str, endpoint: &str) -> Result<KnownPath, String> {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("real.toml");
        std::fs::write(&file, text).unwrap();
        let parsed = Endpoint::parse(OsStr::new(endpoint)).unwrap();
        let remote = parsed.access().unwrap().daemon().unwrap();
        of_sweep(&file, endpoint, remote).map_err(|stop| stop.text)
    }

    #[test]
    fn a_path_of_a_sweep_is_found_by_its_host() {
        for endpoint in [
            "longhaul://dtn.example.org",
            "longhaul://alice@dtn.example.org:7000/x",
        ] {
            let path = known(FILE, endpoint).unwrap();
            assert_eq!(path.capacity, BitRate::new(1e10).unwrap());
            let swept = path.swept.unwrap();
            assert_eq!(swept.name, "longhaul://dtn.example.org/data");
            assert_eq!(swept.rtt, Duration::from_millis(50));
            assert_eq!(swept.bytes, [12_500_000_000]);
        }
        let v6 = known(FILE, "longhaul://[2001:db8::7]").unwrap();
        assert_eq!(v6.capacity, BitRate::new(1e9).unwrap());
    }

    #[test]
    fn errors_name_missing_or_ambiguous_paths() {
        let error = known(FILE, "longhaul://other.example.org").unwrap_err();
        assert!(error.contains("other.example.org"), "{error}");
        let several = FILE.replace("\"50ms\"", "[\"50ms\", \"60ms\"]");
        let error = known(&several, "longhaul://dtn.example.org").unwrap_err();
        assert!(error.contains("several values of rtt"), "{error}");
        let two = FILE.replace("[2001:db8::7]:7000/data", "dtn.example.org/other");
        let error = known(&two, "longhaul://dtn.example.org").unwrap_err();
        assert!(
            error.contains("/data") && error.contains("/other"),
            "{error}"
        );
        let one = known(&two, "longhaul://dtn.example.org/other").unwrap();
        assert_eq!(one.swept.unwrap().rtt, Duration::from_millis(20));
    }
}
