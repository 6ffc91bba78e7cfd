//! Decides while a transfer runs which codec each block gets.
//!
//! Data come in *parts*: kinds of data that samples distinguish, each with its own figures
//! for each codec ([`figures`]): the ratio, and the time of a core at both ends. From these and
//! from what the transfer has (the path's rate, the cores that nothing else uses at both ends,
//! what the source supplies) [`plan`] finds what share of each part's blocks gets which codec, so
//! that the whole takes the least time: a linear program, solved exactly. Blocks are then dealt
//! out by these shares. So several parts compete for the cores by what each gains, and a codec
//! that the cores can carry for only a part of the blocks is used for that part.
//!
//! Figures are found by *trials* on small pieces of blocks, which together take at most
//! [`EXPLORATION_SHARE`] of the time that the blocks take. Each block that is compressed gives
//! figures too, and outweighs the trials soon. Some candidates *judge* a part: where none of them
//! makes it smaller, it *rests*, and they try it again later and later.
//!
//! For each block the engine asks first what it gets ([`Compression::deal`]), before it is read. A
//! block that is sent as it is then takes the ways that it takes without codecs. Where trials are
//! due, the engine asks for them ([`Compression::next_trial`]) until there are no more, then for
//! the codec ([`Compression::choose`]), and reports the results. What the transfer has is found by
//! [`sense`].

pub mod figures;
pub mod plan;
pub mod sense;

use std::collections::BTreeMap;

use figures::{Figures, Observed};
use plan::{Plan, Resources};

/// The most of the blocks' time that trials may take.
pub const EXPLORATION_SHARE: f64 = 0.01;

/// Bytes of a trial: enough for a codec's ratio to be within some percent of a whole block's,
/// and few enough that a slow codec's trial takes some milliseconds.
pub const TRIAL_BYTES: u64 = 64 << 10;

/// Parts that have figures of their own. Data beyond share the last part's.
pub const MOST_PARTS: u32 = 16;

/// Unused time for trials is kept up to this, in seconds, so that a pause is not followed by many
/// trials at once.
const MOST_CREDIT_SECONDS: f64 = 0.1;

/// Time for trials that a transfer begins with: enough to try all codecs once on its first blocks.
/// On a slow path each block that is sent before its codec is known costs much.
const FIRST_CREDIT_SECONDS: f64 = 0.01;

/// A part that a codec makes smaller by less than this is taken for compressed by it.
const LEAST_RATIO: f64 = 1.03;

/// Bytes of a part that rests until it is tried again. They double with each trial that finds the
/// same: from two blocks, since another file may be of another sort, to those of some seconds.
const REST_BYTES: u64 = 8 << 20;
const MOST_DOUBLINGS: u32 = 6;

/// After this many blocks in succession that a codec did not make smaller, what it made of those
/// before says nothing any more, and the part is judged anew.
const MOST_FAILURES: u32 = 4;

/// Codecs are used where the plan expects this many times the rate without any, at least.
const LEAST_GAIN: f64 = 1.03;

/// Shares below this are the solver's rounding.
const SMALLEST_SHARE: f64 = 1e-6;

/// Bytes of a part after which a codec that is not in use is tried again: data change.
const AGAIN_BYTES: u64 = 512 << 20;

/// What a part has of all bytes is forgotten by half after this many bytes of all parts, some
/// dozens of blocks, and after this many seconds: a slow path carries little of a dataset in that
/// time.
const SHARE_BYTES: f64 = 1.28e8;
const SHARE_SECONDS: f64 = 4.0;

/// A part's share of all bytes is taken for this at least: one that has just begun has its plan as
/// others do, and what the solver rounds is less.
const LEAST_PART: f64 = 1e-3;

/// A codec with its level and filter, as the transfer may use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Seconds of a core for a byte at the sender, before anything is known: it says what a trial
    /// will take, and in which order candidates are tried.
    pub encode_seconds: f64,
    /// Seconds of a core for a byte at the receiver, until it tells.
    pub decode_seconds: f64,
    /// It is among those that find whether a part rests: that none of them makes it smaller says
    /// that no candidate does. Where no candidate judges, the cheapest does.
    pub judges: bool,
}

/// What a block gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// It is sent as it is, and counted.
    Plain,
    /// This candidate, and it is counted.
    Coded(usize),
    /// Trials on it are due, and tell.
    Try,
}

/// What the plan makes of the data as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Bytes of the source per second with the plan.
    pub rate: f64,
    /// The same without any codec.
    pub plain_rate: f64,
}

/// One kind of data.
#[derive(Clone, Debug)]
struct Part {
    /// Of each candidate, where there are any.
    figures: Vec<Option<Figures>>,
    /// Bytes seen lately.
    weight: f64,
    /// Bytes seen in all.
    seen: u64,
    /// Bytes seen when each candidate was used or tried last.
    last: Vec<u64>,
    /// Whether each candidate made it smaller when it was tried; none of one that is to be tried.
    pays: Vec<Option<bool>>,
    /// It is taken for compressed until this many bytes were seen.
    rests_until: u64,
    rests: u32,
    /// Blocks in succession that were compressed for nothing.
    failures: u32,
    /// What share of its blocks gets each candidate; the rest is sent as it is.
    shares: Vec<f64>,
    /// What each candidate was not given yet of its share; the last one is of plain blocks.
    owed: Vec<f64>,
}

impl Part {
    fn new(candidates: usize) -> Part {
        Part {
            figures: vec![None; candidates],
            // Its first trials are to count for its first block.
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

    /// Takes it for compressed for some time. Its figures stay for when it is found to pay again.
    fn rest(&mut self) {
        let rest = REST_BYTES << self.rests.min(MOST_DOUBLINGS);
        self.rests = self.rests.saturating_add(1);
        self.rests_until = self.seen.saturating_add(rest);
        self.doubt();
    }

    /// It is to be judged anew, and is sent as it is until then.
    fn doubt(&mut self) {
        self.failures = 0;
        self.pays.fill(None);
        self.shares.fill(0.0);
        self.owed.fill(0.0);
    }

    /// Figures that a plan may use: none before a candidate was found to make it smaller.
    fn usable(&self) -> &[Option<Figures>] {
        if self.pays.contains(&Some(true)) {
            &self.figures
        } else {
            &[]
        }
    }

    /// Takes what a trial found, or what became of a block.
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

    /// Deals out the next block: to the one that is owed most.
    fn deal(&mut self) -> Option<usize> {
        let plain = 1.0 - self.shares.iter().sum::<f64>();
        let shares = self.shares.iter().copied().chain([plain]);
        for (owed, share) in self.owed.iter_mut().zip(shares) {
            // Nothing is owed to what the plan no longer uses.
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

/// Decides for the blocks of one transfer.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Those that judge, then the others, each from the cheapest to the dearest, by their places in
    /// the caller's list.
    order: Vec<usize>,
    candidates: Vec<Candidate>,
    parts: BTreeMap<u32, Part>,
    resources: Resources,
    /// Seconds at the last look.
    at: f64,
    /// Bytes of the source per second that the last plan expects.
    expected_rate: f64,
    /// Seconds that trials may take now.
    credit: f64,
}

impl Compression {
    /// Begins with no figures: blocks are sent as they are until trials tell more. Without
    /// candidates they stay so.
    pub fn new(mut candidates: Vec<Candidate>) -> Compression {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        let cost = |at: &usize| candidates[*at].encode_seconds;
        order.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        if let (Some(cheapest), false) = (order.first(), candidates.iter().any(|of| of.judges)) {
            candidates[*cheapest].judges = true;
        }
        // Who judges is tried first.
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

    /// Takes what the transfer has now, some times a second, and plans anew; gives what the plan
    /// should bring. `at` is when, in seconds. None before the path's rate is known.
    pub fn handle_resources(&mut self, at: f64, resources: Resources) -> Option<Expectation> {
        self.resources = resources.bounded();
        let passed = at - self.at;
        if passed.is_finite() && passed > 0.0 {
            self.forget(passed / SHARE_SECONDS);
            self.at = at;
        }
        let expected = self.plan_anew()?;
        // Only here: of a kind that was just found nobody knows yet how much of the data it is, and
        // its first blocks would go as they are.
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
        // Before there are data the plan takes no time.
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

    /// What a block of a part gets, before it is read. `bytes` is its length.
    pub fn deal(&mut self, part: u32, bytes: u64) -> Deal {
        if self.due_trial(part.min(MOST_PARTS - 1), bytes).is_some() {
            return Deal::Try;
        }
        self.choose(part, bytes).map_or(Deal::Plain, Deal::Coded)
    }

    /// The same by its place in the list of candidates, whatever trials are due; none if it is sent
    /// as it is.
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

    /// What a block gets that waited since it was dealt a candidate: that one, where the plan still
    /// uses it for the part; else what the plan uses most for it now, none if that is nothing.
    pub fn renew(&mut self, part: u32, codec: usize) -> Option<usize> {
        let part = self.parts.get(&part.min(MOST_PARTS - 1))?;
        let uses = |at: &usize| part.shares.get(*at).is_some_and(|of| *of > SMALLEST_SHARE);
        let most = |a: &usize, b: &usize| part.shares[*a].total_cmp(&part.shares[*b]);
        let others = || (0..part.shares.len()).filter(uses).max_by(most);
        Some(codec).filter(uses).or_else(others)
    }

    /// Whether a block has waited, in seconds, for longer than the path takes for it as it is.
    pub fn is_late(&self, bytes: u64, waited: f64) -> bool {
        let rate = self.resources.wire_rate;
        rate > 0.0 && waited * rate > bytes as f64
    }

    /// The candidate that is to be tried now on [`TRIAL_BYTES`] of a block of a part, of which
    /// nothing is sent: what it finds goes to [`Compression::handle_encoded`] before this is asked
    /// again.
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

    /// Forgets what parts had of all bytes by half, this many times.
    fn forget(&mut self, halvings: f64) {
        let kept = 0.5_f64.powf(halvings);
        self.parts.values_mut().for_each(|part| part.weight *= kept);
    }

    /// The cheapest candidate that is not known, or was not looked at for long, where there is
    /// time for it and it may be worth something, and the seconds that it will take.
    fn due_trial(&mut self, number: u32, bytes: u64) -> Option<(usize, f64)> {
        let (resources, credit) = (self.resources, self.credit);
        self.part(number);
        let part = self.parts.get(&number)?;
        if bytes < TRIAL_BYTES || part.seen < part.rests_until {
            return None;
        }
        let is_due = |at: &&usize| match part.pays[**at] {
            // The others wait for who judges.
            None => self.candidates[**at].judges || part.pays.contains(&Some(true)),
            Some(_) => part.seen.saturating_sub(part.last[**at]) > AGAIN_BYTES,
        };
        let next = *self.order.iter().find(is_due)?;
        let known = part.figures[next].map(|figures| figures.encode_seconds);
        let seconds = known.unwrap_or(self.candidates[next].encode_seconds) * TRIAL_BYTES as f64;
        let is_useful = resources.may_use(seconds / TRIAL_BYTES as f64);
        (seconds <= credit && is_useful).then_some((next, seconds))
    }

    /// Takes what a trial found, or what became of a block that was compressed. `was_trial`
    /// says which.
    pub fn handle_encoded(&mut self, part: u32, codec: usize, observed: Observed, was_trial: bool) {
        let number = part.min(MOST_PARTS - 1);
        let Some(candidate) = self.candidates.get(codec) else {
            return;
        };
        let guess = candidate.decode_seconds;
        if was_trial {
            // What it took longer than was thought is owed.
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

    /// Takes what decompressing a codec's blocks took at the receiver, which does not tell their
    /// parts: seconds of a core for a byte of the source.
    pub fn handle_decoded(&mut self, codec: usize, seconds_per_byte: f64) {
        for part in self.parts.values_mut() {
            if let Some(Some(figures)) = part.figures.get_mut(codec) {
                figures.add_decoded(seconds_per_byte);
            }
        }
    }

    /// Whether any part has a codec.
    pub fn is_in_use(&self) -> bool {
        let mut shares = self.parts.values().flat_map(|part| &part.shares);
        shares.any(|share| *share > SMALLEST_SHARE)
    }

    /// No part has a codec, until the next plan.
    fn use_none(&mut self) {
        for part in self.parts.values_mut() {
            part.shares.fill(0.0);
            part.owed.fill(0.0);
        }
    }

    /// A codec's figures for a part, where there are any.
    pub fn figures(&self, part: u32, codec: usize) -> Option<Figures> {
        let part = self.parts.get(&part.min(MOST_PARTS - 1))?;
        part.figures.get(codec).copied().flatten()
    }

    /// What share of a part's blocks gets a codec, 0 to 1.
    pub fn share(&self, part: u32, codec: usize) -> f64 {
        let part = self.parts.get(&part.min(MOST_PARTS - 1));
        let share = part.and_then(|part| part.shares.get(codec));
        share.copied().unwrap_or(0.0)
    }
}
