//! `longhaul verify`: a copy that sends checksums instead of data and writes
//! nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_engine::session::TransferSettings;
use longhaul_proto::handshake::{Landing, Purport};

use super::here::Here;
use super::run::{Fixed, Task, check_stack, layer_settings, remote_flows};
use crate::arguments::VerifyArguments;
use crate::between::steer;
use crate::between::words::Asked;
use crate::endpoint::{Endpoint, RemotePath, check_colons};
use crate::messages::{Exit, Stop, finish};
use crate::report::Report;

/// Runs it.
pub fn run(arguments: VerifyArguments) -> Exit {
    finish(verify(&arguments))
}

fn verify(arguments: &VerifyArguments) -> Result<Exit, Stop> {
    check_colons([&arguments.left, &arguments.right])
        .map_err(|error| Stop::because(Exit::Usage, error))?;
    let asked = Asked::verify(arguments);
    if let Some(sides) = asked.sides()? {
        return steer::run(&asked, &sides);
    }
    let report = Report::new(arguments.json, arguments.quiet, None)?.detailed(arguments.verbose);
    report.end_at_signal();
    task(arguments, Here::default())?.run(&report)
}

/// What is to be done, where paths of this host are opened `here`.
pub fn task(arguments: &VerifyArguments, here: Here) -> Result<Task, Stop> {
    check_stack(&arguments.layers)?;
    let parse = |path| Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error));
    let (mut left, mut right) = (parse(&arguments.left)?, parse(&arguments.right)?);
    if left == Endpoint::Standard || right == Endpoint::Standard {
        let text = "- is a stream: what is compared are files and trees that are there";
        return Err(Stop::new(Exit::Usage, text));
    }
    let settings = TransferSettings {
        purport: Purport::Verify,
        silence: arguments.connection.timeout,
        ..layer_settings(&arguments.layers)
    };
    // Each is what it is, with a slash or without; only a root has no name
    // that the other could be given.
    // A principal's paths are resolved beneath its roots, where no link is followed.
    if let Here::Anywhere = here {
        follow(&mut left, &right);
    }
    let named = trim(&mut left) && trim(&mut right);
    let landing = if named { Landing::As } else { Landing::Within };
    if !named {
        fill(&mut left);
    }
    Ok(Task {
        sources: vec![left],
        destination: right,
        recursive: true,
        copy_links: arguments.copy_links,
        keep_set_ids: false,
        landing,
        settings,
        remote_flows: remote_flows(&arguments.layers),
        fixed: Fixed::new(&arguments.layers),
        connection: arguments.connection.clone(),
        stream: None,
        here,
        introduction: None,
    })
}

fn path_of(endpoint: &mut Endpoint) -> Option<&mut Vec<u8>> {
    let remote = match endpoint {
        Endpoint::Local(path) => return Some(path),
        Endpoint::Daemon(remote) => &mut remote.path,
        Endpoint::Ssh(remote) => &mut remote.path,
        Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => return None,
    };
    match remote {
        RemotePath::Path(path) => Some(path),
        RemotePath::Null | RemotePath::Zero(_) => None,
    }
}

/// A link of this host is compared as one with a link, as `cp -r` makes it. With a slash, or where
/// no link is at the other path of this host, what it leads to is compared.
fn follow(left: &mut Endpoint, right: &Endpoint) {
    let as_path = |path: &[u8]| Path::new(OsStr::from_bytes(path)).to_owned();
    let Endpoint::Local(path) = left else {
        return;
    };
    let meant = match right {
        _ if path.ends_with(b"/") => true,
        Endpoint::Local(right) => !as_path(right).is_symlink(),
        _ => false,
    };
    let end = path.iter().rposition(|&byte| byte != b'/');
    let is_link = as_path(&path[..end.map_or(0, |last| last + 1)]).is_symlink();
    // One that leads nowhere is compared as it is.
    if meant
        && is_link
        && let Ok(real) = as_path(path).canonicalize()
    {
        *path = real.into_os_string().into_encoded_bytes();
    }
}

/// Takes trailing slashes off; false where no name is left.
fn trim(endpoint: &mut Endpoint) -> bool {
    let Some(path) = path_of(endpoint) else {
        return true;
    };
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    path.truncate(end.max(1));
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    !matches!(name, b"" | b"." | b"..")
}

/// What is in a directory, not the directory.
fn fill(endpoint: &mut Endpoint) {
    if let Some(path) = path_of(endpoint)
        && !path.ends_with(b"/")
    {
        path.push(b'/');
    }
}
