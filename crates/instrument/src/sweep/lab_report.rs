//! Converts the report of a lab for records.

use std::time::Duration;

use longhaul_lab::report::{Doubt as LabDoubt, LabReport};
use longhaul_measure::doubt::Doubt;
use longhaul_measure::record::{CpuUse, EmulatorReport, Side};

use super::step::StepResult;

/// Lateness in microseconds above which a packet counts as late, as promised for the RTT.
const LATE_MICROSECONDS: u64 = 200;

/// Adds a lab's report to the result of a run.
pub fn into_result(report: &LabReport, result: &mut StepResult) {
    // A cable has no emulator, but its storage may be in doubt.
    if !report.emulator.wires.is_empty() {
        add_emulator(&report.emulator, result);
    }
    result.doubts.extend(report.doubts().iter().map(doubt));
}

fn add_emulator(emulator: &longhaul_lab::emulator::EmulatorReport, result: &mut StepResult) {
    let sum = |of: fn(&longhaul_lab::link::LinkCounters) -> u64| {
        emulator.wires.iter().map(|wire| of(&wire.counters)).sum()
    };
    let packets = emulator.lateness.total();
    let share = emulator.lateness.share_beyond(LATE_MICROSECONDS);
    result.emulator = Some(EmulatorReport {
        packets,
        lost: sum(|c| c.lost),
        overflowed: sum(|c| c.queue_drops),
        corrupted_unseen: sum(|c| c.corrupted_unseen),
        late: (share * packets as f64).round() as u64,
        worst_late: emulator.lateness.greatest,
        busy: emulator.busiest.clamp(0.0, 1.0),
    });
    result.cpu.push(CpuUse {
        process: "lab".to_owned(),
        side: Side::Emulator,
        user: emulator.cpu.saturating_sub(emulator.watching),
        system: Duration::ZERO,
    });
}

fn doubt(doubt: &LabDoubt) -> Doubt {
    match *doubt {
        LabDoubt::Bottleneck { busiest } => Doubt::EmulatorCpuBound {
            busy: busiest.clamp(0.0, 1.0),
        },
        LabDoubt::Late { share, most } => Doubt::EmulatorLate {
            late: share,
            worst_seconds: most.as_secs_f64(),
        },
        LabDoubt::SlowStorage { share, most } => Doubt::StorageLate {
            late: share,
            worst_seconds: most.as_secs_f64(),
        },
        LabDoubt::StorageNetwork { busiest } => Doubt::StorageNetworkCpuBound {
            busy: busiest.clamp(0.0, 1.0),
        },
        LabDoubt::Overrun { packets }
        | LabDoubt::NoMemory { packets }
        | LabDoubt::Refused { packets } => Doubt::EmulatorDropped { packets },
    }
}
