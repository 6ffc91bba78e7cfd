//! Options of rsync, scp and rclone that `cp` accepts without effect, or refuses with a hint.

/// How `cp` treats an option that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Accepted: longhaul always does this, or the option changes no file.
    Always,
    /// Refused, with this hint.
    No(&'static str),
}

use Meaning::{Always, No};

/// Options with the same meaning.
pub struct Options {
    /// Long names, and single letters of short options.
    pub names: &'static [&'static str],
    /// Whether the option takes a value.
    pub takes_value: bool,
    /// How `cp` treats it.
    pub meaning: Meaning,
}

const fn flags(names: &'static [&'static str], meaning: Meaning) -> Options {
    Options {
        names,
        takes_value: false,
        meaning,
    }
}

const fn valued(names: &'static [&'static str], meaning: Meaning) -> Options {
    Options {
        names,
        takes_value: true,
        meaning,
    }
}

const FAMILY: &str = "--bind ADDRESS chooses the address to connect from";
const STREAMS: &str = "the number of streams follows the path: leave it out";
const ELSEWHERE: &str = "a file that is there unchanged is not sent, and files in other \
    directories are neither compared nor linked";
const LINKS: &str = "links are copied as links, and a link is never followed at the destination: \
    leave it out, or exclude links by name with --exclude";
const ACCESS_TIMES: &str = "access times and creation times are not kept: leave it out";
const BATCH: &str = "copy to a directory or a pipe (-)";
const TEMPORARY: &str = "a file is written in the directory where it will be: leave it out";
const WINDOWS: &str = "files are chosen with --newer-than and --older-than";
const RCLONE_SIZES: &str = "the copy runs to its end: limit its time with --stop-after";
const CLOUD: &str = "longhaul copies between hosts, not to object stores: leave it out";

/// All of them. Names of options that longhaul has are no part of it.
pub const OPTIONS: &[Options] = &[
    // rsync: accepted.
    flags(
        &[
            "8",
            "8-bit-output",
            "P",
            "S",
            "W",
            "append-verify",
            "blocking-io",
            "fsync",
            "fuzzy",
            "h",
            "human-readable",
            "i-r",
            "inc-recursive",
            "mkpath",
            "no-8",
            "no-8-bit-output",
            "no-J",
            "no-N",
            "no-U",
            "no-atimes",
            "no-crtimes",
            "no-d",
            "no-dirs",
            "no-drop-D",
            "no-iconv",
            "no-insecure-links",
            "no-munge-links",
            "no-old-args",
            "no-omit-link-times",
            "no-open-noatime",
            "no-protect-args",
            "no-s",
            "no-secluded-args",
            "no-super",
            "no-write-devices",
            "no-append",
            "no-blocking-io",
            "no-delay-updates",
            "no-force",
            "no-fuzzy",
            "no-h",
            "no-human-readable",
            "no-i",
            "no-i-r",
            "no-ignore-errors",
            "no-inc-recursive",
            "no-inplace",
            "no-itemize-changes",
            "no-m",
            "no-motd",
            "no-partial",
            "no-progress",
            "no-prune-empty-dirs",
            "no-sparse",
            "no-S",
            "no-y",
            "partial",
            "preallocate",
            "progress",
            "protect-args",
            "s",
            "secluded-args",
            "sparse",
            "stats",
            "whole-file",
            "y",
        ],
        Always,
    ),
    valued(
        &[
            "debug",
            "info",
            "outbuf",
            "partial-dir",
            "skip-compress",
            "stderr",
        ],
        Always,
    ),
    // rsync: refused.
    flags(&["4", "6", "ipv4", "ipv6"], No(FAMILY)),
    valued(
        &["B"],
        No("--block-size is the size of the blocks that are sent"),
    ),
    flags(
        &["C", "cvs-exclude"],
        No("write the patterns with --exclude (scp's -C is --compress zstd)"),
    ),
    flags(
        &["J", "omit-link-times"],
        No("times of links are always kept (scp's -J HOST is --ssh 'ssh -J HOST')"),
    ),
    flags(
        &["K", "keep-dirlinks"],
        No("a link at the destination is never followed: name its target as the destination"),
    ),
    flags(&["N", "crtimes", "U", "atimes"], No(ACCESS_TIMES)),
    flags(
        &["R", "relative"],
        No("name the directory above and the files with --files-from"),
    ),
    valued(&["T", "temp-dir"], No(TEMPORARY)),
    flags(
        &["V", "version"],
        No("the version is printed by `longhaul --version`"),
    ),
    flags(
        &["append"],
        No("an interrupted copy resumes without it: leave it out"),
    ),
    valued(
        &["cc", "checksum-choice", "checksum-seed"],
        No("--integrity digest (BLAKE3) or checksum (XXH3) chooses the checksum"),
    ),
    valued(&["compare-dest", "copy-dest", "link-dest"], No(ELSEWHERE)),
    valued(
        &["confine-root"],
        No("a daemon confines its principals to roots: longhaul serve --root"),
    ),
    valued(&["copy-as"], No("log in as that user: USER@HOST:PATH")),
    flags(
        &["copy-devices", "write-devices"],
        No("contents of devices are not copied: -D copies the devices themselves"),
    ),
    flags(
        &["copy-dirlinks", "k", "copy-unsafe-links"],
        No("-L copies what all links lead to; `link/` as a source is what one leads to"),
    ),
    flags(
        &["d", "dirs", "old-d", "old-dirs"],
        No("-r --max-depth 1 copies what is directly in a source"),
    ),
    flags(&["daemon"], No("`longhaul serve` is the daemon")),
    flags(
        &["delay-updates"],
        No("each file gets its name when it is complete: leave it out"),
    ),
    flags(
        &["delete-missing-args"],
        No("a missing source deletes nothing: copy its directory with --delete"),
    ),
    flags(
        &["drop-D"],
        No("-a --no-D leaves out devices and special files"),
    ),
    valued(
        &["early-input"],
        No("a daemon of longhaul runs no command before a copy: leave it out"),
    ),
    flags(
        &["force"],
        No("a directory is never replaced by a file: move it away"),
    ),
    flags(
        &["i", "itemize-changes"],
        No(
            "-v prints the names of copied files, -nv of those that would be copied, and --json \
             prints all events (scp's -i FILE is --ssh 'ssh -i FILE')",
        ),
    ),
    valued(
        &["iconv"],
        No("names are copied byte by byte: convert them before or afterwards with convmv"),
    ),
    flags(
        &["ignore-errors"],
        No("no file is deleted after an error: correct it and run the command again"),
    ),
    flags(
        &["ignore-missing-args"],
        No("a missing source is reported (exit code 2), and the others are copied"),
    ),
    flags(
        &["inplace"],
        No(
            "a file gets its name only when it is complete, so that no reader sees a part: leave \
             it out",
        ),
    ),
    flags(
        &["insecure-links"],
        No("links below a source or destination are never followed without -L: leave it out"),
    ),
    flags(&["list-only"], No("`longhaul ls` lists files")),
    valued(
        &["log-file-format", "out-format"],
        No("--log-file has a fixed format, and --json and --report have all fields"),
    ),
    flags(
        &["m", "prune-empty-dirs"],
        No("exclude unwanted directories with --exclude"),
    ),
    valued(&["max-alloc"], No("--memory limits the memory for blocks")),
    flags(
        &["munge-links", "no-l", "no-links", "safe-links"],
        No(LINKS),
    ),
    flags(
        &["no-R", "no-implied-dirs", "no-relative"],
        No("files of --files-from keep their paths: leave it out"),
    ),
    flags(
        &["no-W", "no-whole-file"],
        No("a file that changed is copied whole: leave it out"),
    ),
    flags(
        &["no-mkpath"],
        No("missing directories above the destination are made: leave it out"),
    ),
    flags(
        &["no-contimeout", "no-timeout"],
        No("a connection always has a time limit: write a longer one with --timeout TIME"),
    ),
    flags(
        &["no-t", "no-times"],
        No("modification times are always kept: leave it out"),
    ),
    flags(
        &["old-args"],
        No("paths go to the other host as they are written: leave it out"),
    ),
    valued(
        &["only-write-batch", "read-batch", "write-batch"],
        No(BATCH),
    ),
    flags(&["open-noatime"], No(ACCESS_TIMES)),
    valued(
        &["password-file"],
        No("--token-file FILE has the tokens of daemons"),
    ),
    valued(
        &["port"],
        No("write the port into the URL (longhaul://HOST:PORT/PATH), or --ssh 'ssh -p PORT'"),
    ),
    valued(
        &["protocol"],
        No("both ends need the same release: --install-remote installs it"),
    ),
    valued(
        &["rsync-path"],
        No("name the program at the other host with --remote-longhaul"),
    ),
    valued(
        &["sockopts"],
        No("--buffer sets the size of socket buffers, and --congestion the congestion control"),
    ),
    flags(
        &["super"],
        No(
            "as root, and where the kernel permits it, owners and devices are kept: leave it out; \
             -o, -g and --devices report a failure where they are not",
        ),
    ),
    flags(
        &["trust-sender"],
        No("names from the other end are always checked: leave it out"),
    ),
    // scp.
    flags(
        &["3"],
        No("--through-local carries a copy between two hosts through this one"),
    ),
    flags(
        &["1", "2", "5", "7", "9"],
        No("a port is --ssh 'ssh -p PORT', and scp's -l KBIT is --bwlimit"),
    ),
    // rclone.
    valued(
        &[
            "checkers",
            "multi-thread-cutoff",
            "multi-thread-streams",
            "transfers",
            "multi-thread-chunk-size",
        ],
        No(STREAMS),
    ),
    valued(&["max-age", "min-age"], No(WINDOWS)),
    valued(
        &["max-transfer", "max-duration", "cutoff-mode"],
        No(RCLONE_SIZES),
    ),
    valued(
        &["buffer-size", "max-buffer-memory"],
        No("--memory limits the memory for blocks"),
    ),
    valued(
        &[
            "config",
            "password-command",
            "drive-chunk-size",
            "s3-chunk-size",
        ],
        No(CLOUD),
    ),
    flags(
        &["fast-list", "no-traverse", "no-check-dest", "immutable"],
        No("--ignore-existing leaves files that exist at the destination: leave it out"),
    ),
    valued(
        &["low-level-retries"],
        No("lost connections are dialled again for the time of --timeout: leave it out"),
    ),
    valued(
        &["log-level", "stats-log-level", "stats-unit"],
        No("-v prints more, -q prints failures only, and --json prints all events"),
    ),
    flags(
        &["stats-one-line", "use-json-log", "interactive"],
        No("-n shows what would be copied, and --json prints all events"),
    ),
    valued(
        &["exclude-if-present", "filter-from", "hash-filter"],
        No("docs/filters.md has the rules: -f '. FILE' reads rules from a file"),
    ),
    flags(
        &[
            "create-empty-src-dirs",
            "check-first",
            "metadata",
            "track-renames",
        ],
        No("directories, modes and times are always copied: leave it out"),
    ),
    flags(
        &["delete-empty-src-dirs"],
        No("--move removes files and leaves directories: remove those with find -empty -delete"),
    ),
    valued(
        &["tpslimit", "order-by", "max-backlog", "bwlimit-file"],
        No("--bwlimit limits the rate of the copy: leave it out"),
    ),
];
