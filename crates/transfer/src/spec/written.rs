//! Parses fields of a specification that users write.

use longhaul_units::ByteCount;

use super::Compression;

/// Parses a compression: `auto`, `off`, `zstd`, `zstd:LEVEL` or `lz4`. `None`: no compression.
///
/// # Errors
///
/// Returns a description of the valid values.
pub fn compression(text: &str) -> Result<Option<Compression>, String> {
    let (name, level) = text
        .split_once(':')
        .map_or((text, None), |(name, level)| (name, Some(level)));
    Ok(match (name, level) {
        ("auto", None) => Some(Compression::Auto),
        ("off", None) => None,
        ("lz4", None) => Some(Compression::Lz4),
        ("zstd", None) => Some(Compression::Zstd(1)),
        ("zstd", Some(level)) => match level.parse::<i32>() {
            Ok(level) if (-100..=22).contains(&level) && level != 0 => {
                Some(Compression::Zstd(level))
            }
            _ => return Err("zstd has the levels -100 to -1 and 1 to 22".to_owned()),
        },
        _ => return Err("write auto, off, zstd, zstd:LEVEL or lz4".to_owned()),
    })
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
