//! The functions that the fuzz targets run on their input. The tests of the crates replay the
//! corpora through the same functions. They include these files by path, so that tests do not build
//! libFuzzer.

pub mod choices;
pub mod content;
pub mod credentials;
pub mod decoders;
pub mod facts;
pub mod greetings;
pub mod gridftp;
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
