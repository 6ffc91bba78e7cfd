//! Tests of expected windows beside guaranteed windows.

use longhaul_model::capacity::{Capacity, Window};
use longhaul_model::explain::explain;
use longhaul_model::graph::Graph;
use longhaul_model::optimise::{Bound, solve};

/// Returns a graph of 100 ms and 117.7 MB/s with windows of 3.69 MB, of which `least` is
/// guaranteed.
fn text(most_flows: u32, least: &str) -> String {
    format!(
        r#"
[[node]]
name = "start"
kind = "start"
to = ["path"]

[[node]]
name = "path"
kind = "path"
most_flows = {most_flows}
capacity.tcp = {{ line = "1 Gbit/s", rtt = "100 ms", window = "3690 kB", least_window = "{least}", congestion = "cubic" }}
to = ["end"]

[[node]]
name = "end"
kind = "end"

[[part]]
name = "fields"
bytes = "1 TB"
files = 10
"#
    )
}

fn graph(most_flows: u32) -> Graph {
    Graph::from_text(&text(most_flows, "2900 kB")).unwrap()
}

#[test]
fn the_guaranteed_window_determines_streams_and_the_expected_one_the_rate() {
    // 11.8 MB are in flight: four expected windows, and five guaranteed ones.
    let of = |most_flows: u32| {
        let optimum = solve(&graph(most_flows), Bound::DEFAULT).unwrap();
        let used = &optimum.nodes[1];
        assert_eq!(u64::from(used.flows()), optimum.flows);
        assert!((used.utilisation - 1.0).abs() < 1e-3, "{optimum:?}");
        (used.flows(), (optimum.rate / 1e5).round() / 10.0)
    };
    assert_eq!(of(64), (5, 117.7));
    assert_eq!(of(4), (4, 117.7));
    assert_eq!(of(3), (3, 110.7));
}

#[test]
fn fewer_streams_than_guaranteed_are_not_a_better_choice() {
    let graph = graph(64);
    let plan = explain(&graph, Bound::DEFAULT).unwrap();
    let text = plan.text(&graph);
    assert!(text.contains("Flows: path 5"), "{text}");
    assert!(!text.contains("search for the fewest"), "{text}");
}

#[test]
fn a_file_keeps_both_windows() {
    let before = graph(64);
    for text in [before.to_toml().unwrap(), before.to_json().unwrap()] {
        let after = Graph::from_text(&text).unwrap();
        let Capacity::Path(path) = &after.nodes[1].capacity else {
            panic!("{after:?}");
        };
        let both = Window {
            likely: 3.69e6,
            least: 2.9e6,
        };
        assert_eq!(path.window, both);
    }
    for wrong in ["4 MB", "0 B"] {
        let error = Graph::from_text(&text(64, wrong)).unwrap_err().to_string();
        assert!(error.contains("least window"), "{wrong}: {error}");
    }
}
