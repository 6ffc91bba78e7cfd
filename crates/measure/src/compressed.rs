//! Compressed files of records and samples: one zstd stream, named `*.jsonl.zst`.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// First bytes of a zstd frame (RFC 8878, section 3.1.1). A line of JSON cannot begin with these
/// bytes.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Size of the read buffer of a decoder, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Base-2 logarithm of the largest window that a frame may use. 2^27 bytes is the default limit of
/// `zstd -d`.
const WINDOW_LOG: u32 = 27;

/// Compression level. Records are written once and kept, so the highest level that still gains a
/// few percent over the next lower one is used. It compresses a few MB/s.
const LEVEL: i32 = 19;

/// File name extension of a compressed file.
pub const EXTENSION: &str = "zst";

/// Returns a reader of decompressed lines. A zstd stream is recognised by its first bytes; other
/// input is passed through. Memory is limited by the frame's window, at most 128 MiB. The caller
/// must limit the length of a line.
///
/// # Errors
///
/// If the first bytes cannot be read, or zstd cannot allocate memory.
pub fn lines<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    // Files and pipes return at least four bytes at once if they have four.
    if !input.fill_buf()?.starts_with(&MAGIC) {
        return Ok(Box::new(input));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

/// Compresses all of `input` into `output` as one frame with a checksum and without a content size.
/// Returns the number of bytes before compression.
///
/// # Errors
///
/// Errors of reading and writing.
pub fn compress(mut input: impl BufRead, output: impl Write) -> io::Result<u64> {
    let mut encoder = zstd::stream::write::Encoder::new(output, LEVEL)?;
    encoder.include_checksum(true)?;
    let read = io::copy(&mut input, &mut encoder)?;
    encoder.finish()?.flush()?;
    Ok(read)
}

/// True if the name has the extension of a compressed file.
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == EXTENSION)
}

/// Returns the name of the compressed form of a file: `runs.jsonl.zst` for `runs.jsonl`.
pub fn compressed_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    name.into()
}

/// Returns the name before compression: `runs.jsonl` for `runs.jsonl.zst`. Other names are returned
/// unchanged.
pub fn plain_name(path: &Path) -> PathBuf {
    if is_compressed(path) {
        path.with_extension("")
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read_all(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        lines(bytes)?.read_to_end(&mut read)?;
        Ok(read)
    }

    #[test]
    fn compressed_lines_are_restored_and_plain_lines_pass() {
        let text = b"{\"schema\":1}\n".repeat(10_000);
        let mut packed = Vec::new();
        assert_eq!(compress(&text[..], &mut packed).unwrap(), text.len() as u64);
        assert!(packed.len() < text.len() / 100);
        assert_eq!(read_all(&packed).unwrap(), text);
        assert_eq!(read_all(&text).unwrap(), text);
        assert_eq!(read_all(b"").unwrap(), b"");
        // Concatenated frames are one file.
        let twice = [&packed[..], &packed[..]].concat();
        assert_eq!(read_all(&twice).unwrap(), text.repeat(2));
    }

    #[test]
    fn damage_is_an_error() {
        let text: Vec<u8> = (0..5000_u32)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let mut packed = Vec::new();
        compress(&text[..], &mut packed).unwrap();
        assert!(read_all(&packed[..packed.len() - 1]).is_err());
        let last = packed.len() - 5;
        packed[last] ^= 1;
        assert!(read_all(&packed).is_err());
    }

    #[test]
    fn names() {
        let runs = Path::new("a/runs.jsonl");
        let packed = compressed_name(runs);
        assert_eq!(packed, Path::new("a/runs.jsonl.zst"));
        assert_eq!(plain_name(&packed), runs);
        assert_eq!(plain_name(runs), runs);
    }
}
