//! Keys of TLS are renewed before they are used up: early in a test, and in
//! life on one stream that carries more than a key may.

use super::copies::{Copies, Way, binary};
use super::parts::Step;
use super::suites::{Test, step};
use super::{Outcome, Soak};

/// More than 2^24 records of 16 KiB, after which AES-GCM's keys are used up.
const BYTES: &str = "zero:280GB";

/// The test, and the transfer.
pub fn steps(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul-net",
        arguments: vec!["--lib", "keys_are_renewed"],
        release: false,
        ignored: false,
        variables: Vec::new(),
        keep: &["test tls", "test result"],
    };
    let life = Step {
        name: "in life".to_owned(),
        size: "280 GB over one stream".to_owned(),
        run: Box::new(run),
    };
    Ok(vec![
        step("forced", "keys that last 64 records", test),
        life,
    ])
}

fn run(soak: &Soak) -> Outcome {
    let copies = Copies::new(soak, binary(soak, "default")?)?;
    let root = copies.place("there")?;
    let options = ["--streams", "1", "--integrity", "checksum"];
    let copied = copies.copy(Way::Push, &root, BYTES, "null:", &options)?;
    copies.finish()?;
    let summary = &copied.summary;
    if summary["lost_streams"] != 0 || summary["streams"].as_u64() > Some(1) {
        return Err(format!("the stream did not last: {summary}"));
    }
    Ok(vec![format!(
        "{} bytes on one stream in {:.0} s",
        summary["wire_bytes"], copied.seconds
    )])
}
