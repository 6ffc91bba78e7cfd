//! What people write who come from rsync, scp and rclone: options of `cp` that mean nothing here
//! are dropped, others translated, and the rest is answered with longhaul's own name for it.
//! Where rsync and scp disagree, rsync's meaning counts. docs/coming-from.md has the table, which a
//! test carries out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::error::{ContextKind, ContextValue};

/// What becomes of an option.
#[derive(Clone, Copy)]
enum Meaning {
    /// It is so anyhow.
    Always,
    /// The same, and its value means nothing either.
    AlwaysOf,
    /// This stands for it.
    Is(&'static str),
    /// This with its value.
    IsWith(&'static str),
    /// There is none, and why.
    No(&'static str),
    /// The same; it has a value.
    NoOf(&'static str),
}

use Meaning::{Always, AlwaysOf, Is, IsWith, No, NoOf};

const INPLACE: &str = "a file has its name only when it is whole, so that nobody reads half of \
    one: leave it out";
const RESUMED: &str = "what an interrupted copy left is checked and resumed without it: leave it \
    out";
const WHOLE: &str = "a file that changed is copied whole: leave it out";
const ITEMS: &str = "-v names what is copied, -nv what would be, and --json says all";
const IDENTITY: &str = "-v names what is copied (scp's -i FILE is --ssh 'ssh -i FILE')";
const RELATIVE: &str = "name the directory above and the files with --files-from";
const CVS: &str = "write the patterns with --exclude (scp's -C is --compress zstd)";
const LINKED: &str = "a file that is there unchanged is not sent, and nothing is linked to \
    other copies";
const STREAMS: &str = "the number of streams follows the path: leave it out";
const REMOTE: &str = "write the command with --remote-longhaul";
const NO_PORT: &str = "write it into the URL, or --ssh 'ssh -p PORT'";
const ALL_ERRORS: &str = "nothing is deleted after an error: fix it and run the command again";

/// Long options, by their names.
const LONG: &[(&str, Meaning)] = &[
    ("8-bit-output", Always),
    ("append", No(RESUMED)),
    ("append-verify", Always),
    ("checkers", NoOf(STREAMS)),
    ("compare-dest", NoOf(LINKED)),
    ("compress-choice", IsWith("--compress")),
    ("compress-level", IsWith("--compress=zstd:")),
    ("contimeout", IsWith("--timeout")),
    ("copy-dest", NoOf(LINKED)),
    ("cvs-exclude", No(CVS)),
    ("daemon", No("it is `longhaul serve`")),
    ("del", Is("--delete")),
    (
        "delay-updates",
        No("each file appears when it is whole: leave it out"),
    ),
    ("delete-after", Is("--delete")),
    ("delete-before", Is("--delete")),
    ("delete-delay", Is("--delete")),
    ("delete-during", Is("--delete")),
    (
        "force",
        No("a directory is never replaced by a file: move it away"),
    ),
    ("fsync", Always),
    ("fuzzy", Always),
    ("human-readable", Always),
    ("ignore-errors", No(ALL_ERRORS)),
    ("info", AlwaysOf),
    ("inplace", No(INPLACE)),
    ("itemize-changes", No(ITEMS)),
    ("link-dest", NoOf(LINKED)),
    ("list-only", No("it is `longhaul ls`")),
    ("mkpath", Always),
    ("multi-thread-streams", NoOf(STREAMS)),
    ("no-compress", Is("--compress=off")),
    ("no-inplace", Always),
    ("no-motd", Always),
    ("no-whole-file", No(WHOLE)),
    (
        "old-args",
        No("paths go to the other host as they are written"),
    ),
    (
        "only-write-batch",
        NoOf("copy to a directory or a pipe (-)"),
    ),
    ("out-format", NoOf(ITEMS)),
    ("partial", Always),
    ("partial-dir", AlwaysOf),
    ("password-file", NoOf("it is --token-file")),
    ("port", NoOf(NO_PORT)),
    ("preallocate", Always),
    ("progress", Always),
    ("protect-args", Always),
    (
        "prune-empty-dirs",
        No("write --exclude for what is not wanted"),
    ),
    ("relative", No(RELATIVE)),
    ("rsh", IsWith("--ssh")),
    ("rsync-path", NoOf(REMOTE)),
    ("secluded-args", Always),
    ("skip-compress", AlwaysOf),
    ("sparse", Always),
    ("stats", Always),
    (
        "temp-dir",
        NoOf("a file is written in the directory where it will be"),
    ),
    ("transfers", NoOf(STREAMS)),
    ("whole-file", Always),
    ("write-batch", NoOf("copy to a directory or a pipe (-)")),
    ("zc", IsWith("--compress")),
    ("zl", IsWith("--compress=zstd:")),
];

/// Short options, by their letters.
const SHORT: &[(u8, Meaning)] = &[
    (
        b'4',
        NoOf("--bind ADDRESS chooses the address to connect from"),
    ),
    (
        b'6',
        NoOf("--bind ADDRESS chooses the address to connect from"),
    ),
    (
        b'B',
        NoOf("--block-size is the size of what is sent at once"),
    ),
    (b'C', No(CVS)),
    (b'P', Always),
    (b'R', No(RELATIVE)),
    (b'S', Always),
    (
        b'T',
        NoOf("a file is written in the directory where it will be"),
    ),
    (b'W', Always),
    (b'e', IsWith("--ssh")),
    (b'i', No(IDENTITY)),
    (b'm', No("write --exclude for what is not wanted")),
    (b's', Always),
    (b'y', Always),
    (b'z', Is("--compress=auto")),
];

/// Words that are commands of other tools, and what does it here.
const WORDS: &[(&str, &str)] = &[
    ("check", "longhaul verify A B compares the contents of both"),
    ("copy", "longhaul cp -r SRC/ DST copies what is in SRC"),
    ("copyto", "longhaul cp SRC DST copies a file to that name"),
    ("get", "longhaul cp user@host:PATH . fetches"),
    (
        "mirror",
        "longhaul cp -r --delete SRC/ DST makes DST what SRC is; see first with -n",
    ),
    (
        "move",
        "longhaul cp -r --move SRC/ DST copies, and removes each source file that is durable",
    ),
    (
        "mv",
        "longhaul cp -r --move SRC/ DST copies, and removes each source file that is durable",
    ),
    ("put", "longhaul cp FILE user@host:DIR sends"),
    (
        "rm",
        "longhaul cp -r --delete SRC/ DST deletes what SRC does not have",
    ),
    (
        "rsync",
        "longhaul cp -r SRC/ DST copies; docs/coming-from.md has the options",
    ),
    (
        "scp",
        "longhaul cp FILE user@host:DIR copies; docs/coming-from.md has the options",
    ),
    (
        "sync",
        "longhaul cp -r --delete SRC/ DST makes DST what SRC is; see first with -n",
    ),
];

/// The options of `cp` that take the rest of a cluster, or the next word, as their value.
const VALUED: &[u8] = b"fM";

/// A command line as it is read here.
///
/// # Errors
///
/// What stands for a word or an option that longhaul does not have.
pub fn translate(line: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let command = line.get(1).map(|word| word.as_bytes().to_vec());
    // What `help` is asked about is answered as if it was tried.
    let asked = line.get(2).map(|word| word.as_bytes().to_vec());
    let command = match (command.as_deref(), asked) {
        (Some(b"help"), Some(asked)) if asked != b"cp" && !asked.starts_with(b"-") => Some(asked),
        _ => command,
    };
    match command.as_deref() {
        Some(b"cp") => {
            let mut words = line.into_iter();
            let mut read: Vec<OsString> = words.by_ref().take(2).collect();
            let mut rest = Rest {
                words: words.collect::<Vec<_>>().into_iter().peekable(),
            };
            rest.read(&mut read)?;
            Ok(read)
        }
        Some(word) => {
            let known = WORDS.iter().find(|(known, _)| known.as_bytes() == word);
            match known {
                Some((known, does)) => Err(format!("longhaul has no command {known}: {does}")),
                None if is_cluster(word) => {
                    let shown = String::from_utf8_lossy(word);
                    Err(format!(
                        "name a command before {shown}: longhaul cp {shown} SRC... DST"
                    ))
                }
                None => Ok(line),
            }
        }
        None => Ok(line),
    }
}

/// Options of other tools without a command, as in `longhaul -avz a b`.
fn is_cluster(word: &[u8]) -> bool {
    let known = |word: &[u8]| matches!(word, b"-h" | b"-V" | b"--help" | b"--version");
    word.first() == Some(&b'-') && word.len() > 1 && !known(word)
}

struct Rest {
    words: std::iter::Peekable<std::vec::IntoIter<OsString>>,
}

impl Rest {
    fn read(&mut self, read: &mut Vec<OsString>) -> Result<(), String> {
        while let Some(word) = self.words.next() {
            let bytes = word.as_bytes().to_vec();
            match &bytes[..] {
                b"--" => {
                    read.push(word);
                    read.extend(self.words.by_ref());
                }
                [b'-', b'-', name @ ..] => self.long(name, &word, read)?,
                [b'-', letters @ ..] if !letters.is_empty() => self.short(letters, read)?,
                _ => read.push(word),
            }
        }
        Ok(())
    }

    fn long(&mut self, name: &[u8], word: &OsStr, read: &mut Vec<OsString>) -> Result<(), String> {
        let equals = name.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&name[..at], Some(name[at + 1..].to_vec())),
            None => (name, None),
        };
        let known = LONG.iter().find(|(known, _)| known.as_bytes() == name);
        let Some((known, meaning)) = known else {
            read.push(word.to_owned());
            return Ok(());
        };
        self.apply(&format!("--{known}"), *meaning, value, read)
    }

    /// A cluster of letters; the rest of it is a value where one takes it.
    fn short(&mut self, letters: &[u8], read: &mut Vec<OsString>) -> Result<(), String> {
        let mut own = vec![b'-'];
        let mut at = 0;
        while let Some(&letter) = letters.get(at) {
            at += 1;
            let rest = &letters[at..];
            // For people everywhere help; in a cluster rsync's way to write numbers.
            if letter == b'h' && letters.len() > 1 {
                continue;
            }
            // The number would become a source.
            let is_port = letter == b'P' || letter == b'p' && rest.is_empty();
            if is_port && self.next_is_number() {
                let rsync = char::from(letter);
                return Err(format!(
                    "longhaul's -{rsync} is rsync's, which is always so: a port of scp and ssh is \
                     --ssh 'ssh -p PORT'"
                ));
            }
            let known = SHORT.iter().find(|(known, _)| *known == letter);
            let Some((_, meaning)) = known else {
                own.push(letter);
                if VALUED.contains(&letter) {
                    own.extend(rest);
                    at = letters.len();
                    if rest.is_empty() {
                        read.push(OsString::from_vec(std::mem::take(&mut own)));
                        read.extend(self.words.next());
                    }
                }
                continue;
            };
            let shown = format!("-{}", char::from(letter));
            let takes = matches!(meaning, IsWith(_) | NoOf(_) | AlwaysOf);
            let value = (takes && !rest.is_empty()).then(|| {
                at = letters.len();
                rest.strip_prefix(b"=").unwrap_or(rest).to_vec()
            });
            self.apply(&shown, *meaning, value, read)?;
        }
        if own.len() > 1 {
            read.push(OsString::from_vec(own));
        }
        Ok(())
    }

    fn next_is_number(&mut self) -> bool {
        let next = self.words.peek().map(|word| word.as_bytes());
        next.is_some_and(|word| !word.is_empty() && word.iter().all(u8::is_ascii_digit))
    }

    fn apply(
        &mut self,
        shown: &str,
        meaning: Meaning,
        value: Option<Vec<u8>>,
        read: &mut Vec<OsString>,
    ) -> Result<(), String> {
        match meaning {
            Always => Ok(()),
            Is(own) => {
                read.push(own.into());
                Ok(())
            }
            No(why) | NoOf(why) => Err(format!("longhaul has no {shown}: {why}")),
            AlwaysOf | IsWith(_) => {
                let value = value.or_else(|| Some(self.words.next()?.as_bytes().to_vec()));
                let value = value.ok_or_else(|| format!("a value is missing for {shown}"))?;
                if let IsWith(own) = meaning {
                    let between: &[u8] = if own.ends_with(':') { b"" } else { b"=" };
                    let whole = [own.as_bytes(), between, &value].concat();
                    read.push(OsString::from_vec(whole));
                }
                Ok(())
            }
        }
    }
}

/// An error without tips that lead nowhere: clap takes any name that is alike for what was
/// meant, and any unknown option for a value.
pub fn without_wrong_tips(mut error: clap::Error) -> clap::Error {
    error.remove(ContextKind::Suggested);
    let text = |value: Option<&ContextValue>| match value {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let given = text(error.get(ContextKind::InvalidArg));
    let tip = text(error.get(ContextKind::SuggestedArg));
    if let (Some(given), Some(tip)) = (given, tip)
        && !is_slip(&given, &tip)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Whether two names differ by a letter, or by two that changed places.
fn is_slip(one: &str, other: &str) -> bool {
    let name = |text: &str| -> Vec<char> {
        let end = text.find([' ', '=']).unwrap_or(text.len());
        text[..end].chars().collect()
    };
    let (one, other) = (name(one), name(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    let tail = |list: &[char], from: usize| list.get(from..).map(<[char]>::to_vec);
    let swapped = one.len() > 1 && other.len() > 1 && one[0] == other[1] && one[1] == other[0];
    tail(one, 1) == tail(other, 0)
        || tail(one, 0) == tail(other, 1)
        || tail(one, 1) == tail(other, 1)
        || swapped && tail(one, 2) == tail(other, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let words = std::iter::once("longhaul").chain(line.split(' '));
        let read = translate(words.map(Into::into).collect())?;
        let read: Vec<String> = read[1..]
            .iter()
            .map(|word| word.to_str().unwrap().to_owned())
            .collect();
        Ok(read.join(" "))
    }

    #[test]
    fn what_is_so_anyhow_is_dropped_and_what_has_another_name_translated() {
        for (line, expected) in [
            ("cp -rPW a b", "cp -r a b"),
            ("cp -P --partial --info=progress2 a b", "cp a b"),
            ("cp --info progress2 -rvh a b", "cp -rv a b"),
            ("cp -rz a b", "cp --compress=auto -r a b"),
            ("cp -e ssh a b", "cp --ssh=ssh a b"),
            ("cp -ressh a b", "cp --ssh=ssh -r a b"),
            (
                "cp --rsh=ssh --zl 6 a b",
                "cp --ssh=ssh --compress=zstd:6 a b",
            ),
            ("cp -r --delete-during a/ b", "cp -r --delete a/ b"),
            ("cp -rf-z a b", "cp -rf-z a b"),
            ("cp -f -z -r a b", "cp -f -z -r a b"),
            ("cp -- -P b", "cp -- -P b"),
            ("cp -rp ./22 a", "cp -rp ./22 a"),
            ("help cp", "help cp"),
            ("help verify", "help verify"),
            ("cp - b", "cp - b"),
            ("ls -z a", "ls -z a"),
        ] {
            assert_eq!(translated(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_not_here_is_answered_with_what_is() {
        for (line, text) in [
            ("cp --append a b", "has no --append: what an interrupted"),
            ("cp --inplace a b", "has no --inplace: a file has its name"),
            ("cp -rvC a b", "has no -C"),
            ("cp -i key a b", "ssh -i FILE"),
            ("cp -P 2222 a b", "ssh -p PORT"),
            ("cp -rp 2222 a b", "ssh -p PORT"),
            ("rm a", "deletes what SRC does not have"),
            ("help sync", "cp -r --delete"),
            ("cp --transfers 4 a b", "number of streams"),
            ("cp --transfers=4 a b", "number of streams"),
            ("sync a b", "cp -r --delete"),
            ("check a b", "longhaul verify"),
            ("copy a b", "longhaul cp -r"),
            ("mirror a b", "cp -r --delete"),
            ("-avz a b", "longhaul cp -avz"),
            ("cp -e", "value is missing"),
        ] {
            let answer = translated(line).unwrap_err();
            assert!(answer.contains(text), "{line}: {answer}");
        }
    }

    #[test]
    fn names_are_unique_and_no_value_is_lost() {
        for (at, (name, _)) in LONG.iter().enumerate() {
            assert!(LONG[..at].iter().all(|(known, _)| known < name), "{name}");
        }
        for (at, (letter, _)) in SHORT.iter().enumerate() {
            assert!(SHORT[..at].iter().all(|(known, _)| known < letter));
            assert!(!VALUED.contains(letter));
        }
    }

    #[test]
    fn tips_are_for_slips_alone() {
        assert!(is_slip("--exlude", "--exclude") && is_slip("--recursiv", "--recursive"));
        assert!(is_slip("--udpate", "--update") && is_slip("--verifi", "--verify"));
        assert!(!is_slip("--checksum-choice", "--checkpoint") && !is_slip("--modern", "--mode"));
    }
}
