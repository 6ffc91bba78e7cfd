//! Tests of parsing and formatting graphs.

use longhaul_model::graph::Graph;

/// Returns the example of `docs/graph.md`: the first block of TOML in it.
pub fn documented() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graph.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    example.split("```").next().unwrap().to_owned()
}

#[test]
fn the_documented_example_is_a_graph() {
    let graph = Graph::from_text(&documented()).unwrap();
    assert_eq!(graph.nodes.len(), 9);
    assert_eq!(graph.parts[0].codecs.len(), 1);
}

#[test]
fn written_graphs_are_read_back_unchanged() {
    let graph = Graph::from_text(&documented()).unwrap();
    let (toml, json) = (graph.to_toml().unwrap(), graph.to_json().unwrap());
    // The last digit of a line rate may change once. After that, the text is stable.
    for text in [&toml, &json] {
        let again = Graph::from_text(text).unwrap();
        assert_eq!(again.to_toml().unwrap(), toml);
        assert_eq!(again.to_json().unwrap(), json);
    }
}

/// Returns the error for the example with one change.
fn said(from: &str, to: &str) -> String {
    let text = documented();
    assert!(text.contains(from), "{from}");
    let changed = text.replacen(from, to, 1);
    let error = Graph::from_text(&changed).unwrap_err();
    error.to_string()
}

#[test]
fn errors_state_line_and_remedy() {
    for (from, to, says) in [
        (
            "to = [\"read\"]",
            "to = [\"reed\"]",
            "\"reed\", which does not exist",
        ),
        ("to = [\"read\"]", "to = [\"read\", \"read\"]", "twice"),
        (
            "host = \"source\"",
            "host = \"sauce\"",
            "\"sauce\", which does not exist",
        ),
        ("rtt = \"100 ms\"", "rtt = 100", "no unit"),
        ("bytes = \"40 TB\"", "bytes = 40", "no unit"),
        (
            "bytes = \"40 TB\"",
            "bytes = \"40 parsecs\"",
            "is not a size",
        ),
        ("members = 4", "members = 0", "from 1"),
        ("members = 4", "membres = 4", "unknown field `membres`"),
        ("gamma = 6", "gamma = -3", "gamma must be"),
        (
            "kind = \"path\"",
            "kind = \"pathh\"",
            "unknown variant `pathh`",
        ),
        ("falling", "failing", "unknown variant `failing`"),
        (
            "alpha = \"3.5 GB/s\"",
            "alpha = \"-3.5 GB/s\"",
            "alpha must be",
        ),
        (
            "congestion = \"cubic\"",
            "congestion = \"nonsense\"",
            "no congestion control",
        ),
        (
            "kind = \"compress\"",
            "kind = \"compress\"\ncpu = \"1 s/GB\"",
            "\"cpu\" has no effect",
        ),
        (
            "flows_of = [\"disks\"]",
            "flows_of = [\"disks\"]\nmost_flows = 4",
            "has no effect",
        ),
        (
            "kind = \"end\"",
            "kind = \"end\"\nhost = \"source\"",
            "has no effect",
        ),
        ("line = \"10 Gbit/s\", ", "", "give one of them"),
        ("loss = \"0.001%\"", "loss = 5", "percent"),
        ("ratio = 2.46", "ratio = -2", "ratio must be"),
        (
            "[[part]]",
            "[[node]]\nname = \"end\"\nkind = \"end\"\n\n[[part]]",
            "is defined twice",
        ),
    ] {
        let error = said(from, to);
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.starts_with("line "), "{to}: {error}");
    }
}

#[test]
fn the_error_for_a_cycle_names_a_node() {
    let text = documented().replacen("to = [\"end\"]", "to = [\"end\", \"read\"]", 1);
    let error = Graph::from_text(&text).unwrap_err().to_string();
    assert!(
        error.contains("form a cycle") && error.starts_with("line "),
        "{error}"
    );
}

#[test]
fn the_error_for_a_missing_capacity_names_the_node() {
    let text = documented();
    let line = text
        .lines()
        .find(|line| line.contains("saturating"))
        .unwrap();
    let error = Graph::from_text(&text.replacen(line, "", 1)).unwrap_err();
    assert!(error.to_string().contains("has no capacity"), "{error}");
}

#[test]
fn no_text_causes_a_panic() {
    let text = documented();
    for end in 0..text.len() {
        if text.is_char_boundary(end) {
            let _ = Graph::from_text(&text[..end]);
        }
    }
    for text in [
        "",
        "{",
        "{}",
        "[]",
        "node = 3",
        "{\"node\": [{}]}",
        "{\"host\": [1e999]}",
    ] {
        assert!(Graph::from_text(text).is_err(), "{text}");
    }
}
