//! Tests of explanations of the documented graph.

use longhaul_model::explain::{explain, one_figure};
use longhaul_model::graph::Graph;
use longhaul_model::optimise::prices::Constraint;
use longhaul_model::optimise::{Bound, best_rate};
use longhaul_model::what_if::what_if;

pub fn documented() -> Graph {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graph.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    Graph::from_text(example.split("```").next().unwrap()).unwrap()
}

fn name_of(graph: &Graph, sets: &[Vec<Constraint>]) -> Vec<String> {
    let names = sets.iter().flatten().map(|it| it.name(graph));
    names.collect()
}

#[test]
fn the_bottleneck_is_named_with_its_price() {
    let graph = documented();
    let explained = explain(&graph, Bound::DEFAULT).unwrap();
    let text = explained.text(&graph);
    let names = name_of(&graph, &explained.binding);
    assert!(
        !names.is_empty() && names.iter().all(|name| text.contains(name.as_str())),
        "{text}"
    );
    assert!(text.contains("40.0 TB take"), "{text}");
    let seconds = explained.prediction.seconds;
    assert!(
        seconds.low < seconds.likely && seconds.likely < seconds.high,
        "{seconds:?}"
    );
    let ideal = 40e12 / explained.optimum.rate;
    assert!(
        seconds.likely > ideal + 0.6 && seconds.likely < ideal + 5.0,
        "{seconds:?} {ideal}"
    );
    // Without the bottleneck the graph is faster. The page contains this text.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graph.md"));
    assert!(page.unwrap().replace('\n', " ").contains(&text), "{text}");
    let json = explained.to_json(&graph);
    assert_eq!(json["flows"], explained.optimum.flows);
    assert_eq!(
        json["binding"].as_array().unwrap().len(),
        explained.binding.len()
    );
}

#[test]
fn the_runner_up_is_not_better() {
    for (graph, name) in [(documented(), "documented")] {
        let explained = explain(&graph, Bound::DEFAULT).unwrap();
        let best = &explained.optimum;
        assert!(!explained.alternatives.is_empty(), "{name}");
        for other in &explained.alternatives {
            assert!(other.rate <= best.rate * (1.0 + 1e-5), "{name}: {other:?}");
            let same = other.rate >= best.rate * (1.0 - 1e-6);
            assert!(
                !same || other.cpu.is_none_or(|cpu| cpu >= best.cpu * (1.0 - 3e-3)),
                "{name}: {other:?}"
            );
        }
    }
}

#[test]
fn changed_hardware_changes_the_graph() {
    let graph = documented();
    let rate = |graph: &Graph| best_rate(graph, Bound::DEFAULT).unwrap().0;
    let changed = what_if(&graph, "rtt=20ms, loss=0,cores.source=64,disks=8").unwrap();
    assert_eq!(
        (changed.hosts[0].cores, changed.nodes[1].members),
        (64.0, 8)
    );
    assert!(rate(&changed) > rate(&graph));
    for (change, says) in [
        ("cores=many", "a number"),
        ("cores.elsewhere=4", "no host"),
        ("flows.nothing=4", "no node"),
        ("rtt=20", "no unit"),
        ("colour=blue", "write one of"),
        ("cores", "NAME=VALUE"),
        ("disks=0", "from 1"),
    ] {
        let error = what_if(&graph, change).unwrap_err().to_string();
        assert!(error.contains(says), "{change}: {error}");
    }
}

/// Returns a path with a line of 1 Gbit/s and windows that fill it with one stream.
fn gigabit(mtu: u32, more: &str) -> Graph {
    let text = format!(
        "startup = \"50 ms\"
        round_trips = 6
        [[node]]
        name = \"start\"
        kind = \"start\"
        to = [\"read\"]
        [[node]]
        name = \"read\"
        kind = \"read\"
        most_flows = 8
        capacity.linear = {{ alpha = \"500 MB/s\", most = 8 }}
        to = [\"path\"]
        [[node]]
        name = \"path\"
        kind = \"path\"
        most_flows = 64
        capacity.tcp = {{ line = \"1 Gbit/s\", rtt = \"200 ms\", congestion = \"cubic\", mtu = {mtu}{more} }}
        to = [\"end\"]
        [[node]]
        name = \"end\"
        kind = \"end\"
        [[part]]
        name = \"data\"
        bytes = \"10 MB\"
        files = 1"
    );
    Graph::from_text(&text).unwrap()
}

fn gain_of(graph: &Graph, change: &str) -> f64 {
    let explained = explain(graph, Bound::DEFAULT).unwrap();
    let mut prices = explained.prices.iter();
    let price = prices.find(|it| it.change.name(graph) == change);
    price.unwrap().gain / explained.optimum.rate
}

#[test]
fn rates_are_line_rates_in_the_framing_of_the_path() {
    for mtu in [1500, 9000] {
        let graph = gigabit(mtu, "");
        let rate = |graph: &Graph| best_rate(graph, Bound::DEFAULT).unwrap().0;
        for same in ["rate=1gbit", "nic=1gbit"] {
            let changed = what_if(&graph, same).unwrap();
            assert!(
                (rate(&changed) / rate(&graph) - 1.0).abs() < 1e-6,
                "{mtu}: {same}"
            );
        }
        let slower = what_if(&graph, "nic=500mbit").unwrap();
        assert!((rate(&slower) / rate(&graph) - 0.5).abs() < 1e-6);
        let gain = gain_of(&graph, "1 Gbit/s more of path");
        assert!((gain - 1.0).abs() < 1e-3, "{mtu}: {gain}");
    }
}

#[test]
fn another_round_trip_changes_the_startup() {
    let graph = gigabit(1500, "");
    assert!((graph.startup_seconds() - 1.25).abs() < 1e-9);
    let near = what_if(&graph, "rtt=20ms").unwrap();
    assert!((near.startup_seconds() - 0.17).abs() < 1e-9);
    let explained = explain(&near, Bound::DEFAULT).unwrap();
    assert!((explained.prediction.startup - 0.17).abs() < 1e-9);
    // The file keeps the round trips.
    let written = Graph::from_text(&near.to_toml().unwrap()).unwrap();
    assert!((written.startup_seconds() - 0.17).abs() < 1e-9);
}

#[test]
fn round_trips_are_named_if_they_take_most_of_the_time() {
    let graph = gigabit(1500, "");
    let text = explain(&graph, Bound::DEFAULT).unwrap().text(&graph);
    assert!(text.contains("Round trips take 9"), "{text}");
    assert!(!text.contains("bottleneck"), "{text}");
}

#[test]
fn loss_has_the_prices_of_all_its_remedies() {
    let graph = gigabit(1500, ", loss = \"0.1%\", window = \"4 MiB\"");
    for change in [
        "BBR on path",
        "half the loss of path",
        "half the round trip of path",
    ] {
        assert!(gain_of(&graph, change) > 0.1, "{change}");
    }
    assert_eq!(gain_of(&graph, "windows of twice the size on path"), 0.0);
}

#[test]
fn a_plan_that_is_not_proven_begins_with_its_gap() {
    let graph = documented();
    let mut explained = explain(&graph, Bound::DEFAULT).unwrap();
    assert!(explained.is_proven());
    explained.optimum.gap = 0.25;
    assert!(!explained.is_proven());
    let text = explained.text(&graph);
    assert!(
        text.starts_with("Not the proven optimum") && text.contains("25 %"),
        "{text}"
    );
}

/// The paper's host with files of 10 MB. 10 % more of GridFTP alone gives less than 1 %.
#[test]
fn the_channel_of_the_paper_is_named() {
    let graphs = super::paper::graphs();
    let graph = &graphs[1].1;
    let explained = explain(graph, Bound::DEFAULT).unwrap();
    let names = name_of(graph, &explained.binding);
    assert!(names.iter().any(|it| it == "channel"), "{names:?}");
}

#[test]
fn one_flow_is_singular_and_changes_without_gain_have_no_row() {
    let mut graph = documented();
    for node in &mut graph.nodes {
        (node.least_flows, node.most_flows) = (1, 1);
    }
    let explained = explain(&graph, Bound::DEFAULT).unwrap();
    let figures = explained.figures(&graph, Bound::DEFAULT);
    let drawn = one_figure(&figures);
    let said = format!("{drawn} {}", explained.text(&graph));
    assert!(
        said.contains("1 flow") && !said.contains("1 flows"),
        "{said}"
    );
    let prices = figures.iter().find(|it| it.name == "plan-prices").unwrap();
    let idle = explained.prices.iter();
    let idle = idle.filter(|it| it.gain < explained.optimum.rate * 1e-4);
    let idle: Vec<String> = idle.map(|it| it.change.name(&graph)).collect();
    assert!(!idle.is_empty());
    let rows = &prices.table.rows;
    for name in &idle {
        assert!(rows.iter().all(|row| row[0] != *name), "{name}");
        assert!(prices.caption.contains(name.as_str()), "{name}");
    }
    // The figure also contains this list.
    assert!(
        drawn.contains("These changes have no gain by themselves"),
        "{drawn}"
    );
}
