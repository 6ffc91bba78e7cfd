//! What of an entry a specification keeps beyond data, mode and time, as plain data.

use longhaul_proto::keeping::{Keeping, KeepingError};
use longhaul_proto::notice::NoticeKind;
use serde::{Deserialize, Serialize};

/// What is kept beyond data, mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// The user who owns an entry.
    pub users: bool,
    /// The group that owns it.
    pub groups: bool,
    /// Owners by number also where their names exist.
    pub numeric_ids: bool,
    /// Names of one inode stay that.
    pub hard_links: bool,
    /// Extended attributes.
    pub extended_attributes: bool,
    /// Access control lists.
    pub access_lists: bool,
    /// Devices.
    pub devices: bool,
    /// Sockets and FIFOs.
    pub specials: bool,
    /// A source that fills the destination gives it its own mode, time and owner.
    pub anchor: bool,
    /// What is there keeps its permission bits, and the umask counts for what is new.
    pub leave_modes: bool,
    /// With that: files can be executed where they can at the source.
    pub executability: bool,
    /// Directories get no times.
    pub omit_directory_times: bool,
    /// Changes of permission bits, as chmod writes them, with `D` and `F` before those for
    /// directories or other files alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub modes: String,
    /// The umask for those that name nobody.
    pub umask: u32,
    /// Which users become which: `FROM:TO,…`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_map: String,
    /// Which groups become which.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_map: String,
    /// Owners that are not kept are a failure of the copy.
    pub owners_required: bool,
    /// Devices that are not made are one.
    pub devices_required: bool,
}

impl Keep {
    /// As both ends read it; `None` if nothing is asked for.
    ///
    /// # Errors
    ///
    /// What makes no sense.
    pub fn keeping(&self) -> Result<Option<Keeping>, KeepingError> {
        let keep = self.clone();
        let keeping = Keeping {
            users: keep.users,
            groups: keep.groups,
            numeric_ids: keep.numeric_ids,
            hard_links: keep.hard_links,
            extended: keep.extended_attributes,
            acls: keep.access_lists,
            devices: keep.devices,
            specials: keep.specials,
            anchor: keep.anchor,
            leaves_modes: keep.leave_modes,
            executability: keep.executability,
            omits_directory_times: keep.omit_directory_times,
            modes: keep.modes,
            umask: keep.umask & 0o777,
            user_map: keep.user_map,
            group_map: keep.group_map,
            as_attribute: false,
        };
        if keeping.is_usual() {
            return Ok(None);
        }
        keeping.clone().read()?;
        Ok(Some(keeping))
    }

    /// What the destination has to keep, since it was asked for by name.
    pub fn required(&self) -> Vec<NoticeKind> {
        let owners = [NoticeKind::OwnerNotKept, NoticeKind::GroupNotKept];
        let mut required = Vec::new();
        if self.owners_required {
            required.extend(owners);
        }
        if self.devices_required {
            required.push(NoticeKind::DeviceNotMade);
        }
        if self.extended_attributes {
            required.push(NoticeKind::AttributeNotKept);
        }
        if self.access_lists {
            required.push(NoticeKind::ListNotKept);
        }
        required
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        assert_eq!(Keep::default().keeping(), Ok(None));
        let keep = Keep {
            users: true,
            modes: "D755".into(),
            owners_required: true,
            ..Keep::default()
        };
        let json = serde_json::to_string(&keep).unwrap();
        assert_eq!(serde_json::from_str::<Keep>(&json).unwrap(), keep);
        let keeping = keep.keeping().unwrap().unwrap();
        assert!(keeping.users && keeping.modes == "D755");
        assert!(keep.required().contains(&NoticeKind::OwnerNotKept));
        let bad = Keep {
            modes: "q".into(),
            ..Keep::default()
        };
        assert!(bad.keeping().is_err());
    }
}
