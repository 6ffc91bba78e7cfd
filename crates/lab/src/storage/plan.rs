//! Storage of a lab as the user writes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use longhaul_units::ByteCount;

use super::{ParseStorageError, StorageSettings};

/// Maximum number of storage nodes of a GlusterFS volume, as in Fig. 3 of paper 000.
pub const MOST_NODES: usize = 8;

/// Minimum shard size of GlusterFS.
const SMALLEST_SHARD: ByteCount = ByteCount(4 << 20);

/// Maximum shard size of GlusterFS (4 TiB).
const LARGEST_SHARD: ByteCount = ByteCount(4 << 40);

/// Storage of a lab, written as `/data:rate=200MBps,latency=5ms` or
/// `gluster:nodes=4,brick-rate=100MBps`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoragePlan {
    /// The text as given.
    pub text: String,
    /// The parsed storage.
    pub kind: StorageKind,
}

/// Kinds of storage.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageKind {
    /// A directory behind a modelled device within the lab.
    Device {
        /// Path of the directory.
        directory: PathBuf,
        /// Settings of the device.
        settings: StorageSettings,
    },
    /// A parallel file system.
    Gluster(GlusterSettings),
}

/// A GlusterFS volume that distributes shards of files over its nodes, with one brick per
/// node.
#[derive(Clone, Debug, PartialEq)]
pub struct GlusterSettings {
    /// Number of storage nodes, 1 to 8.
    pub nodes: usize,
    /// Device of each brick. `None` means the directory without a device.
    pub brick: Option<StorageSettings>,
    /// Shard size in bytes. Large files are distributed over the nodes in shards.
    pub shard: ByteCount,
    /// Mount point. `None` means a directory in the lab's directory.
    pub at: Option<PathBuf>,
    /// Empty directory for the data of the bricks, which are kept. `None` means the lab's
    /// directory, where data are removed with the lab.
    pub bricks: Option<PathBuf>,
}

impl Default for GlusterSettings {
    fn default() -> GlusterSettings {
        GlusterSettings {
            nodes: 1,
            brick: None,
            // The default of GlusterFS.
            shard: ByteCount(64 << 20),
            at: None,
            bricks: None,
        }
    }
}

/// Reasons why storage cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlanError {
    /// The text is neither a directory nor a file system.
    #[error(
        "\"{0}\" is not a storage: write DIRECTORY:rate=100MBps,latency=5ms or \
         gluster:nodes=4,brick-rate=100MBps"
    )]
    Form(String),
    /// The settings of a device are invalid.
    #[error(transparent)]
    Device(#[from] ParseStorageError),
    /// A setting of GlusterFS is invalid.
    #[error(
        "gluster {name}=\"{value}\": {cause}; its settings are nodes=, shard=, at=, bricks=, and \
         those of a device with the prefix brick-"
    )]
    Gluster {
        /// Name of the setting.
        name: String,
        /// The given value.
        value: String,
        /// Description of the problem.
        cause: &'static str,
    },
}

impl FromStr for StoragePlan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<StoragePlan, ParsePlanError> {
        // The directory's name may contain colons; settings cannot.
        let parts = text.rsplit_once(':').filter(|(what, _)| !what.is_empty());
        let kind = match parts {
            None => return Err(ParsePlanError::Form(text.to_owned())),
            Some(("gluster", settings)) => StorageKind::Gluster(settings.parse()?),
            Some((directory, settings)) => StorageKind::Device {
                directory: directory.into(),
                settings: settings.parse()?,
            },
        };
        let text = text.to_owned();
        Ok(StoragePlan { text, kind })
    }
}

impl fmt::Display for StoragePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for GlusterSettings {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<GlusterSettings, ParsePlanError> {
        let mut settings = GlusterSettings::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let form = || ParsePlanError::Form(text.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            settings.set(name, value)?;
        }
        Ok(settings)
    }
}

impl GlusterSettings {
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParsePlanError> {
        let wrong = |cause| ParsePlanError::Gluster {
            name: name.to_owned(),
            value: value.to_owned(),
            cause,
        };
        let path = || match value {
            "" => Err(wrong("name a directory")),
            path => Ok(Some(PathBuf::from(path))),
        };
        match name {
            "nodes" => {
                let nodes = value.parse().ok();
                let nodes = nodes.filter(|nodes| (1..=MOST_NODES).contains(nodes));
                self.nodes = nodes.ok_or_else(|| wrong("write a number from 1 to 8"))?;
            }
            "shard" => {
                let shard = value.parse::<ByteCount>().ok();
                // GlusterFS accepts multiples of 512 bytes only.
                let fits = |shard: &ByteCount| {
                    (SMALLEST_SHARD..=LARGEST_SHARD).contains(shard) && shard.0.is_multiple_of(512)
                };
                let shard = shard.filter(fits);
                self.shard =
                    shard.ok_or_else(|| wrong("write 4MiB to 4TiB, a multiple of 512 bytes"))?;
            }
            "at" => self.at = path()?,
            "bricks" => self.bricks = path()?,
            _ => match name.strip_prefix("brick-") {
                Some(name) => self.brick.get_or_insert_default().set(name, value)?,
                None => return Err(wrong("unknown setting")),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::ByteRate;

    #[test]
    fn parses_devices_and_file_systems() {
        let plan: StoragePlan = "/a:b:rate=100MBps".parse().unwrap();
        let StorageKind::Device {
            directory,
            settings,
        } = &plan.kind
        else {
            panic!("{plan:?}");
        };
        assert_eq!(directory, &PathBuf::from("/a:b"));
        assert_eq!(settings.write.rate, ByteRate::new(100e6));
        assert_eq!(plan.to_string(), "/a:b:rate=100MBps");
        let text = "gluster:nodes=4,brick-rate=100MBps,shard=4MiB,at=/mnt";
        let plan: StoragePlan = text.parse().unwrap();
        let StorageKind::Gluster(gluster) = &plan.kind else {
            panic!("{plan:?}");
        };
        assert_eq!(gluster.nodes, 4);
        assert_eq!(gluster.shard, ByteCount(4 << 20));
        assert_eq!(gluster.at, Some(PathBuf::from("/mnt")));
        let brick = gluster.brick.unwrap();
        assert_eq!(brick.read.rate, ByteRate::new(100e6));
        let plain: GlusterSettings = "".parse().unwrap();
        assert_eq!(plain, GlusterSettings::default());
    }

    #[test]
    fn invalid_storage_is_rejected() {
        for (text, said) in [
            ("/data", "DIRECTORY"),
            (":rate=1", "DIRECTORY"),
            ("/data:speed=1", "speed"),
            ("gluster:nodes=9", "1 to 8"),
            ("gluster:nodes=0", "1 to 8"),
            ("gluster:nodes", "gluster:nodes=4"),
            ("gluster:shard=1MiB", "4MiB"),
            ("gluster:rate=1MBps", "brick-"),
            ("gluster:brick-rate=fast", "fast"),
            ("gluster:at=", "directory"),
        ] {
            let error = text.parse::<StoragePlan>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
