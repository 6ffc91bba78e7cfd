//! Flags of `cp` that take a value in scp or rclone, with the equivalent in longhaul.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::values::{
    is_cipher, is_number, is_program, is_scp_path, is_server, is_setting, is_span, is_there,
};

/// A flag of `cp` that takes a value in scp or rclone.
pub struct Taking {
    /// Identifier of the flag in the command.
    pub id: &'static str,
    /// The flag in its written form.
    pub flag: &'static str,
    /// True if a path looks like the value. The second argument is the number of following paths.
    pub is_value: fn(&OsStr, usize) -> bool,
    /// Message with the equivalent in longhaul.
    pub hint: &'static str,
}

/// Equivalent of a port.
pub const PORT: &str = "it takes no value here; write a port of ssh with --ssh 'ssh -p PORT'";

/// Equivalent of an option of ssh.
const SSH_OPTION: &str = "it keeps owners here and takes no value; write an option of ssh with \
    --ssh 'ssh -o OPTION'";

/// The flags.
pub const TAKING: &[Taking] = &[
    Taking {
        id: "rsync_filter",
        flag: "-F",
        is_value: |word, after| after > 1 && !Path::new(word).is_dir() && !is_scp_path(word),
        hint: "it reads .rsync-filter files here and takes no value; write a configuration of \
               ssh with --ssh 'ssh -F FILE'",
    },
    Taking {
        id: "owner",
        flag: "-o",
        is_value: |word, _| is_setting(word) && !is_there(word),
        hint: SSH_OPTION,
    },
    Taking {
        id: "links",
        flag: "-l",
        is_value: |word, _| is_number(word),
        hint: "it copies links here and takes no value; scp's -l KBIT is --bwlimit, as in \
               --bwlimit 8Mbit/s",
    },
    Taking {
        id: "checksum",
        flag: "-c",
        is_value: |word, _| is_cipher(word) && !is_there(word),
        hint: "it compares contents here and takes no value; write a cipher of ssh with \
               --ssh 'ssh -c CIPHER'",
    },
    Taking {
        id: "xattrs",
        flag: "-X",
        is_value: |word, _| is_setting(word) && !is_there(word),
        hint: "it keeps extended attributes here and takes no value: remove scp's -X",
    },
    Taking {
        id: "special_files",
        flag: "-D",
        is_value: |word, after| after > 1 && (is_program(word) || is_server(word)),
        hint: "it copies devices here and takes no value; scp's -D has no counterpart",
    },
    Taking {
        id: "sparse",
        flag: "-S",
        is_value: |word, after| after > 1 && is_program(word),
        hint: "it makes holes of zeros here and takes no value; name the program with --ssh PROGRAM",
    },
    Taking {
        id: "P",
        flag: "-P",
        is_value: |word, _| is_number(word),
        hint: PORT,
    },
    Taking {
        id: "perms",
        flag: "-p",
        is_value: |word, _| is_number(word),
        hint: PORT,
    },
    Taking {
        id: "stats",
        flag: "--stats",
        is_value: |word, _| is_span(word) && !is_there(word),
        hint: "it takes no value here, and progress is always shown: remove the time",
    },
];

/// Refuses `-oNAME=VALUE`, whose letters would be read as options.
///
/// # Errors
///
/// Returns a message with the equivalent in longhaul.
pub fn refuse_attached(line: &[OsString]) -> Result<(), String> {
    let words = line.iter().take_while(|word| *word != "--");
    let settings = words.filter_map(|word| word.as_bytes().strip_prefix(b"-o"));
    let mut settings = settings.map(|setting| OsStr::from_bytes(setting).to_owned());
    match settings.find(|setting| is_setting(setting)) {
        Some(setting) => Err(format!("-o{}: {SSH_OPTION}", setting.display())),
        None => Ok(()),
    }
}
