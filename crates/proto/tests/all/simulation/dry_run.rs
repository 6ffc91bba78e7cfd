//! Tests of a dry run, which asks about every entry and neither moves nor changes data.

use longhaul_proto::manifest::EntryId;
use longhaul_proto::message::{Answer, Message, Totals};
use longhaul_proto::sender::{Sender, SenderError, SenderSettings};
use longhaul_units::Moment;

use super::disk::Committed;
use super::network::Link;
use super::scenario::{Fault, Scenario, milliseconds};
use super::source::{NodeKind, Source};
use super::world::World;

/// Runs a tree of which one third exists at the destination and one third exists in an older state.
fn world(seed: u64, faults: Vec<(Moment, Fault)>) -> (World, Totals) {
    let mut source = Source::default();
    let directory = source.add(None, NodeKind::Directory);
    (0..3000).for_each(|number| source.add_file(Some(directory), number % 7 * 1000));
    source.add(Some(directory), NodeKind::Symlink);
    let link = Link {
        rate: 1e6,
        latency: milliseconds(20),
        buffer: 8192,
        stalls: None,
    };
    let mut scenario = Scenario::plain(source, vec![link; 3], 4096);
    scenario.seed = seed;
    scenario.sender.asks = true;
    scenario.sender.moves = false;
    scenario.faults = faults;
    let mut world = World::new(scenario);
    let mut expected = Totals {
        // Counts the directory and the link.
        planned: 2,
        ..Totals::default()
    };
    for (index, node) in world.source.nodes.iter().enumerate() {
        if !matches!(node.kind, NodeKind::File { .. }) {
            continue;
        }
        let entry = world.source.entry(index, EntryId(0), None);
        let mut there = Committed {
            data: Vec::new(),
            entry,
        };
        match index % 3 {
            0 => expected.skipped += 1,
            1 => {
                there.entry.kind = longhaul_proto::manifest::EntryKind::Directory;
                expected.planned += 1;
            }
            _ => {
                expected.planned += 1;
                continue;
            }
        }
        world.disk.named.insert(node.path.clone(), there);
    }
    (world, expected)
}

#[test]
fn a_dry_run_asks_and_moves_no_data() {
    let at = |n: u64| Moment(n * 1_000_000);
    for (seed, faults) in [
        (1, vec![]),
        (2, vec![(at(50), Fault::Kill(1)), (at(90), Fault::Cut)]),
        (3, vec![(at(70), Fault::Restart)]),
    ] {
        let (mut world, expected) = world(seed, faults);
        let names = world.disk.named.len();
        world.run();
        assert_eq!(world.sending.sender.finished(), Some(expected));
        assert_eq!(
            (world.checks.blocks_sent, world.checks.restarts > 0),
            (0, seed == 3)
        );
        assert_eq!(world.disk.named.len(), names);
        assert!(world.disk.given.is_empty() && world.disk.finished_directories.is_empty());
    }
}

#[test]
fn a_dry_run_and_a_copy_are_not_taken_for_each_other() {
    let sender = |moves| {
        Sender::new(SenderSettings {
            asks: true,
            moves,
            ..SenderSettings::default()
        })
    };
    let change = longhaul_proto::message::Change::New;
    let wants = [
        Answer::Send,
        Answer::Resume(vec![]),
        Answer::Planned(change),
    ];
    for (answer, fits) in wants.into_iter().zip([true, true, false]) {
        for moves in [true, false] {
            let mut sender = sender(moves);
            let said = Message::Answers(vec![(EntryId(0), answer.clone())]);
            let expected = if fits == moves {
                Ok(())
            } else {
                Err(SenderError::DryRun)
            };
            assert_eq!(
                sender.handle_message(said, Moment(0)),
                expected,
                "{answer:?}"
            );
        }
    }
    let outcome = longhaul_proto::message::Outcome::Planned(None);
    let entries = vec![(EntryId(0), outcome)];
    let said = Message::Done { epoch: 1, entries };
    assert_eq!(
        sender(true).handle_message(said, Moment(0)),
        Err(SenderError::DryRun)
    );
}
