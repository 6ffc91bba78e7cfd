//! What a destination gives an entry beyond data, mode and time: its owner, access control lists
//! and extended attributes, as far as somebody asked for it and this user may.

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

/// Attributes that say what an entry is at a destination that has that in attributes.
const FAKED_PREFIX: &[u8] = b"user.rsync.";

/// What the owner of an inode needs to write to it.
const OWNER_WRITES: u32 = 0o200;

/// What a client may have done, as far as this process's user may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    /// Files get other owners, and attributes that only a superuser sets.
    pub owners: bool,
    /// Devices are made.
    pub devices: bool,
    /// Entries become further names of what is there: they can be read under such a name.
    pub links: bool,
    /// What is there is compared with the contents and attributes of what comes. Who learns the
    /// result can try which contents a file has.
    pub compares: bool,
}

impl May {
    /// Whatever this process's user may do.
    pub const ANYTHING: May = May {
        owners: true,
        devices: true,
        links: true,
        compares: true,
    };

    /// What costs no other user anything.
    pub const LITTLE: May = May {
        owners: false,
        devices: false,
        links: false,
        compares: true,
    };
}

/// What is kept, and how it is done here.
#[derive(Debug)]
pub struct Keeper {
    kept: Kept,
    may: May,
    is_root: bool,
    /// The groups that this process's user is in.
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

/// What became of an inode's owner, lists and attributes.
pub(super) struct Dressed {
    pub owner: Ownership,
    /// Something changed, or would.
    pub changed: bool,
}

/// What a mode depends on besides the source's, if modes are left alone.
#[derive(Clone, Copy)]
pub(super) enum Before {
    /// Something has the name already, with these permission bits.
    There(u32),
    /// Nothing has the name yet.
    New {
        /// Bits of the source that the entry may have.
        allowed: u32,
        /// Bits that it has from its directory.
        inherited: u32,
    },
}

/// Whether an inode is changed, or only looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Set,
    Look,
}

/// An inode of an entry, and where it is reported what it does not keep.
pub(super) struct Dressing<'a> {
    pub inode: &'a dyn Inode,
    pub entry: &'a Entry,
    pub notices: &'a Notices,
    pub doing: Doing,
    /// Programs may get more rights than their user has.
    pub capabilities: bool,
}

impl Keeper {
    /// For what was asked for, as far as the client's rights go.
    ///
    /// # Errors
    ///
    /// [`KeepingError`]: it makes no sense.
    pub fn new(keeping: Keeping, may: May) -> Result<Keeper, KeepingError> {
        Ok(Keeper::of(keeping.read()?, may))
    }

    fn of(kept: Kept, may: May) -> Keeper {
        // What is kept in attributes that any user may set takes no right but to write.
        let fakes = kept.keeping.as_attribute;
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

    /// The same for somebody who may have no more than this.
    pub fn within(&self, may: May) -> Keeper {
        let both = May {
            owners: self.may.owners && may.owners,
            devices: self.may.devices && may.devices,
            links: self.may.links && may.links,
            compares: self.may.compares && may.compares,
        };
        Keeper::of(self.kept.clone(), both)
    }

    /// What was asked for.
    pub fn keeping(&self) -> &Keeping {
        &self.kept.keeping
    }

    /// Whether the destination has in attributes what only a superuser may give.
    pub fn fakes(&self) -> bool {
        self.kept.keeping.as_attribute
    }

    /// Whether devices can be made.
    pub(super) fn may_make_devices(&self) -> Result<(), &'static str> {
        match (self.may.devices, self.is_root) {
            (false, _) => Err("the principal has no right \"devices\""),
            (true, false) => Err("only root makes devices"),
            (true, true) => Ok(()),
        }
    }

    /// Whether contents and attributes of what is there are compared with those of what comes.
    pub(super) fn may_compare(&self) -> bool {
        self.may.compares
    }

    /// Whether an entry may become another name of what is there.
    pub(super) fn may_link(&self) -> bool {
        self.may.links
    }

    /// Permission bits as the copy changes them, before it is seen whose the entry is. What is
    /// there keeps its own where modes are left alone.
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

    /// Set-ID bits that the copy's changes of modes give an entry, whatever it has at the source.
    pub(super) fn named_set_ids(&self, entry: &Entry) -> u32 {
        let is_directory = entry.kind == EntryKind::Directory;
        let without = entry.mode & !SET_ID_BITS;
        self.kept.modes.apply(without, is_directory) & SET_ID_BITS
    }

    /// Permission bits that something new in a directory may have: those of its default list, or
    /// else all but the umask's.
    pub(super) fn allowed_in(&self, directory: &dyn Directory) -> u32 {
        let inode = directory.inode();
        let list = inode.and_then(|inode| inode.get(DEFAULT_LIST).ok().flatten());
        let list = list.and_then(|list| read_list(&list));
        match list.filter(|list| !list.is_empty()) {
            Some(list) => bits_of(&list),
            None => 0o777 & !self.umask,
        }
    }

    /// The mode of a directory that was made for the copy, and is done: no source that fills it is
    /// more closed to group and others.
    pub(super) fn opened_mode(&self, directory: &dyn Directory, filling: u32, mode: u32) -> u32 {
        let filling = self.kept.modes.apply(filling, true);
        let allowed = self.allowed_in(directory) & filling & 0o777;
        allowed | 0o700 | mode & 0o2000
    }

    /// Who is to own an entry; `None`: the owner that it has.
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

    /// The number here of an owner there. A name that nobody has is no owner: the number stays.
    fn here(&self, owners: &Owners, map: &OwnerMap, named: (u32, Option<&[u8]>)) -> u32 {
        let (number, name) = named;
        match map.find(number, name) {
            Some(Owner::Number(mapped)) => return *mapped,
            Some(Owner::Name(mapped)) => {
                return owners.number_of(mapped.as_bytes()).unwrap_or(number);
            }
            None => {}
        }
        // The superuser is one by number, whatever it is called.
        let by_name = name.filter(|_| number != 0 && !self.kept.keeping.numeric_ids);
        by_name
            .and_then(|name| owners.number_of(name))
            .unwrap_or(number)
    }

    /// The first name that an owner was to become and nobody has here.
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

    /// Whether entries get anything beyond mode and time.
    pub(super) fn dresses(&self) -> bool {
        self.kept.keeping.has_attributes()
    }

    /// Gives an inode owner, attributes and lists, in this order: a change of the owner clears
    /// special bits and capabilities.
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

    /// Whether an attribute is one of those that are kept equal.
    fn keeps(&self, of: &Dressing<'_>, name: &[u8]) -> bool {
        let superuser = self.is_root && self.may.owners;
        match extended_kind(name) {
            Some(ExtendedKind::User) => true,
            Some(ExtendedKind::Trusted) => superuser,
            Some(ExtendedKind::Capability) => superuser && of.capabilities,
            None => false,
        }
    }

    /// Sets the attributes of an entry, and removes others. Old and new ones together may need more
    /// room than an inode has: those that found none are set again once the others are as they
    /// should be. Those that find none then are reported, and the data stay.
    fn set_extended(&self, of: &Dressing<'_>, attributes: &Attributes) -> io::Result<bool> {
        let (path, kind) = (&of.entry.path, NoticeKind::AttributeNotKept);
        let listed = of.notices.wish(kind, path, of.inode.names())?;
        let there = listed.unwrap_or_default();
        let wanted = attributes.extended.as_deref().unwrap_or_default();
        let missing = self.missing_extended(of, wanted, &there)?;
        let is_wanted = |name: &[u8]| wanted.iter().any(|extended| extended.name[..] == *name);
        // A source that did not see them cannot tell that they are not there.
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
        // Their old values take room, too.
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

    /// Attributes that an inode is to have, and has not, or with another value.
    fn missing_extended<'a>(
        &self,
        of: &Dressing<'_>,
        wanted: &'a [Extended],
        there: &[Vec<u8>],
    ) -> io::Result<Vec<&'a Extended>> {
        let mut missing = Vec::new();
        for extended in wanted {
            // They say what a file of the source stands for at another destination.
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

    /// Does something that its owner may do only with what has a mode to write it.
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

    /// A list with the numbers that users and groups have here. Of two that become one, the first
    /// counts.
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

/// Whether an attribute has no room in the inode, or in the block that it has for attributes.
fn lacks_room(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOSPC | Errno::TOOBIG))
}

/// The permission bits that a default list gives to the owner, the group and others.
fn bits_of(list: &[KernelAclEntry]) -> u32 {
    let of = |tag| list.iter().find(|entry| entry.tag == tag);
    let bits = |tag| of(tag).map_or(0, |entry| u32::from(entry.permissions & 7));
    let group = match of(AclTag::Mask) {
        Some(mask) => u32::from(mask.permissions & 7),
        None => bits(AclTag::OwningGroup),
    };
    bits(AclTag::Owner) << 6 | group << 3 | bits(AclTag::Other)
}

/// Permission bits of a file that can be executed where another one can, by those who may read it.
fn executable_as(existing: u32, source: u32) -> u32 {
    match (source & 0o111, existing & 0o111) {
        (0, _) => existing & !0o111,
        (_, 0) => existing | (existing & 0o444) >> 2,
        _ => existing,
    }
}

/// This process's umask, which nobody can read without changing it, except here.
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
    fn owners_go_by_name_where_it_exists_and_by_number_elsewhere() {
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

    /// Gives an inode that has some attributes others, twice: what it has then, whether the second
    /// time changed anything, and how many were reported.
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
    fn what_a_file_stands_for_is_not_copied_where_attributes_say_that() {
        let keeper = keeper(Keeping {
            extended: true,
            as_attribute: true,
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
    fn a_file_is_executable_where_another_one_is() {
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
