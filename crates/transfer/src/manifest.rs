//! `--manifest FILE`: the digests of all files at the destination, sorted by path, in the format
//! that `b3sum` prints and `b3sum --check` reads. Names that this format cannot express go to
//! `FILE.raw`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use longhaul_storage::spill::{Sorter, SpillSettings};
use longhaul_system::named_files::{Older, to_write};

use crate::console::say;
use crate::stop::{Exit, Stop};

/// Collects digests, on disk once there are many.
pub struct Manifest {
    file: PathBuf,
    /// Name as given by the user.
    named: String,
    sorter: Option<Sorter>,
    failed: Option<std::io::Error>,
}

impl Manifest {
    /// Opens the file now, so that a failure does not appear after hours of copying. Its old
    /// content stays until the copy has ended.
    pub fn new(file: PathBuf, named: String) -> Result<Manifest, Stop> {
        try_to_write(&file).map_err(|error| {
            Stop::new(
                Exit::Local,
                format!("cannot write the manifest {named}: {error}"),
            )
        })?;
        Ok(Manifest {
            file,
            named,
            sorter: Some(Sorter::new(SpillSettings::default())),
            failed: None,
        })
    }

    /// Discards all digests, because every file will be added again.
    pub fn begin_again(&mut self) {
        self.sorter = Some(Sorter::new(SpillSettings::default()));
        self.failed = None;
    }

    /// Adds the digest of a file.
    pub fn add(&mut self, path: &[u8], digest: &[u8; 32]) {
        if let Some(sorter) = &mut self.sorter
            && let Err(error) = sorter.push(path, digest)
        {
            self.failed = Some(error);
            self.sorter = None;
        }
    }

    /// Writes the manifest.
    pub fn write(&mut self) -> Result<(), Stop> {
        let stop = |error: std::io::Error| {
            Stop::new(
                Exit::Local,
                format!(
                    "all is copied, but the manifest {} cannot be written: {error}",
                    self.named
                ),
            )
        };
        if let Some(error) = self.failed.take() {
            return Err(stop(error));
        }
        let Some(sorter) = self.sorter.take() else {
            return Ok(());
        };
        let raw = write_sorted(sorter, &self.file).map_err(stop)?;
        if raw > 0 {
            say(&format!(
                "{raw} names cannot be written in b3sum's format: they are in {}.raw, each \
                 \"DIGEST  NAME\" ended by a NUL",
                self.named
            ));
        }
        Ok(())
    }
}

/// Tests whether a manifest can be written, without changing an existing file.
///
/// # Errors
///
/// The file cannot be written.
pub fn try_to_write(file: &Path) -> std::io::Result<()> {
    let is_made = file.symlink_metadata().is_err();
    to_write(file, Older::Stays)?;
    if is_made {
        // An empty manifest would pass a check, so it must not remain.
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}

/// Returns the path of the file for names that `b3sum` cannot express.
pub fn raw_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".raw");
    name.into()
}

fn write_sorted(sorter: Sorter, file: &Path) -> std::io::Result<u64> {
    let mut sorted = sorter.finish()?;
    let mut output = BufWriter::new(to_write(file, Older::Goes)?);
    let mut raw_output: Option<BufWriter<File>> = None;
    let mut raw = 0;
    while let Some(record) = sorted.next_record()? {
        let digest = hexadecimal(record.value);
        match expressible(record.key) {
            Some(name) => writeln!(output, "{}", line(&digest, name))?,
            None => {
                raw += 1;
                let raw_output = match &mut raw_output {
                    Some(raw_output) => raw_output,
                    None => {
                        let made = to_write(&raw_beside(file), Older::Goes)?;
                        raw_output.insert(BufWriter::new(made))
                    }
                };
                raw_output.write_all(&[digest.as_bytes(), b"  ", record.key, b"\0"].concat())?;
            }
        }
    }
    if let Some(mut raw_output) = raw_output {
        raw_output.flush()?;
    }
    output.flush()?;
    Ok(raw)
}

/// Returns a name that every version of b3sum can read from a list, or `None`. Versions up to 1.4
/// have no escape for a carriage return, and later ones strip one at the end of a line. All
/// versions reject the replacement character and treat `-` as standard input.
fn expressible(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let is_read = name != "-" && !name.contains(['\r', char::REPLACEMENT_CHARACTER]);
    is_read.then_some(name)
}

/// Returns a line in the format of b3sum. If the name contains a newline or backslash, these are
/// escaped and the line starts with a backslash.
fn line(digest: &str, name: &str) -> String {
    if name.contains(['\\', '\n']) {
        let escaped = name.replace('\\', "\\\\").replace('\n', "\\n");
        return format!("\\{digest}  {escaped}");
    }
    format!("{digest}  {name}")
}

/// Returns bytes as hexadecimal digits, in the format of b3sum.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_sorted_and_keeps_odd_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("manifest");
        let mut manifest = Manifest::new(file.clone(), "manifest".into()).unwrap();
        manifest.add(b"b", &[1; 32]);
        manifest.add(b"a\n\\", &[2; 32]);
        manifest.add(b"\xff", &[3; 32]);
        for odd in [&b"-"[..], b"a\rb", "\u{fffd}".as_bytes()] {
            manifest.add(odd, &[3; 32]);
        }
        manifest.write().unwrap();
        let (one, two, three) = ("01".repeat(32), "02".repeat(32), "03".repeat(32));
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("\\{two}  a\\n\\\\\n{one}  b\n"));
        let raw = std::fs::read(directory.path().join("manifest.raw")).unwrap();
        let names = [&b"-"[..], b"a\rb", "\u{fffd}".as_bytes(), b"\xff"];
        let expected = names.map(|name| [three.as_bytes(), b"  ", name, b"\0"].concat());
        assert_eq!(raw, expected.concat());
    }
}
