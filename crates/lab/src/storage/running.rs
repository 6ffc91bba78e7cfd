//! All mounted storage of a running lab.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::device::{ChannelCounters, SLACK};
use super::gluster::{Cluster, GlusterError};
use super::mirror::MountedStorage;
use super::plan::{StorageKind, StoragePlan};
use crate::emulator::EmulatorReport;
use crate::emulator::lateness::Lateness;
use crate::isolate::end_all_processes;

/// Reasons why storage cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Mounts would be visible outside the lab.
    #[error(
        "--storage needs mounts that are private to the lab, which this system does not allow: run \
         the lab as root, outside of a container"
    )]
    NoPrivateMounts,
    /// A directory cannot be mounted behind a device.
    #[error(
        "{} cannot be put behind a device: {error}; it needs /dev/fuse and permission to mount",
        path.display()
    )]
    Mount {
        /// Path of the directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// GlusterFS cannot be started.
    #[error(transparent)]
    Gluster(#[from] GlusterError),
}

enum Mounted {
    Device(MountedStorage),
    Gluster(Box<Cluster>),
}

/// Mounted storage. Dropping it ends all other processes of the lab, which may use the
/// storage, and unmounts it.
#[derive(Default)]
pub struct Storages {
    mounted: Vec<(StoragePlan, Mounted)>,
}

impl Storages {
    /// Mounts the storage in the given order. `directory` is created if it is needed.
    /// `private_mounts` is true if mounts of this process are invisible to other
    /// processes.
    ///
    /// # Errors
    ///
    /// Returns an error for the first storage that cannot be mounted; the others are then
    /// unmounted.
    pub fn start(
        plans: &[StoragePlan],
        directory: &Path,
        private_mounts: bool,
    ) -> Result<Storages, StorageError> {
        if !plans.is_empty() && !private_mounts {
            return Err(StorageError::NoPrivateMounts);
        }
        let mut storages = Storages::default();
        for (index, plan) in plans.iter().enumerate() {
            let mounted = match &plan.kind {
                StorageKind::Device {
                    directory,
                    settings,
                } => {
                    let failed = |error| StorageError::Mount {
                        path: directory.clone(),
                        error,
                    };
                    let at = directory.canonicalize().map_err(failed)?;
                    let mounted = MountedStorage::mount(&at, &at, settings).map_err(failed)?;
                    Mounted::Device(mounted)
                }
                StorageKind::Gluster(settings) => {
                    let own = directory.join((index + 1).to_string());
                    Mounted::Gluster(Box::new(Cluster::start(settings, &own)?))
                }
            };
            storages.mounted.push((plan.clone(), mounted));
        }
        Ok(storages)
    }

    /// Returns the mount points, in the given order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.mounted.iter().map(|(_, mounted)| match mounted {
            Mounted::Device(device) => device.path(),
            Mounted::Gluster(cluster) => cluster.path(),
        })
    }

    /// Returns the report of each storage.
    pub fn reports(&self) -> Vec<StorageReport> {
        let report = |(plan, mounted): &(StoragePlan, Mounted)| {
            let (devices, network) = match mounted {
                Mounted::Device(device) => (std::slice::from_ref(device), None),
                Mounted::Gluster(cluster) => (cluster.bricks(), cluster.network()),
            };
            StorageReport {
                storage: plan.text.clone(),
                devices: devices.iter().map(MountedStorage::counters).collect(),
                network,
            }
        };
        self.mounted.iter().map(report).collect()
    }
}

impl Drop for Storages {
    fn drop(&mut self) {
        if self.mounted.is_empty() {
            return;
        }
        end_all_processes();
        for (_, mounted) in self.mounted.drain(..) {
            match mounted {
                Mounted::Device(device) => device.let_go(),
                Mounted::Gluster(cluster) => cluster.let_go(),
            }
        }
    }
}

/// Counters of one storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageReport {
    /// The storage as the user wrote it.
    pub storage: String,
    /// Counters of reading and writing per device.
    pub devices: Vec<[ChannelCounters; 2]>,
    /// Counters of the network between storage nodes; `None` for a directory.
    pub network: Option<EmulatorReport>,
}

impl StorageReport {
    /// Returns the direction of a device with the greatest fraction of late answers: that
    /// fraction (0 to 1), and the lateness. An answer is late beyond [`SLACK`].
    pub fn late(&self) -> (f64, &Lateness) {
        const NEVER: &Lateness = &Lateness {
            counts: [0; crate::emulator::lateness::BOUNDS.len() + 1],
            greatest: std::time::Duration::ZERO,
        };
        let all = self.devices.iter().flatten().map(|way| &way.lateness);
        let share = |late: &Lateness| late.share_beyond(SLACK.as_micros() as u64);
        let worst = all.max_by(|one, other| share(one).total_cmp(&share(other)));
        let worst = worst.unwrap_or(NEVER);
        (share(worst), worst)
    }

    /// Returns the report as a JSON object, described in FORMAT.md.
    pub fn to_json(&self) -> Value {
        let way = |counters: &ChannelCounters| {
            json!({
                "requests": counters.requests,
                "bytes": counters.bytes,
                "most_outstanding": counters.most_outstanding,
                "late_us": {
                    "median": counters.lateness.quantile(0.5).as_micros() as u64,
                    "99%": counters.lateness.quantile(0.99).as_micros() as u64,
                    "greatest": counters.lateness.greatest.as_micros() as u64,
                },
            })
        };
        let device =
            |[read, write]: &[ChannelCounters; 2]| json!({"read": way(read), "write": way(write)});
        let network = self.network.as_ref().map(|network| {
            json!({
                "cpu_s": network.cpu.as_secs_f64(),
                "busiest": network.busiest,
                "packets": network.strays.local,
                "refused": network.strays.refused,
            })
        });
        json!({
            "storage": self.storage,
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "network": network,
        })
    }
}
