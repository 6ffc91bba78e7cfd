//! Recognises option values that turn an option off in other tools, and values that are not
//! numbers.

/// Values by which rsync and rclone turn an option off or leave it to the program.
const OFF: &[&str] = &["-1", "0", "off", "none", "unlimited", "infinite", "auto"];

/// Returns the text to write instead of a value that an option refused. `cause` is the error of its
/// parser. `None` if that error already contains a remedy.
pub fn remedy(option: &str, value: &str, cause: &str) -> Option<String> {
    if !option.starts_with("--") {
        return None;
    }
    if OFF.contains(&value) {
        return Some(match option {
            "--bwlimit" => "write --bwlimit none for no limit".to_owned(),
            "--expire-leftovers" => "write --expire-leftovers never".to_owned(),
            "--modify-window" => {
                "leave --modify-window out: times are compared to the nanosecond".to_owned()
            }
            "--retries" => "leave --retries out for one try".to_owned(),
            "--timeout" => "write --timeout 0 for no timeout".to_owned(),
            _ => format!("leave {option} out for its default"),
        });
    }
    // These texts of the standard library's parser of integers name no remedy.
    let is_bare = ["invalid digit", "cannot parse integer", "number too"]
        .iter()
        .any(|start| cause.starts_with(start));
    is_bare.then(|| format!("write a whole number, as {option} 10"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_turn_an_option_off_in_other_tools_have_a_remedy() {
        let of = |option, value| remedy(option, value, "it is no time");
        assert_eq!(
            of("--timeout", "-1").as_deref(),
            Some("write --timeout 0 for no timeout")
        );
        assert_eq!(
            of("--max-size", "off").as_deref(),
            Some("leave --max-size out for its default")
        );
        assert_eq!(of("--max-size", "fast"), None);
        assert_eq!(of("<JOB>", "0"), None);
        let count = remedy("--max-errors", "1e308", "invalid digit found in string");
        assert_eq!(
            count.as_deref(),
            Some("write a whole number, as --max-errors 10")
        );
    }
}
