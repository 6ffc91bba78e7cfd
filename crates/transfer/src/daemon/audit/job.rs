//! Records of jobs: copies with another daemon, which run in processes of their own.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_proto::handshake::Operation;
use serde::{Deserialize, Serialize};

use super::record::name_of;
use super::{About, Audit, AuditSession, AuditSettings};
use crate::spec::TransferSpec;

/// Environment variable of a job: the audit log and the client, as JSON.
const VARIABLE: &str = "LONGHAUL_JOB_AUDIT";

#[derive(Serialize, Deserialize)]
struct Passed {
    file: PathBuf,
    each_file: bool,
    continues_unrecorded: bool,
    peer: String,
}

/// Returns the name and value of the environment variable with which a job for this client starts.
pub fn job_variable(audit: &Audit, peer: &str) -> (&'static str, String) {
    let AuditSettings {
        file,
        each_file,
        continues_unrecorded,
    } = audit.settings().clone();
    // A job runs in another directory.
    let passed = Passed {
        file: std::path::absolute(&file).unwrap_or(file),
        each_file,
        continues_unrecorded,
        peer: peer.to_owned(),
    };
    (VARIABLE, serde_json::to_string(&passed).unwrap_or_default())
}

/// The audit log of the daemon that runs this job.
pub struct JobAudit {
    audit: Arc<Audit>,
    peer: String,
}

impl JobAudit {
    /// Opens the log that the daemon passed, or returns `None` if it has no log.
    ///
    /// # Errors
    ///
    /// The log cannot be opened.
    pub fn of_environment() -> io::Result<Option<JobAudit>> {
        let Ok(text) = std::env::var(VARIABLE) else {
            return Ok(None);
        };
        let passed: Passed = serde_json::from_str(&text).map_err(io::Error::other)?;
        let audit = Audit::join(AuditSettings {
            file: passed.file,
            each_file: passed.each_file,
            continues_unrecorded: passed.continues_unrecorded,
        })?;
        Ok(Some(JobAudit {
            audit,
            peer: passed.peer,
        }))
    }

    /// Begins the records of a job.
    ///
    /// # Errors
    ///
    /// The job may change files, and its record cannot be written.
    pub fn begin(&self, principal: &str, spec: &TransferSpec) -> io::Result<AuditSession> {
        let options = &spec.options;
        let writes = spec.destination.access().is_none();
        let copies = options.operation == Operation::Copy;
        let action = match (options.operation, writes) {
            (Operation::DryRun, _) => "dry-run",
            (Operation::Verify, _) => "verify",
            (Operation::Copy, true) => "write",
            (Operation::Copy, false) => "read",
        };
        let deletes = if writes {
            options.deletes()
        } else {
            options.move_away
        };
        let sources = spec.sources.iter().map(|end| name_of(&end.text()));
        let destination = name_of(&spec.destination.text());
        self.audit.begin(&About {
            principal,
            peer: &self.peer,
            action,
            paths: sources.chain([destination]).collect(),
            changes: copies && (writes || deletes),
            deletes: copies && deletes,
        })
    }
}
