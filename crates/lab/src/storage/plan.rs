//! What storage a lab has, as one writes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use longhaul_units::ByteCount;

use super::{ParseStorageError, StorageSettings};

/// Storage nodes of a GlusterFS: as many as paper 000's Fig. 3 has.
pub const MOST_NODES: usize = 8;

/// The smallest shard that GlusterFS takes.
const SMALLEST_SHARD: ByteCount = ByteCount(4 << 20);

/// The largest, likewise (4 TiB).
const LARGEST_SHARD: ByteCount = ByteCount(4 << 40);

/// Storage of a lab: `/data:rate=200MBps,latency=5ms` or
/// `gluster:nodes=4,brick-rate=100MBps`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoragePlan {
    /// As it was written.
    pub text: String,
    /// What it is.
    pub kind: StorageKind,
}

/// What storage is.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageKind {
    /// A directory that is behind a modelled device within the lab.
    Device {
        /// The directory.
        directory: PathBuf,
        /// The device.
        settings: StorageSettings,
    },
    /// A parallel file system.
    Gluster(GlusterSettings),
}

/// A GlusterFS volume that distributes shards of files over its nodes, a brick
/// on each.
#[derive(Clone, Debug, PartialEq)]
pub struct GlusterSettings {
    /// Storage nodes, 1 to 8.
    pub nodes: usize,
    /// The device of each brick; none: the directory itself.
    pub brick: Option<StorageSettings>,
    /// Large files are spread over nodes in pieces of this many bytes.
    pub shard: ByteCount,
    /// Where it is mounted; none: in the lab's own directory.
    pub at: Option<PathBuf>,
    /// An empty directory for the bricks' data, which stays; none: in the lab's
    /// own directory, and removed with it.
    pub bricks: Option<PathBuf>,
}

impl Default for GlusterSettings {
    fn default() -> GlusterSettings {
        GlusterSettings {
            nodes: 1,
            brick: None,
            // GlusterFS's own default.
            shard: ByteCount(64 << 20),
            at: None,
            bricks: None,
        }
    }
}

/// Storage that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlanError {
    /// Neither a directory nor a file system.
    #[error(
        "\"{0}\" is no storage: write DIRECTORY:rate=100MBps,latency=5ms or \
         gluster:nodes=4,brick-rate=100MBps"
    )]
    Form(String),
    /// Its device.
    #[error(transparent)]
    Device(#[from] ParseStorageError),
    /// A setting of GlusterFS.
    #[error(
        "gluster {name}=\"{value}\": {cause}; it has nodes=, shard=, at=, bricks=, and brick- \
         before every setting of a device"
    )]
    Gluster {
        /// Of what.
        name: String,
        /// What it was to be.
        value: String,
        /// What is wrong.
        cause: &'static str,
    },
}

impl FromStr for StoragePlan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<StoragePlan, ParsePlanError> {
        // A directory's name may have colons, settings have none.
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
                self.nodes = nodes.ok_or_else(|| wrong("1 to 8"))?;
            }
            "shard" => {
                let shard = value.parse::<ByteCount>().ok();
                // GlusterFS wants whole pages of its own.
                let fits = |shard: &ByteCount| {
                    (SMALLEST_SHARD..=LARGEST_SHARD).contains(shard) && shard.0.is_multiple_of(512)
                };
                let shard = shard.filter(fits);
                self.shard = shard.ok_or_else(|| wrong("4MiB to 4TiB, a multiple of 512"))?;
            }
            "at" => self.at = path()?,
            "bricks" => self.bricks = path()?,
            _ => match name.strip_prefix("brick-") {
                Some(name) => self.brick.get_or_insert_default().set(name, value)?,
                None => return Err(wrong("there is no such setting")),
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
    fn reads_devices_and_file_systems() {
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
    fn what_is_no_storage_is_refused() {
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
