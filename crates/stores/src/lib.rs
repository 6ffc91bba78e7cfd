//! A client of object stores and of archives over HTTP.
//!
//! A server is a [`store::Store`]: it finds objects, lists them by directory, and sends parts of
//! them. Many threads may use one store at the same time; each request takes a connection from a
//! pool, in which connections stay open.
//!
//! - [`url`] parses URLs, [`time`] times of headers and listings
//! - [`client`] sends requests over HTTP/1.1 and TLS
//! - [`transfer`] receives the data of an object in order, across failed connections
//! - [`s3`] is a store over the protocol of Amazon S3
//! - [`archive`] is a store over plain HTTP, [`page`] finds the links of its directory pages

pub mod archive;
pub mod client;
pub mod error;
pub mod page;
pub mod s3;
pub mod store;
pub mod time;
pub mod transfer;
pub mod url;

pub use error::Error;
