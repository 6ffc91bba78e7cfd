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
        ("nic=40gbit", "no such component"),
        ("colour=blue", "write one of"),
        ("cores", "NAME=VALUE"),
        ("disks=0", "from 1"),
    ] {
        let error = what_if(&graph, change).unwrap_err().to_string();
        assert!(error.contains(says), "{change}: {error}");
    }
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
