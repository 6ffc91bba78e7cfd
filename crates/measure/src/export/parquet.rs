//! A minimal writer of Parquet (parquet-format 2.10): one row group, one page for each column,
//! plain encoding without compression, and optional columns only.
//!
//! Written by hand because a library would be the largest dependency of the program, for one file
//! of flat columns. The output was read successfully with pyarrow and DuckDB.

use super::{Table, Values};

const MAGIC: &[u8; 4] = b"PAR1";

/// Type codes of Thrift's compact protocol.
const TRUE: u8 = 1;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Logical type of a column.
#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    /// The physical type only.
    Plain,
    /// UTF-8.
    Text,
    /// Microseconds since 1970, in UTC.
    Time,
}

/// Location and type of a column in the file.
struct Chunk<'a> {
    name: &'a str,
    kind: i32,
    meaning: Meaning,
    offset: usize,
    bytes: usize,
}

/// Formats a table as a Parquet file.
pub fn write(table: &Table) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let rows = table.rows();
    let columns: Vec<(&str, Values)> = table.columns().collect();
    let mut chunks = Vec::new();
    // A row group without rows has no columns.
    for (name, values) in columns.iter().filter(|_| rows > 0) {
        let offset = file.len();
        let data = page(values);
        let mut header = Thrift::default();
        header.page_header(data.len(), rows);
        file.extend(header.bytes);
        file.extend(data);
        chunks.push(Chunk {
            name,
            kind: kind(values),
            meaning: match values {
                Values::Texts(_) => Meaning::Text,
                Values::Times(_) => Meaning::Time,
                _ => Meaning::Plain,
            },
            offset,
            bytes: file.len() - offset,
        });
    }
    let mut footer = Thrift::default();
    footer.file_metadata(&chunks, rows);
    file.extend(&footer.bytes);
    file.extend((footer.bytes.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    file
}

/// Returns the code of Parquet's physical type: BOOLEAN, INT64, DOUBLE or BYTE_ARRAY.
fn kind(values: &Values) -> i32 {
    match values {
        Values::Flags(_) => 0,
        Values::Whole(_) | Values::Times(_) => 2,
        Values::Numbers(_) => 5,
        Values::Texts(_) => 6,
    }
}

/// Encodes a page: the definition levels, then the values that are present.
fn page(values: &Values) -> Vec<u8> {
    let mut plain = Vec::new();
    let present = match values {
        Values::Flags(all) => {
            let flags: Vec<bool> = all.iter().flatten().copied().collect();
            plain.extend(packed(&flags));
            presence(all)
        }
        Values::Whole(all) => {
            let bytes = all.iter().flatten().flat_map(|number| number.to_le_bytes());
            plain.extend(bytes);
            presence(all)
        }
        Values::Times(all) => {
            let times = all.iter().flatten();
            plain.extend(times.flat_map(|(microseconds, _)| microseconds.to_le_bytes()));
            presence(all)
        }
        Values::Numbers(all) => {
            let bytes = all.iter().flatten().flat_map(|number| number.to_le_bytes());
            plain.extend(bytes);
            presence(all)
        }
        Values::Texts(all) => {
            for text in all.iter().flatten() {
                plain.extend((text.len() as u32).to_le_bytes());
                plain.extend(text.as_bytes());
            }
            presence(all)
        }
    };
    let levels = levels(&present);
    let mut page = (levels.len() as u32).to_le_bytes().to_vec();
    page.extend(levels);
    page.extend(plain);
    page
}

fn presence<T>(all: &[Option<T>]) -> Vec<bool> {
    all.iter().map(Option::is_some).collect()
}

/// Packs eight flags into a byte, the first in the lowest bit.
fn packed(flags: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| {
        let bits = eight.iter().enumerate();
        bits.fold(0, |byte, (place, flag)| byte | u8::from(*flag) << place)
    };
    flags.chunks(8).map(byte).collect()
}

/// Encodes definition levels of 0 and 1 as one bit-packed run of the hybrid encoding.
fn levels(present: &[bool]) -> Vec<u8> {
    let mut bytes = Thrift::default();
    bytes.variable(((present.len().div_ceil(8) as u64) << 1) | 1);
    bytes.bytes.extend(packed(present));
    bytes.bytes
}

/// An encoder of Thrift's compact protocol, limited to the parts that Parquet's headers need.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    /// Number of the last field in each open struct.
    last: Vec<i16>,
}

impl Thrift {
    fn variable(&mut self, mut number: u64) {
        while number > 127 {
            self.bytes.push(number as u8 | 128);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Writes a number in zigzag encoding, so that small numbers of either sign are short.
    fn signed(&mut self, number: i64) {
        self.variable(((number << 1) ^ (number >> 63)) as u64);
    }

    fn open(&mut self) {
        self.last.push(0);
    }

    fn close(&mut self) {
        self.last.pop();
        self.bytes.push(0);
    }

    /// Writes a field header. Field numbers must ascend by at most 15.
    fn field(&mut self, number: i16, kind: u8) {
        let last = self.last.last_mut();
        let step = match last {
            Some(last) => {
                let step = number - *last;
                *last = number;
                step
            }
            None => number,
        };
        self.bytes.push((step as u8) << 4 | kind);
    }

    fn i32(&mut self, number: i16, value: i32) {
        self.field(number, I32);
        self.signed(value.into());
    }

    fn i64(&mut self, number: i16, value: usize) {
        self.field(number, I64);
        self.signed(value as i64);
    }

    fn text(&mut self, value: &str) {
        self.variable(value.len() as u64);
        self.bytes.extend(value.as_bytes());
    }

    fn list(&mut self, number: i16, kind: u8, length: usize) {
        self.field(number, LIST);
        match length {
            0..15 => self.bytes.push((length as u8) << 4 | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                self.variable(length as u64);
            }
        }
    }

    fn page_header(&mut self, bytes: usize, rows: usize) {
        const DATA_PAGE: i32 = 0;
        const PLAIN: i32 = 0;
        const RLE: i32 = 3;
        self.open();
        self.i32(1, DATA_PAGE);
        self.i32(2, bytes as i32);
        self.i32(3, bytes as i32);
        self.field(5, STRUCT);
        self.open();
        self.i32(1, rows as i32);
        self.i32(2, PLAIN);
        self.i32(3, RLE);
        self.i32(4, RLE);
        self.close();
        self.close();
    }

    fn file_metadata(&mut self, chunks: &[Chunk<'_>], rows: usize) {
        self.open();
        self.i32(1, 1);
        self.list(2, STRUCT, chunks.len() + 1);
        self.open();
        self.field(4, BINARY);
        self.text("records");
        self.i32(5, chunks.len() as i32);
        self.close();
        for chunk in chunks {
            self.schema_element(chunk);
        }
        self.i64(3, rows);
        let groups = usize::from(!chunks.is_empty());
        self.list(4, STRUCT, groups);
        if groups > 0 {
            self.row_group(chunks, rows);
        }
        self.field(6, BINARY);
        self.text("longhaul");
        self.close();
    }

    fn schema_element(&mut self, chunk: &Chunk<'_>) {
        const OPTIONAL: i32 = 1;
        const UTF8: i32 = 0;
        const TIMESTAMP_MICROS: i32 = 10;
        self.open();
        self.i32(1, chunk.kind);
        self.i32(3, OPTIONAL);
        self.field(4, BINARY);
        self.text(chunk.name);
        match chunk.meaning {
            Meaning::Plain => {}
            Meaning::Text => self.i32(6, UTF8),
            Meaning::Time => {
                self.i32(6, TIMESTAMP_MICROS);
                self.time_in_utc();
            }
        }
        self.close();
    }

    /// Writes the logical type TIMESTAMP(isAdjustedToUTC, MICROS).
    fn time_in_utc(&mut self) {
        self.field(10, STRUCT);
        self.open();
        self.field(8, STRUCT);
        self.open();
        self.field(1, TRUE);
        self.field(2, STRUCT);
        self.open();
        // The time unit is a union whose members are empty structs.
        self.field(2, STRUCT);
        self.open();
        self.close();
        self.close();
        self.close();
        self.close();
    }

    fn row_group(&mut self, chunks: &[Chunk<'_>], rows: usize) {
        self.open();
        self.list(1, STRUCT, chunks.len());
        for chunk in chunks {
            self.open();
            self.i64(2, chunk.offset);
            self.field(3, STRUCT);
            self.column_metadata(chunk, rows);
            self.close();
        }
        self.i64(2, chunks.iter().map(|chunk| chunk.bytes).sum());
        self.i64(3, rows);
        self.close();
    }

    fn column_metadata(&mut self, chunk: &Chunk<'_>, rows: usize) {
        const UNCOMPRESSED: i32 = 0;
        self.open();
        self.i32(1, chunk.kind);
        self.list(2, I32, 2);
        for encoding in [0, 3] {
            self.signed(encoding);
        }
        self.list(3, BINARY, 1);
        self.text(chunk.name);
        self.i32(4, UNCOMPRESSED);
        self.i64(5, rows);
        self.i64(6, chunk.bytes);
        self.i64(7, chunk.bytes);
        self.i64(9, chunk.offset);
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_specified_by_thrift() {
        let encoded = |number| {
            let mut thrift = Thrift::default();
            thrift.signed(number);
            thrift.bytes
        };
        // The compact protocol's specification: zigzag encoding, then seven bits in each byte.
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(-1), [1]);
        assert_eq!(encoded(63), [126]);
        assert_eq!(encoded(64), [128, 1]);
        assert_eq!(encoded(25_199), [0xde, 0x89, 0x03]);
    }

    #[test]
    fn presence_is_packed_from_the_lowest_bit() {
        let mut present = vec![true; 9];
        present[1] = false;
        assert_eq!(packed(&present), [0b1111_1101, 1]);
        // Two groups of eight levels, bit-packed.
        assert_eq!(levels(&present), [2 << 1 | 1, 0b1111_1101, 1]);
    }
}
