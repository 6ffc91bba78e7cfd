//! What of an entry is kept beyond its data, mode and time, as a copy asks for it: of both ends,
//! since one reads what the other sets.

pub mod modes;
pub mod owners;

use minicbor::{Decode, Encode};

use modes::ModeChanges;
use owners::OwnerMap;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Keeping {
    /// The user who owns an entry.
    #[n(0)]
    pub users: bool,
    /// The group that owns it.
    #[n(1)]
    pub groups: bool,
    /// Owners by number also where their names exist.
    #[n(2)]
    pub numeric_ids: bool,
    /// Names of one inode are that at the destination.
    #[n(3)]
    pub hard_links: bool,
    /// Extended attributes.
    #[n(4)]
    pub extended: bool,
    /// Access control lists.
    #[n(5)]
    pub acls: bool,
    /// Devices.
    #[n(6)]
    pub devices: bool,
    /// Sockets and FIFOs.
    #[n(7)]
    pub specials: bool,
    /// A source that fills the destination gives it its own mode, time and owner.
    #[n(8)]
    pub anchor: bool,
    /// What is there keeps its permission bits, and what is new has those of the source less the
    /// umask at the destination.
    #[n(9)]
    pub leaves_modes: bool,
    /// With that: files can be executed where they can at the source.
    #[n(10)]
    pub executability: bool,
    /// Directories get no times.
    #[n(11)]
    pub omits_directory_times: bool,
    /// Changes of modes ([`ModeChanges`]); empty: none.
    #[n(12)]
    pub modes: String,
    /// The umask for changes that name nobody.
    #[n(13)]
    pub umask: u32,
    /// Which users become which ([`OwnerMap`]); empty: none.
    #[n(14)]
    pub user_map: String,
    /// Which groups become which.
    #[n(15)]
    pub group_map: String,
    /// The end that is asked has owners, special files, special bits and privileged attributes in
    /// extended attributes, as with rsync's `--fake-super`.
    #[n(16)]
    pub as_attribute: bool,
    /// Runs of zeros become holes at the destination.
    #[cbor(n(17), default)]
    pub sparse: bool,
}

/// Longest text of a field in bytes.
pub const MAXIMUM_RULE_BYTES: usize = 4096;

/// Why what is to be kept makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeepingError(pub String);

/// What is asked for, with its texts read.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// As asked for.
    pub keeping: Keeping,
    /// Changes of modes.
    pub modes: ModeChanges,
    /// Which users become which.
    pub users: OwnerMap,
    /// Which groups become which.
    pub groups: OwnerMap,
}

impl Keeping {
    /// Whether nothing is asked for.
    pub fn is_usual(&self) -> bool {
        let usual = Keeping {
            umask: self.umask,
            ..Keeping::default()
        };
        *self == usual
    }

    /// Whether entries have owners, lists or extended attributes with them.
    pub fn has_attributes(&self) -> bool {
        self.users || self.groups || self.extended || self.acls
    }

    /// Reads its texts.
    ///
    /// # Errors
    ///
    /// [`KeepingError`]: a text is too long, or makes no sense.
    pub fn read(self) -> Result<Kept, KeepingError> {
        let texts = [&self.modes, &self.user_map, &self.group_map];
        if texts
            .into_iter()
            .any(|text| text.len() > MAXIMUM_RULE_BYTES)
        {
            let text = format!("a map or a list of modes has more than {MAXIMUM_RULE_BYTES} bytes");
            return Err(KeepingError(text));
        }
        Ok(Kept {
            modes: ModeChanges::parse(&self.modes, self.umask & 0o777)?,
            users: OwnerMap::parse(&self.user_map)?,
            groups: OwnerMap::parse(&self.group_map)?,
            keeping: self,
        })
    }

    /// Whether this asks for nothing that the other does not ask for.
    pub fn is_within(&self, other: &Keeping) -> bool {
        let flags = |keeping: &Keeping| {
            [
                keeping.users,
                keeping.groups,
                keeping.hard_links,
                keeping.extended,
                keeping.acls,
                keeping.devices,
                keeping.specials,
                keeping.anchor,
                keeping.sparse,
            ]
        };
        let texts = |keeping: &Keeping| {
            let Keeping {
                modes,
                user_map,
                group_map,
                ..
            } = keeping.clone();
            [modes, user_map, group_map]
        };
        let pairs = flags(self).into_iter().zip(flags(other));
        let texts = texts(self).into_iter().zip(texts(other));
        let alike = self.as_attribute == other.as_attribute;
        alike
            && pairs.into_iter().all(|(own, others)| !own || others)
            && texts.into_iter().all(|(own, others)| own == others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let keeping = Keeping {
            users: true,
            modes: "F644".into(),
            umask: 0o22,
            ..Keeping::default()
        };
        let bytes = minicbor::to_vec(&keeping).unwrap();
        assert_eq!(minicbor::decode::<Keeping>(&bytes).unwrap(), keeping);
        assert!(!keeping.is_usual() && keeping.has_attributes());
        let umask = Keeping {
            umask: 0o77,
            ..Keeping::default()
        };
        assert!(umask.is_usual());
    }

    #[test]
    fn long_or_senseless_texts_are_refused() {
        let with = |modes: &str, user_map: &str| {
            let keeping = Keeping {
                modes: modes.into(),
                user_map: user_map.into(),
                ..Keeping::default()
            };
            keeping.read().is_ok()
        };
        assert!(with("Dg+s,F644", "*:root"));
        assert!(!with("q", "") && !with("", "a") && !with(&"a=r,".repeat(2000), ""));
    }

    #[test]
    fn what_was_allowed_bounds_what_is_asked() {
        let all = Keeping {
            users: true,
            devices: true,
            user_map: "*:a".into(),
            ..Keeping::default()
        };
        let fewer = Keeping {
            devices: false,
            ..all.clone()
        };
        assert!(fewer.is_within(&all) && !all.is_within(&fewer));
        let otherwise = Keeping {
            user_map: "*:b".into(),
            ..all.clone()
        };
        let elsewhere = Keeping {
            as_attribute: true,
            ..all.clone()
        };
        assert!(!otherwise.is_within(&all) && !elsewhere.is_within(&all));
        assert!(!all.is_within(&elsewhere));
    }
}
