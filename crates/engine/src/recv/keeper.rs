//! Sets the owner, access control lists and extended attributes of entries at a destination, as far
//! as they were requested and this user may set them.

use std::io;

use longhaul_proto::attributes::{Acl, AclTag, Attributes, Extended, ExtendedKind, extended_kind};
use longhaul_proto::keeping::owners::{Owner, OwnerMap};
use longhaul_proto::keeping::{Keeping, KeepingError, Kept};
use longhaul_proto::manifest::{Entry, EntryKind, Ownership, SET_ID_BITS};
use longhaul_proto::notice::NoticeKind;
use longhaul_storage::Directory;
use longhaul_storage::attributes::{
    ACCESS_LIST, DEFAULT_LIST, Inode, KernelAclEntry, read_list, write_list,
};
use longhaul_storage::notices::Notices;
use longhaul_storage::owners::{OwnerKind, Owners};
use rustix::io::Errno;

/// Prefix of the extended attributes that describe an entry at a destination with
/// `fake_destination`.
const FAKED_PREFIX: &[u8] = b"user.rsync.";

/// Permission bit that lets the owner of an inode write to it.
const OWNER_WRITES: u32 = 0o200;

/// Rights of a client, within the rights of this process's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    /// May set other owners, and attributes that only a superuser sets.
    pub owners: bool,
    /// May create devices.
    pub devices: bool,
    /// May create hard links to existing files, which makes them readable under the new name.
    pub links: bool,
    /// May compare existing files with the content and attributes of the copy. A client that sees
    /// the results can test guesses of a file's content.
    pub compares: bool,
}

impl May {
    /// All rights of this process's user.
    pub const ANYTHING: May = May {
        owners: true,
        devices: true,
        links: true,
        compares: true,
    };

    /// Rights that do not affect other users.
    pub const LITTLE: May = May {
        owners: false,
        devices: false,
        links: false,
        compares: true,
    };
}

/// Requested metadata, and the means to set it on this host.
#[derive(Debug)]
pub struct Keeper {
    kept: Kept,
    may: May,
    is_root: bool,
    /// Groups that this process's user belongs to.
    own_groups: Vec<u32>,
    umask: u32,
    users: Owners,
    groups: Owners,
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper::of(Kept::default(), May::LITTLE)
    }
}

/// Result of setting the owner, lists and attributes of an inode.
pub(super) struct Dressed {
    pub owner: Ownership,
    /// True if an inode changed, or would change.
    pub changed: bool,
}

/// State that determines the mode of an entry besides the source's mode, if modes are left alone.
#[derive(Clone, Copy)]
pub(super) enum Before {
    /// The name exists, with these permission bits.
    There(u32),
    /// The name does not exist yet.
    New {
        /// Maximum permission bits that the entry may take from the source.
        allowed: u32,
        /// Bits that the entry inherits from its directory.
        inherited: u32,
    },
}

/// Selects whether an inode is changed or only inspected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Set,
    Look,
}

/// An inode, its entry, and the collector of notices about metadata that is not kept.
pub(super) struct Dressing<'a> {
    pub inode: &'a dyn Inode,
    pub entry: &'a Entry,
    pub notices: &'a Notices,
    pub doing: Doing,
    /// True if capabilities may be set, which give programs more rights than their user has.
    pub capabilities: bool,
}

impl Keeper {
    /// Creates a keeper for the requested metadata, limited by the client's rights.
    ///
    /// # Errors
    ///
    /// Returns [`KeepingError`] if the request is not valid.
    pub fn new(keeping: Keeping, may: May) -> Result<Keeper, KeepingError> {
        Ok(Keeper::of(keeping.read()?, may))
    }

    fn of(kept: Kept, may: May) -> Keeper {
        // Emulated metadata is in attributes that any user may set, and needs only the right to
        // write.
        let fakes = kept.keeping.fake_destination;
        let may = May {
            owners: may.owners || fakes,
            devices: may.devices || fakes,
            ..may
        };
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = [rustix::process::getegid()];
        let own_groups = groups.into_iter().chain(own).map(|group| group.as_raw());
        Keeper {
            kept,
            may,
            is_root: fakes || rustix::process::geteuid().is_root(),
            own_groups: own_groups.collect(),
            umask: umask().unwrap_or(0o077),
            users: Owners::new(OwnerKind::User),
            groups: Owners::new(OwnerKind::Group),
        }
    }

    /// Returns a keeper with only the rights that both this keeper and `may` have.
    pub fn within(&self, may: May) -> Keeper {
        let both = May {
            owners: self.may.owners && may.owners,
            devices: self.may.devices && may.devices,
            links: self.may.links && may.links,
            compares: self.may.compares && may.compares,
        };
        Keeper::of(self.kept.clone(), both)
    }

    /// Returns the requested metadata.
    pub fn keeping(&self) -> &Keeping {
        &self.kept.keeping
    }

    /// True if the destination stores privileged metadata in extended attributes.
    pub fn fakes(&self) -> bool {
        self.kept.keeping.fake_destination
    }

    /// Returns a reason if devices cannot be created.
    pub(super) fn may_make_devices(&self) -> Result<(), &'static str> {
        match (self.may.devices, self.is_root) {
            (false, _) => Err("the principal has no right \"devices\""),
            (true, false) => Err("only root makes devices"),
            (true, true) => Ok(()),
        }
    }

    /// True if existing files may be compared with the content and attributes of the copy.
    pub(super) fn may_compare(&self) -> bool {
        self.may.compares
    }

    /// True if an entry may become a hard link to an existing file.
    pub(super) fn may_link(&self) -> bool {
        self.may.links
    }

    /// Returns the permission bits that the copy gives an entry, before its owner is known.
    /// Existing entries keep their bits if modes are left alone.
    pub(super) fn mode_of(&self, entry: &Entry, before: Before) -> u32 {
        let is_directory = entry.kind == EntryKind::Directory;
        let mode = self.kept.modes.apply(entry.mode, is_directory);
        match (self.kept.keeping.leaves_modes, before) {
            (false, _) => mode,
            (true, Before::New { allowed, inherited }) => mode & 0o777 & allowed | inherited,
            (true, Before::There(existing)) => {
                if self.kept.keeping.executability {
                    executable_as(existing, mode)
                } else {
                    existing
                }
            }
        }
    }

    /// Returns the set-ID bits that the requested mode changes give an entry, independent of its
    /// bits at the source.
    pub(super) fn named_set_ids(&self, entry: &Entry) -> u32 {
        let is_directory = entry.kind == EntryKind::Directory;
        let without = entry.mode & !SET_ID_BITS;
        self.kept.modes.apply(without, is_directory) & SET_ID_BITS
    }

    /// Returns the permission bits that a new entry in a directory may have: those of the
    /// directory's default list, or all bits that the umask permits.
    pub(super) fn allowed_in(&self, directory: &dyn Directory) -> u32 {
        let inode = directory.inode();
        let list = inode.and_then(|inode| inode.get(DEFAULT_LIST).ok().flatten());
        let list = list.and_then(|list| read_list(&list));
        match list.filter(|list| !list.is_empty()) {
            Some(list) => bits_of(&list),
            None => 0o777 & !self.umask,
        }
    }

    /// Returns the final mode of a directory that was created for the copy. It is at most as open
    /// to the group and others as each source that fills it.
    pub(super) fn opened_mode(&self, directory: &dyn Directory, filling: u32, mode: u32) -> u32 {
        let filling = self.kept.modes.apply(filling, true);
        let allowed = self.allowed_in(directory) & filling & 0o777;
        allowed | 0o700 | mode & 0o2000
    }

    /// Returns the user and group that an entry must get; `None` keeps the existing one.
    pub(super) fn owner_of(&self, attributes: &Attributes) -> (Option<u32>, Option<u32>) {
        let keeping = &self.kept.keeping;
        let user = || {
            let named = (
                attributes.user,
                attributes.user_name.as_ref().map(|n| &n[..]),
            );
            self.here(&self.users, &self.kept.users, named)
        };
        let group = || {
            let named = (
                attributes.group,
                attributes.group_name.as_ref().map(|n| &n[..]),
            );
            self.here(&self.groups, &self.kept.groups, named)
        };
        (keeping.users.then(user), keeping.groups.then(group))
    }

    /// Returns the local number of an owner. If the name does not exist on this host, the number
    /// stays.
    fn here(&self, owners: &Owners, map: &OwnerMap, named: (u32, Option<&[u8]>)) -> u32 {
        let (number, name) = named;
        match map.find(number, name) {
            Some(Owner::Number(mapped)) => return *mapped,
            Some(Owner::Name(mapped)) => {
                return owners.number_of(mapped.as_bytes()).unwrap_or(number);
            }
            None => {}
        }
        // Number 0 is the superuser under every name.
        let by_name = name.filter(|_| number != 0 && !self.kept.keeping.numeric_ids);
        by_name
            .and_then(|name| owners.number_of(name))
            .unwrap_or(number)
    }

    /// Returns the first mapped owner name that does not exist on this host.
    pub fn unknown_owner(&self) -> Option<String> {
        let unknown = |owners: &Owners, map: &OwnerMap| {
            map.targets().find_map(|target| match target {
                Owner::Name(name) if owners.number_of(name.as_bytes()).is_none() => {
                    Some(name.clone())
                }
                _ => None,
            })
        };
        let user = unknown(&self.users, &self.kept.users).map(|name| format!("user {name}"));
        user.or_else(|| {
            unknown(&self.groups, &self.kept.groups).map(|name| format!("group {name}"))
        })
    }

    /// True if entries get metadata beyond mode and time.
    pub(super) fn dresses(&self) -> bool {
        self.kept.keeping.has_attributes()
    }

    /// Sets the owner, attributes and lists of an inode. The owner is first, because its change
    /// clears special bits and capabilities.
    pub(super) fn dress(&self, of: &Dressing<'_>, here: Ownership) -> io::Result<Dressed> {
        let mut dressed = Dressed {
            owner: here,
            changed: false,
        };
        let Some(attributes) = of.entry.owner.as_deref().filter(|_| self.dresses()) else {
            return Ok(dressed);
        };
        self.chown(of, attributes, &mut dressed)?;
        if matches!(of.entry.kind, EntryKind::Symlink { .. }) {
            return Ok(dressed);
        }
        if attributes.incomplete == Some(true) {
            let kind = NoticeKind::AttributeNotKept;
            of.notices.note(kind, &of.entry.path, || {
                "they cannot be read at the source, or are more than 64 KiB".to_owned()
            });
            return Ok(dressed);
        }
        if self.kept.keeping.extended {
            dressed.changed |= self.set_extended(of, attributes)?;
        }
        if self.kept.keeping.acls {
            dressed.changed |= self.set_list(of, (ACCESS_LIST, attributes.access.as_ref()))?;
            if of.entry.kind == EntryKind::Directory {
                let list = (DEFAULT_LIST, attributes.default.as_ref());
                dressed.changed |= self.set_list(of, list)?;
            }
        }
        Ok(dressed)
    }

    fn chown(
        &self,
        of: &Dressing<'_>,
        attributes: &Attributes,
        dressed: &mut Dressed,
    ) -> io::Result<()> {
        let here = dressed.owner;
        let (user, group) = self.owner_of(attributes);
        let user = user.filter(|user| *user != here.user);
        let group = group.filter(|group| *group != here.group);
        let note = |kind, text: String| of.notices.note(kind, &of.entry.path, || text);
        let may_user = self.may.owners && self.is_root;
        let is_own = |group: &u32| self.is_root || self.own_groups.contains(group);
        let set_user = user.filter(|_| may_user);
        let set_group = group.filter(|group| self.may.owners && is_own(group));
        if let Some(user) = user.filter(|_| set_user.is_none()) {
            let why = if self.may.owners {
                format!("it would belong to user {user}: only root gives files away")
            } else {
                "the principal has no right \"owners\"".to_owned()
            };
            note(NoticeKind::OwnerNotKept, why);
        }
        if let Some(group) = group.filter(|_| set_group.is_none()) {
            let why = if self.may.owners {
                format!("it would belong to group {group}, of which this user is none")
            } else {
                "the principal has no right \"owners\"".to_owned()
            };
            note(NoticeKind::GroupNotKept, why);
        }
        if set_user.is_none() && set_group.is_none() {
            return Ok(());
        }
        if of.doing == Doing::Look {
            dressed.changed = true;
            return Ok(());
        }
        let set = of.inode.set_owner(set_user, set_group);
        let kind = match set_user {
            Some(_) => NoticeKind::OwnerNotKept,
            None => NoticeKind::GroupNotKept,
        };
        if of.notices.wish(kind, &of.entry.path, set)?.is_some() {
            dressed.changed = true;
            dressed.owner = Ownership {
                user: set_user.unwrap_or(here.user),
                group: set_group.unwrap_or(here.group),
            };
        }
        Ok(())
    }

    /// True if an attribute is kept equal to the source's.
    fn keeps(&self, of: &Dressing<'_>, name: &[u8]) -> bool {
        let superuser = self.is_root && self.may.owners;
        match extended_kind(name) {
            Some(ExtendedKind::User) => true,
            Some(ExtendedKind::Trusted) => superuser,
            Some(ExtendedKind::Capability) => superuser && of.capabilities,
            None => false,
        }
    }

    /// Sets the attributes of an entry and removes other ones. Old and new ones together may not
    /// fit into the inode. Attributes that do not fit are set again after the others are final.
    /// Those that still do not fit are reported; the data of the file is still kept.
    fn set_extended(&self, of: &Dressing<'_>, attributes: &Attributes) -> io::Result<bool> {
        let (path, kind) = (&of.entry.path, NoticeKind::AttributeNotKept);
        let listed = of.notices.wish(kind, path, of.inode.names())?;
        let there = listed.unwrap_or_default();
        let wanted = attributes.extended.as_deref().unwrap_or_default();
        let missing = self.missing_extended(of, wanted, &there)?;
        let is_wanted = |name: &[u8]| wanted.iter().any(|extended| extended.name[..] == *name);
        // A source that cannot see an attribute cannot prove its absence.
        let sees_all = attributes.superuser == Some(true);
        let is_seen = |name: &[u8]| sees_all || extended_kind(name) == Some(ExtendedKind::User);
        let surplus = there
            .iter()
            .filter(|name| self.keeps(of, name) && is_seen(name) && !is_wanted(name));
        let surplus: Vec<&Vec<u8>> = surplus.collect();
        if of.doing == Doing::Look {
            return Ok(!missing.is_empty() || !surplus.is_empty());
        }
        let mut changed = false;
        let mut without_room = Vec::new();
        for extended in missing {
            match self.set_one(of, extended) {
                Err(error) if lacks_room(&error) => without_room.push(extended),
                set => changed |= of.notices.wish(kind, path, set)?.is_some(),
            }
        }
        for name in surplus {
            let removed = self.while_writable(of.inode, || of.inode.remove(name));
            changed |= of.notices.wish(kind, path, removed)?.is_some();
        }
        // The old values of these attributes use space, too.
        for extended in &without_room {
            let removed = self.while_writable(of.inode, || of.inode.remove(&extended.name));
            of.notices.wish(kind, path, removed)?;
        }
        for extended in without_room {
            changed |= match self.set_one(of, extended) {
                Err(error) if lacks_room(&error) => {
                    let (name, bytes) = (extended.name.escape_ascii(), extended.value.len());
                    let why = || format!("{name} ({bytes} bytes) does not fit: {error}");
                    of.notices.note(kind, path, why);
                    false
                }
                set => of.notices.wish(kind, path, set)?.is_some(),
            };
        }
        Ok(changed)
    }

    /// Returns the attributes that an inode lacks or has with another value.
    fn missing_extended<'a>(
        &self,
        of: &Dressing<'_>,
        wanted: &'a [Extended],
        there: &[Vec<u8>],
    ) -> io::Result<Vec<&'a Extended>> {
        let mut missing = Vec::new();
        for extended in wanted {
            // These attributes describe a file of the source at another emulating destination.
            if self.fakes() && extended.name.starts_with(FAKED_PREFIX) {
                continue;
            }
            if !self.keeps(of, &extended.name) {
                if self.is_root {
                    of.notices
                        .note(NoticeKind::AttributeNotKept, &of.entry.path, || {
                            let name = extended.name.escape_ascii();
                            format!("{name} needs rights that are missing here")
                        });
                }
                continue;
            }
            let known = there.iter().any(|name| *name == extended.name[..]);
            if !known || of.inode.get(&extended.name)?.as_deref() != Some(&extended.value[..]) {
                missing.push(extended);
            }
        }
        Ok(missing)
    }

    fn set_one(&self, of: &Dressing<'_>, extended: &Extended) -> io::Result<()> {
        let set = || of.inode.set(&extended.name, &extended.value);
        self.while_writable(of.inode, set)
    }

    /// Runs an action that requires write permission. If it is refused, the owner's write bit is
    /// set for a second attempt.
    fn while_writable(
        &self,
        inode: &dyn Inode,
        what: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let refused = match what() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !self.is_root => error,
            done => return done,
        };
        let Ok(mode) = inode.status().map(|status| status.mode) else {
            return Err(refused);
        };
        if mode & OWNER_WRITES != 0 || inode.set_mode(mode | OWNER_WRITES).is_err() {
            return Err(refused);
        }
        let done = what();
        done.and(inode.set_mode(mode))
    }

    fn set_list(&self, of: &Dressing<'_>, (name, list): (&[u8], Option<&Acl>)) -> io::Result<bool> {
        let (path, kind) = (&of.entry.path, NoticeKind::ListNotKept);
        let there = of.notices.wish(kind, path, of.inode.get(name))?.flatten();
        let wanted = list.map(|list| self.list_here(list));
        let as_read = there.as_deref().and_then(read_list);
        let wanted = wanted.map(|list| write_list(&list));
        if wanted == as_read.map(|list| write_list(&list)) {
            return Ok(false);
        }
        if of.doing == Doing::Look {
            return Ok(true);
        }
        let set = match wanted {
            Some(list) => of.inode.set(name, &list),
            None => of.inode.remove(name),
        };
        if let Err(error) = &set
            && lacks_room(error)
        {
            of.notices
                .note(kind, path, || format!("the list does not fit: {error}"));
            return Ok(false);
        }
        Ok(of.notices.wish(kind, path, set)?.is_some())
    }

    /// Converts a list to local user and group numbers. If two entries become equal, the first one
    /// is used.
    fn list_here(&self, list: &Acl) -> Vec<KernelAclEntry> {
        let entries = list.0.iter().map(|entry| {
            let named = (entry.id, entry.name.as_ref().map(|name| &name[..]));
            let id = match entry.tag {
                AclTag::User => self.here(&self.users, &self.kept.users, named),
                AclTag::Group => self.here(&self.groups, &self.kept.groups, named),
                _ => 0,
            };
            KernelAclEntry {
                tag: entry.tag,
                id,
                permissions: entry.permissions,
            }
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| (entry.tag, entry.id));
        entries.dedup_by_key(|entry| (entry.tag, entry.id));
        entries
    }
}

/// True if an attribute does not fit into the inode or its attribute block.
fn lacks_room(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOSPC | Errno::TOOBIG))
}

/// Returns the permission bits that a default list gives to the owner, the group and others.
fn bits_of(list: &[KernelAclEntry]) -> u32 {
    let of = |tag| list.iter().find(|entry| entry.tag == tag);
    let bits = |tag| of(tag).map_or(0, |entry| u32::from(entry.permissions & 7));
    let group = match of(AclTag::Mask) {
        Some(mask) => u32::from(mask.permissions & 7),
        None => bits(AclTag::OwningGroup),
    };
    bits(AclTag::Owner) << 6 | group << 3 | bits(AclTag::Other)
}

/// Returns permission bits that are executable if the source is, for everyone who may read the
/// file.
fn executable_as(existing: u32, source: u32) -> u32 {
    match (source & 0o111, existing & 0o111) {
        (0, _) => existing & !0o111,
        (_, 0) => existing | (existing & 0o444) >> 2,
        _ => existing,
    }
}

/// Returns the umask of this process; `/proc` is the only source that does not change it.
pub fn umask() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use longhaul_proto::manifest::{EntryId, TreePath};
    use longhaul_storage::{FileKind, Status};

    use super::*;

    fn keeper(keeping: Keeping) -> Keeper {
        Keeper::new(keeping, May::ANYTHING).unwrap()
    }

    fn named(user: u32, name: Option<&str>) -> Attributes {
        Attributes {
            user,
            group: 5,
            user_name: name.map(|name| name.as_bytes().to_vec().into()),
            ..Attributes::default()
        }
    }

    #[test]
    fn owners_are_set_by_name_if_it_exists_and_otherwise_by_number() {
        let by_name = Keeping {
            users: true,
            ..Keeping::default()
        };
        let numeric = Keeping {
            numeric_ids: true,
            ..by_name.clone()
        };
        let mapped = Keeping {
            user_map: "7-9:root,*:12".into(),
            ..by_name.clone()
        };
        for (keeping, user, name, here) in [
            (&by_name, 77, Some("root"), 0),
            (&by_name, 77, Some("no such owner"), 77),
            (&by_name, 77, None, 77),
            (&numeric, 77, Some("root"), 77),
            (&mapped, 8, Some("x"), 0),
            (&mapped, 77, Some("root"), 12),
        ] {
            let owner = keeper(keeping.clone()).owner_of(&named(user, name));
            assert_eq!(owner, (Some(here), None), "{user} {name:?}");
        }
        let unknown = Keeping {
            user_map: "*:nobody-has-this".into(),
            ..by_name
        };
        let unknown = keeper(unknown).unknown_owner();
        assert_eq!(unknown.unwrap(), "user nobody-has-this");
    }

    /// An inode with a limited number of bytes for attributes.
    struct Small {
        room: usize,
        has: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    }

    impl Inode for Small {
        fn status(&self) -> io::Result<Status> {
            Ok(Status::on_no_disk(FileKind::File, 0o644, 0))
        }

        fn set_owner(&self, _: Option<u32>, _: Option<u32>) -> io::Result<()> {
            Ok(())
        }

        fn set_mode(&self, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn names(&self) -> io::Result<Vec<Vec<u8>>> {
            Ok(self.has.borrow().keys().cloned().collect())
        }

        fn get(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
            Ok(self.has.borrow().get(name).cloned())
        }

        fn set(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
            let mut has = self.has.borrow_mut();
            let others = has.iter().filter(|(other, _)| *other != name);
            let others: usize = others.map(|(_, value)| value.len()).sum();
            if others + value.len() > self.room {
                return Err(Errno::NOSPC.into());
            }
            has.insert(name.to_vec(), value.to_vec());
            Ok(())
        }

        fn remove(&self, name: &[u8]) -> io::Result<()> {
            self.has.borrow_mut().remove(name);
            Ok(())
        }
    }

    /// Sets attributes on an inode twice. Returns its attributes, whether the second call changed
    /// any, and the number of notices of the first call.
    fn given(
        keeper: &Keeper,
        there: &[(&str, usize)],
        wanted: &[(&str, usize)],
    ) -> (Vec<(String, usize)>, bool, u64) {
        let has = there
            .iter()
            .map(|(name, bytes)| (name.as_bytes().to_vec(), vec![1; *bytes]));
        let inode = Small {
            room: 4000,
            has: RefCell::new(has.collect()),
        };
        let extended = wanted.iter().map(|(name, bytes)| Extended {
            name: name.as_bytes().to_vec().into(),
            value: vec![2; *bytes].into(),
        });
        let entry = Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(b"x").unwrap(),
            kind: EntryKind::Directory,
            mode: 0o755,
            modified: Default::default(),
            owner: Some(Box::new(Attributes {
                extended: Some(extended.collect()),
                ..Attributes::default()
            })),
        };
        let notices = Notices::default();
        let dressing = Dressing {
            inode: &inode,
            entry: &entry,
            notices: &notices,
            doing: Doing::Set,
            capabilities: true,
        };
        keeper.dress(&dressing, Ownership::default()).unwrap();
        let told = notices.list().iter().map(|notice| notice.count).sum();
        let again = keeper.dress(&dressing, Ownership::default()).unwrap();
        let has = inode.has.borrow();
        let has = has
            .iter()
            .map(|(name, value)| (String::from_utf8_lossy(name).into(), value.len()));
        (has.collect(), again.changed, told)
    }

    #[test]
    fn attributes_that_have_room_once_others_are_gone_are_kept() {
        let keeper = keeper(Keeping {
            extended: true,
            ..Keeping::default()
        });
        let kept = |there: &[_], wanted: &[(&str, usize)]| {
            let (has, changed, told) = given(&keeper, there, wanted);
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes))
                .collect();
            assert_eq!((has, changed, told), (wanted, false, 0));
        };
        kept(&[("user.o", 2000), ("user.p", 1500)], &[("user.n", 2000)]);
        kept(
            &[("user.a", 100), ("user.b", 3800)],
            &[("user.a", 3800), ("user.b", 100)],
        );
    }

    #[test]
    fn attributes_without_room_are_reported_and_the_others_are_kept() {
        let keeper = keeper(Keeping {
            extended: true,
            ..Keeping::default()
        });
        let (has, changed, told) = given(&keeper, &[], &[("user.big", 5000), ("user.small", 9)]);
        assert_eq!((has, changed), (vec![("user.small".to_owned(), 9)], false));
        assert_eq!(told, 1);
    }

    #[test]
    fn attributes_of_fake_super_are_not_copied_as_ordinary_ones() {
        let keeper = keeper(Keeping {
            extended: true,
            fake_destination: true,
            ..Keeping::default()
        });
        let wanted = [("user.a", 1), ("user.rsync.%stat", 20)];
        let (has, changed, told) = given(&keeper, &[], &wanted);
        assert_eq!(
            (has, changed, told),
            (vec![("user.a".to_owned(), 1)], false, 0)
        );
    }

    #[test]
    fn a_default_list_gives_permission_bits() {
        let entry = |tag, permissions| KernelAclEntry {
            tag,
            id: 0,
            permissions,
        };
        let mut list = vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::OwningGroup, 5),
            entry(AclTag::Other, 0),
        ];
        assert_eq!(bits_of(&list), 0o750);
        list.push(entry(AclTag::Mask, 6));
        assert_eq!(bits_of(&list), 0o760);
    }

    #[test]
    fn a_file_becomes_executable_if_its_source_is() {
        for (existing, source, after) in [
            (0o640, 0o755, 0o750),
            (0o755, 0o644, 0o644),
            (0o700, 0o711, 0o700),
        ] {
            assert_eq!(
                executable_as(existing, source),
                after,
                "{existing:o} {source:o}"
            );
        }
    }
}
