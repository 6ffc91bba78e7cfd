//! `longhaul serve`.

use longhaul_system::limits;
use longhaul_transfer::daemon::audit::AuditSettings;
use longhaul_transfer::daemon::{self, Announcement, DaemonSettings, Listening, Terms};
use serde_json::json;

use crate::arguments::ServeArguments;
use crate::log::{self, LogFormat};
use crate::messages::{Exit, Stop, finish, print_json, print_line};

/// Runs `longhaul serve`.
pub fn run(arguments: ServeArguments) -> Exit {
    finish(serve(arguments))
}

fn serve(arguments: ServeArguments) -> Result<Exit, Stop> {
    let print_ready = arguments.print_ready;
    let (log_format, log_level) = (arguments.log_format, arguments.log_level);
    let checks = arguments.check;
    let settings = settings(arguments);
    if checks {
        let count = daemon::check(&settings)?;
        print_line!("the settings are valid; number of principals: {count}");
        return Ok(Exit::Done);
    }
    let daemon = Listening::new(settings)?;
    log::start(log_format, log_level);
    let announcement = daemon.announcement()?;
    if print_ready {
        print_ready_line(&announcement);
    } else {
        announce(&announcement);
    }
    let ended = daemon.serve()?;
    tracing::info!("stopped by a signal; number of ended sessions: {ended}");
    Ok(Exit::Done)
}

fn settings(arguments: ServeArguments) -> DaemonSettings {
    DaemonSettings {
        listen: arguments.listen,
        ports: arguments.ports,
        principals: arguments.principals,
        root: arguments.root,
        write: arguments.write,
        keep_set_ids: arguments.keep_set_ids,
        keep_owners: arguments.keep_owners,
        make_devices: arguments.make_devices,
        delete: arguments.delete,
        on_commit: arguments.on_commit,
        filters: arguments.filter_cmd,
        state: arguments.state,
        certificate: arguments.certificate,
        key: arguments.key,
        allow_dial: arguments.allow_dial,
        terms: Terms {
            allow_clear: arguments.allow_clear,
            memory: limits::for_blocks(arguments.memory),
            linger: arguments.linger,
            expiry: arguments.expire_leftovers.0,
            logs_json: arguments.log_format == LogFormat::Json,
        },
        sessions: arguments.sessions as usize,
        drain: arguments.drain,
        metrics: arguments.metrics,
        audit: arguments.audit.map(|file| AuditSettings {
            file,
            each_file: arguments.audit_files,
            continues_unrecorded: arguments.audit_optional,
        }),
        unguarded: arguments.unguarded,
    }
}

fn print_ready_line(announcement: &Announcement) {
    let file = announcement.token_file.as_ref();
    print_json(&json!({
        "listening": announcement.listening,
        "fingerprint": announcement.fingerprint.to_string(),
        "principal": announcement.principal,
        "token_file": file.map(|file| file.display().to_string()),
    }));
}

fn announce(announcement: &Announcement) {
    let address = announcement.address;
    tracing::info!("listening on {address}, key {}", announcement.fingerprint);
    if let (Some(principal), Some(file)) = (announcement.principal, &announcement.token_file) {
        tracing::info!(
            "clients need a line \"HOST:{} {principal} TOKEN\" in their tokens file; the token, \
             and this line for this host, is in {}",
            address.port(),
            file.display()
        );
    }
}
