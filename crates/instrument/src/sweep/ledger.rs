//! The file of records of a sweep. Recorded runs are done. An incomplete last line is
//! dropped.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use longhaul_measure::compressed::{compressed_name, lines};
use longhaul_measure::record::{OnFault, RunRecord, read_records};
use longhaul_system::named_files::to_change;
use rustix::fs::{FlockOperation, flock};

use crate::sidecar::refuse_compressed;

/// An open file of records.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    done: HashSet<String>,
}

/// Content of a file of records.
#[derive(Debug, Default)]
pub struct Found {
    /// Recorded runs.
    pub runs: Vec<RunRecord>,
    /// Number of an incomplete last line, which is dropped.
    pub dropped: Option<usize>,
}

impl Found {
    /// Parses the bytes of a file. Also returns the number of bytes in complete lines.
    fn read(path: &Path, bytes: &[u8]) -> Result<(Found, usize), String> {
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let dropped = (whole < bytes.len())
            .then(|| bytes[..whole].iter().filter(|byte| **byte == b'\n').count() + 1);
        let mut runs = Vec::new();
        let read = read_records(&bytes[..whole], OnFault::Refuse, |record| {
            runs.push(record);
            Ok(())
        });
        read.map_err(|fault| format!("{}: {fault}; fix or remove that line", path.display()))?;
        Ok((Found { runs, dropped }, whole))
    }

    /// Adds the runs of the file's compressed form if it exists: `runs.jsonl.zst` for
    /// `runs.jsonl`. They come first because they are earlier.
    fn add_compressed(&mut self, path: &Path) -> Result<(), String> {
        let path = compressed_name(path);
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|error| wrong(&error))?,
        };
        let input = lines(BufReader::new(file)).map_err(|error| wrong(&error))?;
        let mut runs = Vec::new();
        let read = read_records(input, OnFault::Refuse, |record| {
            runs.push(record);
            Ok(())
        });
        read.map_err(|fault| {
            let remedy = "decompress the file, fix or remove that line, and compress it again";
            format!("{}: {fault}; {remedy}", path.display())
        })?;
        runs.append(&mut self.runs);
        self.runs = runs;
        Ok(())
    }
}

impl Ledger {
    /// Opens the file exclusively.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, another sweep has locked it, or a
    /// line is not a record.
    pub fn open(path: &Path) -> Result<(Ledger, Found), String> {
        refuse_compressed(path)?;
        let wrong = |error: io::Error| format!("{}: {error}", path.display());
        let mut file = to_change(path, true).map_err(wrong)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(format!(
                "another sweep writes to {}: wait until it ends, or choose another file with -o",
                path.display()
            ));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(wrong)?;
        let (mut found, whole) = Found::read(path, &bytes)?;
        if found.dropped.is_some() {
            file.set_len(whole as u64).map_err(wrong)?;
        }
        file.seek(SeekFrom::Start(whole as u64)).map_err(wrong)?;
        found.add_compressed(path)?;
        let ledger = Ledger {
            path: path.to_owned(),
            file,
            done: found.runs.iter().map(|run| run.run.id.clone()).collect(),
        };
        Ok((ledger, found))
    }

    /// Reads the file without changing or locking it. Returns an empty result if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or a line is not a record.
    pub fn look(path: &Path) -> Result<Found, String> {
        refuse_compressed(path)?;
        let mut found = match std::fs::read(path) {
            Ok(bytes) => Found::read(path, &bytes)?.0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::default(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        found.add_compressed(path)?;
        Ok(found)
    }

    /// True if a run is recorded.
    pub fn has(&self, id: &str) -> bool {
        self.done.contains(id)
    }

    /// Appends a record by a single write and makes it durable.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is invalid or the file cannot be written.
    pub fn add(&mut self, record: &RunRecord) -> Result<(), String> {
        let line = record.to_line().map_err(|error| error.to_string())?;
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        let durable = written.and_then(|()| self.file.sync_data());
        durable.map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.done.insert(record.run.id.clone());
        Ok(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A process that was just started shares the descriptor until it executes its
        // program. Closing would leave the lock with it, so the lock is released
        // explicitly.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_measure::record::{Measures, PathRecord, RunIdentity};
    use longhaul_measure::sources::ExternalRun;
    use longhaul_units::{BitRate, ByteCount};
    use std::time::Duration;

    fn record(id: &str) -> RunRecord {
        let run = ExternalRun {
            tool: "iperf3".to_owned(),
            moved: ByteCount(1_000_000),
            wall: Duration::from_secs(1),
            ..ExternalRun::default()
        };
        let identity = RunIdentity {
            id: id.to_owned(),
            ..RunIdentity::default()
        };
        let path = PathRecord {
            capacity: BitRate::new(1e9).unwrap(),
            ..PathRecord::default()
        };
        let record = run.into_record(identity, path);
        assert_eq!(record.measures, Measures::Memory);
        record
    }

    #[test]
    fn runs_in_the_compressed_file_count_as_recorded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runs.jsonl");
        let line = record("one").to_line().unwrap() + "\n";
        let mut packed = Vec::new();
        longhaul_measure::compressed::compress(line.as_bytes(), &mut packed).unwrap();
        let beside = home.path().join("runs.jsonl.zst");
        std::fs::write(&beside, packed).unwrap();
        assert_eq!(Ledger::look(&path).unwrap().runs.len(), 1);
        let (mut ledger, _) = Ledger::open(&path).unwrap();
        assert!(ledger.has("one") && !ledger.has("two"));
        ledger.add(&record("two")).unwrap();
        drop(ledger);
        let found = Ledger::look(&path).unwrap();
        let ids: Vec<&str> = found.runs.iter().map(|run| run.run.id.as_str()).collect();
        assert_eq!(ids, ["one", "two"]);
        let refused = Ledger::open(&beside).unwrap_err();
        assert!(
            refused.contains("name ") && refused.contains("runs.jsonl,"),
            "{refused}"
        );
    }

    #[test]
    fn an_incomplete_last_line_is_dropped_and_reported() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runs.jsonl");
        let (mut ledger, found) = Ledger::open(&path).unwrap();
        assert_eq!((found.runs.len(), found.dropped), (0, None));
        ledger.add(&record("a")).unwrap();
        ledger.add(&record("b")).unwrap();
        assert!(Ledger::open(&path).unwrap_err().contains("another sweep"));
        drop(ledger);
        let whole = std::fs::read(&path).unwrap();
        // If the second line is cut off at any byte, the first line is kept.
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first + 1..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let (mut ledger, found) = Ledger::open(&path).unwrap();
            assert_eq!((found.runs.len(), found.dropped), (1, Some(2)));
            assert!(ledger.has("a") && !ledger.has("b"));
            ledger.add(&record("b")).unwrap();
            drop(ledger);
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn another_descriptor_of_the_file_does_not_keep_the_lock() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runs.jsonl");
        let (ledger, _) = Ledger::open(&path).unwrap();
        let _other = ledger.file.try_clone().unwrap();
        drop(ledger);
        Ledger::open(&path).unwrap();
    }

    #[test]
    fn an_invalid_line_is_reported_by_number() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runs.jsonl");
        std::fs::write(&path, "\nnonsense\n").unwrap();
        let error = Ledger::open(&path).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }
}
