//! Chooses the codec of each block while a transfer runs.
//!
//! Data consist of *parts*: kinds of data that samples distinguish. Each part has its own figures
//! for each codec ([`figures`]): the ratio, and the CPU time at both ends. From these and the
//! resources of the transfer (the path's rate, the free cores at both ends, the source's rate),
//! [`plan`] computes for each part the share of blocks for each codec that minimises the transfer
//! time: a linear program, solved exactly. Blocks are then assigned by these shares. So parts
//! compete for the cores by their gain, and if the cores suffice for only some of the blocks, only
//! these use the codec.
//!
//! Figures come from *trials* on small pieces of blocks. Trials take at most [`EXPLORATION_SHARE`]
//! of the time of the blocks. Each compressed block also gives figures, which soon outweigh the
//! trials. Some candidates *judge* a part: if none of them reduces it, the part *rests*, and is
//! tried again after increasing intervals.
//!
//! For each block, the engine first calls [`Compression::deal`], before the block is read. A block
//! without a codec then follows the same route as in a transfer without compression. If trials are
//! due, the engine calls [`Compression::next_trial`] until no trial is left, then
//! [`Compression::choose`], and reports the results. [`sense`] measures the resources of the
//! transfer.

pub mod figures;
pub mod plan;
pub mod sense;

use std::collections::BTreeMap;

use figures::{Figures, Observed};
use plan::{Plan, Resources};

/// Maximum share of the blocks' time that trials may take.
pub const EXPLORATION_SHARE: f64 = 0.01;

/// Size of a trial in bytes. The ratio of a piece of this size differs by a few percent from that
/// of a whole block, and a slow codec needs a few milliseconds for it.
pub const TRIAL_BYTES: u64 = 64 << 10;

/// Maximum number of parts with their own figures. Further parts share the figures of the last.
pub const MOST_PARTS: u32 = 16;

/// Maximum time credit for trials, in seconds. It prevents many trials at once after a pause.
const MOST_CREDIT_SECONDS: f64 = 0.1;

/// Initial time credit for trials, in seconds: enough to try all codecs once on the first blocks.
/// On a slow path, each block that is sent before its codec is known costs much time.
const FIRST_CREDIT_SECONDS: f64 = 0.01;

/// Minimum ratio of a useful codec. Data with a smaller ratio count as already compressed.
const LEAST_RATIO: f64 = 1.03;

/// Number of bytes of a part until a resting part is tried again. It doubles with each trial with
/// the same result: from two blocks, because the next file may be of a different kind, up to the
/// data of a few seconds.
const REST_BYTES: u64 = 8 << 20;
const MOST_DOUBLINGS: u32 = 6;

/// Number of consecutive blocks that a codec did not reduce after which its earlier results are
/// discarded and the part is judged again.
const MOST_FAILURES: u32 = 4;

/// Minimum ratio of the planned rate to the rate without codecs at which codecs are used.
const LEAST_GAIN: f64 = 1.03;

/// Shares below this are rounding errors of the solver.
const SMALLEST_SHARE: f64 = 1e-6;

/// Number of bytes of a part after which an unused codec is tried again, because data change.
const AGAIN_BYTES: u64 = 512 << 20;

/// A part's share of all bytes is halved after this many bytes of all parts, some dozens of blocks,
/// and after this many seconds, because a slow path carries little of a dataset in that time.
const SHARE_BYTES: f64 = 1.28e8;
const SHARE_SECONDS: f64 = 4.0;

/// Minimum share of all bytes that a part is assumed to have. So a new part is planned like the
/// others, and rounding errors of the solver are less.
const LEAST_PART: f64 = 1e-3;

/// A codec with its level and filter that the transfer may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Estimated CPU seconds per byte at the sender before any measurement. Determines the expected
    /// time of a trial and the order of candidates.
    pub encode_seconds: f64,
    /// Estimated CPU seconds per byte at the receiver until it reports a measurement.
    pub decode_seconds: f64,
    /// True if this candidate judges parts: if no judging candidate reduces a part, no other
    /// candidate is tried. If no candidate judges, the cheapest does.
    pub judges: bool,
}

/// The decision for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// The block is sent uncompressed, and is counted.
    Plain,
    /// The block gets this candidate, and is counted.
    Coded(usize),
    /// Trials on the block are due first.
    Try,
}

/// The expected effect of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Rate with the plan, in source bytes per second.
    pub rate: f64,
    /// Rate without any codec, in source bytes per second.
    pub plain_rate: f64,
}

/// The state of one kind of data.
#[derive(Clone, Debug)]
struct Part {
    /// Figures of each candidate, if there are any.
    figures: Vec<Option<Figures>>,
    /// Number of recent bytes, with exponential decay.
    weight: f64,
    /// Total number of bytes.
    seen: u64,
    /// Value of `seen` when each candidate was last used or tried.
    last: Vec<u64>,
    /// True for each candidate that reduced the part in its last trial. `None` if a trial is due.
    pays: Vec<Option<bool>>,
    /// Value of `seen` until which the part counts as already compressed.
    rests_until: u64,
    rests: u32,
    /// Number of consecutive blocks that were compressed without a reduction.
    failures: u32,
    /// Share of the blocks for each candidate. The rest is sent uncompressed.
    shares: Vec<f64>,
    /// Blocks that each candidate has not yet received of its share. The last entry is for
    /// uncompressed blocks.
    owed: Vec<f64>,
}

impl Part {
    fn new(candidates: usize) -> Part {
        Part {
            figures: vec![None; candidates],
            // The first trials must count for the first block.
            weight: 1.0,
            seen: 0,
            last: vec![0; candidates],
            pays: vec![None; candidates],
            rests_until: 0,
            rests: 0,
            failures: 0,
            shares: vec![0.0; candidates],
            owed: vec![0.0; candidates + 1],
        }
    }

    /// Treats the part as compressed for some time. Keeps the figures for later use.
    fn rest(&mut self) {
        let rest = REST_BYTES << self.rests.min(MOST_DOUBLINGS);
        self.rests = self.rests.saturating_add(1);
        self.rests_until = self.seen.saturating_add(rest);
        self.doubt();
    }

    /// Marks the part for new trials. Until then it is sent uncompressed.
    fn doubt(&mut self) {
        self.failures = 0;
        self.pays.fill(None);
        self.shares.fill(0.0);
        self.owed.fill(0.0);
    }

    /// Returns the figures that a plan may use. Empty until a candidate has reduced the part.
    fn usable(&self) -> &[Option<Figures>] {
        if self.pays.contains(&Some(true)) {
            &self.figures
        } else {
            &[]
        }
    }

    /// Adds the result of a trial or of a compressed block.
    fn handle_encoded(&mut self, codec: usize, guess: f64, observed: Observed, was_trial: bool) {
        let figures = self.figures[codec].get_or_insert(Figures::new(guess));
        if was_trial {
            figures.add_trial(observed);
        } else {
            figures.add_encoded(observed);
        }
        let shrank = observed.bytes as f64 >= LEAST_RATIO * observed.encoded as f64;
        match (shrank, was_trial) {
            (true, _) => (self.failures, self.rests) = (0, 0),
            (false, true) => {}
            (false, false) => self.failures += 1,
        }
        if shrank || was_trial {
            self.pays[codec] = Some(shrank);
        }
        if self.failures >= MOST_FAILURES {
            figures.forget();
            self.doubt();
        }
    }

    /// Returns the candidate for the next block: the one with the largest deficit of its share.
    fn deal(&mut self) -> Option<usize> {
        let plain = 1.0 - self.shares.iter().sum::<f64>();
        let shares = self.shares.iter().copied().chain([plain]);
        for (owed, share) in self.owed.iter_mut().zip(shares) {
            // A candidate without a share in the plan has no deficit.
            *owed = if share > SMALLEST_SHARE {
                *owed + share
            } else {
                f64::NEG_INFINITY
            };
        }
        let most = self
            .owed
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1));
        let chosen = most.map(|(at, _)| at)?;
        self.owed[chosen] -= 1.0;
        (chosen < self.shares.len()).then_some(chosen)
    }
}

/// Chooses the codecs for the blocks of one transfer.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Indices of the candidates in the caller's list: judging candidates first, then the others,
    /// each from the cheapest to the most expensive.
    order: Vec<usize>,
    candidates: Vec<Candidate>,
    parts: BTreeMap<u32, Part>,
    resources: Resources,
    /// Time of the last update, in seconds.
    at: f64,
    /// Rate that the last plan expects, in source bytes per second.
    expected_rate: f64,
    /// Time credit for trials, in seconds.
    credit: f64,
}

impl Compression {
    /// Starts without figures. Blocks are sent uncompressed until trials have results. Without
    /// candidates, all blocks are.
    pub fn new(mut candidates: Vec<Candidate>) -> Compression {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        let cost = |at: &usize| candidates[*at].encode_seconds;
        order.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        if let (Some(cheapest), false) = (order.first(), candidates.iter().any(|of| of.judges)) {
            candidates[*cheapest].judges = true;
        }
        // Judging candidates are tried first.
        order.sort_by_key(|at| !candidates[*at].judges);
        Compression {
            order,
            candidates,
            parts: BTreeMap::new(),
            resources: Resources::default(),
            at: 0.0,
            expected_rate: f64::INFINITY,
            credit: FIRST_CREDIT_SECONDS,
        }
    }

    /// Updates the resources of the transfer and plans again. The caller calls this several times a
    /// second; `at` is the time in seconds. Returns the expected effect, or `None` if the rate of
    /// the path is unknown.
    pub fn handle_resources(&mut self, at: f64, resources: Resources) -> Option<Expectation> {
        self.resources = resources.bounded();
        let passed = at - self.at;
        if passed.is_finite() && passed > 0.0 {
            self.forget(passed / SHARE_SECONDS);
            self.at = at;
        }
        let expected = self.plan_anew()?;
        // This check is made only here. The share of a newly found part is not yet known, so the
        // check could wrongly reject codecs for its first blocks.
        if expected.rate < LEAST_GAIN * expected.plain_rate {
            self.use_none();
        }
        Some(expected)
    }

    fn plan_anew(&mut self) -> Option<Expectation> {
        if self.resources.wire_rate <= 0.0 {
            return None;
        }
        let all: f64 = self.parts.values().map(|part| part.weight).sum();
        let least = (LEAST_PART * all).max(f64::MIN_POSITIVE);
        let weights = self.parts.values().map(|part| part.weight.max(least));
        let all: f64 = weights.clone().sum();
        let mut plan = Plan::new(
            self.resources,
            self.candidates.iter().map(|of| of.encode_seconds),
        );
        for (part, weight) in self.parts.values().zip(weights) {
            plan.add_part(weight / all, part.usable());
        }
        let plain_rate = plan.plain_rate();
        let solved = plan.solve()?;
        for (part, shares) in self.parts.values_mut().zip(solved.shares) {
            part.shares = shares;
            let owed = part.owed.iter_mut().filter(|owed| owed.is_infinite());
            owed.for_each(|owed| *owed = 0.0);
        }
        // Without data, the plan has zero duration.
        self.expected_rate = if self.parts.is_empty() {
            plain_rate
        } else {
            solved.rate
        };
        Some(Expectation {
            rate: solved.rate,
            plain_rate,
        })
    }

    /// Returns the decision for a block of a part, before the block is read. `bytes` is its length.
    pub fn deal(&mut self, part: u32, bytes: u64) -> Deal {
        if self.due_trial(part.min(MOST_PARTS - 1), bytes).is_some() {
            return Deal::Try;
        }
        self.choose(part, bytes).map_or(Deal::Plain, Deal::Coded)
    }

    /// Returns the index of the candidate for a block in the caller's list, even if trials are due.
    /// Returns `None` for an uncompressed block.
    pub fn choose(&mut self, part: u32, bytes: u64) -> Option<usize> {
        self.forget(bytes as f64 / SHARE_BYTES);
        let part = self.part(part.min(MOST_PARTS - 1));
        part.weight += bytes as f64;
        part.seen = part.seen.saturating_add(bytes);
        let codec = part.deal();
        if let Some(codec) = codec {
            part.last[codec] = part.seen;
        }
        let time = bytes as f64 / self.expected_rate.max(1.0);
        self.credit = (self.credit + EXPLORATION_SHARE * time).min(MOST_CREDIT_SECONDS);
        codec
    }

    /// Returns the candidate for a block that waited since it got the candidate `codec`: the same
    /// candidate if the plan still uses it for the part, else the one that the plan uses most, or
    /// `None`.
    pub fn renew(&mut self, part: u32, codec: usize) -> Option<usize> {
        let part = self.parts.get(&part.min(MOST_PARTS - 1))?;
        let uses = |at: &usize| part.shares.get(*at).is_some_and(|of| *of > SMALLEST_SHARE);
        let most = |a: &usize, b: &usize| part.shares[*a].total_cmp(&part.shares[*b]);
        let others = || (0..part.shares.len()).filter(uses).max_by(most);
        Some(codec).filter(uses).or_else(others)
    }

    /// True if a block has waited longer, in seconds, than the path needs for the uncompressed
    /// block.
    pub fn is_late(&self, bytes: u64, waited: f64) -> bool {
        let rate = self.resources.wire_rate;
        rate > 0.0 && waited * rate > bytes as f64
    }

    /// Returns the candidate for a trial on [`TRIAL_BYTES`] of a block of a part. The trial's
    /// output is not sent. The caller must report the result to [`Compression::handle_encoded`]
    /// before the next call.
    pub fn next_trial(&mut self, part: u32, bytes: u64) -> Option<usize> {
        let number = part.min(MOST_PARTS - 1);
        let (next, seconds) = self.due_trial(number, bytes)?;
        self.credit -= seconds;
        let part = self.part(number);
        part.last[next] = part.seen;
        Some(next)
    }

    fn part(&mut self, number: u32) -> &mut Part {
        let count = self.candidates.len();
        self.parts.entry(number).or_insert_with(|| Part::new(count))
    }

    /// Halves the recent bytes of all parts this many times.
    fn forget(&mut self, halvings: f64) {
        let kept = 0.5_f64.powf(halvings);
        self.parts.values_mut().for_each(|part| part.weight *= kept);
    }

    /// Returns the cheapest candidate that is unknown or was not tried for long, if the time credit
    /// suffices and the candidate can be useful, and its expected time in seconds.
    fn due_trial(&mut self, number: u32, bytes: u64) -> Option<(usize, f64)> {
        let (resources, credit) = (self.resources, self.credit);
        self.part(number);
        let part = self.parts.get(&number)?;
        if bytes < TRIAL_BYTES || part.seen < part.rests_until {
            return None;
        }
        let is_due = |at: &&usize| match part.pays[**at] {
            // The other candidates wait for the judging ones.
            None => self.candidates[**at].judges || part.pays.contains(&Some(true)),
            Some(_) => part.seen.saturating_sub(part.last[**at]) > AGAIN_BYTES,
        };
        let next = *self.order.iter().find(is_due)?;
        let known = part.figures[next].map(|figures| figures.encode_seconds);
        let seconds = known.unwrap_or(self.candidates[next].encode_seconds) * TRIAL_BYTES as f64;
        let is_useful = resources.may_use(seconds / TRIAL_BYTES as f64);
        (seconds <= credit && is_useful).then_some((next, seconds))
    }

    /// Adds the result of a trial (with `was_trial`) or of a compressed block.
    pub fn handle_encoded(&mut self, part: u32, codec: usize, observed: Observed, was_trial: bool) {
        let number = part.min(MOST_PARTS - 1);
        let Some(candidate) = self.candidates.get(codec) else {
            return;
        };
        let guess = candidate.decode_seconds;
        if was_trial {
            // Excess over the expected time is subtracted from the credit.
            let thought = candidate.encode_seconds * observed.bytes as f64;
            let more = (observed.seconds - thought).clamp(0.0, MOST_CREDIT_SECONDS);
            self.credit -= if more.is_nan() { 0.0 } else { more };
        }
        let Some(part) = self.parts.get_mut(&number) else {
            return;
        };
        let before = part.pays[codec];
        part.handle_encoded(codec, guess, observed, was_trial);
        let mut judges = self.candidates.iter().zip(&part.pays);
        if was_trial && judges.all(|(of, pays)| !of.judges || *pays == Some(false)) {
            part.rest();
        }
        if part.pays[codec] != before {
            self.plan_anew();
        }
    }

    /// Adds the receiver's mean CPU time for decompression with a codec, in seconds per source
    /// byte. The receiver does not distinguish parts.
    pub fn handle_decoded(&mut self, codec: usize, seconds_per_byte: f64) {
        for part in self.parts.values_mut() {
            if let Some(Some(figures)) = part.figures.get_mut(codec) {
                figures.add_decoded(seconds_per_byte);
            }
        }
    }

    /// True if any part uses a codec.
    pub fn is_in_use(&self) -> bool {
        let mut shares = self.parts.values().flat_map(|part| &part.shares);
        shares.any(|share| *share > SMALLEST_SHARE)
    }

    /// Stops the use of codecs until the next plan.
    fn use_none(&mut self) {
        for part in self.parts.values_mut() {
            part.shares.fill(0.0);
            part.owed.fill(0.0);
        }
    }

    /// Returns the figures of a codec for a part, if there are any.
    pub fn figures(&self, part: u32, codec: usize) -> Option<Figures> {
        let part = self.parts.get(&part.min(MOST_PARTS - 1))?;
        part.figures.get(codec).copied().flatten()
    }

    /// Returns the share of a part's blocks that get a codec, 0 to 1.
    pub fn share(&self, part: u32, codec: usize) -> f64 {
        let part = self.parts.get(&part.min(MOST_PARTS - 1));
        let share = part.and_then(|part| part.shares.get(codec));
        share.copied().unwrap_or(0.0)
    }
}
