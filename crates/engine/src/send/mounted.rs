//! File systems that are mounted within a source. One that went away meanwhile leaves an empty
//! directory, which is no reason to delete what was copied from it.

use std::collections::HashMap;
use std::sync::Mutex;

use longhaul_proto::manifest::TreePath;
use longhaul_system::queue::lock;

/// Most mount points that are remembered. With more, nothing is deleted.
const MOST_MOUNTS: usize = 4096;

/// Where the walk came to another file system, and which.
#[derive(Debug, Default)]
pub(crate) struct Mounted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    devices: HashMap<TreePath, u64>,
    too_many: bool,
}

/// What became of a directory since the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// It is on the file system that it was on, as far as that is known.
    Same,
    /// Another file system is there, or none any more.
    Another,
    /// There were too many to be remembered.
    Unknown,
}

impl Mounted {
    /// The walk found a directory on this device in one on the device `above`.
    pub(crate) fn note(&self, path: &TreePath, device: u64, above: u64) {
        if device == above {
            return;
        }
        let mut state = lock(&self.0);
        if state.devices.len() < MOST_MOUNTS {
            state.devices.insert(path.clone(), device);
        } else {
            state.too_many = true;
        }
    }

    /// Whether a directory that is on this device now was so during the walk.
    pub(crate) fn now(&self, path: &TreePath, device: u64) -> Now {
        let state = lock(&self.0);
        match state.devices.get(path) {
            Some(then) if *then != device => Now::Another,
            _ if state.too_many => Now::Unknown,
            _ => Now::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_went_away_is_noticed() {
        let path = |text: String| TreePath::new(text.as_bytes()).unwrap();
        let mounted = Mounted::default();
        mounted.note(&path("a".into()), 1, 1);
        mounted.note(&path("a/usb".into()), 2, 1);
        assert_eq!(mounted.now(&path("a".into()), 1), Now::Same);
        assert_eq!(mounted.now(&path("a/usb".into()), 2), Now::Same);
        assert_eq!(mounted.now(&path("a/usb".into()), 1), Now::Another);
        for number in 0..MOST_MOUNTS as u64 {
            mounted.note(&path(format!("m{number}")), number + 10, 1);
        }
        assert_eq!(mounted.now(&path("b".into()), 1), Now::Unknown);
    }
}
