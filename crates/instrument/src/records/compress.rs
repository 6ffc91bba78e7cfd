//! Records and samples as zstd files, which all commands read.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::Path;

use longhaul_measure::compressed::{compress, compressed_name, is_compressed, lines};

/// Writes a file's compressed form next to it, durable and compared with the original; gives the
/// bytes of both. The original is removed after that, if asked.
///
/// # Errors
///
/// Where it is compressed already, the other name exists, or one of them cannot be read or written.
pub fn compress_file(path: &Path, remove: bool) -> io::Result<(u64, u64)> {
    if is_compressed(path) {
        return Err(io::Error::other("it is compressed: name what is not"));
    }
    let compressed = compressed_name(path);
    let input = BufReader::new(File::open(path)?);
    // Nothing is replaced: another file of that name may have other records.
    let output = File::create_new(&compressed).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", compressed.display()))
    })?;
    let written = write_and_compare(input, &output, path);
    let before = match written {
        Ok(before) => before,
        Err(error) => {
            // A part would pass for the whole.
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
            "it changed while it was read: compress it when nothing writes it",
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

/// Whether two inputs have the same bytes.
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
