//! Records the hosts of jobs that were started from this host, so that a job's name is enough to
//! find it again. `started/NAME` in the state directory is the job's description, with the host as
//! ssh reaches it. If a record is lost, the job's host still lists the job.

use std::fs;
use std::io;
use std::path::PathBuf;

use longhaul_system::named_files::kept_to_read;

use super::job_protocol::{self, JobEvent, Listed, is_name};
use crate::state::{keep, make_private, state_directory};

/// Maximum number of recorded jobs; the oldest are removed.
const MAXIMUM_STARTED: usize = 200;

fn directory() -> io::Result<PathBuf> {
    Ok(state_directory()?.join("started"))
}

/// Records a job.
///
/// # Errors
///
/// Fails if the state directory cannot be written.
pub fn add(job: Listed) -> io::Result<()> {
    let directory = directory()?;
    make_private(&directory)?;
    let all = list();
    for old in all.iter().rev().skip(MAXIMUM_STARTED - 1) {
        fs::remove_file(directory.join(&old.name))?;
    }
    let file = directory.join(&job.name);
    keep(&file, &job_protocol::frame_of(&JobEvent::Listed(job))?)
}

/// Lists all recorded jobs, the oldest first.
pub fn list() -> Vec<Listed> {
    let names = directory().and_then(fs::read_dir);
    let names = names.into_iter().flatten().flatten();
    let names = names.filter_map(|name| name.file_name().into_string().ok());
    let mut jobs: Vec<Listed> = names.filter_map(|name| find(&name)).collect();
    jobs.sort_by_key(|job| job.began);
    jobs
}

/// Returns the record of a job.
pub fn find(name: &str) -> Option<Listed> {
    if !is_name(name) {
        return None;
    }
    let file = kept_to_read(&directory().ok()?.join(name)).ok()?;
    match job_protocol::receive(file) {
        Ok(Some(JobEvent::Listed(job))) if job.name == name => Some(job),
        _ => None,
    }
}
