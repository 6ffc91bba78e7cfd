//! How files' data are read, written and hashed, at both ends of a copy.

use std::io;

use longhaul_proto::digest::{BlockHasher, Checksum};

use crate::{DataMode, StoredFile};

/// Bytes read, or received, and hashed at a time: half of a core's second-level cache, so
/// that hashing finds there what reading brought.
pub const PART_BYTES: usize = 256 << 10;

/// Bytes read at once.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Zeros to hash where a file has a hole.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Files larger than this are read and written so that they do not push
/// everything else out of the page cache of a small host.
const CACHE_SPARING_BYTES: u64 = 256 << 20;

/// Files larger than this are written directly if the file system can. On ext4, files of 5 and 12
/// MB then took 0.8 to 1.1 of the time and 0.8 to 0.9 of the CPU time, if the page cache had
/// memory at hand. If the kernel, or a virtual machine's host, had to find it first, they took
/// 0.35 of either. Smaller files are slower this way if there is memory, since the disk takes
/// their pages while the next ones come.
const DIRECT_WRITE_BYTES: u64 = 4 << 20;

/// How the data of a file of this size is read: what is in the cache is taken
/// from there, and the kernel reads ahead.
pub fn read_mode_for(direct: bool, size: u64) -> DataMode {
    match direct {
        true => DataMode::Direct,
        false if size > CACHE_SPARING_BYTES => DataMode::Uncached,
        false => DataMode::Buffered,
    }
}

/// How the data of a file is written. A large one goes past the cache: through
/// it, it would cost a copy and a page for every 4096 bytes, which most copies
/// have no other use for. The runs of a sparse one do not lie in memory as direct
/// I/O wants them.
pub fn write_mode_for(direct: bool, size: u64, sparse: bool) -> DataMode {
    match (direct, sparse) {
        (true, _) => DataMode::Direct,
        (false, true) if size > CACHE_SPARING_BYTES => DataMode::Uncached,
        (false, false) if size > CACHE_SPARING_BYTES => DataMode::Bypass,
        (false, false) if size > DIRECT_WRITE_BYTES => DataMode::Direct,
        (false, _) => DataMode::Buffered,
    }
}

/// Hashes a hole.
pub fn hash_zeros(hasher: &mut BlockHasher, mut length: u64) {
    while length > 0 {
        let part = length.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..part as usize]);
        length -= part;
    }
}

/// The digest of a file's first `size` bytes, which are read for it, unless `is_over` says
/// meanwhile that it is not needed.
///
/// # Errors
///
/// `UnexpectedEof` where it is shorter; else as `pread`, or that the transfer is over.
pub fn digest_of(
    is_over: &dyn Fn() -> bool,
    file: &dyn StoredFile,
    size: u64,
) -> io::Result<Checksum> {
    let mut hasher = blake3::Hasher::new();
    let mut room = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut offset = 0;
    while offset < size {
        if is_over() {
            return Err(io::Error::other("the copy ended before it was read"));
        }
        let wanted = (size - offset).min(room.len() as u64) as usize;
        let read = file.read_at(&mut room[..wanted], offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&room[..read]);
        offset += read as u64;
    }
    Ok(Checksum::Blake3(*hasher.finalize().as_bytes()))
}
