//! The measurements and the programs that make them.

use serde_json::{Value, json};

use super::Hosts;

/// RTTs of papers 001 and 003, in milliseconds.
pub const RTTS: [f64; 7] = [0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0];

/// Required throughput of one stream in Gbit/s, by RTT in milliseconds.
pub const STREAMS: [(f64, f64); 2] = [(10.0, 8.0), (366.0, 5.0)];

/// Losses to set.
pub const LOSSES: [f64; 3] = [1e-2, 1e-3, 1e-4];

/// Flows on a device.
pub const FLOWS: [u64; 4] = [1, 2, 4, 8];

/// A storage device: MB/s of one flow, and how it falls.
pub const DEVICE: (f64, f64) = (200.0, 4.0);

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// iperf3, one stream: RTT in milliseconds.
    Stream(f64),
    /// ping, while a processor is busy.
    Rtt(f64),
    /// iperf3, one stream, in steady state at the receiver, while a processor
    /// is busy.
    Capacity(f64),
    /// Datagrams that the receiver misses.
    DatagramLoss(f64),
    /// Loss of segments within super-packets, by the lab's own counts.
    SegmentLoss(f64),
    /// Zeros that arrive changed.
    Damage,
    /// A device with this number of flows.
    Device(u64),
}

/// A measurement and its repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The measurement.
    pub what: What,
    /// Number of repetitions.
    pub rounds: usize,
}

/// All of them, in the order of a round.
pub fn all() -> Vec<Trial> {
    let once = |what| Trial { what, rounds: 1 };
    let mut trials: Vec<Trial> = Vec::new();
    // The first of these is thrown away: memory is warm then.
    trials.extend(STREAMS.map(|(rtt, _)| Trial {
        what: What::Stream(rtt),
        rounds: 2,
    }));
    trials.extend(RTTS.map(What::Rtt).map(once));
    trials.extend(RTTS.map(|rtt| Trial {
        what: What::Capacity(rtt),
        rounds: 3,
    }));
    trials.extend(LOSSES.map(What::DatagramLoss).map(once));
    trials.extend(LOSSES.map(What::SegmentLoss).map(once));
    trials.push(once(What::Damage));
    trials.extend(FLOWS.map(What::Device).map(once));
    trials
}

impl Trial {
    /// In the record.
    pub fn name(&self) -> String {
        match self.what {
            What::Stream(rtt) => format!("stream {rtt} ms"),
            What::Rtt(rtt) => format!("rtt {rtt} ms"),
            What::Capacity(rtt) => format!("capacity {rtt} ms"),
            What::DatagramLoss(loss) => format!("datagrams {loss:e}"),
            What::SegmentLoss(loss) => format!("segments {loss:e}"),
            What::Damage => "damage".to_owned(),
            What::Device(flows) => format!("device {flows} flows"),
        }
    }

    /// Measures it.
    pub fn run(&self, hosts: &Hosts) -> Result<Value, String> {
        match self.what {
            What::Stream(rtt) => stream(hosts, rtt),
            What::Rtt(rtt) => round_trips(hosts, rtt),
            What::Capacity(rtt) => capacity(hosts, rtt),
            What::DatagramLoss(loss) => datagrams(hosts, loss),
            What::SegmentLoss(loss) => segments(hosts, loss),
            What::Damage => damage(hosts),
            What::Device(flows) => device(hosts, flows),
        }
    }
}

/// The server sends its counts to the client, as JSON.
const SERVER: [&str; 2] = ["--server", "exec iperf3 -s -1 -J >/dev/null"];

/// Seconds to leave out at the beginning. Slow start doubles in each RTT from 10 segments to the
/// BDP. Then the queue fills, and its first losses are sent again.
fn ramp(rtt: f64) -> String {
    (3.0 + rtt / 1000.0 * 40.0).round().to_string()
}

fn path(rtt: f64, rate: &str, further: &str) -> Vec<String> {
    let mut options = vec![format!("--rtt={rtt}ms"), format!("--rate={rate}")];
    options.extend(further.split_whitespace().map(str::to_owned));
    options
}

fn iperf3(
    hosts: &Hosts,
    options: &[String],
    client: &[&str],
    busy: bool,
) -> Result<(Value, Value), String> {
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    all.extend(SERVER);
    let command = [
        &["iperf3", "-c", "lab-b", "-J", "--get-server-output"],
        client,
    ]
    .concat();
    let (output, report) = hosts.run(&all, &command, busy)?;
    let output = serde_json::from_str(&output).map_err(|error| format!("iperf3: {error}"))?;
    Ok((output, report))
}

/// Returns the lab's own statistics.
fn emulator(report: &Value) -> Value {
    let own = &report["emulator"];
    let share =
        |key: &str| own[key].as_f64().unwrap_or(0.0) / own["wall_s"].as_f64().unwrap_or(1.0);
    json!({ "cpu": share("cpu_s"), "watching": share("watching_s"), "busiest": own["busiest"],
        "lateness": report["lateness"], "doubts": report["doubts"] })
}

/// Returns the bits per second that arrived, from the receiver's own intervals of a second. It
/// leaves out the first ones and the incomplete last one.
fn arrived(output: &Value) -> Result<f64, String> {
    let intervals = output["server_output_json"]["intervals"].as_array();
    let whole: Vec<(f64, f64)> = intervals
        .into_iter()
        .flatten()
        .map(|interval| &interval["sum"])
        .filter(|sum| sum["omitted"] == false)
        .filter_map(|sum| Some((sum["bytes"].as_f64()?, sum["seconds"].as_f64()?)))
        .filter(|(_, seconds)| *seconds > 0.5)
        .collect();
    let (bytes, seconds) = whole.iter().fold((0.0, 0.0), |(b, s), (bytes, seconds)| {
        (b + bytes, s + seconds)
    });
    if whole.len() < 3 {
        let said = &output["server_output_json"];
        return Err(format!("iperf3's server says too little: {said}"));
    }
    Ok(bytes * 8.0 / seconds)
}

fn stream(hosts: &Hosts, rtt: f64) -> Result<Value, String> {
    let options = path(rtt, "10gbit", "");
    let (output, report) = iperf3(hosts, &options, &["-t", "8", "-O", &ramp(rtt)], false)?;
    Ok(json!({ "gbit": arrived(&output)? / 1e9, "emulator": emulator(&report) }))
}

fn round_trips(hosts: &Hosts, rtt: f64) -> Result<Value, String> {
    let options = path(rtt, "1gbit", "");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let ping = ["ping", "-q", "-i", "0.01", "-c", "300", "lab-b"];
    let (output, report) = hosts.run(&options, &ping, true)?;
    // Microseconds are in its last line alone.
    let last = output
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    // The unit and further text follow.
    let last = last.and_then(|line| line.split(' ').next());
    let numbers = last.unwrap_or_default().split('/');
    let numbers: Vec<f64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let [least, mean, greatest, deviation] = numbers[..] else {
        return Err(format!("ping says something else: {output}"));
    };
    Ok(
        json!({ "ms": { "least": least, "mean": mean, "greatest": greatest,
        "deviation": deviation }, "emulator": emulator(&report) }),
    )
}

fn capacity(hosts: &Hosts, rtt: f64) -> Result<Value, String> {
    // One BDP of such a short path is less than the data that one wake-up brings.
    let queue = if rtt < 1.0 { "--queue=4MiB" } else { "" };
    let options = path(rtt, "1gbit", queue);
    let (output, report) = iperf3(hosts, &options, &["-t", "8", "-O", &ramp(rtt)], true)?;
    Ok(json!({ "mbit": arrived(&output)? / 1e6, "emulator": emulator(&report) }))
}

fn datagrams(hosts: &Hosts, loss: f64) -> Result<Value, String> {
    let further = format!("--loss={loss:e} --loss-back=0");
    let options = path(2.0, "1gbit", &further);
    let client = ["-u", "-b", "200M", "-l", "1448", "-t", "8"];
    let (output, report) = iperf3(hosts, &options, &client, false)?;
    let sum = &output["server_output_json"]["end"]["sum"];
    Ok(json!({ "lost": sum["lost_packets"], "of": sum["packets"],
        "lab": report["directions"][0]["losses"] }))
}

fn segments(hosts: &Hosts, loss: f64) -> Result<Value, String> {
    let further = format!("--loss={loss:e} --loss-back=0");
    let options = path(0.4, "5gbit", &further);
    let client = ["-t", "8", "-P", "4"];
    let (output, report) = iperf3(hosts, &options, &client, false)?;
    let there = &report["directions"][0];
    Ok(json!({ "lost": there["losses"], "of": there["offered"],
        "queue_drops": there["queue_drops"], "super_packets": there["super_packets"],
        "resent": output["end"]["sum_sent"]["retransmits"] }))
}

fn damage(hosts: &Hosts) -> Result<Value, String> {
    let options = path(2.0, "1gbit", "--corrupt-unseen=1e-4");
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    let worker = hosts.worker();
    let server = format!("exec {worker} sink");
    options.extend(["--server", &server]);
    let source = format!("exec {worker} source lab-b {}", 512 << 20);
    let (output, report) = hosts.run(&options, &["sh", "-c", &source], false)?;
    let mut value: Value =
        serde_json::from_str(&output).map_err(|error| format!("\"{output}\": {error}"))?;
    value["lab"] = report["directions"][0]["corrupted_unseen"].clone();
    value["segments"] = report["directions"][0]["segments"].clone();
    Ok(value)
}

fn device(hosts: &Hosts, flows: u64) -> Result<Value, String> {
    let directory = hosts.directory.join("device");
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let (rate, contention) = DEVICE;
    let place = directory.display();
    let storage = format!("{place}:rate={rate}MBps,contention={contention}");
    let worker = hosts.worker();
    let command = format!("exec {worker} storage {place} {flows} {}", 400_000_000);
    let (output, report) = hosts.run(&["--storage", &storage], &["sh", "-c", &command], false)?;
    let mut value: Value =
        serde_json::from_str(&output).map_err(|error| format!("\"{output}\": {error}"))?;
    value["doubts"] = report["doubts"].clone();
    value["late"] = report["storage"][0]["devices"][0].clone();
    Ok(value)
}
