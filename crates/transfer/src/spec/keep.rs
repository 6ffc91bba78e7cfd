//! What of an entry a specification keeps beyond data, mode and time, as plain data.

use std::str::FromStr;

use longhaul_proto::keeping::{Keeping, KeepingError};
use longhaul_proto::notice::NoticeKind;
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;

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
    /// Devices. From a daemon they are copied only with `devices_named`.
    pub devices: bool,
    /// Devices were asked for by their own option, and not among others.
    #[serde(skip_serializing_if = "is_false")]
    pub devices_named: bool,
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
    /// Runs of zeros become holes at the destination.
    #[serde(skip_serializing_if = "is_false")]
    pub sparse: bool,
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
    /// The source has in extended attributes what only a superuser may give: owners, special files
    /// and bits, privileged attributes (rsync's `--fake-super`).
    #[serde(skip_serializing_if = "is_false")]
    pub fake_source: bool,
    /// The destination has.
    #[serde(skip_serializing_if = "is_false")]
    pub fake_destination: bool,
    /// Owners that are not kept are a failure of the copy.
    pub owners_required: bool,
    /// Devices that are not made are one.
    pub devices_required: bool,
}

/// Most copies have real ones.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The end of a copy that has in attributes what only a superuser may give, as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeSuper {
    /// Each end on this host, as rsync's `--fake-super`.
    Here,
    /// Each end at another host, as its `-M--fake-super`.
    There,
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Both.
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
    /// What the other end is to do, as with rsync's `-M`.
    ///
    /// # Errors
    ///
    /// For people: where it is something else.
    pub fn of_far_end(text: &str) -> Result<FakeSuper, String> {
        match text {
            "--fake-super" => Ok(FakeSuper::There),
            _ => Err("the other end takes no options but --fake-super".to_owned()),
        }
    }
}

impl Keep {
    /// With the end that was named, of a source and a destination.
    ///
    /// # Errors
    ///
    /// Where there is no such end.
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

    /// As both ends read it; `None` if nothing is asked for.
    ///
    /// # Errors
    ///
    /// What makes no sense.
    pub fn keeping(&self) -> Result<Option<Keeping>, KeepingError> {
        self.keeping_of(false)
    }

    /// The same for an end that `fakes`, or not.
    ///
    /// # Errors
    ///
    /// As [`Keep::keeping`].
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
