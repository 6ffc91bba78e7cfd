//! Loss of power and killed processes, at every step and at random.

use super::*;
use crate::forgetting::ForgettingStorage;

/// Promised results, which a later run must find.
#[derive(Default, Clone)]
struct Promised {
    durable: Vec<u64>,
    /// True once the last run began to give the file its final name. The file may then have that
    /// name, and its journal may be gone.
    committing: bool,
    committed: bool,
}

/// Runs a receiver to its end or first error. Checks the recovered blocks.
fn run(
    root: &Arc<dyn Directory>,
    source: Source,
    promised: &mut Promised,
) -> Result<(), Box<dyn std::error::Error>> {
    let partial = crate::journal::claim(&source.claim(root, 1))?;
    let recovered = check_recovered(&partial, source);
    for &number in &promised.durable {
        assert!(recovered.contains(&number), "block {number} was durable");
    }
    promised.durable = recovered.clone();
    promised.committing = false;
    for number in (0..BLOCKS).filter(|number| !recovered.contains(number)) {
        source.receive(&partial, number)?;
        promised.durable.push(number);
    }
    promised.committing = true;
    let committed = commit(&partial, 0o640)?;
    root.sync()?;
    promised.committed = true;
    promised.durable.clear();
    committed.finish()?;
    Ok(())
}

/// Returns the numbers of the recovered blocks, and checks that their bytes are the source's.
fn check_recovered(partial: &Partial, source: Source) -> Vec<u64> {
    let data = read_file(&**partial.file());
    let recovered = partial.recovered().iter().map(|block| {
        let number = block.offset / BLOCK_BYTES;
        assert_eq!(*block, source.durable(number));
        let bytes = &data[block.offset as usize..block.end() as usize];
        assert_eq!(bytes, source.block(number), "block {number} is another's");
        number
    });
    recovered.collect()
}

fn check_final(root: &Arc<dyn Directory>, promised: &Promised, possible: &[Source]) {
    match read(root, NAME) {
        None => assert!(!promised.committed, "the file was durable"),
        Some(data) => {
            let status = root.status_of(NAME).unwrap();
            assert_eq!((status.mode, status.modified), (0o640, MODIFIED));
            let whole = possible.iter().any(|source| source.whole() == data);
            assert!(whole, "half-written under its final name");
        }
    }
}

/// Checks the state after a crash during the run of `promised`, and that the next run succeeds.
fn check_after(storage: &ForgettingStorage, mut promised: Promised) {
    let root = storage.root();
    check_final(&root, &promised, &[FIRST]);
    if promised.committing && read(&root, NAME).is_some() {
        promised.durable.clear();
    }
    run(&root, FIRST, &mut promised).unwrap();
    check_final(&root, &promised, &[FIRST]);
    let parts = |names: &BTreeMap<Box<[u8]>, u64>| {
        names
            .keys()
            .filter(|name| name.ends_with(b".journal"))
            .count()
    };
    assert_eq!(parts(&listing(&root)), 0);
}

fn steps_of_a_run() -> u64 {
    let storage = ForgettingStorage::new();
    run(&storage.root(), FIRST, &mut Promised::default()).unwrap();
    storage.steps()
}

/// Returns a disk on which the first run stopped at a step.
fn stopped_at(step: u64) -> (ForgettingStorage, Promised) {
    let storage = ForgettingStorage::new();
    storage.fail_after(step);
    let mut promised = Promised::default();
    let ended = run(&storage.root(), FIRST, &mut promised);
    assert!(ended.is_err(), "step {step} was not reached");
    (storage, promised)
}

#[test]
fn power_lost_at_every_step() {
    for step in 1..=steps_of_a_run() {
        let (storage, promised) = stopped_at(step);
        for seed in 0..100 {
            println!("step {step}, seed {seed}");
            check_after(&storage.if_crashed(seed), promised.clone());
        }
    }
}

#[test]
fn killed_at_every_step() {
    for step in 1..=steps_of_a_run() {
        println!("step {step}");
        let (storage, promised) = stopped_at(step);
        let storage = storage.kill();
        let before = listing(&storage.root());
        check_after(&storage, promised);
        let orphans = listing(&storage.root()).len() - 1;
        assert_eq!(
            orphans, 0,
            "a kill leaves nothing that the next run does not find: {before:?}"
        );
    }
}

/// A run is killed, and power is lost during the recovery. Records that the killed run wrote to the
/// journal may not have been synced.
#[test]
fn killed_then_power_lost_at_every_step() {
    for step in 1..=steps_of_a_run() {
        for more in 1..30 {
            let (storage, mut promised) = stopped_at(step);
            let storage = storage.kill();
            storage.fail_after(storage.steps() + more);
            if promised.committing && read(&storage.root(), NAME).is_some() {
                promised.durable.clear();
            }
            if run(&storage.root(), FIRST, &mut promised).is_ok() {
                break;
            }
            for seed in 0..8 {
                println!("step {step}, then {more}, seed {seed}");
                check_after(&storage.if_crashed(seed), promised.clone());
            }
        }
    }
}

#[test]
fn records_of_a_failed_sync_are_not_promised() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    first.file().set_length(BLOCKS * BLOCK_BYTES).unwrap();
    first.file().sync_data().unwrap();
    // Enough for several pages, so that the next owner's record is not on the lost pages.
    let many = (BLOCK_BYTES..BLOCK_BYTES + 500).map(|offset| DurableBlock {
        offset,
        length: 1,
        checksum: Checksum::Xxh3(offset),
    });
    storage.fail_sync_after(0);
    assert!(first.append_durable(&many.collect::<Vec<_>>()).is_err());
    drop(first);
    // The page cache still shows the records that the disk lost.
    let second = claim(&root, FIRST, 2);
    assert_eq!(second.recovered().len(), 501);
    for seed in 0..100 {
        let root = storage.if_crashed(seed).root();
        assert_eq!(
            claim(&root, FIRST, 3).recovered(),
            second.recovered(),
            "seed {seed}"
        );
    }
}

/// A claim that discards data is killed at every step. The next claim finds all files that it left.
#[test]
fn killed_while_discarding() {
    for step in 1.. {
        let storage = ForgettingStorage::new();
        FIRST.receive(&claim(&storage.root(), FIRST, 1), 0).unwrap();
        storage.fail_after(storage.steps() + step);
        let done = crate::journal::claim(&CHANGED.claim(&storage.root(), 2)).is_ok();
        let root = storage.kill().root();
        assert!(claim(&root, CHANGED, 3).recovered().is_empty());
        assert_eq!(listing(&root).len(), 2, "step {step}");
        if done {
            break;
        }
    }
}

/// Between a rename and its sync, only the journal lets a claim find the data.
#[test]
fn a_claim_after_an_unsynced_commit_keeps_it() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let first = claim(&root, FIRST, 1);
    for number in 0..BLOCKS {
        FIRST.receive(&first, number).unwrap();
    }
    let committed = commit(&first, 0o640).unwrap();
    let _second = claim(&root, FIRST, 2);
    for seed in 0..100 {
        let root = storage.if_crashed(seed).root();
        assert_eq!(read(&root, NAME).unwrap(), FIRST.whole(), "seed {seed}");
    }
    drop(committed);
}

/// Sources alternate, and are abandoned, killed and lose power, without a sync that would separate
/// old names from new data.
#[test]
fn sources_never_mix() {
    for seed in 0..1_000 {
        println!("seed {seed}");
        let mut history = History::new(seed);
        for _ in 0..8 {
            history.happen();
        }
    }
}

struct History {
    storage: ForgettingStorage,
    seed: u64,
    count: u64,
    /// Source of the only run with promised results since the last claim.
    last: Source,
    promised: Promised,
    run: Vec<Source>,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            storage: ForgettingStorage::new(),
            seed,
            count: 0,
            last: FIRST,
            promised: Promised::default(),
            run: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.count += 1;
        let bytes = [self.seed.to_le_bytes(), self.count.to_le_bytes()].concat();
        XxHash3_64::oneshot(&bytes) % bound
    }

    fn happen(&mut self) {
        match self.below(8) {
            0 => self.abandon(),
            1 => self.storage = self.storage.kill(),
            2 => {
                let seed = self.below(1 << 32);
                self.storage = self.storage.crash(seed);
            }
            _ => self.run_for_a_while(),
        }
        check_final(&self.storage.root(), &self.promised, &self.run);
    }

    fn source(&mut self) -> Source {
        let source = [FIRST, CHANGED, OTHER][self.below(3) as usize];
        if source != self.last {
            // The claim of this source discards the data of the last one.
            self.promised.durable.clear();
        }
        self.last = source;
        source
    }

    fn abandon(&mut self) {
        let source = self.source();
        let root = self.storage.root();
        self.promised.durable.clear();
        let partial = claim(&root, source, 1);
        check_recovered(&partial, source);
        partial.abandon().unwrap();
    }

    fn run_for_a_while(&mut self) {
        let source = self.source();
        let root = self.storage.root();
        let more = self.below(60) + 1;
        self.storage.fail_after(self.storage.steps() + more);
        self.run.push(source);
        let mut promised = self.promised.clone();
        if run(&root, source, &mut promised).is_ok() {
            self.storage.fail_after(u64::MAX);
        } else {
            let seed = self.below(1 << 32);
            let by_power = self.below(2) == 0;
            self.storage = if by_power {
                self.storage.crash(seed)
            } else {
                self.storage.kill()
            };
        }
        if promised.committing {
            promised.durable.clear();
        }
        self.promised = promised;
    }
}
