//! A parallel file system in a lab: what one client reads and writes, against
//! storage nodes and flows. The shape of paper 000's Fig. 3.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::kept::{Kept, save};
use super::lab::Hosts;
use super::record::{About, Spread};

/// Storage nodes.
const NODES: [u64; 4] = [1, 2, 4, 8];

/// Threads that read or write, each a file of its own.
const FLOWS: [u64; 4] = [1, 2, 4, 8];

/// Each brick's device, each way: slow enough that it binds, not the processors
/// that all nodes share.
const BRICK: &str = "20MBps";

/// Bytes a second of it.
const BRICK_RATE: f64 = 20e6;

/// Bytes for each node: three seconds of its brick, and 16 shards.
const BYTES_PER_NODE: u64 = 64 << 20;

/// Rounds, nodes interleaved.
const ROUNDS: usize = 2;

/// Measures as far as there is time; false where that was up.
///
/// # Errors
///
/// Where a step fails.
pub fn measure(hosts: &Hosts, kept: &mut Kept) -> Result<bool, String> {
    let began = Instant::now();
    for round in 0..ROUNDS {
        for nodes in NODES {
            if kept.of(&name(nodes, FLOWS[FLOWS.len() - 1])).count() > round {
                continue;
            }
            if began.elapsed() > super::LONGEST {
                return Ok(false);
            }
            let storage = format!("gluster:nodes={nodes},brick-rate={BRICK},shard=4MiB");
            let worker = hosts.worker();
            let flows = FLOWS.map(|flows| flows.to_string()).join(" ");
            let bytes = nodes * BYTES_PER_NODE;
            let script = format!(
                "for flows in {flows}; do {worker} storage $LONGHAUL_LAB_STORAGE $flows {bytes} \
                 || exit; done"
            );
            let (output, report) =
                hosts.run(&["--storage", &storage], &["sh", "-c", &script], false)?;
            for (flows, line) in FLOWS.iter().zip(output.lines()) {
                let mut value: Value =
                    serde_json::from_str(line).map_err(|error| format!("\"{line}\": {error}"))?;
                value["doubts"] = report["doubts"].clone();
                println!("bench: round {round}: {nodes} nodes: {value}");
                kept.add(&name(nodes, *flows), value)?;
            }
        }
    }
    Ok(true)
}

fn name(nodes: u64, flows: u64) -> String {
    format!("{nodes} nodes, {flows} flows")
}

/// Writes the record.
///
/// # Errors
///
/// Where it cannot be written.
pub fn write(about: &About, kept: &Kept) -> Result<(), String> {
    let mut text = format!(
        "# A parallel file system against nodes and flows\n\n\
         {}, commit {}, {}, Linux {}. Made by `cargo xtask bench gluster`: GlusterFS in a lab \
         (`--storage gluster:nodes=N,brick-rate={BRICK},shard=4MiB`), one client, {} MiB for each \
         node; each flow has a file of its own, writing ends when all are durable, reading goes \
         past the client's page cache; {ROUNDS} rounds, nodes interleaved; MB/s, median \
         (least–greatest). All nodes share these processors.\n\n",
        about.date,
        about.commit,
        about.machine,
        about.kernel,
        BYTES_PER_NODE >> 20
    );
    for way in ["write", "read"] {
        let _ = write!(text, "| {way}: nodes |");
        for flows in FLOWS {
            let _ = write!(text, " {flows} flow{} |", if flows == 1 { "" } else { "s" });
        }
        text += " bricks together |\n|---|---|---|---|---|---|\n";
        for nodes in NODES {
            let _ = write!(text, "| {nodes} |");
            for flows in FLOWS {
                let cell = spread(kept, nodes, flows, way).map_or("–".into(), |s| s.text(1));
                let _ = write!(text, " {cell} |");
            }
            let _ = writeln!(text, " {:.0} |", nodes as f64 * BRICK_RATE / 1e6);
        }
        text += "\n";
    }
    text += &doubts(kept);
    text += "Shards are placed by a hash of their names: the fullest brick decides, so that several \
             nodes give less than their sum, and more so with fewer shards.\n";
    save(about, "gluster", &text, &kept.all())
}

fn spread(kept: &Kept, nodes: u64, flows: u64, way: &str) -> Option<Spread> {
    let name = name(nodes, flows);
    let rates = kept.of(&name).filter_map(|value| value[way].as_f64());
    Spread::of(rates.map(|rate| rate / 1e6).collect())
}

/// What the lab doubted, by nodes.
fn doubts(kept: &Kept) -> String {
    let mut text = String::new();
    for nodes in NODES {
        let name = name(nodes, FLOWS[0]);
        let all = kept
            .of(&name)
            .filter_map(|value| value["doubts"].as_array());
        for doubt in all.flatten() {
            let _ = writeln!(
                text,
                "Doubt, {nodes} nodes: {}.\n",
                doubt.as_str().unwrap_or("")
            );
        }
    }
    text
}

/// What it needs beside the lab.
///
/// # Errors
///
/// What is missing.
pub fn check() -> Result<(), String> {
    let there = ["/usr/sbin/glusterd", "/usr/sbin/glusterfs"];
    match there.iter().find(|program| !Path::new(program).exists()) {
        Some(missing) => Err(format!(
            "{missing} is missing: apt-get install glusterfs-server glusterfs-client"
        )),
        None => Ok(()),
    }
}
