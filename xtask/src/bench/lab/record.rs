//! Asked and found, as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::trials::{self, DEVICE, FLOWS, LOSSES, RTTS, STREAMS};
use crate::bench::kept::{Kept, save};
use crate::bench::record::{About, Spread};

/// TCP payload on a line of 1 Gbit/s with IPv4 and timestamps, in Mbit/s.
const CAPACITY: f64 = 1000.0 * 1448.0 / 1538.0;

/// Number of standard deviations that contain 99 % of a normal distribution.
const DEVIATIONS: f64 = 2.576;

/// Writes the record.
///
/// # Errors
///
/// If it cannot be written.
pub fn write(about: &About, kept: &Kept) -> Result<(), String> {
    let mut text = format!(
        "# What the lab does beside what it is asked for\n\n\
         {}, commit {}, {}, Linux {}. Made by `cargo xtask bench lab`, release build, hosts with \
         cubic; median (least–greatest).\n\n",
        about.date, about.commit, about.machine, about.kernel
    );
    streams(&mut text, kept);
    round_trips(&mut text, kept);
    capacities(&mut text, kept);
    losses(&mut text, kept);
    damage(&mut text, kept);
    devices(&mut text, kept);
    doubts(&mut text, kept);
    missing(&mut text, kept);
    save(about, "lab", &text, &kept.all())
}

fn spread(
    kept: &Kept,
    name: &str,
    skip: usize,
    of: impl Fn(&Value) -> Option<f64>,
) -> Option<Spread> {
    Spread::of(kept.of(name).skip(skip).filter_map(of).collect())
}

fn verdict(holds: bool) -> &'static str {
    if holds { "yes" } else { "**no**" }
}

fn streams(text: &mut String, kept: &Kept) {
    *text += "## One stream\n\niperf3, one TCP stream for 8 s after its ramp, line of 10 Gbit/s, \
              queue of 1 BDP; at the receiver. The first of several rounds is thrown away.\n\n\
              | RTT, ms | Gbit/s | bar | holds | emulator, share of a processor |\n|---|---|---|---|---|\n";
    for (rtt, bar) in STREAMS {
        let name = format!("stream {rtt} ms");
        let skip = usize::from(kept.of(&name).count() > 1);
        let rate = spread(kept, &name, skip, |v| v["gbit"].as_f64());
        let cpu = spread(kept, &name, skip, |v| v["emulator"]["cpu"].as_f64());
        if let (Some(rate), Some(cpu)) = (rate, cpu) {
            let _ = writeln!(
                text,
                "| {rtt} | {} | ≥ {bar} | {} | {} |",
                rate.text(2),
                verdict(rate.median() >= bar),
                cpu.text(2)
            );
        }
    }
}

fn round_trips(text: &mut String, kept: &Kept) {
    *text += "\n## RTT\n\nLine of 1 Gbit/s; ping, 300 times each 10 ms, while another process \
              takes what it can of a processor. Bar: the mean within 0.2 ms.\n\n\
              | asked, ms | mean | least | greatest | deviation | holds | \
              emulator, share of a processor |\n|---|---|---|---|---|---|---|\n";
    for rtt in RTTS {
        let name = format!("rtt {rtt} ms");
        for value in kept.of(&name) {
            let number = |key: &str| value["ms"][key].as_f64().unwrap_or(f64::NAN);
            let _ = writeln!(
                text,
                "| {rtt} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {:.2} |",
                number("mean"),
                number("least"),
                number("greatest"),
                number("deviation"),
                verdict((number("mean") - rtt).abs() <= 0.2),
                value["emulator"]["cpu"].as_f64().unwrap_or(f64::NAN)
            );
        }
    }
}

fn capacities(text: &mut String, kept: &Kept) {
    let _ = write!(
        text,
        "\n## Capacity\n\nLine of 1 Gbit/s, queue of 1 BDP (4 MiB at 0.4 ms); iperf3, one stream \
         for 8 s after its ramp, at the receiver, while another process takes what it can of a \
         processor. Asked: 1448/1538 of the line, {CAPACITY:.2} Mbit/s. Bar: within 0.5 %.\n\n\
         | RTT, ms | Mbit/s | of what was asked | holds | emulator, share of a processor | of it, \
         watching the clock |\n|---|---|---|---|---|---|\n"
    );
    for rtt in RTTS {
        let name = format!("capacity {rtt} ms");
        let rate = spread(kept, &name, 0, |v| v["mbit"].as_f64());
        let cpu = spread(kept, &name, 0, |v| v["emulator"]["cpu"].as_f64());
        let watching = spread(kept, &name, 0, |v| v["emulator"]["watching"].as_f64());
        let (Some(rate), Some(cpu), Some(watching)) = (rate, cpu, watching) else {
            continue;
        };
        let share = rate.median() / CAPACITY;
        let _ = writeln!(
            text,
            "| {rtt} | {} | {:.2} % | {} | {} | {} |",
            rate.text(2),
            share * 100.0,
            verdict((share - 1.0).abs() <= 0.005),
            cpu.text(2),
            watching.text(2)
        );
    }
}

fn losses(text: &mut String, kept: &Kept) {
    *text += "\n## Loss\n\nBy the lab's own counts: of datagrams, and of the segments of four TCP \
              streams what it took out of super-packets. Interval: what 99 of 100 such runs would \
              lose. What iperf3's receiver misses has its own socket's drops in it, on a host \
              with so few processors.\n\n\
              | asked | of | lost | interval | within | receiver misses | super-packets |\n\
              |---|---|---|---|---|---|---|\n";
    for (kind, loss) in LOSSES
        .iter()
        .map(|loss| ("datagrams", loss))
        .chain(LOSSES.iter().map(|loss| ("segments", loss)))
    {
        let name = format!("{kind} {loss:e}");
        for value in kept.of(&name) {
            let datagrams = value["lab"].as_f64();
            let lost = datagrams.or(value["lost"].as_f64());
            let (Some(lost), Some(of)) = (lost, value["of"].as_f64()) else {
                continue;
            };
            let (expected, deviation) = (of * loss, (of * loss * (1.0 - loss)).sqrt());
            let most = DEVIATIONS * deviation;
            let _ = writeln!(
                text,
                "| {loss:e} of {kind} | {of} | {lost} | {:.0} to {:.0} | {} | {} | {} |",
                expected - most,
                expected + most,
                verdict((lost - expected).abs() <= most),
                datagrams.map_or("–".to_owned(), |_| value["lost"].to_string()),
                value["super_packets"]
                    .as_u64()
                    .map_or("–".to_owned(), |n| n.to_string())
            );
        }
    }
}

fn damage(text: &mut String, kept: &Kept) {
    *text += "\n## Damage that TCP does not see\n\nZeros over one TCP stream, \
              `corrupt-unseen=1e-4`.\n\n| segments | damaged | bits set at the application | the \
              receiver's checksum errors | holds |\n|---|---|---|---|---|\n";
    for value in kept.of("damage") {
        let set = value["bits_set"].as_u64().unwrap_or(0);
        let damaged = value["lab"].as_u64().unwrap_or(0);
        let errors = value["checksum_errors"].as_u64().unwrap_or(u64::MAX);
        let _ = writeln!(
            text,
            "| {} | {damaged} | {set} | {errors} | {} |",
            value["segments"],
            verdict(set > 0 && set <= damaged && errors == 0)
        );
    }
}

fn devices(text: &mut String, kept: &Kept) {
    let (rate, gamma) = DEVICE;
    let _ = write!(
        text,
        "\n## A storage device\n\n`rate={rate}MBps,contention={gamma}`, 400 MB by so many flows; \
         asked: paper 004's Eq. 3.\n\n| flows | asked, MB/s | written | of asked | read | of asked \
         |\n|---|---|---|---|---|---|\n"
    );
    for flows in FLOWS {
        let name = format!("device {flows} flows");
        let of = |key: &'static str| spread(kept, &name, 0, |v| Some(v[key].as_f64()? / 1e6));
        let (Some(write), Some(read)) = (of("write"), of("read")) else {
            continue;
        };
        let asked = rate * (1.0 + gamma) / (flows as f64 + gamma);
        let _ = writeln!(
            text,
            "| {flows} | {asked:.1} | {} | {:.1} % | {} | {:.1} % |",
            write.text(1),
            write.median() / asked * 100.0,
            read.text(1),
            read.median() / asked * 100.0
        );
    }
}

/// Lists the doubts of the lab in each trial.
fn doubts(text: &mut String, kept: &Kept) {
    let mut lines = BTreeSet::new();
    let Value::Object(all) = kept.all() else {
        return;
    };
    for (name, values) in &all {
        for value in values.as_array().into_iter().flatten() {
            let own = [&value["doubts"], &value["emulator"]["doubts"]];
            for doubt in own.into_iter().filter_map(Value::as_array).flatten() {
                lines.insert(format!(
                    "- {name}: {}\n",
                    doubt.as_str().unwrap_or_default()
                ));
            }
        }
    }
    *text += "\n## Doubts\n\nWhat the lab itself said against these runs:\n\n";
    if lines.is_empty() {
        *text += "- nothing\n";
    }
    text.extend(lines);
}

/// Lists the trials that are missing because the run was stopped.
fn missing(text: &mut String, kept: &Kept) {
    let trials = trials::all();
    let names = trials.iter().map(trials::Trial::name);
    let missing: Vec<String> = names
        .filter(|name| kept.of(name).next().is_none())
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot measured: {}.", missing.join(", "));
    }
}
