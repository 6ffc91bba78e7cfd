//! Facts that a shell reports about a host without longhaul. Each fact is a line,
//! possibly among other output of a login profile.
//!
//! ```text
//! longhaul-fact/1 net.ipv4.tcp_wmem 4096 16384 4194304
//! ```

use std::collections::BTreeMap;

use longhaul_transfer::ssh::command::OTHER_PLACES;

/// Prefix of each line.
pub const FACT: &str = "longhaul-fact/1 ";

/// Name of the last fact but one. The script then waits for a line and prints the time.
pub const READY: &str = "ready";

/// Maximum length of a line in bytes.
const MAXIMUM_LINE_BYTES: usize = 1024;

/// Maximum number of facts.
const MAXIMUM_FACTS: usize = 64;

/// Sysctls that the script prints.
const SYSCTLS: [&str; 12] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
];

/// Facts of one host, as reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts(BTreeMap<String, String>);

/// Use of a quota of bytes or files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Used bytes or files.
    pub used: u64,
    /// Limit in bytes or files, 1 or more.
    pub limit: u64,
}

/// Space on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Total in bytes or inodes; 0 if the file system has no limit.
    pub total: u64,
    /// Bytes or inodes free for this user.
    pub free: u64,
}

impl HostFacts {
    /// Adds a fact from one line. Other lines are ignored.
    pub fn add_line(&mut self, line: &str) {
        let line = line.trim_end();
        let fact = line.strip_prefix(FACT);
        let Some((name, value)) = fact.and_then(|fact| fact.split_once(' ')) else {
            return;
        };
        let plain = line.len() <= MAXIMUM_LINE_BYTES && !line.contains(char::is_control);
        if plain && !name.is_empty() && self.0.len() < MAXIMUM_FACTS {
            self.0.insert(name.to_owned(), value.trim().to_owned());
        }
    }

    /// Returns a fact if it was reported and is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns the number at position `place`, counted from 0, of a fact.
    pub fn number(&self, name: &str, place: usize) -> Option<u64> {
        self.get(name)?.split_whitespace().nth(place)?.parse().ok()
    }

    /// Returns the host's time in seconds since 1970.
    pub fn clock(&self) -> Option<f64> {
        let text = self.get("clock")?;
        // A `date` without nanoseconds prints the letter N.
        let text = text.strip_suffix(".N").unwrap_or(text);
        let seconds: f64 = text.parse().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
    }

    /// Returns the space in bytes, from the output of `df -P -k` in blocks of 1024 bytes.
    pub fn space(&self) -> Option<Room> {
        self.room_at("space")
    }

    /// Returns the space in bytes from another fact of this form.
    pub fn room_at(&self, name: &str) -> Option<Room> {
        let room = self.room(name)?;
        Some(Room {
            total: room.total.saturating_mul(1024),
            free: room.free.saturating_mul(1024),
        })
    }

    /// Returns the inodes, from the output of `df -P -i`.
    pub fn inodes(&self) -> Option<Room> {
        self.room("inodes")
    }

    /// Returns the user's quotas of bytes and of files, from the output of `quota -v -w
    /// -p`: the device, then for bytes and files the used amount (blocks of 1024 bytes),
    /// the soft limit, the hard limit and the grace time. The smaller limit counts.
    /// `None` means no quota.
    pub fn quota(&self) -> [Option<Used>; 2] {
        let words: Vec<&str> = self
            .get("quota")
            .map_or_else(Vec::new, |text| text.split_whitespace().collect());
        let numbers = words.get(words.len().saturating_sub(8)..).unwrap_or(&[]);
        let used = |at: usize, unit: u64| {
            // A star marks an amount above its limit.
            let number = |at: usize| numbers.get(at)?.trim_end_matches('*').parse::<u64>().ok();
            let [used, soft, hard] = [at, at + 1, at + 2].map(number);
            let limit = [soft?, hard?]
                .into_iter()
                .filter(|limit| *limit > 0)
                .min()?;
            Some(Used {
                used: used?.saturating_mul(unit),
                limit: limit.saturating_mul(unit),
            })
        };
        [used(0, 1024), used(4, 1)]
    }

    /// Parses `df`'s last line: device, total, used, available, percentage. The device's
    /// name may contain spaces, so fields are counted backwards from the percentage.
    fn room(&self, name: &str) -> Option<Room> {
        let words: Vec<&str> = self.get(name)?.split_whitespace().collect();
        let share = words.iter().rposition(|word| {
            *word == "-"
                || word
                    .strip_suffix('%')
                    .is_some_and(|n| n.parse::<u32>().is_ok())
        })?;
        let number = |back: usize| match *words.get(share.checked_sub(back)?)? {
            "-" => Some(0),
            word => word.parse().ok(),
        };
        Some(Room {
            total: number(3)?,
            free: number(1)?,
        })
    }

    /// Returns a fact that is `yes` or `no` as a bool.
    pub fn says(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }
}

/// Returns the script that prints the facts, for `sh -c`. Its first argument is the path
/// and its second the release. It contains no single quotes and no `!`, so that it can be
/// quoted.
pub fn script() -> String {
    let sysctls = SYSCTLS
        .map(|name| format!("{}:{name}", name.replace('.', "/")))
        .join(" ");
    let say = format!("say() {{ echo \"{FACT}$*\"; }}");
    format!(
        "echo; {say}; yes() {{ n=$1; shift; if \"$@\" >/dev/null 2>&1; then say $n yes; else say $n no; fi; }}; \
         say system $(uname -sm); say kernel $(uname -r); \
         for s in {sysctls}; do f=/proc/sys/${{s%%:*}}; [ -r $f ] && say ${{s#*:}} $(cat $f); done; \
         say ssh_connection $SSH_CONNECTION; say open_files $(ulimit -n); say cpu_seconds $(ulimit -t); \
         p=$1; until [ -e \"$p\" ]; do q=$(dirname -- \"$p\"); [ \"$q\" = \"$p\" ] && break; p=$q; done; \
         say asked $1; yes parent_is_there [ -e \"$(dirname -- \"$1\")\" ]; \
         say path $p; yes path_is_whole [ \"$p\" = \"$1\" ]; d=$p; [ -d \"$d\" ] || d=$(dirname -- \"$p\"); \
         say space $(df -P -k -- \"$d\" 2>/dev/null | tail -n 1); \
         say inodes $(df -P -i -- \"$d\" 2>/dev/null | tail -n 1); \
         say quota $(timeout 5 quota -v -w -p -f \"$d\" 2>/dev/null | tail -n 1); \
         t=; m=$(stat -c %m -- \"$d\" 2>/dev/null); \
         while read -r i j k r n z; do [ \"$n\" = \"$m\" ] && t=${{z##* - }}; done </proc/self/mountinfo; \
         t=${{t%% *}}; t=${{t:-$(df -P -T -- \"$d\" 2>/dev/null | tail -n 1 | {{ read -r f t z; echo $t; }})}}; \
         say file_system ${{t:-$(stat -f -c %T -- \"$d\" 2>/dev/null)}}; \
         yes writable [ -w \"$d\" ]; yes readable [ -r \"$p\" ]; \
         c=${{XDG_CACHE_HOME:-$HOME/.cache}}/longhaul; b=$c/longhaul-$2; \
         say cached $([ -x \"$b\" ] && \"$b\" --version 2>/dev/null); \
         PATH=$PATH:$HOME/.local/bin:$HOME/bin; \
         say installed $(command -v longhaul >/dev/null 2>&1 && longhaul --version 2>/dev/null); \
         near() {{ h=$1; until [ -e \"$h\" ]; do q=$(dirname -- \"$h\"); [ \"$q\" = \"$h\" ] && break; h=$q; done; \
         m=$(stat -c %m -- \"$h\" 2>/dev/null); o=; \
         while read -r i j k r n z; do [ \"$n\" = \"$m\" ] && o=${{z%% *}}; done </proc/self/mountinfo; }}; \
         near \"$c\"; yes cache_writable [ -w \"$h\" ]; say cache $c; say cache_mount $m; say cache_options $o; \
         say cache_room $(df -P -k -- \"$h\" 2>/dev/null | tail -n 1); \
         u=$(id -u); for e in \"$c\" {OTHER_PLACES}; do case \"$e\" in /-/*) continue;; esac; near \"$e\"; \
         case \",$o,\" in *,noexec,*) continue;; esac; [ -w \"$h\" ] && {{ say runs_in $e; break; }}; done; \
         say {READY} yes; read x; say clock $(date +%s.%N)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn facts(text: &str) -> HostFacts {
        let mut facts = HostFacts::default();
        text.split_inclusive('\n')
            .for_each(|line| facts.add_line(line));
        facts
    }

    #[test]
    fn facts_are_found_among_other_output() {
        let found = facts(
            "Welcome!\nlonghaul-fact/1 clock 1795276800.25\nlonghaul-fact/1 clock\n\
             longhaul-fact/1 net.ipv4.tcp_wmem 4096 16384 4194304\nlonghaul-fact/1 writable no\n\
             longhaul-fact/1 empty \nlonghaul-fact/2 clock 1\n",
        );
        assert_eq!(found.clock(), Some(1_795_276_800.25));
        assert_eq!(found.number("net.ipv4.tcp_wmem", 2), Some(4_194_304));
        assert_eq!(found.says("writable"), Some(false));
        assert_eq!((found.get("empty"), found.get("absent")), (None, None));
    }

    #[test]
    fn the_output_of_quota_is_parsed() {
        let of = |line: &str| facts(&format!("longhaul-fact/1 quota {line}\n")).quota();
        let used = |used, limit| Some(Used { used, limit });
        assert_eq!(
            of("/dev/vdb 1000* 900 1200 1795276800 7 0 0 0"),
            [used(1_024_000, 921_600), None]
        );
        assert_eq!(
            of("nas:/export/my home 5 0 10 0 20 20 30 0"),
            [used(5120, 10_240), used(20, 20)]
        );
        for none in [
            "/dev/vdb 0 0 0 0 0 0 0 0",
            "Disk quotas for user alice (uid 1000): none",
            "",
        ] {
            assert_eq!(of(none), [None, None], "{none}");
        }
    }

    #[test]
    fn the_output_of_df_is_parsed() {
        let found = facts(
            "longhaul-fact/1 space /dev/my disk 1000 400 600 40% /srv/my data\n\
             longhaul-fact/1 inodes tank - - - - /tank\n",
        );
        let space = Room {
            total: 1_024_000,
            free: 614_400,
        };
        assert_eq!(found.space(), Some(space));
        assert_eq!(found.inodes().map(|room| room.total), Some(0));
        for bad in ["space", "space x", "space - 5%", "space a b c d%"] {
            assert_eq!(
                facts(&format!("longhaul-fact/1 {bad}\n")).space(),
                None,
                "{bad}"
            );
        }
    }

    /// If the mount point has a space, which the mount table escapes, or `stat` reports
    /// no mount point, the name comes from `df`.
    #[test]
    fn the_file_system_is_known_even_without_its_mount_point() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let stat = place.path().join("stat");
        std::fs::write(
            &stat,
            "#!/bin/sh\ncase \"$*\" in *-f*) echo ext2/ext3;; *) exit 1; esac\n",
        )
        .unwrap();
        std::fs::set_permissions(&stat, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("sh")
            .args(["-c", &script(), "sh"])
            .arg(place.path())
            .arg("0.0.0")
            .env("PATH", format!("{}:{path}", place.path().display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let found = facts(&String::from_utf8(output.stdout).unwrap());
        let kind = found.get("file_system").unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(mounts.contains(&format!(" - {kind} ")), "{kind}");
    }

    #[test]
    fn shells_report_the_facts() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("it's not/there yet");
        for shell in ["sh", "bash"] {
            let mut child = Command::new(shell)
                .args(["-c", &script(), "sh"])
                .arg(&missing)
                .arg("0.0.0")
                .env("HOME", place.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let output = child.wait_with_output().unwrap();
            let found = facts(&String::from_utf8(output.stdout).unwrap());
            assert!(
                found.get("system").unwrap().starts_with("Linux "),
                "{found:?}"
            );
            assert_eq!(found.get("path"), place.path().to_str());
            assert_eq!(found.says("path_is_whole"), Some(false));
            assert_eq!(found.get("asked"), missing.to_str());
            assert_eq!(found.says("parent_is_there"), Some(false));
            assert_eq!(found.says("writable"), Some(true));
            assert!(found.space().unwrap().total > 0, "{found:?}");
            assert!(found.inodes().is_some(), "{found:?}");
            // ext4 has the magic number of ext2; the mount table distinguishes them.
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            let kind = format!(" - {} ", found.get("file_system").unwrap());
            assert!(mounts.contains(&kind), "{kind}");
            assert!(found.clock().unwrap() > 1_700_000_000.0);
            assert!(found.number("net.ipv4.tcp_rmem", 2).is_some());
            assert_eq!(
                (found.get("cached"), found.says("cache_writable")),
                (None, Some(true))
            );
            let cache = place.path().join(".cache/longhaul");
            assert_eq!(found.get("cache"), cache.to_str());
            assert!(found.get("cache_options").is_some(), "{found:?}");
            assert!(found.get("runs_in").is_some(), "{found:?}");
        }
        assert!(!script().contains(['\'', '\n']));
    }
}
