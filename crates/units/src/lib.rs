//! Quantities as types: bytes, rates and moments, so that a number cannot be
//! mistaken for another.
//!
//! Networks are counted in bits per second with decimal prefixes, storage in
//! bytes with decimal prefixes, buffers in bytes with binary prefixes.

mod bytes;
mod date;
mod grammar;
mod least;
mod moment;
mod random;
mod rate;
mod share;
mod storage_rate;

pub use bytes::{ByteCount, ParseByteCountError};
pub use date::{microseconds_of, rfc3339};
pub use grammar::counted;
pub use least::LeastSpan;
pub use moment::{Moment, ParseSpanError, parse_span, parse_span_or_seconds};
pub use random::{Random, fraction_of, number_at};
pub use rate::{BitRate, ParseRateError, RateFault};
pub use share::{ParseShareError, parse_share, share_text};
pub use storage_rate::{ByteRate, ParseByteRateError};
