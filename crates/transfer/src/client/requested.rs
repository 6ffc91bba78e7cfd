//! Determines which entries a command requests from the other end, and which of them that end may
//! therefore send.

use longhaul_engine::recv::asked::Asked;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::handshake::{Operation, RequestPath};
use longhaul_storage::measuring::ZERO_NAME;

use super::run::Task;
use crate::endpoint::Endpoint;
use crate::stop::{Exit, Stop};

/// Returns the entries that a host may send that was introduced for one session.
pub fn of_introduced(allowed: &Allowed) -> Asked {
    let mut asked = Asked::new(allowed.options.selection.recursive);
    let expands = allowed.options.operation != Operation::Verify;
    for source in &allowed.sources {
        add(&mut asked, source, expands);
    }
    asked
}

/// Adds the entries of a requested source.
fn add(asked: &mut Asked, source: &RequestPath, expands: bool) {
    match source {
        RequestPath::Path(path) => asked.add_path(path, expands),
        RequestPath::Zero(_) => asked.add_name(ZERO_NAME),
        RequestPath::Null | RequestPath::Stream(_) => {}
    }
}

/// Returns the entries that the other end may send. `single_file` is its answer.
///
/// # Errors
///
/// That answer does not fit the request.
pub(super) fn of(task: &Task, single_file: bool) -> Result<Asked, Stop> {
    let mut asked = Asked::new(task.spec.options.selection.recursive);
    // A verification takes exactly one source, without wildcards.
    let expands = task.settings.operation != Operation::Verify;
    for path in task.sources.iter().filter_map(Endpoint::remote_path) {
        add(&mut asked, &path.request_path(), expands);
    }
    if asked.is_one_file() && !single_file {
        let text = "one file was asked for, and the other end says that it sends something else: \
                    it is broken or hostile, and nothing was copied";
        return Err(Stop::new(Exit::Integrity, text));
    }
    Ok(asked.single_file(single_file))
}
