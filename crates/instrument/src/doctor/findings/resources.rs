//! What a host has: room, its file system, limits of its kernel.

use longhaul_units::ByteCount;

use super::super::host::{HostFacts, Room};
use super::{Finding, Known, advice, bad, good, not_checked};

/// Free room below this is worth a word, in bytes and as a share.
const LITTLE_BYTES: u64 = 1_000_000_000;
const LITTLE_INODES: u64 = 10_000;
const LITTLE_SHARE: f64 = 0.05;

/// What socket buffers must grow to for 10 Gbit/s at 25 ms, or 1 Gbit/s at
/// 250 ms, in one stream: twice 32 MB, as half of a buffer is window.
const WANTED_BUFFER_BYTES: u64 = 64 << 20;

/// Open files below which many streams and files do not fit.
const WANTED_FILES: u64 = 4096;

/// File systems that are a host's memory, or a network's.
const MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const REMOTE: [&str; 6] = ["nfs", "nfs4", "smb2", "smb3", "cifs", "fuse.sshfs"];

/// Of one host; of the path there where it was named.
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

/// Whether the named path exists; other facts are of the nearest existing directory above it.
fn place(facts: &HostFacts, whose: &str) -> Option<Finding> {
    if facts.says("path_is_whole") != Some(false) {
        return None;
    }
    let asked = facts.get("asked").unwrap_or("the path");
    Some(match facts.says("parent_is_there") {
        Some(true) => advice(
            "place",
            format!("{whose}: nothing is at {asked}"),
            "a source has to be there: check how it is written; a copy to it makes it",
        ),
        _ => bad(
            "place",
            format!(
                "{whose}: neither {asked} is there nor the directory that it would be in; the \
                 nearest is {}",
                facts.get("path").unwrap_or("unknown")
            ),
            "check how it is written; a copy of a directory to it makes all of it",
        ),
    })
}

fn is_little(room: Room, least: u64) -> bool {
    room.total > 0 && room.free < least && (room.free as f64) < room.total as f64 * LITTLE_SHARE
        || room.total > 0 && room.free == 0
}

/// Of a quota that much is used when it is in the way.
const FULL_SHARE: f64 = 0.98;

/// The user's quotas, where the host reports any. It reports none of groups and projects.
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
        None => not_checked("space", format!("{whose}: df told nothing of {path}")),
        Some(room) => {
            let text = format!(
                "{whose}: {} of {} are free at {path}",
                ByteCount(room.free),
                ByteCount(room.total)
            );
            if is_little(room, LITTLE_BYTES) {
                bad("space", text, "free some room, or name another place")
            } else {
                good("space", text)
            }
        }
    });
    found.push(match facts.inodes() {
        None => not_checked("inodes", format!("{whose}: df told nothing of {path}")),
        Some(Room { total: 0, .. }) => {
            good("inodes", format!("{whose}: {path} has no limit of them"))
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
        (Some(true), _) => good("rights", format!("{whose}: {path} can be written to")),
        (Some(false), Some(true)) => advice(
            "rights",
            format!("{whose}: {path} can be read, not written to"),
            "to copy there: check owner, mode and whether it is mounted read-only",
        ),
        (Some(false), Some(false)) => bad(
            "rights",
            format!("{whose}: {path} can neither be read nor written to"),
            "check owner and mode",
        ),
        _ => not_checked(
            "rights",
            format!("{whose}: the shell told nothing of {path}"),
        ),
    });
    found
}

fn file_system(facts: &HostFacts, whose: &str, path: &str) -> Finding {
    let Some(name) = facts.get("file_system") else {
        return not_checked(
            "file system",
            format!("{whose}: stat told nothing of {path}"),
        );
    };
    let shown = match name {
        // What `stat` calls all three, which have one number.
        "ext2/ext3" => "ext2, ext3 or ext4",
        name => name,
    };
    let text = format!("{whose}: {path} is on {shown}");
    if MEMORY.contains(&name) {
        return advice(
            "file system",
            text,
            "that is memory, and nothing there outlives a restart: name a place on a disk",
        );
    }
    if REMOTE.contains(&name) {
        let remedy = "each write crosses another network: copy to the host that has the disks";
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
                let text = format!("{whose}: {sysctl} ends at {bytes}");
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
            let text = format!("{whose}: {control} governs, and there are {available}");
            let has_bbr = available.split_whitespace().any(|name| name == "bbr");
            if has_bbr {
                good("congestion control", text)
            } else {
                advice(
                    "congestion control",
                    format!("{text}: with loss, bbr carries more"),
                    "modprobe tcp_bbr; sysctl -w \
                 net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
                )
            }
        }
    });
    found.push(match facts.get("open_files") {
        Some("unlimited") => good("open files", format!("{whose}: without limit")),
        Some(text) => match text.parse::<u64>() {
            Ok(limit) if limit < WANTED_FILES => advice(
                "open files",
                format!("{whose}: {limit} at most"),
                format!("ulimit -n {WANTED_FILES}, or nofile in /etc/security/limits.conf"),
            ),
            Ok(limit) => good("open files", format!("{whose}: {limit} at most")),
            Err(_) => not_checked("open files", format!("{whose}: the shell said {text}")),
        },
        None => not_checked("open files", format!("{whose}: the shell does not tell")),
    });
    found
}
