//! Implementations of methods for read-only directories and files.

/// Implements the methods of [`Directory`](crate::Directory) that change something. Each fails with
/// the given kind of error. For use within an `impl`.
#[macro_export]
macro_rules! refuse_changes {
    ($kind:expr) => {
        fn make_directory(&self, _name: &[u8], _mode: u32) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn create_file(
            &self,
            _name: &[u8],
            _creation: $crate::Creation,
            _mode: $crate::DataMode,
        ) -> std::io::Result<std::sync::Arc<dyn $crate::StoredFile>> {
            Err($kind.into())
        }

        fn make_symlink(&self, _name: &[u8], _target: &[u8]) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn rename(
            &self,
            _from: &[u8],
            _target: &dyn $crate::Directory,
            _to: &[u8],
        ) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn remove_file(&self, _name: &[u8]) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn remove_directory(&self, _name: &[u8]) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_modified_of(
            &self,
            _name: &[u8],
            _modified: longhaul_proto::manifest::Timestamp,
        ) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_mode(&self, _mode: u32) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_modified(
            &self,
            _modified: longhaul_proto::manifest::Timestamp,
        ) -> std::io::Result<()> {
            Err($kind.into())
        }
    };
}

/// Implements the methods of [`StoredFile`](crate::StoredFile) that change something, each failing
/// with the given kind of error, and the syncs, which succeed. For use within an `impl`.
#[macro_export]
macro_rules! refuse_writes {
    ($kind:expr) => {
        fn write_at(&self, _data: &[u8], _offset: u64) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_length(&self, _length: u64) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn preallocate(&self, _length: u64) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_mode(&self, _mode: u32) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn set_modified(
            &self,
            _modified: longhaul_proto::manifest::Timestamp,
        ) -> std::io::Result<()> {
            Err($kind.into())
        }

        fn try_lock(&self) -> std::io::Result<bool> {
            Err($kind.into())
        }

        fn try_lock_shared(&self) -> std::io::Result<bool> {
            Err($kind.into())
        }

        fn sync_data(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn sync_all(&self) -> std::io::Result<()> {
            Ok(())
        }
    };
}

pub use refuse_changes;
pub use refuse_writes;
