//! Commands of rsync, scp and rclone, and the command of longhaul that corresponds to each.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const TABLE: &str = include_str!("commands.txt");

/// Returns the commands, each with the answer to it.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TABLE.lines().filter_map(|line| line.split_once(" -> "));
    lines.flat_map(|(names, answer)| names.split(' ').map(move |name| (name, answer)))
}

/// Refuses a command of another tool.
///
/// # Errors
///
/// Returns the command of longhaul that corresponds to it.
pub fn refuse(line: &[OsString]) -> Result<(), String> {
    let word = |at: usize| line.get(at).map(|word| word.as_bytes());
    let command = match (word(1), word(2)) {
        // `longhaul help rm` is answered like `longhaul rm`.
        (Some(b"help"), Some(asked)) if !asked.starts_with(b"-") => asked,
        (Some(command), _) => command,
        (None, _) => return Ok(()),
    };
    let known = all().find(|(name, _)| name.as_bytes() == command);
    match known {
        Some((name, answer)) => Err(format!("longhaul has no command {name}: {answer}")),
        None if is_option_of_cp(command) => {
            let shown = String::from_utf8_lossy(command);
            Err(format!(
                "name a command before {shown}: longhaul cp {shown} SRC... DST"
            ))
        }
        None => Ok(()),
    }
}

/// True if the first word is an option of `cp`, as in `longhaul -avz a b`.
fn is_option_of_cp(word: &[u8]) -> bool {
    let own = matches!(word, b"-h" | b"-V" | b"--help" | b"--version");
    word.len() > 1 && word.starts_with(b"-") && !own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> Result<(), String> {
        let words = std::iter::once("longhaul").chain(line.split(' '));
        refuse(&words.map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn commands_of_other_tools_are_answered() {
        for (line, text) in [
            ("rm a", "does not remove files"),
            ("help sync", "cp -r --delete"),
            ("resume", "same longhaul cp command"),
            ("lsf x", "longhaul ls"),
            ("-avz a b", "longhaul cp -avz"),
        ] {
            let error = answer(line).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        }
        for line in ["help cp", "help", "ls -z a", "-h", "--version", "cp -P a b"] {
            assert_eq!(answer(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn no_answer_to_a_removing_command_deletes() {
        for (name, answer) in all() {
            let removes = ["rm", "rmdir", "rmdirs", "purge", "delete", "deletefile"];
            assert!(
                !removes.contains(&name) || !answer.contains("--delete"),
                "{name}"
            );
        }
    }
}
