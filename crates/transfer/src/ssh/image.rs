//! Reads a binary without its sections, to send less to another host. The kernel and the dynamic
//! linker need only segments. Debug information, up to nine tenths of a file, and function names
//! are in sections outside all segments.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

/// Size in bytes of the 64-bit ELF header, and of an entry of its program header table.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;

/// First bytes of a 64-bit little-endian ELF file.
const BEGINS: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

/// Offsets in the header of the section table's offset, and of three counts at the end: the entry
/// size, the number of entries and the index of the entry with the names.
const SECTIONS_AT: usize = 0x28;
const SECTION_COUNTS_AT: usize = 0x3a;

/// Upper bound on the segments of a program.
const MOST_SEGMENTS: usize = 256;

/// The bytes of a binary that are sent.
pub struct Image {
    file: File,
    /// The first bytes, changed to describe no sections.
    header: Vec<u8>,
    bytes: u64,
}

impl Image {
    /// Opens a binary. A file in another format is sent unchanged.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn open(binary: &Path) -> io::Result<Image> {
        let mut file = File::open(binary)?;
        let whole = file.metadata()?.len();
        let mut header = vec![0; HEADER_BYTES];
        let filled = read_fully(&mut file, &mut header)?;
        header.truncate(filled);
        let bytes = if filled == HEADER_BYTES && header.starts_with(&BEGINS) {
            needed_bytes(&header, &mut file)?.filter(|needed| *needed <= whole)
        } else {
            None
        };
        if bytes.is_some() {
            header[SECTIONS_AT..SECTIONS_AT + 8].fill(0);
            header[SECTION_COUNTS_AT..].fill(0);
        }
        Ok(Image {
            file: File::open(binary)?,
            header,
            bytes: bytes.unwrap_or(whole),
        })
    }

    /// Returns the number of bytes to send.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a reader of the bytes to send.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<impl Read> {
        let mut file = self.file.try_clone()?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(self.header.len() as u64))?;
        let rest = self.bytes.saturating_sub(self.header.len() as u64);
        Ok(Cursor::new(self.header.clone()).chain(file.take(rest)))
    }
}

/// Returns the end of the last segment, or `None` if the tables are invalid.
fn needed_bytes(header: &[u8], file: &mut File) -> io::Result<Option<u64>> {
    let (table, size, count) = (
        number(header, 0x20, 8),
        half(header, 0x36),
        half(header, 0x38),
    );
    if size != SEGMENT_BYTES || count == 0 || count > MOST_SEGMENTS {
        return Ok(None);
    }
    let mut segments = vec![0; size * count];
    io::Seek::seek(file, io::SeekFrom::Start(table))?;
    if read_fully(file, &mut segments)? < segments.len() {
        return Ok(None);
    }
    let own = table.checked_add(segments.len() as u64);
    let ends = segments.chunks_exact(size).map(|segment| {
        let (start, length) = (number(segment, 0x08, 8), number(segment, 0x20, 8));
        start.checked_add(length)
    });
    let ends: Option<Vec<u64>> = ends.chain([own, Some(HEADER_BYTES as u64)]).collect();
    Ok(ends.and_then(|ends| ends.into_iter().max()))
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes[at..at + length].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn half(bytes: &[u8], at: usize) -> usize {
    number(bytes, at, 2) as usize
}

fn read_fully(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn sent(binary: &Path) -> Vec<u8> {
        let image = Image::open(binary).unwrap();
        let mut bytes = Vec::new();
        image.read().unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, image.bytes());
        bytes
    }

    #[test]
    fn the_sent_binary_runs_and_has_no_debug_information() {
        let own = std::env::current_exe().unwrap();
        let bytes = sent(&own);
        let whole = std::fs::metadata(&own).unwrap().len();
        assert!((bytes.len() as u64) < whole, "{} of {whole}", bytes.len());
        let place = tempfile::tempdir().unwrap();
        let (data, copy) = (place.path().join("data"), place.path().join("copy"));
        std::fs::write(&data, &bytes).unwrap();
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
        // Another process writes the file that is executed: a child that another test starts in
        // this process could inherit a descriptor for writing.
        let copied = std::process::Command::new("cp")
            .args([&data, &copy])
            .status();
        assert!(copied.unwrap().success());
        let listed = std::process::Command::new(&copy).arg("--list").output();
        assert!(listed.unwrap().status.success());
        // The second pass finds no more sections to remove.
        assert_eq!(sent(&copy), bytes);
    }

    #[test]
    fn a_file_that_is_not_a_binary_is_sent_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let mut broken = BEGINS.to_vec();
        broken.resize(200, 0xff);
        for bytes in [&b""[..], b"#!/bin/sh\necho\n", &BEGINS, &broken] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(sent(&file), bytes);
        }
    }
}
