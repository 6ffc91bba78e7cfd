//! Arguments for attributes to keep beyond data, permission bits and time, with the names of rsync.

use clap::{ArgAction, Args};
use longhaul_proto::keeping::{Keeping, KeepingError};
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::spec::FakeSuper;

/// Arguments for attributes to keep.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Attributes to keep")]
pub struct KeepingArguments {
    /// Archive: -r, owners, groups, devices and special files, and the mode and time of
    /// the destination itself if it is filled from a source (`src/`). Links, permission
    /// bits and times are always kept. As in rsync, -H, -A and -X are not included.
    #[arg(short, long)]
    pub archive: bool,
    /// Keep the owner of entries, by name if the name exists at the destination,
    /// otherwise by number. Only root can set the owner.
    #[arg(short, long, overrides_with = "no_owner")]
    pub owner: bool,
    /// Keep the group of entries. Users other than root can set only their own groups.
    #[arg(short, long, overrides_with = "no_group")]
    pub group: bool,
    /// With -a: do not keep owners.
    #[arg(long, alias = "no-o", hide = true)]
    pub no_owner: bool,
    /// With -a: do not keep groups.
    #[arg(long, alias = "no-g", hide = true)]
    pub no_group: bool,
    /// Keep owners and groups by number.
    #[arg(long)]
    pub numeric_ids: bool,
    /// Set the owner of all entries: USER, USER:GROUP or :GROUP.
    #[arg(long, value_name = "USER:GROUP", conflicts_with_all = ["usermap", "groupmap"])]
    pub chown: Option<String>,
    /// Change the owner FROM to TO. FROM is a name (with * and ?), a number or a range of
    /// numbers; the first match counts.
    #[arg(long, value_name = "FROM:TO,...")]
    pub usermap: Option<String>,
    /// Change groups in the same way.
    #[arg(long, value_name = "FROM:TO,...")]
    pub groupmap: Option<String>,
    /// Keep hard links: several names of one file within the copy become names of one
    /// file at the destination.
    #[arg(short = 'H', long)]
    pub hard_links: bool,
    /// Keep POSIX access control lists.
    #[arg(short = 'A', long)]
    pub acls: bool,
    /// Keep extended attributes: user.*, and as root also trusted.* and capabilities.
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Copy devices, sockets and FIFOs (--devices --specials). Only root can make devices.
    #[arg(short = 'D')]
    pub special_files: bool,
    /// Copy devices. Fails if they cannot be made.
    #[arg(long, overrides_with = "no_devices")]
    pub devices: bool,
    /// Copy sockets and FIFOs.
    #[arg(long, overrides_with = "no_specials")]
    pub specials: bool,
    /// With -a: do not copy devices.
    #[arg(long, hide = true)]
    pub no_devices: bool,
    /// With -a: do not copy sockets and FIFOs.
    #[arg(long, hide = true)]
    pub no_specials: bool,
    /// With -a: do not copy devices, sockets and FIFOs.
    #[arg(long = "no-D", hide = true)]
    pub no_special_files: bool,
    /// Keep permission bits (the default).
    #[arg(short, long, overrides_with = "no_perms", action = ArgAction::SetTrue)]
    pub perms: bool,
    /// Do not change the permission bits of existing entries. New entries get the bits of
    /// the source minus the umask.
    #[arg(long, alias = "no-p")]
    pub no_perms: bool,
    /// With --no-perms: keep whether a file is executable.
    #[arg(short = 'E', long)]
    pub executability: bool,
    /// Change permission bits, as in chmod. The prefix D applies a change to directories,
    /// F to other files: Dg+s,ug+w,Fo-w,+X or D2775,F664.
    #[arg(long, value_name = "CHANGES", action = ArgAction::Append)]
    pub chmod: Vec<String>,
    /// Keep times (the default).
    #[arg(short, long, hide = true)]
    pub times: bool,
    /// Copy links as links (the default).
    #[arg(short = 'l', long, hide = true, conflicts_with = "copy_links")]
    pub links: bool,
    /// Store owners, special files and privileged attributes in extended attributes, as rsync does,
    /// so that no root rights are needed: at the ends on this host, or at the named end.
    #[arg(
        long,
        value_name = "source|destination|both",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "here"
    )]
    pub fake_super: Option<FakeSuper>,
    /// Apply --fake-super at the ends on other hosts: -M--fake-super, as in rsync.
    #[arg(short = 'M', long, value_name = "OPTION", allow_hyphen_values = true, value_parser = FakeSuper::of_far_end)]
    pub remote_option: Option<FakeSuper>,
    /// Do not keep the times of directories.
    #[arg(short = 'O', long)]
    pub omit_dir_times: bool,
    /// Make a hole of each run of zeros, in blocks of 4 KiB. Holes of the source are always kept.
    #[arg(short = 'S', long)]
    pub sparse: bool,
}

impl KeepingArguments {
    /// True for -a, and for -rlptgoD, which has the same meaning.
    pub fn is_archive(&self, recursive: bool) -> bool {
        let specials = self.special_files || self.devices && self.specials;
        let spelled = recursive && self.links && self.perms && self.times && specials;
        self.archive || spelled && self.group && self.owner
    }

    /// Returns the attributes to keep for a specification.
    fn keep(&self, archive: bool) -> Keeping {
        let (mut user_map, mut group_map) = (self.usermap.clone(), self.groupmap.clone());
        if let Some(chown) = &self.chown {
            let (user, group) = chown.split_once(':').unwrap_or((chown, ""));
            let all = |owner: &str| (!owner.is_empty()).then(|| format!("*:{owner}"));
            (user_map, group_map) = (all(user), all(group));
        }
        // Owners of -rlptgoD are treated like those of -a.
        let by_name = self.archive || !archive;
        let specials = archive && !self.no_special_files;
        Keeping {
            users: archive && !self.no_owner || self.owner || user_map.is_some(),
            groups: archive && !self.no_group || self.group || group_map.is_some(),
            numeric_ids: self.numeric_ids,
            hard_links: self.hard_links,
            extended: self.xattrs,
            acls: self.acls,
            devices: specials && !self.no_devices || self.special_files || self.devices,
            devices_named: self.special_files || self.devices,
            specials: specials && !self.no_specials || self.special_files || self.specials,
            anchor: archive,
            leaves_modes: self.no_perms,
            executability: self.executability,
            omits_directory_times: self.omit_dir_times,
            sparse: self.sparse,
            modes: self.chmod.join(","),
            umask: umask(),
            owners_required: by_name && (self.owner || self.group)
                || user_map.is_some()
                || group_map.is_some(),
            devices_required: self.devices,
            user_map: user_map.unwrap_or_default(),
            group_map: group_map.unwrap_or_default(),
            ..Keeping::default()
        }
    }

    /// Returns the attributes to keep for a source and a destination, which may use fake-super.
    ///
    /// # Errors
    ///
    /// Returns an error if the named end does not exist.
    pub fn keep_at(
        &self,
        recursive: bool,
        ends: [Option<&Endpoint>; 2],
    ) -> Result<Keeping, KeepingError> {
        let mut asked = self.fake_super.into_iter().chain(self.remote_option);
        asked.try_fold(self.keep(self.is_archive(recursive)), |keep, end| {
            end.set(keep, ends)
        })
    }
}

/// Returns the umask of this process, for changes of modes without user classes.
fn umask() -> u32 {
    longhaul_engine::recv::keeper::umask().unwrap_or(0o022)
}
