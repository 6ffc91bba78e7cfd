//! Findings about a host's resources: space, file system and limits of the kernel.

use longhaul_units::ByteCount;

use super::super::host::{HostFacts, Room};
use super::{Finding, Known, advice, bad, good, not_checked};

/// Limits below which free space is reported, in bytes, in inodes and as a fraction of
/// the total.
const LITTLE_BYTES: u64 = 1_000_000_000;
const LITTLE_INODES: u64 = 10_000;
const LITTLE_SHARE: f64 = 0.05;

/// Maximum size of a socket buffer that one stream needs for 10 Gbit/s at 25 ms or 1
/// Gbit/s at 250 ms: twice 32 MB, because half of a buffer is window.
const WANTED_BUFFER_BYTES: u64 = 64 << 20;

/// Minimum limit of open files for many streams and files.
const WANTED_FILES: u64 = 4096;

/// File systems in memory, and file systems of other hosts.
const MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const REMOTE: [&str; 6] = ["nfs", "nfs4", "smb2", "smb3", "cifs", "fuse.sshfs"];

/// Returns the findings about one host. `names_path` is true if the user named a path on
/// it.
pub(super) fn host(known: &Known<HostFacts>, whose: &str, names_path: bool) -> Vec<Finding> {
    let facts = match known {
        Ok(facts) => facts,
        Err(why) => return vec![not_checked("host", format!("{whose}: {why}"))],
    };
    let mut found = Vec::new();
    if names_path {
        found.extend(place(facts, whose));
        found.extend(storage(facts, whose));
    }
    found.extend(kernel(facts, whose));
    found
}

/// Returns a finding if the named path does not exist. Other facts then describe its
/// nearest existing parent directory.
fn place(facts: &HostFacts, whose: &str) -> Option<Finding> {
    if facts.says("path_is_whole") != Some(false) {
        return None;
    }
    let asked = facts.get("asked").unwrap_or("the path");
    Some(match facts.says("parent_is_there") {
        Some(true) => advice(
            "place",
            format!("{whose}: {asked} does not exist"),
            "if it is a source, check its spelling; a copy to it creates it",
        ),
        _ => bad(
            "place",
            format!(
                "{whose}: neither {asked} nor its parent directory exists; the nearest existing \
                 directory is {}",
                facts.get("path").unwrap_or("unknown")
            ),
            "check its spelling; a copy of a directory to it creates all missing directories",
        ),
    })
}

fn is_little(room: Room, least: u64) -> bool {
    room.total > 0 && room.free < least && (room.free as f64) < room.total as f64 * LITTLE_SHARE
        || room.total > 0 && room.free == 0
}

/// Used fraction of a quota above which it is a problem.
const FULL_SHARE: f64 = 0.98;

/// Returns the findings about the user's quotas. Quotas of groups and projects are not
/// reported by the host.
fn quotas(facts: &HostFacts, whose: &str, path: &str) -> Vec<Finding> {
    let [bytes, files] = facts.quota();
    let bytes = bytes.map(|used| {
        let [shown, limit] = [used.used, used.limit].map(|bytes| ByteCount(bytes).to_string());
        (used, format!("{shown} of {limit}"))
    });
    let files = files.map(|used| (used, format!("{} of {} files", used.used, used.limit)));
    let found = bytes.into_iter().chain(files).map(|(used, shown)| {
        let text = format!("{whose}: your quota at {path}: {shown} are used");
        if used.used as f64 >= used.limit as f64 * FULL_SHARE {
            bad(
                "quota",
                text,
                "remove some of your files there, ask for more, or name another place",
            )
        } else {
            good("quota", text)
        }
    });
    found.collect()
}

fn storage(facts: &HostFacts, whose: &str) -> Vec<Finding> {
    let path = facts.get("path").unwrap_or("the path");
    let mut found = Vec::new();
    found.push(match facts.space() {
        None => not_checked(
            "space",
            format!("{whose}: df returned no information about {path}"),
        ),
        Some(room) => {
            let text = format!(
                "{whose}: {} of {} are free at {path}",
                ByteCount(room.free),
                ByteCount(room.total)
            );
            if is_little(room, LITTLE_BYTES) {
                bad("space", text, "free some space, or name another path")
            } else {
                good("space", text)
            }
        }
    });
    found.push(match facts.inodes() {
        None => not_checked(
            "inodes",
            format!("{whose}: df returned no information about {path}"),
        ),
        Some(Room { total: 0, .. }) => {
            good("inodes", format!("{whose}: {path} has no limit of inodes"))
        }
        Some(room) => {
            let text = format!(
                "{whose}: {} of {} inodes are free at {path}",
                room.free, room.total
            );
            if is_little(room, LITTLE_INODES) {
                bad(
                    "inodes",
                    text,
                    "remove small files there, or pack them into archives",
                )
            } else {
                good("inodes", text)
            }
        }
    });
    found.extend(quotas(facts, whose, path));
    found.push(file_system(facts, whose, path));
    found.push(match (facts.says("writable"), facts.says("readable")) {
        (Some(true), _) => good("rights", format!("{whose}: {path} is writable")),
        (Some(false), Some(true)) => advice(
            "rights",
            format!("{whose}: {path} can be read but not written to"),
            "to copy there: check owner, mode, and that it is not mounted read-only",
        ),
        (Some(false), Some(false)) => bad(
            "rights",
            format!("{whose}: {path} can neither be read nor written to"),
            "check owner and mode",
        ),
        _ => not_checked(
            "rights",
            format!("{whose}: the shell returned no information about {path}"),
        ),
    });
    found
}

fn file_system(facts: &HostFacts, whose: &str, path: &str) -> Finding {
    let Some(name) = facts.get("file_system") else {
        return not_checked(
            "file system",
            format!("{whose}: stat returned no information about {path}"),
        );
    };
    let shown = match name {
        // `stat` uses this name for all three, which have the same number.
        "ext2/ext3" => "ext2, ext3 or ext4",
        name => name,
    };
    let text = format!("{whose}: {path} is on {shown}");
    if MEMORY.contains(&name) {
        return advice(
            "file system",
            text,
            "it is in memory, and its files are lost at a restart: name a path on a disk",
        );
    }
    if REMOTE.contains(&name) {
        let remedy = "each write crosses another network: copy to the host with the disks";
        return advice("file system", text, remedy);
    }
    good("file system", text)
}

fn kernel(facts: &HostFacts, whose: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for sysctl in ["net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"] {
        found.push(match facts.number(sysctl, 2) {
            None => not_checked("kernel", format!("{whose}: {sysctl} cannot be read")),
            Some(bytes) => {
                let text = format!("{whose}: the maximum of {sysctl} is {bytes}");
                if bytes >= WANTED_BUFFER_BYTES {
                    good("kernel", text)
                } else {
                    advice(
                        "kernel",
                        format!("{text}: long paths need many streams"),
                        format!(
                            "sysctl -w {sysctl}=\"4096 {} {WANTED_BUFFER_BYTES}\"",
                            if sysctl.ends_with("wmem") {
                                "16384"
                            } else {
                                "131072"
                            }
                        ),
                    )
                }
            }
        });
    }
    let control = facts.get("net.ipv4.tcp_congestion_control");
    let available = facts
        .get("net.ipv4.tcp_available_congestion_control")
        .unwrap_or_default();
    found.push(match control {
        None => not_checked("congestion control", format!("{whose}: it cannot be read")),
        Some(control) => {
            let text = format!("{whose}: {control} is in use; available: {available}");
            let has_bbr = available.split_whitespace().any(|name| name == "bbr");
            if has_bbr {
                good("congestion control", text)
            } else {
                advice(
                    "congestion control",
                    format!("{text}: bbr is faster on paths with loss"),
                    "modprobe tcp_bbr; sysctl -w \
                 net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
                )
            }
        }
    });
    found.push(match facts.get("open_files") {
        Some("unlimited") => good("open files", format!("{whose}: unlimited")),
        Some(text) => match text.parse::<u64>() {
            Ok(limit) if limit < WANTED_FILES => advice(
                "open files",
                format!("{whose}: {limit} at most"),
                format!("ulimit -n {WANTED_FILES}, or nofile in /etc/security/limits.conf"),
            ),
            Ok(limit) => good("open files", format!("{whose}: {limit} at most")),
            Err(_) => not_checked("open files", format!("{whose}: the shell said {text}")),
        },
        None => not_checked(
            "open files",
            format!("{whose}: the shell does not report the limit"),
        ),
    });
    found
}
