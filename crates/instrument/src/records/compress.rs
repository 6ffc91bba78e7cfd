//! Compresses files of records and samples with zstd. All commands read the compressed
//! form.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::Path;

use longhaul_measure::compressed::{compress, compressed_name, is_compressed, lines};

/// Writes the compressed form of a file next to it, durably, and compares it with the
/// original. Returns the sizes of both in bytes. If `remove` is true, the original is
/// removed afterwards.
///
/// # Errors
///
/// Returns an error if the file is already compressed, the compressed file exists, or one
/// of them cannot be read or written.
pub fn compress_file(path: &Path, remove: bool) -> io::Result<(u64, u64)> {
    if is_compressed(path) {
        return Err(io::Error::other(
            "it is already compressed: name an uncompressed file",
        ));
    }
    let compressed = compressed_name(path);
    let input = BufReader::new(File::open(path)?);
    // An existing file is not replaced: it may contain other records.
    let output = File::create_new(&compressed).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", compressed.display()))
    })?;
    let written = write_and_compare(input, &output, path);
    let before = match written {
        Ok(before) => before,
        Err(error) => {
            // An incomplete file would look complete.
            let _ = fs::remove_file(&compressed);
            return Err(error);
        }
    };
    let after = output.metadata()?.len();
    if remove {
        File::open(parent_of(&compressed))?.sync_all()?;
        fs::remove_file(path)?;
    }
    Ok((before, after))
}

fn write_and_compare(input: impl BufRead, output: &File, path: &Path) -> io::Result<u64> {
    let before = compress(input, BufWriter::new(output))?;
    output.sync_all()?;
    let packed = BufReader::new(File::open(compressed_name(path))?);
    if !are_alike(BufReader::new(File::open(path)?), lines(packed)?)? {
        return Err(io::Error::other(
            "it changed while it was read: compress it when no program writes to it",
        ));
    }
    Ok(before)
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// True if both inputs have the same bytes.
fn are_alike(mut left: impl BufRead, mut right: impl BufRead) -> io::Result<bool> {
    loop {
        let (one, other) = (left.fill_buf()?, right.fill_buf()?);
        let common = one.len().min(other.len());
        if one[..common] != other[..common] {
            return Ok(false);
        }
        if common == 0 {
            return Ok(one.len() == other.len());
        }
        left.consume(common);
        right.consume(common);
    }
}
