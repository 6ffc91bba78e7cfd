//! An inode whose extended attributes define owner, mode, access control lists and attributes.

use std::io;

use longhaul_proto::manifest::Ownership;

use super::lists::{kept_list, list_of};
use super::stand::{Faked, look, pretend, set_mode, status_of};
use crate::Status;
use crate::attributes::{ACCESS_LIST, DEFAULT_LIST, Inode, read_list, write_list};

const PREFIX: &[u8] = b"user.rsync.";
const ACCESS: &[u8] = b"user.rsync.%aacl";
const DEFAULT: &[u8] = b"user.rsync.%dacl";

/// An inode in a directory with simulated superuser rights.
pub(super) struct FakeInode<'a>(pub Box<dyn Inode + 'a>);

/// Returns the name under which an attribute is stored; `None` if it is reserved.
fn kept_name(name: &[u8]) -> Option<Vec<u8>> {
    match name {
        ACCESS_LIST => Some(ACCESS.to_vec()),
        DEFAULT_LIST => Some(DEFAULT.to_vec()),
        name if name.starts_with(PREFIX) => None,
        name if name.starts_with(b"user.") => Some(name.to_vec()),
        name => Some([PREFIX, name].concat()),
    }
}

/// Returns the original name of a stored attribute.
fn faked_name(kept: &[u8]) -> Option<Vec<u8>> {
    match kept {
        ACCESS => Some(ACCESS_LIST.to_vec()),
        DEFAULT => Some(DEFAULT_LIST.to_vec()),
        kept => match kept.strip_prefix(PREFIX) {
            Some(name) if name.starts_with(b"%") => None,
            Some(name) => Some(name.to_vec()),
            None => kept.starts_with(b"user.").then(|| kept.to_vec()),
        },
    }
}

impl Inode for FakeInode<'_> {
    fn status(&self) -> io::Result<Status> {
        status_of(&*self.0)
    }

    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (real, faked) = look(&*self.0)?;
        let owner = Ownership {
            user: user.unwrap_or(faked.owner.user),
            group: group.unwrap_or(faked.owner.group),
        };
        pretend(&*self.0, &real, &Faked { owner, ..faked })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(&*self.0, mode)
    }

    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let names = self.0.names()?;
        Ok(names.iter().filter_map(|name| faked_name(name)).collect())
    }

    fn get(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(kept) = kept_name(name) else {
            return Ok(None);
        };
        let Some(value) = self.0.get(&kept)? else {
            return Ok(None);
        };
        match kept.as_slice() {
            ACCESS | DEFAULT => {
                let (_, faked) = look(&*self.0)?;
                let list = list_of(&value, faked.mode).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Some(write_list(&list)))
            }
            _ => Ok(Some(value)),
        }
    }

    fn set(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let kept = kept_name(name).ok_or(io::ErrorKind::InvalidInput)?;
        match kept.as_slice() {
            ACCESS | DEFAULT => {
                let list = read_list(value).ok_or(io::ErrorKind::InvalidData)?;
                self.0.set(&kept, &kept_list(&list))
            }
            _ => self.0.set(&kept, value),
        }
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        match kept_name(name) {
            Some(kept) => self.0.remove(&kept),
            None => Ok(()),
        }
    }
}
