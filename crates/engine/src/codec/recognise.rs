//! Detects the format of a file by its first bytes: compressed formats, and containers of numbers.

use longhaul_proto::shuffle::ElementSize;

/// Number of bytes at the beginning of a file that are examined. The cards of a FITS header with
/// the type are within one block of 2880 bytes; NumPy's header is shorter.
pub const HEAD_BYTES: usize = 2880;

/// Format according to the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A compressed format: another codec costs time and gains no space. The name is for the
    /// summary.
    Compressed(&'static str),
    /// An array of numbers of this size.
    Numbers(&'static str, ElementSize),
    /// A container of arrays whose first bytes give neither types nor compression: samples of its
    /// parts are needed.
    Container(&'static str),
}

/// Compressed formats: name, offset, and the bytes at the offset.
const COMPRESSED: [(&str, usize, &[u8]); 27] = [
    ("gzip", 0, b"\x1f\x8b\x08"),
    ("zstd", 0, b"\x28\xb5\x2f\xfd"),
    ("xz", 0, b"\xfd7zXZ\0"),
    ("lzip", 0, b"LZIP"),
    ("lz4", 0, b"\x04\x22\x4d\x18"),
    ("snappy", 0, b"\xff\x06\0\0sNaPpY"),
    ("7z", 0, b"7z\xbc\xaf\x27\x1c"),
    ("rar", 0, b"Rar!\x1a\x07"),
    ("zip", 0, b"PK\x03\x04"),
    ("compress", 0, b"\x1f\x9d"),
    ("CRAM", 0, b"CRAM\x03"),
    ("CRAM", 0, b"CRAM\x02"),
    ("BLOSC", 0, b"b2frame\0"),
    ("Parquet", 0, b"PAR1"),
    ("ORC", 0, b"ORC"),
    ("JPEG", 0, b"\xff\xd8\xff"),
    ("JPEG 2000", 0, b"\0\0\0\x0cjP  \r\n\x87\n"),
    ("JPEG XL", 0, b"\0\0\0\x0cJXL \r\n\x87\n"),
    ("PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("GIF", 0, b"GIF8"),
    ("WebP", 8, b"WEBP"),
    ("MPEG-4", 4, b"ftyp"),
    ("Matroska", 0, b"\x1a\x45\xdf\xa3"),
    ("Ogg", 0, b"OggS"),
    ("FLAC", 0, b"fLaC"),
    ("MP3", 0, b"ID3"),
    ("age", 0, b"age-encryption.org/"),
];

/// Containers, whose parts must be sampled: name, offset, and the bytes at the offset.
const CONTAINERS: [(&str, usize, &[u8]); 5] = [
    ("HDF5", 0, b"\x89HDF\r\n\x1a\n"),
    // HDF5 after a user block of 512 bytes.
    ("HDF5", 512, b"\x89HDF\r\n\x1a\n"),
    ("HDF4", 0, b"\x0e\x03\x13\x01"),
    ("GRIB", 0, b"GRIB"),
    ("ROOT", 0, b"root\0"),
];

/// Returns the format for the first bytes of a file; `None` if it is unknown. [`HEAD_BYTES`] are
/// enough, and fewer are allowed.
pub fn recognise(head: &[u8]) -> Option<Format> {
    let stands = |(_, at, magic): &&(&str, usize, &[u8])| {
        head.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    if let Some((name, _, _)) = COMPRESSED.iter().find(stands) {
        let name = if is_blocked_gzip(head) { "bgzf" } else { name };
        return Some(Format::Compressed(name));
    }
    if is_bzip2(head) {
        return Some(Format::Compressed("bzip2"));
    }
    if let Some((name, _, _)) = CONTAINERS.iter().find(stands) {
        return Some(Format::Container(name));
    }
    numpy(head).or_else(|| fits(head)).or_else(|| netcdf(head))
}

/// True for BGZF, used by BAM and indexed VCF: gzip with an extra field "BC" (SAM specification,
/// 4.1).
fn is_blocked_gzip(head: &[u8]) -> bool {
    head.starts_with(b"\x1f\x8b\x08\x04") && head.get(12..14) == Some(b"BC")
}

/// True for "BZh", a level, and the magic number of the first block or of an empty file's end.
fn is_bzip2(head: &[u8]) -> bool {
    let level = head.get(3).is_some_and(|byte| (b'1'..=b'9').contains(byte));
    let block = head.get(4..10);
    let known =
        block == Some(b"\x31\x41\x59\x26\x53\x59") || block == Some(b"\x17\x72\x45\x38\x50\x90");
    head.starts_with(b"BZh") && level && known
}

/// Parses NumPy's header (NEP 1), a Python dictionary with `'descr': '<f8'`.
fn numpy(head: &[u8]) -> Option<Format> {
    let rest = head.strip_prefix(b"\x93NUMPY")?;
    let container = Some(Format::Container("NumPy"));
    let text = String::from_utf8_lossy(rest);
    let Some((_, described)) = text.split_once("'descr':") else {
        return container;
    };
    let described = described.trim_start();
    // The type of records is a list; no filter separates their fields.
    let Some(described) = described.strip_prefix('\'') else {
        return container;
    };
    let described = described.split('\'').next().unwrap_or_default();
    let digits = described.trim_start_matches(|c: char| !c.is_ascii_digit());
    let bytes = match (digits.parse(), described.contains('c')) {
        // Complex numbers consist of two numbers.
        (Ok(bytes), true) => bytes / 2,
        (Ok(bytes), false) => bytes,
        (Err(_), _) => 0,
    };
    // Strings are not numbers: their characters have four bytes.
    let element = if described.contains('U') {
        Some(ElementSize::Four)
    } else {
        ElementSize::of_bytes(bytes)
    };
    element.map_or(container, |element| Some(Format::Numbers("NumPy", element)))
}

/// Parses a FITS header (standard 4.0, 4.4.1) of cards with 80 characters. `BITPIX` has the bits of
/// an element, negative for floats. A primary array without axes is a container of extensions.
fn fits(head: &[u8]) -> Option<Format> {
    if !head.starts_with(b"SIMPLE  =") {
        return None;
    }
    let value = |keyword: &[u8]| {
        let card = head.chunks(80).find(|card| card.starts_with(keyword))?;
        let text = std::str::from_utf8(card.get(10..)?).ok()?;
        text.split('/').next()?.trim().parse::<i64>().ok()
    };
    let bits = value(b"BITPIX  =").map_or(0, i64::unsigned_abs);
    let has_data = value(b"NAXIS   =").is_some_and(|axes| axes > 0);
    let element = ElementSize::of_bytes((bits / 8) as usize).filter(|_| has_data);
    Some(match element {
        Some(element) => Format::Numbers("FITS", element),
        None => Format::Container("FITS"),
    })
}

/// Detects NetCDF's classic formats; version 4 is HDF5.
fn netcdf(head: &[u8]) -> Option<Format> {
    let version = head.strip_prefix(b"CDF")?.first()?;
    matches!(version, 1 | 2 | 5).then_some(Format::Container("NetCDF"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    #[test]
    fn compressed_formats_are_known_by_their_first_bytes() {
        let packed = zstd::bulk::compress(b"text", 1).unwrap();
        assert_eq!(recognise(&packed), Some(Format::Compressed("zstd")));
        let bam = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0";
        assert_eq!(recognise(bam), Some(Format::Compressed("bgzf")));
        assert_eq!(
            recognise(b"\x1f\x8b\x08\0"),
            Some(Format::Compressed("gzip"))
        );
        let bzip2 = b"BZh91AY&SY";
        assert_eq!(recognise(bzip2), Some(Format::Compressed("bzip2")));
        assert_eq!(
            recognise(b"RIFF\0\0\0\0WEBPVP8 "),
            Some(Format::Compressed("WebP"))
        );
        for text in [
            &b"BZhello"[..],
            b"PK",
            b"",
            b"#!/bin/sh\n",
            b"RIFF\0\0\0\0WAVE",
        ] {
            assert_eq!(recognise(text), None, "{text:?}");
        }
    }

    #[test]
    fn arrays_declare_their_element_size() {
        let numpy = |descr: &str| {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}\n");
            recognise(&[b"\x93NUMPY\x01\0v\0", text.as_bytes()].concat())
        };
        let numbers = |element| Some(Format::Numbers("NumPy", element));
        assert_eq!(numpy("'<f8'"), numbers(ElementSize::Eight));
        assert_eq!(numpy("'>i2'"), numbers(ElementSize::Two));
        assert_eq!(numpy("'<c8'"), numbers(ElementSize::Four));
        assert_eq!(numpy("'<U12'"), numbers(ElementSize::Four));
        assert_eq!(numpy("'|u1'"), Some(Format::Container("NumPy")));
        assert_eq!(numpy("[('a', '<f8')]"), Some(Format::Container("NumPy")));
        let fits = |bits: &str, axes: &str| {
            let card = |text: String| format!("{text:<80}");
            let cards = [
                card("SIMPLE  =                    T".to_owned()),
                card(format!("BITPIX  = {bits:>20} / bits")),
                card(format!("NAXIS   = {axes:>20}")),
            ];
            recognise(cards.concat().as_bytes())
        };
        let four = Some(Format::Numbers("FITS", ElementSize::Four));
        assert_eq!(fits("-32", "2"), four);
        assert_eq!(fits("8", "2"), Some(Format::Container("FITS")));
        assert_eq!(fits("-32", "0"), Some(Format::Container("FITS")));
        assert_eq!(recognise(b"CDF\x02"), Some(Format::Container("NetCDF")));
    }

    #[test]
    fn no_input_breaks_the_recognition() {
        let mut random = Random::new(3);
        let starts: [&[u8]; 4] = [b"\x93NUMPY", b"SIMPLE  =", b"CDF", b"BZh"];
        for round in 0..20_000 {
            let length = random.below(300) as usize;
            let mut head = starts[round % 4].to_vec();
            head.extend(random.bytes(length));
            let cut = random.below(head.len() as u64 + 1) as usize;
            let _ = recognise(&head[..cut]);
        }
    }
}
