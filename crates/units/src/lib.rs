//! Types for byte counts, rates and moments, so that the compiler rejects mixed-up quantities.
//!
//! Network rates are bits per second with decimal prefixes. Storage sizes are bytes with decimal
//! prefixes. Buffer sizes are bytes with binary prefixes.

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
