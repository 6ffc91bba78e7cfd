//! The table of options of rsync, scp and rclone that `cp` accepts without effect, or refuses with
//! a hint.

/// Options with the same meaning.
pub struct Options {
    /// Long names, and single letters of short options.
    pub names: Vec<&'static str>,
    /// True if the option takes a value.
    pub takes_value: bool,
    /// Option to write instead; `None` if the option is accepted without effect.
    pub hint: Option<&'static str>,
}

const TABLE: &str = include_str!("options.txt");

/// Returns all options of the table. It has no names that longhaul itself uses.
pub fn all() -> impl Iterator<Item = Options> {
    TABLE.lines().filter_map(read)
}

/// Parses a line of the table; `None` for a comment.
fn read(line: &'static str) -> Option<Options> {
    let (names, hint) = match line.split_once(" -> ") {
        Some((names, hint)) => (names, Some(hint)),
        None => (line, None),
    };
    let mut names = names.split_whitespace();
    let takes_value = match names.next()? {
        "accept" | "refuse" => false,
        "accept=" | "refuse=" => true,
        _ => return None,
    };
    Some(Options {
        names: names.collect(),
        takes_value,
        hint,
    })
}

/// Options of `cp` that rsync disables with --no-OPTION: identifier, and names of the negation.
pub const NEGATIONS: &[&str] = &[
    "acls no-acls no-A",
    "bwlimit no-bwlimit",
    "from0 no-from0",
    "backup no-backup no-b",
    "checksum no-checksum no-c",
    "executability no-executability no-E",
    "fake_super no-fake-super",
    "hard_links no-hard-links no-H",
    "ignore_times no-ignore-times no-I",
    "numeric_ids no-numeric-ids",
    "omit_dir_times no-omit-dir-times no-O",
    "one_file_system no-one-file-system no-x",
    "size_only no-size-only",
    "sparse no-sparse no-S",
    "update no-update no-u",
    "verbose no-verbose no-v",
    "xattrs no-xattrs no-X",
];

/// Returns an option in its written form.
pub fn written(name: &str) -> String {
    match name.len() {
        1 => format!("-{name}"),
        _ => format!("--{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_table_is_parsed() {
        for line in TABLE.lines().filter(|line| !line.is_empty()) {
            let read = read(line);
            assert_eq!(read.is_none(), line.starts_with('#'), "{line}");
            if let Some(read) = read {
                assert!(!read.names.is_empty(), "{line}");
                assert_eq!(read.hint.is_some(), line.starts_with("refuse"), "{line}");
            }
        }
    }
}
