//! Attributes of an inode other than data, mode and time: owner, extended attributes and access
//! control lists. Linux stores the lists in two extended attributes.

use std::io;

use longhaul_proto::attributes::AclTag;

use super::Status;

/// Extended attribute with the access control list.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Extended attribute of a directory with the default list for new entries.
pub const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Attributes of one inode. Symbolic links are not followed.
pub trait Inode {
    /// Returns the inode's status. Later calls act on the same inode, even if its name was given to
    /// another one.
    ///
    /// # Errors
    ///
    /// The errors of `fstatat`.
    fn status(&self) -> io::Result<Status>;

    /// Changes the owner; `None` leaves the user or group unchanged.
    ///
    /// # Errors
    ///
    /// The errors of `fchownat`.
    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()>;

    /// Sets permission bits. Fails for a symbolic link.
    ///
    /// # Errors
    ///
    /// The errors of `fchmod`.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Returns the names of the extended attributes that this user may see. The list is empty if
    /// the file system does not support extended attributes.
    ///
    /// # Errors
    ///
    /// The errors of `listxattr`.
    fn names(&self) -> io::Result<Vec<Vec<u8>>>;

    /// Returns the value of an extended attribute; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of `getxattr`.
    fn get(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// Sets an extended attribute.
    ///
    /// # Errors
    ///
    /// The errors of `setxattr`.
    fn set(&self, name: &[u8], value: &[u8]) -> io::Result<()>;

    /// Removes an extended attribute, if it exists.
    ///
    /// # Errors
    ///
    /// The errors of `removexattr`.
    fn remove(&self, name: &[u8]) -> io::Result<()>;
}

/// An entry of an access control list in the kernel's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelAclEntry {
    /// Kind of user or group.
    pub tag: AclTag,
    /// ID of the user or group; unused for other tags.
    pub id: u32,
    /// Permission bits, 0 to 7.
    pub permissions: u8,
}

/// Version of the kernel's format (`linux/posix_acl_xattr.h`).
const LIST_VERSION: u32 = 2;

/// ID of an entry that has no user or group ID.
const NO_ID: u32 = u32::MAX;

const TAGS: [(AclTag, u16); 6] = [
    (AclTag::Owner, 0x01),
    (AclTag::User, 0x02),
    (AclTag::OwningGroup, 0x04),
    (AclTag::Group, 0x08),
    (AclTag::Mask, 0x10),
    (AclTag::Other, 0x20),
];

/// Parses a list in the kernel's format; `None` if it is malformed.
pub fn read_list(value: &[u8]) -> Option<Vec<KernelAclEntry>> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != LIST_VERSION || !entries.len().is_multiple_of(8) {
        return None;
    }
    let entries = entries.chunks_exact(8).map(|bytes| {
        let [a, b, c, d, id @ ..] = bytes else {
            return None;
        };
        let tag = u16::from_le_bytes([*a, *b]);
        let (tag, _) = *TAGS.iter().find(|(_, number)| *number == tag)?;
        let permissions = u8::try_from(u16::from_le_bytes([*c, *d])).ok()?;
        let id = u32::from_le_bytes(id.try_into().ok()?);
        (permissions <= 7).then_some(KernelAclEntry {
            tag,
            id: if is_named(tag) { id } else { 0 },
            permissions,
        })
    });
    entries.collect()
}

/// Encodes a list in the kernel's format, sorted by tag and ID.
pub fn write_list(entries: &[KernelAclEntry]) -> Vec<u8> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    let mut value = LIST_VERSION.to_le_bytes().to_vec();
    for entry in entries {
        let number = TAGS.iter().find(|(tag, _)| *tag == entry.tag);
        let number = number.map_or(0, |(_, number)| *number);
        let id = if is_named(entry.tag) { entry.id } else { NO_ID };
        value.extend(number.to_le_bytes());
        value.extend(u16::from(entry.permissions).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// True if an entry with this tag has the ID of a user or group.
pub fn is_named(tag: AclTag) -> bool {
    matches!(tag, AclTag::User | AclTag::Group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_were_written() {
        let entry = |tag, id, permissions| KernelAclEntry {
            tag,
            id,
            permissions,
        };
        let list = [
            entry(AclTag::Owner, 0, 6),
            entry(AclTag::User, 7, 4),
            entry(AclTag::User, 1000, 5),
            entry(AclTag::OwningGroup, 0, 4),
            entry(AclTag::Mask, 0, 5),
            entry(AclTag::Other, 0, 0),
        ];
        let mut mixed = list;
        mixed.reverse();
        let value = write_list(&mixed);
        assert_eq!(read_list(&value).unwrap(), list);
        assert_eq!(value[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        for bad in [
            &value[..11],
            &[1, 0, 0, 0],
            &[],
            &[2, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(read_list(bad), None);
        }
    }
}
