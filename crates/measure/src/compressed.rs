//! Files of records and samples, compressed: one zstd stream, called `*.jsonl.zst`.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a zstd frame (RFC 8878, 3.1.1). No line of JSON begins so.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What is read ahead of a decoder, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// The largest window a frame may ask memory for: 2^27 bytes, what `zstd -d` takes without being
/// told more.
const WINDOW_LOG: u32 = 27;

/// Records are written once and kept: the level whose gain over the next lower is still a few
/// percent. It compresses some MB/s.
const LEVEL: i32 = 19;

/// How a compressed file's name ends.
pub const EXTENSION: &str = "zst";

/// Reads lines as they were before compression, whatever the file is called: a zstd stream is
/// recognised by its first bytes, and anything else passes as it is. Memory is bounded by the
/// frame's window, at most 128 MiB; who reads lines bounds these.
///
/// # Errors
///
/// Where the first bytes cannot be read, or zstd has no memory.
pub fn lines<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    // Files and pipes give four bytes at once where there are four.
    if !input.fill_buf()?.starts_with(&MAGIC) {
        return Ok(Box::new(input));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

/// Compresses all of `input` into `output`: one frame with its length unknown and a checksum.
/// Gives the bytes before compression.
///
/// # Errors
///
/// As reading and writing.
pub fn compress(mut input: impl BufRead, output: impl Write) -> io::Result<u64> {
    let mut encoder = zstd::stream::write::Encoder::new(output, LEVEL)?;
    encoder.include_checksum(true)?;
    let read = io::copy(&mut input, &mut encoder)?;
    encoder.finish()?.flush()?;
    Ok(read)
}

/// Whether a name says that the file is compressed.
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == EXTENSION)
}

/// The name of a file's compressed form: `runs.jsonl.zst` for `runs.jsonl`.
pub fn compressed_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    name.into()
}

/// The name before compression: `runs.jsonl` for `runs.jsonl.zst`, other names as they are.
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
    fn lines_come_back_and_plain_ones_pass() {
        let text = b"{\"schema\":1}\n".repeat(10_000);
        let mut packed = Vec::new();
        assert_eq!(compress(&text[..], &mut packed).unwrap(), text.len() as u64);
        assert!(packed.len() < text.len() / 100);
        assert_eq!(read_all(&packed).unwrap(), text);
        assert_eq!(read_all(&text).unwrap(), text);
        assert_eq!(read_all(b"").unwrap(), b"");
        // Frames one after the other are one file, as of `cat`.
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
