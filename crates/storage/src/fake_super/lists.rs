//! Access control lists in rsync's format: four numbers of 32 bits for owner, group, mask and
//! others, and two for each further entry.

use longhaul_proto::attributes::AclTag;

use crate::attributes::KernelAclEntry;

/// Value of an entry that is missing in the list, so that the mode applies.
pub(super) const NO_ENTRY: u32 = 0x80;

/// Bit that marks the entry of a user, as opposed to a group.
pub(super) const IS_USER: u32 = 1 << 31;

/// Size in bytes of the four numbers for owner, group, mask and others, and of an entry after them.
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 8;

/// Encodes a list in rsync's format.
pub(super) fn kept_list(list: &[KernelAclEntry]) -> Vec<u8> {
    let of = |tag| list.iter().find(|entry| entry.tag == tag);
    let of = |tag| of(tag).map_or(NO_ENTRY, |entry| entry.permissions.into());
    let head = [
        of(AclTag::Owner),
        of(AclTag::OwningGroup),
        of(AclTag::Mask),
        of(AclTag::Other),
    ];
    let named = |wanted| list.iter().filter(move |entry| entry.tag == wanted);
    let users = named(AclTag::User).map(|entry| [entry.id, u32::from(entry.permissions) | IS_USER]);
    let groups = named(AclTag::Group).map(|entry| [entry.id, entry.permissions.into()]);
    let numbers = head.into_iter().chain(users.chain(groups).flatten());
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// Decodes the list of a file with this mode; `None` if it is malformed.
pub(super) fn list_of(value: &[u8], mode: u32) -> Option<Vec<KernelAclEntry>> {
    if value.len() < HEAD_BYTES || !value.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let numbers = value.chunks_exact(4).map(|four| {
        let four = four.try_into().ok()?;
        Some(u32::from_le_bytes(four))
    });
    let numbers = numbers.collect::<Option<Vec<u32>>>()?;
    let (head, named) = numbers.split_at(HEAD_BYTES / 4);
    let [owner, group, mask, others] = *head else {
        return None;
    };
    let by_mode = |number, shift: u32| match number {
        NO_ENTRY => Some(((mode >> shift) & 7) as u8),
        number => u8::try_from(number).ok().filter(|bits| *bits <= 7),
    };
    let entry = |tag, id, permissions| KernelAclEntry {
        tag,
        id,
        permissions,
    };
    let mut list = vec![
        entry(AclTag::Owner, 0, by_mode(owner, 6)?),
        entry(AclTag::OwningGroup, 0, by_mode(group, 3)?),
        entry(AclTag::Other, 0, by_mode(others, 0)?),
    ];
    // A list with named entries has a mask.
    if mask != NO_ENTRY || !named.is_empty() {
        list.push(entry(AclTag::Mask, 0, by_mode(mask, 3)?));
    }
    for pair in named.chunks_exact(2) {
        let [id, access] = *pair else {
            return None;
        };
        let tag = match access & IS_USER {
            0 => AclTag::Group,
            _ => AclTag::User,
        };
        let permissions = u8::try_from(access & !IS_USER).ok()?;
        list.push((permissions <= 7).then_some(entry(tag, id, permissions))?);
    }
    list.sort_unstable();
    Some(list)
}
