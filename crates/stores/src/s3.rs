//! Buckets of Amazon S3 and of compatible stores.
//!
//! - [`location`] parses `s3://BUCKET/PREFIX`
//! - [`credentials`] finds credentials in the environment and in profiles
//! - [`sign`] signs requests
//! - [`answer`] parses the XML of responses
//! - [`bucket`] is a bucket as a store

pub mod answer;
pub mod bucket;
pub mod credentials;
pub mod location;
pub mod sign;
