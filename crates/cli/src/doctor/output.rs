//! How findings are printed.

use std::io::Write;

use serde_json::{Value, json};

use super::findings::{Finding, Weight};
use crate::messages::{Exit, Stop};

/// Version of the object.
const SCHEMA: u32 = 1;

/// Prints them to standard output.
///
/// # Errors
///
/// Where that cannot be written to.
pub fn print(endpoint: &str, findings: &[Finding], json: bool) -> Result<(), Stop> {
    let text = match json {
        true => format!("{}\n", object(endpoint, findings)),
        false => text(findings),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Stop::because(Exit::Local, error))
        }
        _ => Ok(()),
    }
}

fn object(endpoint: &str, findings: &[Finding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "topic": finding.topic,
                "weight": finding.weight.name(),
                "text": finding.text,
                "remedy": finding.remedy,
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "kind": "doctor", "endpoint": endpoint, "findings": findings })
}

/// Problems last, where they are seen.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for weight in [
        Weight::Good,
        Weight::NotChecked,
        Weight::Advice,
        Weight::Problem,
    ] {
        for finding in findings.iter().filter(|finding| finding.weight == weight) {
            let shown: String = finding.text.chars().filter(|c| !c.is_control()).collect();
            text += &format!("{:<11}  {}: {shown}\n", weight.name(), finding.topic);
            if let Some(remedy) = &finding.remedy {
                let remedy: String = remedy.chars().filter(|c| !c.is_control()).collect();
                text += &format!("{:<11}    -> {remedy}\n", "");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let one = |weight, text: &str, remedy: Option<&str>| Finding {
            topic: "clock",
            weight,
            text: text.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        vec![
            one(Weight::Problem, "wrong\x1b[2J", Some("set it")),
            one(Weight::Good, "right", None),
            one(Weight::NotChecked, "no date there", None),
        ]
    }

    #[test]
    fn problems_stand_last_with_their_remedy() {
        assert_eq!(
            text(&findings()),
            "ok           clock: right\nnot checked  clock: no date there\n\
             problem      clock: wrong[2J\n               -> set it\n"
        );
    }

    #[test]
    fn programs_get_all_of_it() {
        let object = object("host:", &findings());
        assert_eq!(object["kind"], "doctor");
        assert_eq!(object["findings"][0]["weight"], "problem");
        assert_eq!(object["findings"][2]["remedy"], Value::Null);
    }
}
