//! Keeps zeros out of files: holes of small files, and with `--sparse` every run of zeros.

use std::io;

use longhaul_storage::StoredFile;

/// Unit of holes in bytes. File systems have blocks of at least this size, so a smaller run of
/// zeros would save no space.
const HOLE_BYTES: usize = 4096;

static ZEROS: [u8; HOLE_BYTES] = [0; HOLE_BYTES];

/// Writes the pages that are not all zeros. The file must already have holes or zeros in the
/// others.
pub(super) fn write_around_holes(
    file: &dyn StoredFile,
    offset: u64,
    data: &[u8],
) -> io::Result<()> {
    for run in runs_of(offset, data) {
        if !run.is_hole {
            file.write_at(run.data, run.offset)?;
        }
    }
    Ok(())
}

/// Frees the pages of a file that are all zeros. `data` are the bytes at `offset`.
pub(super) fn punch_zeros(file: &dyn StoredFile, offset: u64, data: &[u8]) -> io::Result<()> {
    for run in runs_of(offset, data) {
        if run.is_hole {
            file.punch_hole(run.offset, run.data.len() as u64)?;
        }
    }
    Ok(())
}

/// A run of pages that are all zeros, or of pages that are not.
struct Run<'a> {
    offset: u64,
    data: &'a [u8],
    is_hole: bool,
}

/// Cuts bytes that begin at `offset` of a file into runs. Pages begin at multiples of
/// [`HOLE_BYTES`] of the file, so the first and the last one may be shorter.
fn runs_of(mut offset: u64, mut data: &[u8]) -> impl Iterator<Item = Run<'_>> {
    std::iter::from_fn(move || {
        let (first, is_hole) = page_of(offset, data)?;
        let mut length = first;
        while let Some((next, same)) = page_of(offset + length as u64, &data[length..])
            && same == is_hole
        {
            length += next;
        }
        let (run, rest) = data.split_at(length);
        let run = Run {
            offset,
            data: run,
            is_hole,
        };
        offset += length as u64;
        data = rest;
        Some(run)
    })
}

/// Returns the length of the first page of `data`, and true if it is all zeros. Returns `None` for
/// empty data.
fn page_of(offset: u64, data: &[u8]) -> Option<(usize, bool)> {
    let before = (offset % HOLE_BYTES as u64) as usize;
    let length = data.len().min(HOLE_BYTES - before);
    (length > 0).then(|| (length, data[..length] == ZEROS[..length]))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use longhaul_storage::posix::PosixDirectory;
    use longhaul_storage::{Creation, DataMode};

    use super::*;

    #[test]
    fn runs_begin_at_pages_of_the_file() {
        let mut data = vec![0; 5 * HOLE_BYTES];
        data[HOLE_BYTES + 10] = 1;
        let runs = |offset| {
            let runs = runs_of(offset, &data);
            runs.map(|run| (run.offset, run.data.len(), run.is_hole))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            runs(0),
            [(0, 4096, true), (4096, 4096, false), (8192, 12_288, true)]
        );
        // The byte is at 14,202, in the page from 12,288 on.
        assert_eq!(
            runs(10_000),
            [
                (10_000, 2288, true),
                (12_288, 4096, false),
                (16_384, 14_096, true)
            ]
        );
        assert!(runs_of(7, &[]).next().is_none());
    }

    /// Zeros that an earlier run wrote become holes.
    #[test]
    fn existing_zeros_become_holes() {
        let place = tempfile::tempdir().unwrap();
        let mut data = vec![0; 64 * HOLE_BYTES];
        data[..HOLE_BYTES].fill(7);
        let path = place.path().join("f");
        fs::write(&path, &data).unwrap();
        let directory = PosixDirectory::open_root(place.path()).unwrap();
        let file = directory.create_file(b"f", Creation::Existing, DataMode::Buffered);
        let file = file.unwrap();
        punch_zeros(&*file, 0, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let blocks = fs::metadata(&path).unwrap().blocks();
        assert!(blocks * 512 <= 2 * HOLE_BYTES as u64, "{blocks}");
    }
}
