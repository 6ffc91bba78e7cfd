//! Dependencies that are allowed between crates. No dependency points up.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "directions";

/// Every crate with those of ours it may name, also for its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("longhaul-units", &[]),
    // Only for tests.
    ("longhaul-testing", &[]),
    ("longhaul-proto", &["longhaul-units"]),
    ("longhaul-measure", &["longhaul-units"]),
    (
        "longhaul-model",
        &["longhaul-measure", "longhaul-testing", "longhaul-units"],
    ),
    ("longhaul-gridftp", &["longhaul-testing", "longhaul-units"]),
    ("longhaul-stores", &["longhaul-testing", "longhaul-units"]),
    ("longhaul-system", &["longhaul-testing", "longhaul-units"]),
    (
        "longhaul-storage",
        &[
            "longhaul-proto",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-units",
        ],
    ),
    (
        "longhaul-net",
        &[
            "longhaul-proto",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-units",
        ],
    ),
    (
        "longhaul-engine",
        &[
            "longhaul-measure",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-units",
        ],
    ),
    (
        "longhaul-transfer",
        &[
            "longhaul-engine",
            "longhaul-gridftp",
            "longhaul-measure",
            "longhaul-model",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-stores",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-units",
        ],
    ),
    (
        "longhaul-cluster",
        &[
            "longhaul-engine",
            "longhaul-model",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-transfer",
            "longhaul-units",
        ],
    ),
    (
        "longhaul-lab",
        &["longhaul-measure", "longhaul-testing", "longhaul-units"],
    ),
    (
        "longhaul-instrument",
        &[
            "longhaul-engine",
            "longhaul-lab",
            "longhaul-measure",
            "longhaul-model",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-transfer",
            "longhaul-units",
        ],
    ),
    (
        "longhaul",
        &[
            "longhaul-cluster",
            "longhaul-engine",
            "longhaul-gridftp",
            "longhaul-instrument",
            "longhaul-lab",
            "longhaul-measure",
            "longhaul-model",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-stores",
            "longhaul-system",
            "longhaul-testing",
            "longhaul-transfer",
            "longhaul-units",
        ],
    ),
    // Every command of cargo xtask waits for its build.
    ("xtask", &[]),
    (
        "longhaul-fuzz",
        &[
            "longhaul-engine",
            "longhaul-gridftp",
            "longhaul-instrument",
            "longhaul-lab",
            "longhaul-measure",
            "longhaul-net",
            "longhaul-proto",
            "longhaul-storage",
            "longhaul-stores",
            "longhaul-system",
            "longhaul-transfer",
            "longhaul-units",
        ],
    ),
];

/// Crates of others that a crate of ours may not name, so that it stays what it is: a
/// transfer has no command line.
const FORBIDDEN: [(&str, &str); 3] = [
    ("longhaul-cluster", "clap"),
    ("longhaul-transfer", "clap"),
    ("longhaul-instrument", "clap"),
];

/// Reads every manifest except the workspace's own.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .flat_map(|file| check_manifest(&file.path, &file.text))
        .collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let name = text.lines().find_map(|line| line.strip_prefix("name = "));
    let name = name.unwrap_or_default().trim_matches('"');
    let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
        let message = format!(
            "crate \"{name}\" has no place in the order: give it one in \
             xtask/src/tidy/directions.rs and in ARCHITECTURE.md"
        );
        return vec![Finding::new(path, 1, RULE, message)];
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let forbidden = FORBIDDEN
            .iter()
            .find(|(of, other)| *of == name && line.split(['.', ' ', '=']).next() == Some(other));
        if let Some((_, other)) = forbidden {
            let message = format!("{name} may not depend on {other}");
            findings.push(Finding::new(path, index + 1, RULE, message));
        }
        for dependency in named_crates(line) {
            if dependency != name && !allowed.contains(&dependency) {
                let message = format!("{name} may not depend on {dependency}");
                findings.push(Finding::new(path, index + 1, RULE, message));
            }
        }
    }
    findings
}

/// Returns the crates of this project in a line of a manifest, under any local name.
fn named_crates(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split('#').next().unwrap_or_default();
    let names_itself = ["name", "path", "description"]
        .iter()
        .any(|key| code.starts_with(&format!("{key} =")));
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    words
        .enumerate()
        .filter(|(place, word)| {
            // The binary's crate is a common word: it counts as a key only.
            word.starts_with("longhaul-") || (*place == 0 && *word == "longhaul")
        })
        .map(|(_, word)| word)
        .filter(move |_| !names_itself)
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn downwards_is_allowed() {
        let tree = sample(&[
            (
                "crates/proto/Cargo.toml",
                "[package]\nname = \"longhaul-proto\"\n[dependencies]\n\
                 blake3.workspace = true\nlonghaul-units.workspace = true\n",
            ),
            (
                "crates/cli/Cargo.toml",
                "[package]\nname = \"longhaul\"\n[[bin]]\nname = \"longhaul\"\n\
                 [dependencies]\nlonghaul-engine = { path = \"../engine\" }\n",
            ),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn upwards_is_found_however_it_is_written() {
        for line in [
            "longhaul-engine.workspace = true",
            "longhaul-engine = { path = \"../engine\" }",
            "wheels = { package = \"longhaul-engine\", path = \"../engine\" }",
            "[dev-dependencies.longhaul-engine]",
            "longhaul = { path = \"../cli\" }",
        ] {
            let text = format!("[package]\nname = \"longhaul-proto\"\n{line}\n");
            let found = check(&sample(&[("crates/proto/Cargo.toml", &text)]));
            assert_eq!(found.len(), 1, "{line}");
            assert_eq!(found[0].line, 3, "{line}");
        }
    }

    #[test]
    fn a_transfer_has_no_command_line() {
        let text = "[package]\nname = \"longhaul-transfer\"\nclap.workspace = true\n";
        let found = check(&sample(&[("crates/transfer/Cargo.toml", text)]));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let tree = sample(&[(
            "crates/new/Cargo.toml",
            "[package]\nname = \"longhaul-new\"\n",
        )]);
        assert_eq!(check(&tree).len(), 1);
    }
}
