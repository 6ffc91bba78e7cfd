//! An object whose size is unknown before its data arrive. It is fetched into a file without a
//! name.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use longhaul_storage::spill::nameless_file;
use longhaul_stores::store::{Object, Store};

/// The data of an object.
pub struct Whole {
    file: File,
    /// Size in bytes.
    pub size: u64,
}

impl Whole {
    /// Fetches an object into the directory of temporary files.
    ///
    /// # Errors
    ///
    /// The object cannot be fetched, or the file cannot be written.
    pub fn fetch(store: &dyn Store, path: &[u8], object: &Object) -> io::Result<Whole> {
        let mut file = nameless_file(&std::env::temp_dir())?;
        let size = store.fetch_whole(path, object, &mut |data| file.write_all(data))?;
        Ok(Whole { file, size })
    }

    /// Fills a buffer, which must be within the object.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}
