//! Tests of records as tables. The contents of Parquet files were checked with pyarrow and DuckDB.
//! The tests check the file frame and the tables.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use longhaul_measure::doubt::Doubt;
use longhaul_measure::export::{Table, Values};
use longhaul_measure::record::{CpuUse, Knob, LayerUse, PathRecord, RunIdentity, RunRecord, Side};
use longhaul_measure::sources::ExternalRun;
use longhaul_units::{BitRate, ByteCount};

fn record(id: &str, knob: Knob) -> RunRecord {
    let run = ExternalRun {
        tool: "iperf3".to_owned(),
        moved: ByteCount(2_000_000_000),
        wall: Duration::from_secs(4),
        doubts: vec![Doubt::WarmUpCounted, Doubt::NotCompared],
        ..ExternalRun::default()
    };
    let identity = RunIdentity {
        id: id.to_owned(),
        ..RunIdentity::default()
    };
    let path = PathRecord {
        capacity: BitRate::new(1e9).unwrap(),
        ..PathRecord::default()
    };
    let mut record = run.into_record(identity, path);
    record.knobs = [("knob".to_owned(), knob)].into();
    record.cpu = [Side::Source, Side::Destination, Side::Source]
        .map(|side| CpuUse {
            process: "x".into(),
            side,
            user: Duration::from_millis(500),
            system: Duration::from_millis(500),
        })
        .into();
    record
}

fn table() -> Table {
    let mut table = Table::default();
    let mut first = record("a,\"b\"", Knob::Count(3));
    first.layers = vec![LayerUse {
        layer: "read".into(),
        flows: 2,
        utilisation: 0.5,
    }];
    table.add(&first).unwrap();
    table.add(&record("c", Knob::Count(4))).unwrap();
    table
}

fn column(table: &Table, name: &str) -> Values {
    let mut columns = table.columns();
    let found = columns.find(|(column, _)| *column == name);
    found.unwrap_or_else(|| panic!("no column {name}")).1
}

#[test]
fn columns_are_as_narrow_as_their_values_allow() {
    let mut table = table();
    assert_eq!(
        column(&table, "knobs.knob"),
        Values::Whole(vec![Some(3), Some(4)])
    );
    assert_eq!(
        column(&table, "layers.read"),
        Values::Numbers(vec![Some(0.5), None])
    );
    assert_eq!(
        column(&table, "cpu.source_seconds"),
        Values::Numbers(vec![Some(2.0), Some(2.0)])
    );
    assert_eq!(
        column(&table, "cpu.seconds_per_gigabyte"),
        Values::Numbers(vec![Some(1.5), Some(1.5)])
    );
    let doubts = Some("warm_up_counted not_compared".to_owned());
    assert_eq!(
        column(&table, "doubts"),
        Values::Texts(vec![doubts.clone(), doubts])
    );
    table.add(&record("d", Knob::Word("many".into()))).unwrap();
    let knobs = ["3", "4", "many"].map(|word| Some(word.to_owned()));
    assert_eq!(column(&table, "knobs.knob"), Values::Texts(knobs.into()));
}

#[test]
fn flags_are_never_absent_and_times_are_times() {
    let mut table = Table::default();
    let mut first = record("a", Knob::Count(3));
    first.run.started = "2026-11-03T10:11:12Z".to_owned();
    table.add(&first).unwrap();
    let mut second = record("b", Knob::Count(3));
    second.run.warm_up = true;
    table.add(&second).unwrap();
    let warm_up = column(&table, "run.warm_up");
    assert_eq!(warm_up, Values::Flags(vec![Some(false), Some(true)]));
    let again = column(&table, "run.again");
    assert_eq!(again, Values::Flags(vec![Some(false), Some(false)]));
    let at = (1_793_700_672_000_000, "2026-11-03T10:11:12Z".to_owned());
    assert_eq!(
        column(&table, "run.started"),
        Values::Times(vec![Some(at), None])
    );
    assert!(table.to_csv().contains("2026-11-03T10:11:12Z"));
    // A value that is not a time turns the column into text.
    second.run.id = "c".to_owned();
    second.run.started = "yesterday".to_owned();
    table.add(&second).unwrap();
    assert!(matches!(column(&table, "run.started"), Values::Texts(_)));
}

#[test]
fn csv_has_a_header_and_one_line_for_each_run() {
    let csv = table().to_csv();
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), 4);
    let place = |name: &str| lines[0].split(',').position(|n| n == name).unwrap();
    assert!(lines[1].contains("\"a,\"\"b\"\"\""), "{}", lines[1]);
    let second: Vec<&str> = lines[2].split(',').collect();
    assert_eq!(second[place("run.id")], "c");
    assert_eq!(second[place("outcome.wall_seconds")], "4");
    // An absent value is an empty cell.
    assert_eq!(second[place("layers.read")], "");
    assert_eq!(lines[3], "");
}

#[test]
fn parquet_files_have_a_valid_frame() {
    for table in [table(), Table::default()] {
        let file = table.to_parquet();
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
        let length = file[file.len() - 8..file.len() - 4].try_into().unwrap();
        let footer = u32::from_le_bytes(length) as usize;
        assert!(footer + 12 <= file.len());
        // The footer contains the name of every column.
        let footer = &file[file.len() - 8 - footer..file.len() - 8];
        for (name, _) in table.columns() {
            assert!(
                footer
                    .windows(name.len())
                    .any(|part| part == name.as_bytes())
            );
        }
    }
}
