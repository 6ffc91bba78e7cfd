//! Describes the file system of a directory for records.

use std::fs;
use std::path::Path;

/// Returns file system and mount options of a directory, from `/proc/self/mountinfo`.
pub fn storage(directory: &Path) -> String {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let mounts = text.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split_whitespace().skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let kind = kind.split_whitespace().next()?;
        directory
            .starts_with(point)
            .then(|| (point.len(), format!("{kind} {options}")))
    });
    // The longest matching mount point is the nearest one. Of equal ones, the last covers
    // the others.
    mounts
        .max_by_key(|(length, _)| *length)
        .map(|(_, text)| text)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_directory_is_found() {
        assert!(storage(Path::new("/proc/self")).starts_with("proc"));
    }
}
