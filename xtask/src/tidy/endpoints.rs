//! The kind of an endpoint is decided in its module below `crates/transfer/src/endpoint`.
//!
//! Other modules ask an endpoint for what they need: its source, its sink, its host, its
//! properties. They name no variant of it and have no predicate for its kind. The way to a host is
//! one of two, a login or a daemon: the modules that distinguish them are in [`ACCESS`], and that
//! list only shrinks.

use super::Finding;
use super::rust_source::word_offsets;
use super::tree::Tree;

const RULE: &str = "endpoints";

/// The module, and the directory of its children.
const HOME: [&str; 2] = [
    "crates/transfer/src/endpoint.rs",
    "crates/transfer/src/endpoint/",
];

/// Types whose variants stand for kinds of endpoints.
const TYPES: [&str; 2] = ["Endpoint", "RemotePath"];

/// Names of predicates that would decide the kind of an endpoint.
const PREDICATES: [&str; 7] = [
    "is_local",
    "is_remote",
    "is_ssh",
    "is_daemon",
    "is_null",
    "is_standard",
    "is_stdio",
];

/// Type of the way to a host.
const WAY: &str = "HostAccess";

/// Modules that distinguish the ways to a host, with the reason.
const ACCESS: [(&str, &str); 5] = [
    (
        "crates/instrument/src/doctor/gather.rs",
        "other facts are known of a daemon",
    ),
    (
        "crates/instrument/src/plan/handshake.rs",
        "address of the server",
    ),
    (
        "crates/transfer/src/between_hosts/hosts.rs",
        "channels to jobs",
    ),
    (
        "crates/transfer/src/between_hosts/own_job.rs",
        "the login before a job",
    ),
    (
        "crates/transfer/src/between_hosts/starting.rs",
        "the host that runs a job",
    ),
];

/// The module that opens sessions, for which the way exists.
const SESSIONS: &str = "crates/transfer/src/client/peer.rs";

/// Checks product code that can see endpoints.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = vec![false; ACCESS.len()];
    for (file, rust) in tree.rust() {
        let path = file.path.as_str();
        let sees = path.starts_with("crates/transfer/src/")
            || file.text.contains("longhaul_transfer::endpoint");
        if !sees || HOME.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        let listed = ACCESS.iter().position(|(module, _)| *module == path);
        for (line, code) in rust.product_code() {
            let mut report =
                |message: String| findings.push(Finding::new(path, line, RULE, message));
            for name in TYPES.iter().filter(|name| names_variant(code, name)) {
                report(format!(
                    "a variant of `{name}`: ask the endpoint for what is needed; a new answer is a \
                     method of the trait in {}kind.rs",
                    HOME[1]
                ));
            }
            for name in PREDICATES.iter().filter(|name| defines(code, name)) {
                report(format!(
                    "`{name}` decides the kind of an endpoint again: use its properties \
                     (`promises()`)"
                ));
            }
            if names_variant(code, WAY) {
                match listed {
                    Some(number) => needed[number] = true,
                    None if path == SESSIONS => {}
                    None => report(
                        "a login and a daemon are distinguished in a further module: let a session \
                         (client/peer.rs) do it"
                            .to_owned(),
                    ),
                }
            }
        }
    }
    for ((path, _), needed) in ACCESS.iter().zip(needed) {
        if !needed && tree.get(path).is_some() {
            let message = "the module distinguishes no ways: take it out of ACCESS in \
                           xtask/src/tidy/endpoints.rs";
            findings.push(Finding::new(path, 1, RULE, message));
        }
    }
    findings
}

/// True if the code names a variant of the type: the type, `::` and a capital letter.
fn names_variant(code: &str, name: &str) -> bool {
    word_offsets(code, name).any(|at| {
        let rest = code[at + name.len()..].strip_prefix("::");
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    })
}

/// True if the code defines or calls a function of this name for an endpoint.
fn defines(code: &str, name: &str) -> bool {
    word_offsets(code, name).any(|at| {
        let before = code[..at].trim_end();
        let is_method = before.ends_with('.') || before.ends_with("fn");
        is_method && code[at + name.len()..].starts_with('(')
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&sample(&[(path, text)])).len()
    }

    #[test]
    fn a_kind_is_decided_at_home_alone() {
        let variant = "fn f() {\n    matches!(x, Endpoint::Local(_))\n}\n";
        assert_eq!(found("crates/transfer/src/client/run.rs", variant), 1);
        assert_eq!(found("crates/transfer/src/endpoint/local.rs", variant), 0);
        assert_eq!(found("crates/net/src/tls/session.rs", variant), 0);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{variant}}}\n");
        assert_eq!(found("crates/transfer/src/client/run.rs", &tests), 0);
        let other = "fn f() {\n    Endpoint::parse(x)\n}\n";
        assert_eq!(found("crates/transfer/src/client/run.rs", other), 0);
        let used = format!("use longhaul_transfer::endpoint::Endpoint;\n{variant}");
        assert_eq!(found("crates/cli/src/main.rs", &used), 1);
        assert_eq!(found("crates/cli/src/main.rs", variant), 0);
    }

    #[test]
    fn a_predicate_of_a_kind_is_found() {
        let path = "crates/transfer/src/spec.rs";
        assert_eq!(found(path, "fn is_local(&self) -> bool {\n}\n"), 1);
        assert_eq!(found(path, "fn f() {\n    end.is_ssh()\n}\n"), 1);
        assert_eq!(found(path, "fn f() {\n    let is_local = true;\n}\n"), 0);
    }

    #[test]
    fn the_list_of_those_that_distinguish_ways_only_shrinks() {
        let text = "fn f() {\n    matches!(x, HostAccess::Login(_))\n}\n";
        assert_eq!(found("crates/transfer/src/spec.rs", text), 1);
        let (listed, _) = ACCESS[0];
        let text = format!("use longhaul_transfer::endpoint::HostAccess;\n{text}");
        assert_eq!(found(listed, &text), 0);
        assert_eq!(found(listed, "fn f() {}\n"), 1);
        assert_eq!(found(SESSIONS, &text), 0);
    }
}
