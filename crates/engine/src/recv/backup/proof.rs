//! Proves that the directory for backups is not a part of a source.

use std::io;
use std::sync::Arc;

use longhaul_proto::message::Failure;
use longhaul_storage::Directory;
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::failure::failure_of;
use longhaul_system::queue::lock;

use super::{Backups, Opening, Place};
use crate::recv::apart::For;
use crate::recv::{ReceiveSide, Receiving};

impl Backups {
    /// Returns a failure unless the directory for backups neither contains nor is within a source:
    /// a backup replaces the file of its name.
    ///
    /// # Errors
    ///
    /// Returns the reason why this is not proved.
    pub(in crate::recv) fn prove(&self, receiving: &Receiving<'_>) -> Result<(), Failure> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let mut proof = lock(&place.proof);
        if let Some(known) = &*proof {
            return known.clone();
        }
        let found = match place.find(receiving.side) {
            // This copy will create the directory, which is then empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failure_of("open", "the directory for backups", &error)),
            Ok(directory) => receiving.remover().ensure_apart(&[directory], For::Backups),
        };
        proof.insert(found).clone()
    }
}

impl Place {
    /// Opens the directory if it exists.
    fn find(&self, side: &ReceiveSide) -> io::Result<Arc<dyn Directory>> {
        match &self.opening {
            Opening::Apart(open, path) => open.open_root(path),
            Opening::Beneath(path) => open_beneath(&*side.destination.anchor, path),
        }
    }
}
