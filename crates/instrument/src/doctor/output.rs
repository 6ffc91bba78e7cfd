//! Formats findings as text and as JSON.

use serde_json::{Value, json};

use super::findings::{Finding, Weight};

/// Version of the JSON object.
const SCHEMA: u32 = 1;

/// Returns the findings as a JSON object (FORMAT.md, "Doctor").
pub fn object(endpoint: &str, findings: &[Finding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "topic": finding.topic,
                "weight": finding.weight().name(),
                "text": finding.text,
                "remedy": finding.remedy(),
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "kind": "doctor", "endpoint": endpoint, "findings": findings })
}

/// Formats the findings as text. Problems come last, where they are seen. A remedy of
/// several findings follows the last of them.
pub fn text(findings: &[Finding]) -> String {
    let shown = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).collect() };
    let mut text = String::new();
    for weight in WEIGHTS {
        let mut left: Vec<&Finding> = findings.iter().collect();
        left.retain(|finding| finding.weight() == weight);
        while let Some(first) = left.first() {
            let remedy = first.remedy();
            let alike = |finding: &Finding| finding.remedy() == remedy;
            for finding in left.iter().filter(|finding| alike(finding)) {
                let said = shown(&finding.text);
                text += &format!("{:<11}  {}: {said}\n", weight.name(), finding.topic);
            }
            if let Some(remedy) = remedy {
                text += &format!("{:<11}    -> {}\n", "", shown(remedy));
            }
            left.retain(|finding| !alike(finding));
        }
    }
    text + &counts(findings)
}

/// Weights from the least to the most important.
const WEIGHTS: [Weight; 4] = [
    Weight::Good,
    Weight::NotChecked,
    Weight::Advice,
    Weight::Problem,
];

/// Returns the number of findings per weight, the most important first.
fn counts(findings: &[Finding]) -> String {
    let counts = WEIGHTS.iter().rev().filter_map(|weight| {
        let same = findings
            .iter()
            .filter(|finding| finding.weight() == *weight);
        let count = same.count();
        let plural = if *weight == Weight::Problem && count > 1 {
            "s"
        } else {
            ""
        };
        (count > 0).then(|| format!("{count} {}{plural}", weight.name()))
    });
    let counts: Vec<String> = counts.collect();
    let all = findings.len();
    let noun = if all == 1 { "finding" } else { "findings" };
    format!("{all} {noun}: {}\n", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::findings::{bad, good, not_checked};
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            bad("clock", "wrong\x1b[2J", "set it"),
            good("clock", "right"),
            not_checked("clock", "no date there"),
        ]
    }

    #[test]
    fn problems_come_last_with_their_remedy() {
        assert_eq!(
            text(&findings()),
            "ok           clock: right\nnot checked  clock: no date there\n\
             problem      clock: wrong[2J\n               -> set it\n\
             3 findings: 1 problem, 1 not checked, 1 ok\n"
        );
    }

    #[test]
    fn a_common_remedy_is_printed_once() {
        let mut found = findings();
        found.push(bad("clock", "late", "set it"));
        let text = text(&found);
        assert_eq!(text.matches("-> set it").count(), 1, "{text}");
        assert!(text.contains("clock: late\n               -> set it\n4 findings: 2 problems"));
    }

    #[test]
    fn the_object_contains_all_findings() {
        let object = object("host:", &findings());
        assert_eq!(object["kind"], "doctor");
        assert_eq!(object["findings"][0]["weight"], "problem");
        assert_eq!(object["findings"][2]["remedy"], Value::Null);
    }
}
