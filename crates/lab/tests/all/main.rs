//! The emulated link, alone and between real kernels, and the mirrored file system.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fuzz_corpus;
mod link;
mod packets;
mod storage;
