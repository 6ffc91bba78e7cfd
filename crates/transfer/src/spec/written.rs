//! Parses fields of a specification that users write.

use longhaul_proto::coding::Compression;
use longhaul_units::ByteCount;

/// Parses a compression; `None` means off. `none` is rsync's name for `off`.
///
/// # Errors
///
/// Returns a description of the valid values.
pub fn compression(text: &str) -> Result<Option<Compression>, String> {
    if text == "none" {
        Ok(None)
    } else {
        Compression::parse(text)
    }
}

/// Parses a level of zstd; 0 means off.
///
/// # Errors
///
/// Returns a description of the valid levels.
pub fn zstd_level(text: &str) -> Result<Option<Compression>, String> {
    if text == "0" {
        Ok(None)
    } else {
        Compression::parse(&format!("zstd:{text}"))
    }
}

/// Parses the element size of numeric arrays, in bytes.
///
/// # Errors
///
/// Returns a description of the valid values.
pub fn element_bytes(text: &str) -> Result<u8, String> {
    match text {
        "1" | "2" | "4" | "8" => Ok(text.parse().unwrap_or(1)),
        _ => Err("an element has 1, 2, 4 or 8 bytes".to_owned()),
    }
}

/// Parses a block size in bytes, a power of two from 64 KiB to 16 MiB.
///
/// # Errors
///
/// Returns a description of the valid values.
pub fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = ByteCount::parse_or_bytes(text);
    let bytes = bytes.map_err(|error| error.to_string())?.0;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes.is_power_of_two() && (64 << 10..=16 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("a block has a power of two of bytes, from 64KiB to 16MiB".to_owned()),
    }
}
