//! Files next to a file of records: one with descriptions of the hosts, and files with
//! samples of runs. Their names differ from those of records, so that `*.jsonl` matches
//! records only.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use longhaul_engine::benchmark::this_host::digest_of;
use longhaul_measure::compressed::{is_compressed, plain_name};
use longhaul_measure::host::{DescribedHost, HostDescription, HostError, SCHEMA, read_hosts};
use longhaul_system::named_files::{Older, to_change, to_write};

/// Storage of host descriptions.
#[derive(Debug)]
pub enum Hosts {
    /// Hosts are described in this file.
    Kept(HostsFile),
    /// Records are not written to a regular file, so there is no file of hosts.
    NoFile,
    /// Hosts are not described for this reason: the file cannot be created or is full.
    LeftOut(String),
}

/// An open file of host descriptions.
#[derive(Debug)]
pub struct HostsFile {
    path: PathBuf,
    file: File,
    /// False if the permissions of the file allow only writing.
    is_readable: bool,
    known: HashSet<String>,
}

/// Returns the path of the file of hosts: `runs.hosts.ndjson` for `runs.jsonl`, `runs`
/// and `runs.jsonl.zst`.
pub fn path_beside(records: &Path) -> PathBuf {
    let records = plain_name(records);
    let stem = match records.extension() {
        Some(kind) if kind == "jsonl" => records.with_extension(""),
        _ => records,
    };
    let mut name = stem.into_os_string();
    name.push(".hosts.ndjson");
    name.into()
}

/// Returns the path of a run's samples, and the name for its record. Creates their
/// directory.
///
/// # Errors
///
/// Returns an error if the directory cannot be created.
pub fn samples_beside(records: &Path, id: &str) -> Result<(PathBuf, String), String> {
    let stem = records.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}.samples/{}.jsonl", id.replace('/', "-"));
    let path = records.with_file_name(&name);
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    Ok((path, name))
}

/// True if records are written to a pipe, a socket or a device, or to an open file of
/// this process (`/dev/stdout`). No files are kept next to these.
pub fn is_no_file(records: &Path) -> bool {
    let kind = std::fs::metadata(records).map(|found| found.file_type());
    let is_open = ["/dev", "/proc"]
        .iter()
        .any(|begin| records.starts_with(begin))
        // Regular files in memory.
        && !records.starts_with("/dev/shm");
    is_open || kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_char_device())
}

impl HostsFile {
    /// Opens the file of hosts for a file of records.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or has other content.
    pub fn open(records: &Path) -> Result<Hosts, String> {
        if is_no_file(records) {
            return Ok(Hosts::NoFile);
        }
        let path = path_beside(records);
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let refused = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ];
        let (file, is_readable) = match open_to_append(&path) {
            Err(error) if refused.contains(&error.kind()) => {
                return Ok(Hosts::LeftOut(wrong(&error)));
            }
            opened => opened.map_err(|error| wrong(&error))?,
        };
        // If the file can only be appended to, a host may be written twice.
        let read = if is_readable {
            match read_hosts(BufReader::new(&file)) {
                Err(error @ HostError::TooMany) => return Ok(Hosts::LeftOut(wrong(&error))),
                read => read.map_err(|error| wrong(&error))?,
            }
        } else {
            Vec::new()
        };
        let known = read.into_iter().map(|host| host.digest).collect();
        Ok(Hosts::Kept(HostsFile {
            path,
            file,
            is_readable,
            known,
        }))
    }

    /// Adds a host if it is missing. Returns the digest by which records refer to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the description is too long or the file cannot be written.
    pub fn add(&mut self, host: &HostDescription) -> Result<String, String> {
        let wrong = |error: HostError| format!("{}: {error}", self.path.display());
        let digest = digest_of(host).map_err(wrong)?;
        if self.known.contains(&digest) {
            return Ok(digest);
        }
        let described = DescribedHost {
            schema: SCHEMA,
            digest: digest.clone(),
            host: host.clone(),
        };
        let line = described.to_line().map_err(wrong)?;
        let begin = if self.is_readable && !ends_with_a_line(&mut self.file) {
            "\n"
        } else {
            ""
        };
        let written = self.file.write_all(format!("{begin}{line}\n").as_bytes());
        let durable = written.and_then(|()| self.file.sync_data());
        let path = &self.path;
        durable.map_err(|error| format!("{}: {error}", path.display()))?;
        self.known.insert(digest.clone());
        Ok(digest)
    }
}

/// Rejects a compressed file as output, because lines cannot be appended to a zstd frame.
///
/// # Errors
///
/// Returns an error if the name is that of a compressed file.
pub fn refuse_compressed(records: &Path) -> Result<(), String> {
    if !is_compressed(records) {
        Ok(())
    } else {
        Err(format!(
            "{}: records are appended to a plain file: name {}, and compress it when it is \
         complete (longhaul records compress)",
            records.display(),
            plain_name(records).display()
        ))
    }
}

/// Opens or creates a file for appending. The bool is false if permissions allow only
/// writing.
///
/// # Errors
///
/// Returns the error of `open`.
pub fn open_to_append(path: &Path) -> io::Result<(File, bool)> {
    match to_change(path, false) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok((to_write(path, Older::Stays)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// True if the file ends with a newline, is empty, or cannot be read.
pub fn ends_with_a_line(file: &mut File) -> bool {
    let mut look = || -> io::Result<bool> {
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(last == [b'\n'])
    };
    look().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cores: u32) -> HostDescription {
        HostDescription {
            cores,
            ..HostDescription::default()
        }
    }

    #[test]
    fn each_host_is_described_once_next_to_the_records() {
        let home = tempfile::tempdir().unwrap();
        let records = home.path().join("runs.jsonl");
        let open = || match HostsFile::open(&records).unwrap() {
            Hosts::Kept(hosts) => hosts,
            other => panic!("{other:?}"),
        };
        let (mut file, beside) = (open(), home.path().join("runs.hosts.ndjson"));
        let first = file.add(&host(1)).unwrap();
        assert_eq!(file.add(&host(1)).unwrap(), first);
        assert_ne!(open().add(&host(2)).unwrap(), first);
        assert_eq!(open().add(&host(1)).unwrap(), first);
        let read = || read_hosts(BufReader::new(File::open(&beside).unwrap())).unwrap();
        assert_eq!(read().len(), 2);
        // A line that was cut off does not affect the following line.
        let whole = std::fs::read(&beside).unwrap();
        std::fs::write(&beside, &whole[..whole.len() - 20]).unwrap();
        let second = open().add(&host(2)).unwrap();
        let cores: Vec<u32> = read().iter().map(|line| line.host.cores).collect();
        assert_eq!(cores, [1, 2]);
        assert_eq!(read()[1].digest, second);
        let none = HostsFile::open(Path::new("/dev/null"));
        assert!(matches!(none, Ok(Hosts::NoFile)));
        assert!(is_no_file(Path::new("/dev/stdout")));
        assert!(!is_no_file(Path::new("/dev/shm/runs.jsonl")));
        assert_eq!(
            path_beside(Path::new("a/runs")),
            Path::new("a/runs.hosts.ndjson")
        );
    }
}
