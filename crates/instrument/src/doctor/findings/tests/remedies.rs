//! Every advice and problem has a remedy.

use super::*;

/// Returns addresses that are all closed, each with another result.
fn closed() -> Vec<Tried> {
    let cause = || "why".to_owned();
    let openings = [
        Opening::Reset(cause()),
        Opening::Silent(Duration::from_secs(3)),
        Opening::Unreachable(cause()),
        Opening::WrongHost(cause()),
        Opening::Stalled(cause()),
    ];
    let tried = (1..).zip(openings).map(|(last, opening)| Tried {
        address: address(last),
        opening,
    });
    tried.collect()
}

#[test]
fn every_advice_and_problem_has_a_remedy() {
    let advice = |topic| Advice {
        topic,
        text: "it is so".into(),
        remedies: Vec::new(),
    };
    let topics = ["queue", "processor", "segment", "loss", "window"];
    let slow = Measured {
        advice: topics.map(advice).to_vec(),
        ..measured()
    };
    let in_the_way = Facts {
        software: Some(Ok(Software::Broken("exit 127".into()))),
        far: Some(Ok(but(&[
            "file_system tmpfs",
            "writable no",
            "readable no",
        ]))),
        outward: Some(Ok(closed())),
        inward: Some(Ok(Inward {
            tried: closed(),
            own: Vec::new(),
            seen: Some(address(1).ip()),
        })),
        mortal: true,
        measured: vec![Ok(slow)],
        ..facts()
    };
    let refused = Facts {
        reached: Some(Err("ssh could not log in".into())),
        ..facts()
    };
    let found: Vec<Finding> = [in_the_way, refused].iter().flat_map(findings).collect();
    let remedies: Vec<&str> = found.iter().filter_map(Finding::remedy).collect();
    let is_flaw = |one: &&Finding| matches!(one.weight(), Weight::Advice | Weight::Problem);
    let flaws = found.iter().filter(is_flaw).count();
    assert_eq!(remedies.len(), flaws, "{found:?}");
    assert!(flaws >= 20, "{found:?}");
    for remedy in remedies {
        let does_nothing = remedy.contains("none") || remedy.contains("nothing to do");
        assert!(remedy.split(' ').count() > 1 && !does_nothing, "{remedy}");
    }
}
