//! The summary at the end.

use longhaul_engine::session::{Ending, Progress, Transfer};
use longhaul_proto::handshake::Purport;
use longhaul_units::{BitRate, ByteCount};

use super::progress::busiest;

/// Prints it to standard error, so that standard output stays data's.
pub fn print(progress: &Progress, ending: &Ending, purport: Purport, transfer: &Transfer) {
    for line in lines(progress, ending, purport, transfer) {
        eprintln!("{line}");
    }
}

fn lines(
    progress: &Progress,
    ending: &Ending,
    purport: Purport,
    transfer: &Transfer,
) -> Vec<String> {
    let verb = match (purport, ending.totals.is_some()) {
        (Purport::Verify, true) => "the same",
        (_, true) => "copied",
        (_, false) => "so far",
    };
    let seconds = progress.elapsed.as_secs_f64();
    let goodput = BitRate::from_transfer(ByteCount(progress.done_bytes), progress.elapsed);
    let mut lines = vec![format!(
        "{verb}: {} files, {} in {seconds:.1} s ({}/s, {goodput})",
        progress.files,
        ByteCount(progress.done_bytes),
        ByteCount((progress.done_bytes as f64 / seconds.max(1e-9)) as u64),
    )];
    if progress.skipped_entries > 0 {
        let (entries, bytes) = (progress.skipped_entries, ByteCount(progress.skipped_bytes));
        lines.push(format!("already there: {entries} files and links, {bytes}"));
    }
    if progress.failed_entries > 0 {
        lines.push(format!("failed: {}", progress.failed_entries));
    }
    lines.push(wire_line(progress));
    lines.push(transfer.describe());
    lines.push(format!("layers: {}", layers_line(progress)));
    if let Some(layer) = busiest(progress) {
        let percent = 100.0 * layer.utilisation;
        lines.push(format!(
            "limited by: {} (busy {percent:.0} % of the time)",
            layer.layer
        ));
    }
    lines
}

fn wire_line(progress: &Progress) -> String {
    let mut line = format!(
        "on the wire: {}, {} segments sent again",
        ByteCount(progress.wire_bytes),
        progress.retransmitted
    );
    let (from, to) = progress.compression;
    if from > 0 && to > 0 {
        line += &format!(", compressed {:.2} times", from as f64 / to as f64);
    }
    if progress.again_blocks > 0 {
        line += &format!(
            ", {} blocks arrived wrong and came again",
            progress.again_blocks
        );
    }
    if progress.lost_streams > 0 {
        line += &format!(", {} streams lost and replaced", progress.lost_streams);
    }
    line
}

fn layers_line(progress: &Progress) -> String {
    let layers = progress.layers.iter().chain(&progress.peer_layers);
    let shown: Vec<String> = layers
        .map(|layer| {
            format!(
                "{} {}x {:.0} %",
                layer.layer,
                layer.flows,
                100.0 * layer.utilisation
            )
        })
        .collect();
    shown.join(", ")
}
