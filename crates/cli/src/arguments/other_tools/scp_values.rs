//! Recognises values of options of scp and rclone that would be read as sources.
//!
//! Some letters take a value in scp but not in rsync, whose meaning applies here. The value would
//! be copied as a source. Such a line is refused if the first path looks like a value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use longhaul_transfer::other_tools::values::{
    is_cipher, is_number, is_program, is_scp_path, is_server, is_setting, is_span, is_there,
};

/// A flag of `cp` that takes a value in scp or rclone.
struct Taking {
    /// Identifier of the flag in the command.
    id: &'static str,
    /// The flag in its written form.
    flag: &'static str,
    /// True if a path looks like the value. The second argument is the number of following paths.
    is_value: fn(&OsStr, usize) -> bool,
    /// Message with the equivalent in longhaul.
    hint: &'static str,
}

const PORT: &str = "it takes no value here; write a port of ssh with --ssh 'ssh -p PORT'";

const SSH_OPTION: &str = "it keeps owners here and takes no value; write an option of ssh with \
    --ssh 'ssh -o OPTION'";

const TAKING: &[Taking] = &[
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

/// Refuses a first path that looks like a value of another tool's option.
///
/// # Errors
///
/// Returns a message with the equivalent in longhaul.
pub fn refuse(matches: &ArgMatches) -> Result<(), String> {
    let paths = matches.try_get_many::<OsString>("paths");
    let paths: Vec<&OsString> = paths.ok().flatten().into_iter().flatten().collect();
    let at = matches.indices_of("paths").and_then(|mut all| all.next());
    let (Some(first), Some(at)) = (paths.first(), at) else {
        return refuse_digits(matches);
    };
    for taking in TAKING {
        let given = matches.value_source(taking.id) == Some(ValueSource::CommandLine);
        let before = matches.index_of(taking.id) == at.checked_sub(1);
        if given && before && (taking.is_value)(first, paths.len() - 1) {
            return Err(format!(
                "{} {}: {}. To copy a file of that name, name it before the option",
                taking.flag,
                first.display(),
                taking.hint
            ));
        }
    }
    refuse_digits(matches)
}

/// Refuses `-P8080`, whose digits would be read as the options -8 and -0.
fn refuse_digits(matches: &ArgMatches) -> Result<(), String> {
    let digits: Vec<usize> = matches.indices_of("8").into_iter().flatten().collect();
    let letters = [("P", "-P"), ("perms", "-p"), ("links", "-l")];
    for (id, flag) in letters {
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        // An option of this table counts twice: for its name and for its empty value.
        let next = matches.index_of(id).map(|at| at + 2);
        if given && next.is_some_and(|next| digits.contains(&next)) {
            return Err(format!("{flag}8: {PORT}"));
        }
    }
    Ok(())
}

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
