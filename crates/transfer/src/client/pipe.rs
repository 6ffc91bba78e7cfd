//! Reports of a copy from standard input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_engine::send::stream::StreamSource;
use longhaul_engine::session::{Event, Watch};

use crate::endpoint::standard::INPUT;

/// Wraps the reports of a pipe so that its pieces count as one entry. Releases pieces that the
/// other end has stored. Stops reading after a failure.
pub fn watch(source: &Arc<StreamSource>, inner: Watch) -> Watch {
    let source = Arc::clone(source);
    let failed = AtomicBool::new(false);
    Arc::new(move |event| match event {
        Event::Committed { path, .. }
        | Event::Skipped { path, .. }
        | Event::Mended { path, .. } => source.let_go(&path),
        Event::Failed { failure, .. } => {
            if failed.swap(true, Ordering::Relaxed) {
                return;
            }
            let mut failure = failure;
            if let Some(error) = source.failure() {
                failure.text = format!("{INPUT}: cannot be read: {error}; nothing was kept");
            }
            source.give_up();
            inner(Event::Failed {
                path: None,
                failure,
            });
        }
        Event::Damaged { .. } | Event::StreamDamaged { .. } => inner(event),
        Event::Planned { .. }
        | Event::Left { .. }
        | Event::Deleted { .. }
        | Event::Undeleted { .. }
        | Event::Omitted { .. }
        | Event::Resumed { .. }
        | Event::Durable { .. } => {}
    })
}
