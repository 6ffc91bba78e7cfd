//! Metadata of an entry that a copy preserves beyond its data, mode and time. The request applies
//! to both ends, since one reads the metadata that the other sets.

pub mod modes;
pub mod owners;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use modes::ModeChanges;
use owners::OwnerMap;

/// Requested metadata, in addition to data, mode and time, and changes to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Keeping {
    /// If true, the owning user of an entry is preserved.
    #[n(0)]
    pub users: bool,
    /// If true, the owning group of an entry is preserved.
    #[n(1)]
    pub groups: bool,
    /// If true, owners are preserved by number even if their names exist at the destination.
    #[n(2)]
    pub numeric_ids: bool,
    /// If true, hard links between names of one inode are preserved.
    #[n(3)]
    pub hard_links: bool,
    /// If true, extended attributes are preserved.
    #[n(4)]
    #[serde(rename = "extended_attributes")]
    pub extended: bool,
    /// If true, access control lists are preserved.
    #[n(5)]
    #[serde(rename = "access_lists")]
    pub acls: bool,
    /// If true, devices are copied. From a daemon they are copied only with `devices_named`.
    #[n(6)]
    pub devices: bool,
    /// True if devices were requested by their own option and not by one that includes others.
    #[n(7)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub devices_named: bool,
    /// If true, sockets and FIFOs are copied.
    #[n(8)]
    pub specials: bool,
    /// If true, a source that fills the destination gives it its own mode, time and owner.
    #[n(9)]
    pub anchor: bool,
    /// If true, existing entries keep their permission bits, and new entries get those of the
    /// source less the umask at the destination.
    #[n(10)]
    #[serde(rename = "leave_modes")]
    pub leaves_modes: bool,
    /// With `leaves_modes`: if true, files are executable if they are at the source.
    #[n(11)]
    pub executability: bool,
    /// If true, the times of directories are not set.
    #[n(12)]
    #[serde(rename = "omit_directory_times")]
    pub omits_directory_times: bool,
    /// If true, runs of zeros become holes at the destination.
    #[n(13)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// Changes of permission bits in the syntax of chmod ([`ModeChanges`]). A prefix `D` or `F`
    /// limits a change to directories or to other files.
    #[n(14)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub modes: String,
    /// Umask for changes of `modes` that name no class of users.
    #[n(15)]
    pub umask: u32,
    /// Mapping of users, `FROM:TO,…` ([`OwnerMap`]).
    #[n(16)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_map: String,
    /// Mapping of groups, `FROM:TO,…`.
    #[n(17)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_map: String,
    /// If true, the source reads from extended attributes the metadata that only a superuser can
    /// set: owners, special files and bits, privileged attributes (rsync's `--fake-super`).
    #[n(18)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fake_source: bool,
    /// If true, the destination stores such metadata in extended attributes.
    #[n(19)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fake_destination: bool,
    /// If true, an owner that cannot be preserved is a failure of the copy.
    #[n(20)]
    pub owners_required: bool,
    /// If true, a device that cannot be created is a failure of the copy.
    #[n(21)]
    pub devices_required: bool,
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
    /// True if the destination keeps only the defaults.
    pub fn is_usual(&self) -> bool {
        let usual = Keeping {
            umask: self.umask,
            fake_source: self.fake_source,
            devices_named: self.devices_named,
            owners_required: self.owners_required,
            devices_required: self.devices_required,
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
        let ends = |keeping: &Keeping| [keeping.fake_source, keeping.fake_destination];
        let alike = ends(self) == ends(other);
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
            fake_destination: true,
            ..all.clone()
        };
        assert!(!otherwise.is_within(&all) && !elsewhere.is_within(&all));
        assert!(!all.is_within(&elsewhere));
    }
}
