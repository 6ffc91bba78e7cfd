//! Mapping of users or groups, as in rsync's `--usermap` and `--groupmap`: `FROM:TO,…`. FROM is a
//! name (with `*` and `?`), a number, a range of numbers, or empty for owners without a name. TO is
//! a name or a number. The first match applies.

use super::KeepingError;

/// Owners to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Range(u32, u32),
    Name(String),
    Nameless,
}

/// A user or group at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An owner by number.
    Number(u32),
    /// An owner by name.
    Name(String),
}

/// Rules that map owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerMap(Vec<(From, Owner)>);

impl OwnerMap {
    /// Parses a map.
    ///
    /// # Errors
    ///
    /// [`KeepingError`] for the first invalid rule.
    pub fn parse(text: &str) -> Result<OwnerMap, KeepingError> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let rules = parts.map(|part| {
            parse_rule(part).ok_or_else(|| {
                let text = format!("\"{part}\" maps no owner: write FROM:TO, such as alice:bob");
                KeepingError(text)
            })
        });
        Ok(OwnerMap(rules.collect::<Result<_, _>>()?))
    }

    /// Returns the target for an owner of this number and name; `None` if no rule matches.
    pub fn find(&self, number: u32, name: Option<&[u8]>) -> Option<&Owner> {
        let matches = |from: &From| match (from, name) {
            (From::Range(first, last), _) => (*first..=*last).contains(&number),
            (From::Nameless, name) => name.is_none(),
            (From::Name(pattern), Some(name)) => is_like(pattern.as_bytes(), name),
            // A single star also matches owners without a name.
            (From::Name(pattern), None) => pattern == "*",
        };
        let found = self.0.iter().find(|(from, _)| matches(from));
        found.map(|(_, to)| to)
    }

    /// Returns the targets of all rules.
    pub fn targets(&self) -> impl Iterator<Item = &Owner> {
        self.0.iter().map(|(_, to)| to)
    }
}

fn parse_rule(part: &str) -> Option<(From, Owner)> {
    let (from, to) = part.split_once(':')?;
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let range = from.split_once('-').and_then(|(first, last)| {
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(From::Range(first, last))
    });
    let from = match (from, number(from), range) {
        ("", _, _) => From::Nameless,
        (_, Some(number), _) => From::Range(number, number),
        (_, _, Some(range)) => range,
        (name, _, _) => From::Name(name.to_owned()),
    };
    let to = match (to, number(to)) {
        ("", _) => return None,
        (_, Some(u32::MAX)) => return None,
        (_, Some(number)) => Owner::Number(number),
        (name, None) if !name.contains(':') => Owner::Name(name.to_owned()),
        _ => return None,
    };
    Some((from, to))
}

/// True if a name matches a pattern with `*` and `?`. The number of steps is at most the product of
/// their lengths.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[of] => {
                at += 1;
                of += 1;
            }
            _ => match star {
                Some((back, from)) => {
                    star = Some((back, from + 1));
                    at = back + 1;
                    of = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &str, number: u32, name: Option<&str>) -> Option<Owner> {
        let map = OwnerMap::parse(map).unwrap();
        map.find(number, name.map(str::as_bytes)).cloned()
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let map = "0-99:nobody,wayne:admin,*-guest:7,:lost,*:normal";
        let name = |name: &str| Some(Owner::Name(name.into()));
        assert_eq!(found(map, 7, Some("wayne")), name("nobody"));
        assert_eq!(found(map, 100, Some("wayne")), name("admin"));
        assert_eq!(found(map, 100, Some("a-guest")), Some(Owner::Number(7)));
        assert_eq!(found(map, 100, None), name("lost"));
        assert_eq!(found(map, 100, Some("x")), name("normal"));
        assert_eq!(found("a:b", 100, Some("x")), None);
        assert_eq!(found("5:b", 5, None), name("b"));
        assert_eq!(found("*:b", 5, None), name("b"));
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, matches) in [
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "axxbc", false),
            ("?", "a", true),
            ("?", "", false),
            ("*a*b*", "xaybz", true),
        ] {
            assert_eq!(
                is_like(pattern.as_bytes(), name.as_bytes()),
                matches,
                "{pattern}"
            );
        }
    }

    #[test]
    fn invalid_maps_are_refused() {
        for map in ["a", "a:", "a:b:c", ":", "1:4294967295"] {
            assert!(OwnerMap::parse(map).is_err(), "{map}");
        }
    }
}
