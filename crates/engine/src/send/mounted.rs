//! Records file systems that are mounted within a source. A later unmount leaves an empty
//! directory, which must not cause the deletion of its copies.

use std::collections::HashMap;
use std::sync::Mutex;

use longhaul_proto::manifest::TreePath;
use longhaul_system::queue::lock;

/// Maximum number of mount points that are remembered. With more, the destination's entries are not
/// deleted.
const MOST_MOUNTS: usize = 4096;

/// Mount points that the walk found, and their devices.
#[derive(Debug, Default)]
pub(crate) struct Mounted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    devices: HashMap<TreePath, u64>,
    too_many: bool,
}

/// State of a directory compared with the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// It is on the same file system, as far as known.
    Same,
    /// It is on another file system.
    Another,
    /// There were too many mount points.
    Unknown,
}

impl Mounted {
    /// Records a directory on this device, whose parent is on the device `above`.
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

    /// Compares the current device of a directory with the device during the walk.
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
    fn an_unmounted_file_system_is_detected() {
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
