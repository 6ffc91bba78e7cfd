//! What the fuzz targets do with their input. The crates' own tests replay the
//! corpora through the same functions: they include these files by path, so
//! that nobody who tests builds libFuzzer.

pub mod choices;
pub mod content;
pub mod credentials;
pub mod decoders;
pub mod facts;
pub mod greetings;
pub mod journals;
pub mod lab;
pub mod receiver;
pub mod results;
pub mod sender;
pub mod sockets;
pub mod specs;
pub mod speeches;
pub mod texts;
pub mod urls;
