//! Attributes of an entry beyond its data, mode and time: owners by number and by name, access
//! control lists, extended attributes. Names are sent with numbers, because a number can belong to
//! another user on another host.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Owner of a file, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Ownership {
    /// The user.
    #[n(0)]
    pub user: u32,
    /// The group.
    #[n(1)]
    pub group: u32,
}

/// Maximum length of the name of a user or group in bytes.
pub const MAXIMUM_OWNER_BYTES: usize = 256;

/// Maximum number of entries of an access control list.
pub const MAXIMUM_ACL_ENTRIES: usize = 1024;

/// Maximum number of extended attributes of an entry.
pub const MAXIMUM_EXTENDED: usize = 256;

/// Maximum total size of an entry's extended attributes, names and values, in bytes.
pub const MAXIMUM_EXTENDED_BYTES: usize = 64 << 10;

/// Maximum length of the name of an extended attribute in bytes (`XATTR_NAME_MAX`).
pub const MAXIMUM_EXTENDED_NAME_BYTES: usize = 255;

/// Number that is neither a user nor a group: system calls take it as "unchanged".
const NOBODY_AT_ALL: u32 = u32::MAX;

/// Overhead of a memory allocation in bytes.
const ALLOCATED_BYTES: usize = 16;

/// Attributes of an entry beyond its data, mode and time. Attributes that were not requested are
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Attributes {
    /// The user, by number.
    #[n(0)]
    pub user: u32,
    /// The group, by number.
    #[n(1)]
    pub group: u32,
    /// The user's name at the source; `None` if it has no name there or names are not requested.
    #[n(2)]
    pub user_name: Option<ByteVec>,
    /// The group's name at the source; `None` if it has no name there or names are not requested.
    #[n(3)]
    pub group_name: Option<ByteVec>,
    /// Access control list, if it has more than the mode.
    #[n(4)]
    pub access: Option<Acl>,
    /// Default access control list of a directory, for entries created in it.
    #[n(5)]
    pub default: Option<Acl>,
    /// Extended attributes.
    #[n(6)]
    pub extended: Option<Vec<Extended>>,
    /// True if lists or extended attributes could not be read or exceed the limits. The destination
    /// then keeps its own.
    #[n(7)]
    pub incomplete: Option<bool>,
    /// True if extended attributes that only a superuser sees were read too, so that the list is
    /// complete.
    #[n(8)]
    pub superuser: Option<bool>,
}

impl Attributes {
    /// Makes attributes with an owner only.
    pub fn of(owner: Ownership) -> Attributes {
        Attributes {
            user: owner.user,
            group: owner.group,
            ..Attributes::default()
        }
    }

    /// Returns the owner, by number.
    pub fn owner(&self) -> Ownership {
        Ownership {
            user: self.user,
            group: self.group,
        }
    }

    /// Returns the approximate memory use in bytes.
    pub fn weight(&self) -> usize {
        let names = [&self.user_name, &self.group_name];
        let names = names.into_iter().flatten().map(|name| name.len());
        let lists = [&self.access, &self.default];
        let lists = lists.into_iter().flatten().map(Acl::bytes);
        let extended = self.extended.iter().flatten().map(Extended::weight);
        size_of::<Attributes>() + names.chain(lists).chain(extended).sum::<usize>()
    }

    /// True if every value is within its bounds.
    pub fn is_valid(&self) -> bool {
        let names = [&self.user_name, &self.group_name];
        let lists = [&self.access, &self.default];
        let extended = self.extended.as_deref().unwrap_or_default();
        let bytes: usize = extended.iter().map(Extended::bytes).sum();
        names.into_iter().flatten().all(|name| is_owner_name(name))
            && self.user != NOBODY_AT_ALL
            && self.group != NOBODY_AT_ALL
            && lists.into_iter().flatten().all(Acl::is_valid)
            && extended.len() <= MAXIMUM_EXTENDED
            && bytes <= MAXIMUM_EXTENDED_BYTES
            && extended.iter().all(Extended::is_valid)
    }
}

/// True if the bytes can be the name of a user or group.
fn is_owner_name(name: &[u8]) -> bool {
    (1..=MAXIMUM_OWNER_BYTES).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, 0 | b':' | b'\n'))
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Acl(#[n(0)] pub Vec<AclEntry>);

/// Subject of an entry of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum AclTag {
    /// The owner.
    #[n(0)]
    Owner,
    /// A user.
    #[n(1)]
    User,
    /// The group that owns the file.
    #[n(2)]
    OwningGroup,
    /// A group.
    #[n(3)]
    Group,
    /// The maximum rights of named users and groups, and of the owning group.
    #[n(4)]
    Mask,
    /// All other users.
    #[n(5)]
    Other,
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AclEntry {
    /// Subject of the entry.
    #[n(0)]
    pub tag: AclTag,
    /// Permission bits, 0 to 7.
    #[n(1)]
    pub permissions: u8,
    /// Number of a user or group at the source, otherwise 0.
    #[n(2)]
    pub id: u32,
    /// Name of a user or group at the source; `None` if it has no name there.
    #[n(3)]
    pub name: Option<ByteVec>,
}

impl Acl {
    fn bytes(&self) -> usize {
        let names = self.0.iter().flat_map(|entry| &entry.name);
        size_of_val(&self.0[..]) + names.map(|name| name.len()).sum::<usize>()
    }

    fn is_valid(&self) -> bool {
        self.0.len() <= MAXIMUM_ACL_ENTRIES
            && self.0.iter().all(|entry| {
                entry.permissions <= 7
                    && entry.id != NOBODY_AT_ALL
                    && entry.name.as_ref().is_none_or(|name| is_owner_name(name))
            })
    }
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Extended {
    /// Name, including its namespace.
    #[n(0)]
    pub name: ByteVec,
    /// Its value.
    #[n(1)]
    pub value: ByteVec,
}

impl Extended {
    /// Returns the bytes of name and value, as they count on the wire and at the source.
    fn bytes(&self) -> usize {
        self.name.len() + self.value.len()
    }

    /// Returns the memory use in bytes.
    fn weight(&self) -> usize {
        size_of::<Extended>() + 2 * ALLOCATED_BYTES + self.bytes()
    }

    fn is_valid(&self) -> bool {
        (1..=MAXIMUM_EXTENDED_NAME_BYTES).contains(&self.name.len()) && !self.name.contains(&0)
    }
}

/// Kind of an extended attribute, by its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedKind {
    /// Any user may set it (`user.*`).
    User,
    /// Only a superuser can read and set it (`trusted.*`).
    Trusted,
    /// Rights of a program beyond those of its user (`security.capability`).
    Capability,
}

/// Returns the kind of an extended attribute by its name; `None` if it is never copied: labels of
/// SELinux and other modules, a file system's own attributes (Lustre's stripes, overlay's), access
/// control lists.
pub fn extended_kind(name: &[u8]) -> Option<ExtendedKind> {
    const OWN: [&[u8]; 4] = [b"overlay.", b"lov", b"lma", b"glusterfs."];
    if let Some(rest) = name.strip_prefix(b"user.") {
        return (!rest.is_empty()).then_some(ExtendedKind::User);
    }
    if name == b"security.capability" {
        return Some(ExtendedKind::Capability);
    }
    let rest = name.strip_prefix(b"trusted.")?;
    let own = OWN.iter().any(|own| rest.starts_with(own));
    (!own && !rest.is_empty()).then_some(ExtendedKind::Trusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Attributes {
        let named = |tag, id, name: &str| AclEntry {
            tag,
            permissions: 5,
            id,
            name: Some(name.as_bytes().to_vec().into()),
        };
        let list = Acl(vec![
            named(AclTag::User, 7, "u"),
            named(AclTag::Mask, 0, "g"),
        ]);
        Attributes {
            user: 1,
            group: 2,
            user_name: Some(b"one".to_vec().into()),
            group_name: None,
            access: Some(list.clone()),
            default: Some(list),
            extended: Some(vec![Extended {
                name: b"user.a".to_vec().into(),
                value: vec![0; 9].into(),
            }]),
            incomplete: Some(true),
            superuser: Some(true),
        }
    }

    #[test]
    fn attributes_are_bounded() {
        assert!(full().is_valid() && full().weight() > 9);
        let with = |change: &dyn Fn(&mut Attributes)| {
            let mut attributes = full();
            change(&mut attributes);
            attributes.is_valid()
        };
        let extended = |name: &[u8], bytes| Extended {
            name: name.to_vec().into(),
            value: vec![0; bytes].into(),
        };
        assert!(!with(&|a| a.user_name = Some(vec![b'x'; 257].into())));
        assert!(!with(&|a| a.group_name = Some(b"a:b".to_vec().into())));
        assert!(!with(
            &|a| a.extended = Some(vec![extended(b"user.a", 64 << 10)])
        ));
        assert!(!with(&|a| a.extended = Some(vec![extended(b"a", 1); 257])));
        assert!(!with(&|a| a.extended = Some(vec![extended(b"", 1)])));
        let list = |count, permissions| {
            let mut entry = full().access.unwrap().0.remove(0);
            entry.permissions = permissions;
            Some(Acl(vec![entry; count]))
        };
        assert!(with(&|a| a.access = list(1024, 7)));
        assert!(!with(&|a| a.access = list(1025, 7)) && !with(&|a| a.default = list(1, 8)));
    }

    #[test]
    fn attributes_of_a_system_are_not_copied() {
        use ExtendedKind::{Capability, Trusted, User};
        for (name, kind) in [
            ("user.a", Some(User)),
            ("trusted.a", Some(Trusted)),
            ("security.capability", Some(Capability)),
            ("security.selinux", None),
            ("security.ima", None),
            ("lustre.lov", None),
            ("trusted.lov", None),
            ("trusted.overlay.opaque", None),
            ("system.posix_acl_access", None),
            ("user.", None),
            ("", None),
        ] {
            assert_eq!(extended_kind(name.as_bytes()), kind, "{name}");
        }
    }
}
