//! Filter rules from options and from the files that they name.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_proto::filter::{Action, Ends, Gathered, MAXIMUM_FILE_BYTES};
use longhaul_system::named_files::to_read;

/// Maximum size in bytes of a list of files, which is kept in memory.
const MAXIMUM_LIST_BYTES: usize = 64 << 20;

/// One rule or a file of rules. A file named `-` is standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatedRule {
    /// A rule in rsync's syntax, such as `- *.o`.
    Rule(Vec<u8>),
    /// An action for the entries that a pattern matches.
    Pattern(Action, Vec<u8>),
    /// A file with one pattern per line.
    From(Action, Vec<u8>),
}

/// Returns the rules in order, including those of the files that they name.
///
/// # Errors
///
/// A message about the first invalid rule or unreadable file.
pub fn gather(stated: &[StatedRule], ends: Ends) -> Result<Vec<Vec<u8>>, String> {
    let mut gathered = Gathered::default();
    let mut read = |name: &[u8]| read_bounded(name, MAXIMUM_FILE_BYTES);
    for stated in stated {
        match stated {
            StatedRule::Rule(rule) => gathered
                .filter(rule, ends, &mut read)
                .map_err(|error| error.to_string())?,
            StatedRule::Pattern(action, pattern) => gathered
                .pattern(*action, pattern)
                .map_err(|error| error.to_string())?,
            StatedRule::From(action, file) => gathered
                .file(*action, file, ends, &mut read)
                .map_err(|error| error.to_string())?,
        }
    }
    Ok(gathered.rules())
}

/// Returns the lines of a list of files, without empty lines and comments
/// ([`longhaul_proto::filter::ListedPath`]).
///
/// # Errors
///
/// A message if the list cannot be read or is larger than 64 MiB.
pub fn listed_files(file: &OsStr, ends: Ends) -> Result<Vec<Vec<u8>>, String> {
    let text = read_bounded(file.as_bytes(), MAXIMUM_LIST_BYTES)
        .map_err(|error| format!("cannot read the list {}: {error}", file.display()))?;
    let ends_line = |byte: &u8| match ends {
        Ends::Zeros => *byte == 0,
        Ends::Lines => matches!(byte, b'\n' | b'\r'),
    };
    let is_comment = |line: &[u8]| ends == Ends::Lines && matches!(line, [b'#' | b';', ..]);
    let lines = text.split(ends_line);
    let lines = lines.filter(|line| !line.is_empty() && !is_comment(line));
    Ok(lines.map(<[u8]>::to_vec).collect())
}

/// Reads a file, or standard input for `-`, up to a maximum size.
fn read_bounded(name: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = most as u64 + 1;
    match name {
        b"-" => io::stdin().lock().take(limit).read_to_end(&mut text)?,
        name => {
            let file = to_read(Path::new(OsStr::from_bytes(name)))?;
            file.take(limit).read_to_end(&mut text)?
        }
    };
    if text.len() > most {
        Err(io::Error::other(format!(
            "it has more than {} KiB: split it",
            most >> 10
        )))
    } else {
        Ok(text)
    }
}

/// Appends a slash. After `HOST:` appends `./`, the home directory.
pub fn end_with_slash(path: &mut OsString) {
    let bytes = path.as_encoded_bytes();
    match bytes.last() {
        Some(b'/') => (),
        Some(b':') => path.push("./"),
        _ => path.push("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_rsync_reads_them() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        let list = |ends| listed_files(file.as_os_str(), ends);
        std::fs::write(&file, "# c\n/a//b/\n\n./c\r\n").unwrap();
        let files = list(Ends::Lines).unwrap();
        assert_eq!(files, [&b"/a//b/"[..], b"./c"]);
        std::fs::write(&file, "#a\nb\0c\0").unwrap();
        let files = list(Ends::Zeros).unwrap();
        assert_eq!(files, [&b"#a\nb"[..], b"c"]);
        let error = listed_files(OsStr::new("/nonexistent"), Ends::Lines).unwrap_err();
        assert!(error.starts_with("cannot read the list"), "{error}");
    }
}
