//! Reads the metadata of a source's entry beyond mode and time, if a copy keeps them.

use std::io;

use longhaul_proto::attributes::{
    Acl, AclEntry, AclTag, Attributes, Extended, ExtendedKind, MAXIMUM_ACL_ENTRIES,
    MAXIMUM_EXTENDED, MAXIMUM_EXTENDED_BYTES, MAXIMUM_OWNER_BYTES, extended_kind,
};
use longhaul_proto::keeping::Keeping;
use longhaul_proto::manifest::Ownership;
use longhaul_storage::attributes::{ACCESS_LIST, DEFAULT_LIST, Inode, is_named, read_list};
use longhaul_storage::owners::{OwnerKind, Owners};
use minicbor::bytes::ByteVec;

/// Metadata to read for each entry.
pub(crate) struct Gathering {
    keeping: Keeping,
    /// If true, attributes that only the superuser can read are included.
    trusted: bool,
    users: Owners,
    groups: Owners,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering::new(&Keeping::default(), false)
    }
}

impl Gathering {
    /// Reads the metadata that a copy keeps, with `trusted` attributes if that is true.
    pub fn new(keeping: &Keeping, trusted: bool) -> Gathering {
        Gathering {
            keeping: keeping.clone(),
            trusted,
            users: Owners::new(OwnerKind::User),
            groups: Owners::new(OwnerKind::Group),
        }
    }

    /// Returns the metadata that are kept.
    pub fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    /// Returns the attributes of an entry with this owner; `None` if the copy keeps none.
    pub fn of(
        &self,
        owner: Ownership,
        inode: Option<Box<dyn Inode + '_>>,
    ) -> Option<Box<Attributes>> {
        if !self.keeping.has_attributes() {
            return None;
        }
        let mut attributes = Attributes::of(owner);
        if self.keeping.users {
            attributes.user_name = self.name(&self.users, owner.user);
        }
        if self.keeping.groups {
            attributes.group_name = self.name(&self.groups, owner.group);
        }
        if self.keeping.extended || self.keeping.acls {
            let read = inode.ok_or(io::ErrorKind::Unsupported.into());
            let read: io::Result<()> = read.and_then(|inode| self.read(&*inode, &mut attributes));
            if read.is_err() {
                attributes.incomplete = Some(true);
            }
            attributes.superuser = (self.trusted && self.keeping.extended).then_some(true);
        }
        Some(Box::new(attributes))
    }

    fn name(&self, owners: &Owners, number: u32) -> Option<ByteVec> {
        let wanted = !self.keeping.numeric_ids;
        let name = wanted.then(|| owners.name_of(number)).flatten()?;
        (name.len() <= MAXIMUM_OWNER_BYTES).then(|| name.into())
    }

    fn read(&self, inode: &dyn Inode, attributes: &mut Attributes) -> io::Result<()> {
        let (mut extended, mut bytes) = (Vec::new(), 0);
        for name in inode.names()? {
            let list = match &name[..] {
                ACCESS_LIST => Some(&mut attributes.access),
                DEFAULT_LIST => Some(&mut attributes.default),
                _ => None,
            };
            if let Some(list) = list {
                if self.keeping.acls {
                    *list = self.list(inode.get(&name)?)?;
                }
                continue;
            }
            let wanted = match extended_kind(&name) {
                Some(ExtendedKind::User) => true,
                Some(ExtendedKind::Trusted | ExtendedKind::Capability) => self.trusted,
                None => false,
            };
            if !wanted || !self.keeping.extended {
                continue;
            }
            // The attribute was removed meanwhile.
            let Some(value) = inode.get(&name)? else {
                continue;
            };
            bytes += name.len() + value.len();
            if bytes > MAXIMUM_EXTENDED_BYTES || extended.len() >= MAXIMUM_EXTENDED {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            extended.push(Extended {
                name: name.into(),
                value: value.into(),
            });
        }
        extended.sort_unstable();
        attributes.extended = (!extended.is_empty()).then_some(extended);
        Ok(())
    }

    fn list(&self, value: Option<Vec<u8>>) -> io::Result<Option<Acl>> {
        let Some(value) = value else {
            return Ok(None);
        };
        let entries = read_list(&value).filter(|entries| entries.len() <= MAXIMUM_ACL_ENTRIES);
        let entries = entries.ok_or(io::ErrorKind::InvalidData)?;
        let entries = entries.into_iter().map(|entry| AclEntry {
            tag: entry.tag,
            permissions: entry.permissions,
            id: entry.id,
            name: match entry.tag {
                AclTag::User => self.name(&self.users, entry.id),
                AclTag::Group => self.name(&self.groups, entry.id),
                tag => {
                    debug_assert!(!is_named(tag));
                    None
                }
            },
        });
        Ok(Some(Acl(entries.collect())))
    }
}
