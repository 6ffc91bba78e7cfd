//! Reads the user's profiles of hosts: measurements of `longhaul bench`, for plans and forecasts.
//! They are in `hosts` in the state directory. `localhost.json` is the profile of this host. The
//! profile of another host is named like the host in endpoints, such as `dtn7.example.org.json`.
//!
//! A problem with a profile is a doubt about the forecast, and does not stop a copy.

use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use longhaul_model::host::HostModel;
use longhaul_system::named_files::kept_to_read;
use serde_json::Value;

use crate::state::state_directory;

/// Maximum size of a profile, in bytes. A larger file is something else.
const MOST_BYTES: u64 = 16 << 20;

/// Maximum length of a file's name in bytes, without its extension of five bytes.
const LONGEST_NAME: usize = 255 - 5;

/// The stored profile of a host, if there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// Capabilities of the host; `None` without a readable profile. It has no codecs if the data
    /// themselves can be sampled.
    pub model: Option<HostModel>,
    /// File of the profile.
    pub file: PathBuf,
    /// Reasons to distrust the profile.
    pub doubts: Vec<String>,
}

/// Returns the directory of the profiles.
///
/// # Errors
///
/// Fails if there is no state directory.
pub fn directory() -> io::Result<PathBuf> {
    Ok(state_directory()?.join("hosts"))
}

/// Returns the profile of another host as endpoints name it, or of this one. If it has several
/// disks, the one that holds `path` is used; `path` need not exist yet.
pub fn kept(host: Option<&str>, path: Option<&Path>) -> Kept {
    match directory() {
        Ok(directory) => kept_in(&directory, host, path),
        Err(_) => Kept::default(),
    }
}

fn kept_in(directory: &Path, host: Option<&str>, path: Option<&Path>) -> Kept {
    let mut kept = Kept::default();
    for name in names(host) {
        let file = directory.join(format!("{name}.json"));
        let read = match read(&file, path) {
            Ok(None) => continue,
            read => read,
        };
        match read {
            Ok(model) => kept.model = model,
            Err(error) => kept.doubts.push(format!(
                "the profile {} is not used: {error}",
                file.display()
            )),
        }
        kept.file = file;
        break;
    }
    if let Some(model) = &mut kept.model {
        kept.doubts.extend(doubts(model, host));
        if host.is_none() {
            model.codecs.clear();
        }
    }
    kept
}

/// Returns the possible file names of a profile, without the extension.
fn names(host: Option<&str>) -> Vec<String> {
    let Some(host) = host else {
        return vec!["localhost".to_owned()];
    };
    let is_name = !host.is_empty() && host.len() <= LONGEST_NAME;
    let is_file = !host.starts_with('.') && !host.contains(['/', '\0']);
    let mut names: Vec<String> = Vec::new();
    if is_name && is_file {
        names.push(host.to_owned());
    }
    if is_loopback(host) {
        names.push("localhost".to_owned());
    }
    names
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Reads a profile; `None` if there is no such file.
fn read(file: &Path, path: Option<&Path>) -> Result<Option<HostModel>, String> {
    let opened = match kept_to_read(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    let read = opened.take(MOST_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_BYTES {
        return Err("it is too large for a profile".to_owned());
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let place = path.and_then(existing);
    let place = place.as_deref().map(Path::to_string_lossy);
    HostModel::of_profile(&value, place.as_deref()).map(Some)
}

/// Returns the path itself, or the nearest existing directory above it, with links resolved.
pub fn existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let mut above = absolute.ancestors();
    above.find_map(|path| fs::canonicalize(path).ok())
}

/// Returns the reasons why a profile may not describe a host: it was made on another host, or with
/// another kernel. `host` is `None` for this host.
pub fn doubts(model: &HostModel, host: Option<&str>) -> Vec<String> {
    let is_here = host.is_none_or(is_loopback);
    let uname = rustix::system::uname();
    let name = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let here = uname.nodename().to_string_lossy().into_owned();
    let wanted = match host {
        Some(host) if !is_here => host,
        _ => &here,
    };
    // An address cannot be compared with a name.
    let has_name = wanted.parse::<IpAddr>().is_err();
    let mut doubts = Vec::new();
    if has_name && !model.name.is_empty() && name(&model.name) != name(wanted) {
        doubts.push(format!(
            "the profile for {} was made on another host, {}",
            host.unwrap_or("this host"),
            model.name
        ));
    }
    let kernel = uname.release().to_string_lossy();
    if is_here && model.kernel != kernel {
        doubts.push(format!(
            "the profile of {} was made with kernel {}, and this host runs {kernel}",
            model.name, model.kernel
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(name: &str, kernel: &str) -> String {
        let sample = json!({ "bytes": 1e9, "wall_seconds": 2.0, "was_direct": true });
        let of_disk = |path: &str, seconds: f64| {
            let mut sample = sample.clone();
            sample["wall_seconds"] = json!(seconds);
            json!({ "about": { "path": path }, "jobs": { "a": {
                "about": { "kind": "write", "flows": 1, "block_bytes": 1 << 20 },
                "samples": [sample.clone(), sample.clone(), sample],
            } } })
        };
        let text = json!({
            "schema": 1, "kind": "host",
            "host": { "name": name, "kernel": kernel, "cores": 16 },
            "sections": { "disk /a": of_disk("/", 2.0), "disk /b": of_disk("/elsewhere", 4.0) },
        });
        text.to_string()
    }

    #[test]
    fn a_host_has_the_profile_of_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path();
        assert_eq!(kept_in(hosts, Some("dtn7"), None), Kept::default());
        fs::write(hosts.join("dtn7.example.org.json"), profile("dtn7", "6.1")).unwrap();
        let kept = kept_in(hosts, Some("dtn7.example.org"), None);
        assert_eq!(kept.model.unwrap().cores, 16);
        assert_eq!(kept.doubts, Vec::<String>::new());
        fs::write(hosts.join("dtn9.json"), profile("dtn7", "6.1")).unwrap();
        let other = kept_in(hosts, Some("dtn9"), None);
        assert!(other.doubts[0].contains("another host, dtn7"), "{other:?}");
        fs::write(hosts.join("10.0.0.1.json"), profile("dtn7", "6.1")).unwrap();
        assert!(kept_in(hosts, Some("10.0.0.1"), None).doubts.is_empty());
        for name in ["../dtn7.example.org", "", ".", "a\0b", &"x".repeat(300)] {
            assert_eq!(kept_in(hosts, Some(name), None), Kept::default(), "{name}");
        }
    }

    #[test]
    fn this_host_has_another_kernel_than_the_profile() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path();
        fs::write(hosts.join("localhost.json"), profile("x.y", "2.4")).unwrap();
        for host in [None, Some("127.0.0.1"), Some("::1"), Some("localhost")] {
            let kept = kept_in(hosts, host, Some(Path::new("/absent/below")));
            let rate = |flows| {
                let write = kept.model.as_ref().unwrap().write.as_ref();
                write.unwrap().best.capacity.at(flows)
            };
            assert!(
                (rate(1) / 5e8 - 1.0).abs() < 1e-6,
                "the disk above the path"
            );
            let said = kept.doubts.join("\n");
            assert!(
                said.contains("kernel 2.4") && said.contains("x.y"),
                "{said}"
            );
        }
        let own = rustix::system::uname();
        let (name, kernel) = (own.nodename(), own.release());
        let text = profile(&name.to_string_lossy(), &kernel.to_string_lossy());
        fs::write(hosts.join("localhost.json"), text).unwrap();
        assert_eq!(kept_in(hosts, None, None).doubts, Vec::<String>::new());
    }

    #[test]
    fn an_invalid_profile_is_a_doubt() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path();
        for text in ["", "{}", "[1, 2", "{\"schema\": 2, \"kind\": \"host\"}"] {
            fs::write(hosts.join("localhost.json"), text).unwrap();
            let kept = kept_in(hosts, None, None);
            assert_eq!(kept.model, None, "{text}");
            assert!(
                kept.doubts[0].contains("localhost.json is not used"),
                "{text}"
            );
        }
    }
}
