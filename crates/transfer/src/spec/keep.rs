//! Defines the attributes to preserve in addition to data, mode and time, as plain data.

use std::str::FromStr;

use longhaul_proto::keeping::{Keeping, KeepingError};
use longhaul_proto::notice::NoticeKind;
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;

/// Attributes to preserve in addition to data, mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// If true, preserves the owning user.
    pub users: bool,
    /// If true, preserves the owning group.
    pub groups: bool,
    /// If true, transfers owners by number even if their names exist at the destination.
    pub numeric_ids: bool,
    /// If true, preserves hard links between names of one inode.
    pub hard_links: bool,
    /// If true, preserves extended attributes.
    pub extended_attributes: bool,
    /// If true, preserves access control lists.
    pub access_lists: bool,
    /// If true, copies devices. From a daemon they are copied only with `devices_named`.
    pub devices: bool,
    /// True if devices were requested by their own option and not by one that includes others.
    #[serde(skip_serializing_if = "is_false")]
    pub devices_named: bool,
    /// If true, copies sockets and FIFOs.
    pub specials: bool,
    /// If true, a source that fills the destination gives it its own mode, time and owner.
    pub anchor: bool,
    /// If true, existing entries keep their permission bits, and the umask applies to new ones.
    pub leave_modes: bool,
    /// With `leave_modes`: if true, files are executable if they are at the source.
    pub executability: bool,
    /// If true, does not set times of directories.
    pub omit_directory_times: bool,
    /// If true, turns runs of zeros into holes at the destination.
    #[serde(skip_serializing_if = "is_false")]
    pub sparse: bool,
    /// Changes of permission bits in chmod's syntax. A prefix `D` or `F` limits a change to
    /// directories or to other files.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub modes: String,
    /// Umask for changes of `modes` that name no user class.
    pub umask: u32,
    /// Mapping of users: `FROM:TO,…`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_map: String,
    /// Mapping of groups: `FROM:TO,…`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_map: String,
    /// If true, the source stores in extended attributes the metadata that only a superuser can
    /// set: owners, special files and bits, privileged attributes (rsync's `--fake-super`).
    #[serde(skip_serializing_if = "is_false")]
    pub fake_source: bool,
    /// The same as `fake_source`, for the destination.
    #[serde(skip_serializing_if = "is_false")]
    pub fake_destination: bool,
    /// If true, an owner that cannot be preserved is a failure of the copy.
    pub owners_required: bool,
    /// If true, a device that cannot be created is a failure of the copy.
    pub devices_required: bool,
}

/// True if a flag is false and need not be written.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The end of a copy that stores superuser metadata in extended attributes, as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeSuper {
    /// Each end on this host, like rsync's `--fake-super`.
    Here,
    /// Each end at another host, like rsync's `-M--fake-super`.
    There,
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Both ends.
    Both,
}

impl FromStr for FakeSuper {
    type Err = String;

    fn from_str(text: &str) -> Result<FakeSuper, String> {
        Ok(match text {
            "here" => FakeSuper::Here,
            "there" => FakeSuper::There,
            "source" => FakeSuper::Source,
            "destination" => FakeSuper::Destination,
            "both" => FakeSuper::Both,
            _ => return Err("write source, destination or both".to_owned()),
        })
    }
}

impl FakeSuper {
    /// Parses an option for the other end, like the argument of rsync's `-M`.
    ///
    /// # Errors
    ///
    /// Returns a message for the user if it is not `--fake-super`.
    pub fn of_far_end(text: &str) -> Result<FakeSuper, String> {
        match text {
            "--fake-super" => Ok(FakeSuper::There),
            _ => Err("the other end takes no options but --fake-super".to_owned()),
        }
    }
}

impl Keep {
    /// Sets the fake flag of the named end. `ends` are the source and the destination.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such end.
    pub fn faking(
        self,
        end: FakeSuper,
        ends: [Option<&Endpoint>; 2],
    ) -> Result<Keep, KeepingError> {
        let are_here = ends.map(|end| end.is_none_or(|end| end.place().is_none()));
        let [source, destination] = match end {
            FakeSuper::Here => are_here,
            FakeSuper::There => are_here.map(|is_here| !is_here),
            FakeSuper::Source => [true, false],
            FakeSuper::Destination => [false, true],
            FakeSuper::Both => [true, true],
        };
        let text = match end {
            _ if source || destination => {
                return Ok(Keep {
                    fake_source: self.fake_source || source,
                    fake_destination: self.fake_destination || destination,
                    ..self
                });
            }
            FakeSuper::There => {
                "-M--fake-super: no end of the copy is at another host: leave -M out"
            }
            _ => {
                "--fake-super: no end of the copy is on this host: write --fake-super=source, \
                 destination or both"
            }
        };
        Err(KeepingError(text.to_owned()))
    }

    /// Converts this into the message for both ends; `None` if it requests nothing.
    ///
    /// # Errors
    ///
    /// Returns an error for contradictory or invalid fields.
    pub fn keeping(&self) -> Result<Option<Keeping>, KeepingError> {
        self.keeping_of(false)
    }

    /// Like [`Keep::keeping`], for an end that `fakes` or not.
    ///
    /// # Errors
    ///
    /// The same as [`Keep::keeping`].
    pub fn keeping_of(&self, fakes: bool) -> Result<Option<Keeping>, KeepingError> {
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
            as_attribute: fakes,
            sparse: keep.sparse,
        };
        if keeping.is_usual() {
            return Ok(None);
        }
        keeping.clone().read()?;
        Ok(Some(keeping))
    }

    /// Returns the notices that count as failures, because the attribute was requested by name.
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
    use crate::spec::TransferSpec;

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

    #[test]
    fn devices_of_a_daemon_are_copied_only_by_name() {
        let [here, ssh, daemon] = ["a", "host:b", "longhaul://host/c"]
            .map(|text| Endpoint::parse(text.as_ref()).unwrap());
        for (source, to, named, copied) in [
            (&here, &daemon, false, true),
            (&ssh, &here, false, true),
            (&daemon, &here, false, false),
            (&daemon, &here, true, true),
            (&daemon, &ssh, false, false),
            (&daemon, &daemon, false, false),
            (&ssh, &daemon, false, true),
        ] {
            for fakes in [false, true] {
                let mut spec = TransferSpec::copy(vec![source.clone()], to.clone());
                spec.keep = Keep {
                    devices: true,
                    specials: true,
                    devices_named: named,
                    fake_destination: fakes,
                    ..Keep::default()
                };
                let keep = spec.validate().unwrap().keep.clone();
                assert_eq!(
                    (keep.devices, keep.specials),
                    (copied, true),
                    "{source:?} {to:?}"
                );
            }
        }
    }

    #[test]
    fn an_end_is_named_as_in_rsync_or_by_itself() {
        let [here, there] = ["a", "host:b"].map(|text| Endpoint::parse(text.as_ref()).unwrap());
        let of = |end, are_here: [bool; 2]| {
            let ends = are_here.map(|is_here| Some(if is_here { &here } else { &there }));
            let keep = Keep::default().faking(end, ends).ok()?;
            Some([keep.fake_source, keep.fake_destination])
        };
        for (end, are_here, fakes) in [
            (FakeSuper::Here, [true, true], Some([true, true])),
            (FakeSuper::Here, [true, false], Some([true, false])),
            (FakeSuper::There, [true, false], Some([false, true])),
            (FakeSuper::There, [true, true], None),
            (FakeSuper::Here, [false, false], None),
            (FakeSuper::Source, [false, false], Some([true, false])),
            (FakeSuper::Both, [true, false], Some([true, true])),
        ] {
            assert_eq!(of(end, are_here), fakes, "{end:?} {are_here:?}");
        }
        assert!("elsewhere".parse::<FakeSuper>().is_err());
    }
}
