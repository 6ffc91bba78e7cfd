//! Reads the front of a file that keeps growing: first to send it, then to check that it did not
//! change.

use std::io;
use std::sync::Arc;

use longhaul_proto::block::{Content, PieceName};
use longhaul_proto::digest::{BlockHasher, Checksum};
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::sender::{BlockId, PieceRead};
use longhaul_storage::StoredFile;
use longhaul_storage::failure::failure_of;
use longhaul_storage::file_data::read_mode_for;

use super::Sending;
use super::compress::{Uncoded, Verdict};
use super::payload::Payload;
use super::read::{ReadBlock, Unread, extents_of, gone, piece_of, read_runs, whole};
use crate::pool::Buffer;
use crate::session::Counters;

impl Sending<'_> {
    /// Reads a piece of a front, for a block or to compare it with its earlier checksum.
    pub(super) fn read_front(
        &self,
        block: BlockId,
        (entry, piece, earlier): (&Entry, PieceName, Option<Checksum>),
        mut buffer: Buffer,
    ) -> Uncoded {
        let read = self.read_front_piece(entry, piece, &mut buffer);
        let (verdict, read) = match (read, earlier) {
            (Err(Unread::Changed(entry)), _) => (PieceRead::Changed(*entry), None),
            (Err(Unread::Failed(failure)), _) => (PieceRead::Failed(failure), None),
            (Ok((checksum, _)), Some(earlier)) if checksum == earlier => (PieceRead::Same, None),
            (Ok(_), Some(_)) => (PieceRead::Changed(entry.clone()), None),
            (Ok((checksum, extents)), None) => {
                let piece = piece_of(entry, piece, extents, Some(checksum));
                let read = ReadBlock {
                    content: Content::Piece(piece),
                    payload: Payload::Buffer(buffer),
                    dealt: None,
                };
                (PieceRead::Front(checksum), Some(read))
            }
        };
        Uncoded {
            block,
            verdict: Verdict::Piece(verdict),
            read,
        }
    }

    fn read_front_piece(
        &self,
        entry: &Entry,
        piece: PieceName,
        buffer: &mut Buffer,
    ) -> Result<(Checksum, Option<Vec<longhaul_proto::block::Extent>>), Unread> {
        let shown = entry.path.to_string();
        let failed = |error: io::Error| Unread::Failed(failure_of("read", &shown, &error));
        let file = self.open_front(entry, piece.generation)?;
        let extents = match entry.kind {
            EntryKind::File { sparse: true, .. } => extents_of(&*file, piece).map_err(failed)?,
            _ => None,
        };
        let hasher = BlockHasher::new(
            self.transfer.settings.integrity,
            piece.offset,
            piece.length,
            entry.size(),
        );
        let mut hasher = hasher.ok_or_else(|| Unread::Failed(gone(entry)))?;
        let runs = extents.clone().unwrap_or_else(|| whole(piece));
        let filled = read_runs(&*file, piece, &runs, &mut hasher, buffer).map_err(failed)?;
        buffer.set_filled(filled.ok_or_else(|| self.changed(entry))?);
        Counters::add(
            &self.transfer.counters.read_bytes,
            buffer.filled().len() as u64,
        );
        Ok((hasher.finish(), extents))
    }

    /// Returns the open file, which is opened if necessary. It may have become longer.
    fn open_front(&self, entry: &Entry, generation: u32) -> Result<Arc<dyn StoredFile>, Unread> {
        let shown = entry.path.to_string();
        let failed = |error: io::Error| Unread::Failed(failure_of("open", &shown, &error));
        let file = match self.side.open_files.get(entry.id, generation) {
            Some(file) => file,
            None => {
                let mode = read_mode_for(self.transfer.settings.direct, entry.size());
                let located = self.side.sources.open_parent(entry.id, &entry.path);
                let (parent, name) = located.map_err(failed)?;
                let file = parent.open_file(&name, mode).map_err(failed)?;
                self.side.open_files.keep(entry.id, generation, &file);
                file
            }
        };
        if file.status().map_err(failed)?.size < entry.size() {
            Err(self.changed(entry))
        } else {
            Ok(file)
        }
    }
}
