//! Changes of permission bits in the syntax of chmod(1), with rsync's prefixes `D` for directories
//! and `F` for other files: `Dg+s,ug+w,Fo-w,+X`, `D2775,F664`.

use super::KeepingError;
use crate::manifest::SET_ID_BITS;

const ALL_BITS: u32 = 0o7777;
const EXECUTE: u32 = 0o111;

/// Entries to which a change applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    All,
    Directories,
    Others,
}

/// Effect of a change on its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

/// A change of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    of: For,
    operator: Operator,
    /// Bits that are added, removed or set.
    bits: u32,
    /// For `=`: bits that the change may set or clear.
    reach: u32,
    /// Execute bits that apply only to directories and to files with an execute bit (`X`).
    conditional: u32,
    /// Existing bits of the mode that are copied (`g=u`).
    copied: Option<Copied>,
    /// True if the change is a number, which sets all bits.
    is_octal: bool,
}

/// Bits of the user, the group or others that a change copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    /// Position of the lowest of the three bits: 6, 3 or 0.
    from: u32,
    /// Factor that multiplies the three bits to place them at their targets.
    places: u32,
    /// Bits that may be changed: all, or all but the umask's if the change names no class of users.
    mask: u32,
}

/// A list of changes, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeChanges(Vec<Change>);

impl ModeChanges {
    /// Parses changes separated by commas. The umask applies to changes that name no class of
    /// users.
    ///
    /// # Errors
    ///
    /// [`KeepingError`] for the first invalid change.
    pub fn parse(text: &str, umask: u32) -> Result<ModeChanges, KeepingError> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let mut changes = Vec::new();
        for part in parts {
            let read = parse_part(part, umask);
            changes.extend(read.ok_or_else(|| {
                let text = format!("\"{part}\" is no change of a mode: write ug+w, D755 or Fo-w");
                KeepingError(text)
            })?);
        }
        Ok(ModeChanges(changes))
    }

    /// True if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the mode (0 to 0o7777) after all changes.
    pub fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        self.0.iter().fold(mode, |mode, change| {
            let applies = match change.of {
                For::All => true,
                For::Directories => is_directory,
                For::Others => !is_directory,
            };
            if applies {
                change.apply(mode, is_directory)
            } else {
                mode
            }
        })
    }
}

impl Change {
    fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let executes = is_directory || mode & EXECUTE != 0;
        let mut bits = if executes {
            self.bits | self.conditional
        } else {
            self.bits
        };
        if let Some(copied) = self.copied {
            bits |= (((mode >> copied.from) & 7) * copied.places) & copied.mask;
        }
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => mode & !self.reach_in(is_directory) | bits,
        }
    }

    /// Returns the bits that a change sets or clears. A directory keeps set-ID bits that the change
    /// does not name, because the files created in it may rely on them.
    fn reach_in(&self, is_directory: bool) -> u32 {
        if is_directory && !self.is_octal {
            self.reach & !(SET_ID_BITS & !self.bits)
        } else {
            self.reach
        }
    }
}

// tidy: long because it reads one change from left to right.
fn parse_part(part: &str, umask: u32) -> Option<Vec<Change>> {
    let (of, rest) = match part.as_bytes().first()? {
        b'D' => (For::Directories, &part[1..]),
        b'F' => (For::Others, &part[1..]),
        _ => (For::All, part),
    };
    if rest.bytes().all(|byte| byte.is_ascii_digit()) {
        let bits = u32::from_str_radix(rest, 8).ok()?;
        let set = Change {
            of,
            operator: Operator::Set,
            bits,
            reach: ALL_BITS,
            conditional: 0,
            copied: None,
            is_octal: true,
        };
        return (bits <= ALL_BITS).then(|| vec![set]);
    }
    let operators = ['+', '-', '='];
    let first = rest.find(operators)?;
    let (who, mut rest) = rest.split_at(first);
    // `places` has one bit per class of users, at its lowest permission bit; `special` has the
    // set-ID bits.
    let (mut places, mut special) = (0, 0);
    for letter in who.chars() {
        let (place, own) = match letter {
            'u' => (0o100, 0o4000),
            'g' => (0o010, 0o2000),
            'o' => (0o001, 0),
            'a' => (0o111, 0o6000),
            _ => return None,
        };
        places |= place;
        special |= own;
    }
    let mask = if who.is_empty() { !umask } else { !0 };
    if who.is_empty() {
        (places, special) = (0o111, 0o6000);
    }
    let mut changes = Vec::new();
    while let Some(operator) = rest.chars().next() {
        let operator = match operator {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        rest = &rest[1..];
        let end = rest.find(operators).unwrap_or(rest.len());
        let (letters, after) = rest.split_at(end);
        rest = after;
        let (mut bits, mut conditional) = (0, 0);
        let copied = copied_from(letters).map(|from| Copied { from, places, mask });
        for letter in letters.chars().filter(|_| copied.is_none()) {
            match letter {
                'r' => bits |= (4 * places) & mask,
                'w' => bits |= (2 * places) & mask,
                'x' => bits |= places & mask,
                'X' => conditional |= places & mask,
                's' => bits |= special,
                't' => bits |= 0o1000,
                _ => return None,
            }
        }
        changes.push(Change {
            of,
            operator,
            bits,
            reach: (7 * places) | special,
            conditional,
            copied,
            is_octal: false,
        });
    }
    (!changes.is_empty()).then_some(changes)
}

/// Returns the position of the bits to copy; `None` unless the letters name exactly one class.
fn copied_from(letters: &str) -> Option<u32> {
    match letters {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &str, mode: u32, is_directory: bool) -> u32 {
        let changes = ModeChanges::parse(text, 0o022).unwrap();
        changes.apply(mode, is_directory)
    }

    /// Each case consists of a change, the mode before and the mode after.
    fn assert_applied(is_directory: bool, cases: &[(&str, u32, u32)]) {
        for (text, before, after) in cases {
            let applied = apply(text, *before, is_directory);
            assert_eq!(applied, *after, "{text} {before:o}");
        }
    }

    #[test]
    fn changes_are_those_of_chmod() {
        let cases = [
            ("", 0o644, 0o644),
            ("600", 0o755, 0o600),
            ("u+x", 0o644, 0o744),
            ("go-rwx", 0o755, 0o700),
            ("ug=rw,o=", 0o755, 0o660),
            ("a+x", 0o644, 0o755),
            // Without a class of users the umask applies.
            ("+w", 0o444, 0o644),
            ("+rwx", 0o000, 0o755),
            ("+X", 0o644, 0o644),
            ("+X", 0o744, 0o755),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("a-s", 0o6755, 0o755),
            ("u-s", 0o6755, 0o2755),
            ("u=rwx", 0o4755, 0o755),
            ("u+r-w", 0o200, 0o400),
            ("g=u", 0o750, 0o770),
            ("go=u", 0o2750, 0o777),
            ("o+g", 0o750, 0o755),
            ("g-o", 0o775, 0o725),
            ("u=g,g=o", 0o640, 0o400),
            // As in chmod, the umask applies if no class of users is named.
            ("=u", 0o600, 0o644),
        ];
        assert_applied(false, &cases);
    }

    #[test]
    fn directories_and_other_files_have_separate_changes() {
        let text = "D2775,F664";
        assert_eq!(apply(text, 0o700, true), 0o2775);
        assert_eq!(apply(text, 0o700, false), 0o664);
        let text = "Dg+s,ug+w,Fo-w,+X";
        assert_eq!(apply(text, 0o600, true), 0o2731);
        assert_eq!(apply(text, 0o607, false), 0o735);
    }

    #[test]
    fn directories_keep_set_id_bits_that_a_change_does_not_name() {
        let cases = [
            ("g=rwx", 0o2755, 0o2775),
            ("ug=rwx,o=", 0o6755, 0o6770),
            ("a=rx", 0o2777, 0o2555),
            ("g=rxs", 0o755, 0o2755),
            ("u=rwxs", 0o2700, 0o6700),
            ("g=u", 0o2750, 0o2770),
            ("g-s", 0o2755, 0o755),
            // As in rsync, a number sets the whole mode.
            ("755", 0o2755, 0o755),
        ];
        assert_applied(true, &cases);
        assert_eq!(apply("g=rwx", 0o2755, false), 0o775);
    }

    #[test]
    fn invalid_changes_are_refused() {
        for text in [
            "q", "8", "77777", "D", "u", "u+q", "z=r", "rwx", "F", "é", "g=ur", "g=uo",
        ] {
            assert!(ModeChanges::parse(text, 0).is_err(), "{text}");
        }
    }
}
