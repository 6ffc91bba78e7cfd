//! Metadata of an entry that a copy preserves beyond its data, mode and time. The request applies
//! to both ends, since one reads the metadata that the other sets.

pub mod modes;
pub mod owners;

use minicbor::{Decode, Encode};

use modes::ModeChanges;
use owners::OwnerMap;

/// Requested metadata and changes to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Keeping {
    /// If true, the owning user of an entry is preserved.
    #[n(0)]
    pub users: bool,
    /// If true, the owning group of an entry is preserved.
    #[n(1)]
    pub groups: bool,
    /// If true, owners are preserved by number even if their names exist.
    #[n(2)]
    pub numeric_ids: bool,
    /// If true, hard links are preserved.
    #[n(3)]
    pub hard_links: bool,
    /// If true, extended attributes are preserved.
    #[n(4)]
    pub extended: bool,
    /// If true, access control lists are preserved.
    #[n(5)]
    pub acls: bool,
    /// If true, devices are copied.
    #[n(6)]
    pub devices: bool,
    /// If true, sockets and FIFOs are copied.
    #[n(7)]
    pub specials: bool,
    /// If true, a source that fills the destination gives it its own mode, time and owner.
    #[n(8)]
    pub anchor: bool,
    /// If true, existing entries keep their permission bits, and new entries get those of the
    /// source less the umask at the destination.
    #[n(9)]
    pub leaves_modes: bool,
    /// With `leaves_modes`: if true, files are executable if they are at the source.
    #[n(10)]
    pub executability: bool,
    /// If true, the times of directories are not set.
    #[n(11)]
    pub omits_directory_times: bool,
    /// Changes of modes ([`ModeChanges`]); empty for no changes.
    #[n(12)]
    pub modes: String,
    /// Umask for changes that name no class of users.
    #[n(13)]
    pub umask: u32,
    /// Mapping of users ([`OwnerMap`]); empty for no mapping.
    #[n(14)]
    pub user_map: String,
    /// Mapping of groups; empty for no mapping.
    #[n(15)]
    pub group_map: String,
    /// If true, the acceptor keeps owners, special files, special bits and privileged attributes
    /// in extended attributes, as with rsync's `--fake-super`.
    #[n(16)]
    pub as_attribute: bool,
    /// If true, runs of zeros become holes at the destination.
    #[cbor(n(17), default)]
    pub sparse: bool,
}

/// Maximum length of a text field in bytes.
pub const MAXIMUM_RULE_BYTES: usize = 4096;

/// Error in a text of [`Keeping`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeepingError(pub String);

/// Requested metadata with its texts parsed.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The request.
    pub keeping: Keeping,
    /// Changes of modes.
    pub modes: ModeChanges,
    /// Mapping of users.
    pub users: OwnerMap,
    /// Mapping of groups.
    pub groups: OwnerMap,
}

impl Keeping {
    /// True if all values except the umask are the defaults.
    pub fn is_usual(&self) -> bool {
        let usual = Keeping {
            umask: self.umask,
            ..Keeping::default()
        };
        *self == usual
    }

    /// True if entries are sent with owners, access control lists or extended attributes.
    pub fn has_attributes(&self) -> bool {
        self.users || self.groups || self.extended || self.acls
    }

    /// Parses the texts.
    ///
    /// # Errors
    ///
    /// [`KeepingError`] if a text is too long or invalid.
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

    /// True if every property that this requests is also requested by `other`, with equal texts.
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
    fn fields_are_decoded_as_encoded() {
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
    fn long_or_invalid_texts_are_refused() {
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
    fn a_permission_bounds_a_request() {
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
