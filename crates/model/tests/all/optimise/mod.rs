//! Tests the optimiser against an exhaustive search, and with graphs whose optimum is known.
#![allow(clippy::unwrap_used, clippy::panic)]

mod brute;
mod checked;
mod explained;
mod fitted;
mod known;
mod large;
mod monotone;
mod oracle;
mod paper;
mod paper_codecs;
mod policies;
mod priced;
mod random;
mod simplex;
mod speed;
mod varied;
mod windows;
