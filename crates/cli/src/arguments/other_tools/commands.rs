//! Commands of rsync, scp and rclone, and the command of longhaul that corresponds to each.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const CONTENTS: &str = "longhaul cp -r SRC/ DST copies the contents of SRC";
const MIRROR: &str =
    "longhaul cp -r --delete SRC/ DST makes DST the same as SRC; look first with -n";
const MOVE: &str =
    "longhaul cp -r --move SRC/ DST copies, and removes each source file that is durable at DST";
const FIRST: &str = "longhaul cp -r SRC/ DST copies; docs/coming-from.md has the options";
const LIST: &str = "longhaul ls -l [-R] PATH lists names, sizes and times";
const REMOVE: &str = "longhaul does not remove files by name: run rm, at another host \
     ssh HOST rm PATH (leftovers of interrupted copies: longhaul clean)";
const MAKE: &str = "longhaul cp makes the directories that it needs";
const READ: &str = "longhaul cp PATH - writes a file to standard output";
const DIGESTS: &str = "longhaul cp --manifest FILE writes digests, and longhaul verify A B \
     compares contents";
const HOSTS: &str = "longhaul copies between hosts and needs no configuration of remotes: \
     user@host:PATH goes over SSH";

const COMMANDS: &[(&str, &str)] = &[
    ("about", HOSTS),
    (
        "bisync",
        "longhaul copies in one direction: longhaul cp -ru A/ B, then longhaul cp -ru B/ A",
    ),
    ("cat", READ),
    ("check", "longhaul verify A B compares the contents of both"),
    ("checksum", DIGESTS),
    (
        "cleanup",
        "longhaul clean --remove DIR removes leftovers of interrupted copies",
    ),
    ("config", HOSTS),
    ("copy", CONTENTS),
    ("copyto", "longhaul cp SRC DST copies a file to that name"),
    ("daemon", "longhaul serve runs a daemon"),
    ("dedupe", REMOVE),
    ("delete", REMOVE),
    ("deletefile", REMOVE),
    ("get", "longhaul cp user@host:PATH . fetches"),
    ("hashsum", DIGESTS),
    ("listremotes", HOSTS),
    ("lsd", LIST),
    ("lsf", LIST),
    (
        "lsjson",
        "longhaul ls --json PATH lists names, sizes and times",
    ),
    ("lsl", LIST),
    ("md5sum", DIGESTS),
    ("mirror", MIRROR),
    ("mkdir", MAKE),
    (
        "mount",
        "longhaul copies files and mounts no file system: sshfs does",
    ),
    ("move", MOVE),
    ("moveto", MOVE),
    ("mv", MOVE),
    ("ncdu", LIST),
    ("purge", REMOVE),
    ("put", "longhaul cp FILE user@host:DIR sends"),
    ("rcat", "longhaul cp - PATH writes standard input to a file"),
    (
        "resume",
        "the same longhaul cp command again resumes an interrupted copy; longhaul jobs lists detached ones",
    ),
    ("rm", REMOVE),
    ("rmdir", REMOVE),
    ("rmdirs", REMOVE),
    ("rsync", FIRST),
    (
        "scp",
        "longhaul cp FILE user@host:DIR copies; docs/coming-from.md has the options",
    ),
    (
        "sftp",
        "longhaul cp copies, and longhaul ls lists; docs/coming-from.md has the options",
    ),
    ("sha1sum", DIGESTS),
    (
        "size",
        "longhaul cp -rn PATH DST counts files and bytes, and copies no file",
    ),
    ("sync", MIRROR),
    ("touch", MAKE),
    ("tree", LIST),
    ("version", "longhaul --version prints the version"),
];

/// Refuses a command of another tool.
///
/// # Errors
///
/// The command of longhaul that corresponds to it.
pub fn refuse(line: &[OsString]) -> Result<(), String> {
    let word = |at: usize| line.get(at).map(|word| word.as_bytes());
    let command = match (word(1), word(2)) {
        // `longhaul help rm` is answered like `longhaul rm`.
        (Some(b"help"), Some(asked)) if !asked.starts_with(b"-") => asked,
        (Some(command), _) => command,
        (None, _) => return Ok(()),
    };
    let known = COMMANDS.iter().find(|(name, _)| name.as_bytes() == command);
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

/// Whether the first word is an option of `cp`, as in `longhaul -avz a b`.
fn is_option_of_cp(word: &[u8]) -> bool {
    let own = matches!(word, b"-h" | b"-V" | b"--help" | b"--version");
    word.len() > 1 && word.starts_with(b"-") && !own
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
        for (name, answer) in COMMANDS {
            let removes = ["rm", "rmdir", "rmdirs", "purge", "delete", "deletefile"];
            assert!(
                !removes.contains(name) || !answer.contains("--delete"),
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_in_order_and_not_commands_of_longhaul() {
        assert!(COMMANDS.is_sorted_by(|one, other| one.0 < other.0));
        let own = super::super::super::Arguments::command();
        for (name, _) in COMMANDS {
            assert!(own.find_subcommand(name).is_none(), "{name}");
        }
    }
}
