//! Proof that the directory for backups is no part of a source.

use std::io;
use std::sync::Arc;

use longhaul_proto::message::Failure;
use longhaul_storage::Directory;
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::failure::failure_of;
use longhaul_system::queue::lock;

use super::{Backups, Opening, Place};
use crate::recv::ReceiveSide;
use crate::recv::apart::For;
use crate::session::Transfer;

impl Backups {
    /// Fails unless the directory for backups is no source's directory, lies in none and holds
    /// none: a backup replaces what has its name.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(in crate::recv) fn prove(
        &self,
        transfer: &Transfer,
        side: &ReceiveSide,
    ) -> Result<(), Failure> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let mut proof = lock(&place.proof);
        if let Some(known) = &*proof {
            return known.clone();
        }
        let found = match place.find(side) {
            // It is made by this copy, and holds nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failure_of("open", "the directory for backups", &error)),
            Ok(directory) => transfer.ensure_apart(side, &[directory], For::Backups),
        };
        proof.insert(found).clone()
    }
}

impl Place {
    /// The directory, if it is there.
    fn find(&self, side: &ReceiveSide) -> io::Result<Arc<dyn Directory>> {
        match &self.opening {
            Opening::Apart(open, path) => open.open_root(path),
            Opening::Beneath(path) => open_beneath(&*side.destination.anchor, path),
        }
    }
}
