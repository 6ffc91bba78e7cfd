//! Changes of permission bits as chmod(1) writes them, with rsync's `D` and `F` before those for
//! directories or other files alone: `Dg+s,ug+w,Fo-w,+X`, `D2775,F664`.

use super::KeepingError;

const ALL_BITS: u32 = 0o7777;
const EXECUTE: u32 = 0o111;

/// Which entries a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    All,
    Directories,
    Others,
}

/// What a change does with its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    of: For,
    operator: Operator,
    /// Bits that are added, removed or set.
    bits: u32,
    /// Where it sets: bits that it may change.
    reach: u32,
    /// The execute bits among them that are meant only for directories, and for files that
    /// somebody can execute (`X`).
    conditional: u32,
}

/// Changes, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeChanges(Vec<Change>);

impl ModeChanges {
    /// Reads changes that are separated by commas; the umask is for those that name nobody.
    ///
    /// # Errors
    ///
    /// [`KeepingError`] names the first that is none.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A mode (0 to 0o7777) as the changes make it.
    pub fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        self.0.iter().fold(mode, |mode, change| {
            let applies = match change.of {
                For::All => true,
                For::Directories => is_directory,
                For::Others => !is_directory,
            };
            match applies {
                true => change.apply(mode, is_directory),
                false => mode,
            }
        })
    }
}

impl Change {
    fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let executes = is_directory || mode & EXECUTE != 0;
        let bits = match executes {
            true => self.bits | self.conditional,
            false => self.bits,
        };
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => mode & !self.reach | bits,
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
        };
        return (bits <= ALL_BITS).then(|| vec![set]);
    }
    let operators = ['+', '-', '='];
    let first = rest.find(operators)?;
    let (who, mut rest) = rest.split_at(first);
    // For each of user, group and others the factor of its three bits; and its special bits.
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
    let mask = match who.is_empty() {
        true => !umask,
        false => !0,
    };
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
        for letter in letters.chars() {
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
        });
    }
    (!changes.is_empty()).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &str, mode: u32, is_directory: bool) -> u32 {
        let changes = ModeChanges::parse(text, 0o022).unwrap();
        changes.apply(mode, is_directory)
    }

    #[test]
    fn changes_are_those_of_chmod() {
        for (text, before, after) in [
            ("", 0o644, 0o644),
            ("600", 0o755, 0o600),
            ("u+x", 0o644, 0o744),
            ("go-rwx", 0o755, 0o700),
            ("ug=rw,o=", 0o755, 0o660),
            ("a+x", 0o644, 0o755),
            // Without a name the umask counts.
            ("+w", 0o444, 0o644),
            ("+rwx", 0o000, 0o755),
            ("+X", 0o644, 0o644),
            ("+X", 0o744, 0o755),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("a-s", 0o6755, 0o755),
            ("u-s", 0o6755, 0o2755),
            ("u=rwx", 0o4755, 0o755),
            ("u+r-w", 0o200, 0o400),
        ] {
            assert_eq!(apply(text, before, false), after, "{text} {before:o}");
        }
    }

    #[test]
    fn directories_and_other_files_have_changes_of_their_own() {
        let text = "D2775,F664";
        assert_eq!(apply(text, 0o700, true), 0o2775);
        assert_eq!(apply(text, 0o700, false), 0o664);
        let text = "Dg+s,ug+w,Fo-w,+X";
        assert_eq!(apply(text, 0o600, true), 0o2731);
        assert_eq!(apply(text, 0o607, false), 0o735);
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for text in ["q", "8", "77777", "D", "u", "u+q", "z=r", "rwx", "F", "é"] {
            assert!(ModeChanges::parse(text, 0).is_err(), "{text}");
        }
    }
}
