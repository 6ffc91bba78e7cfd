//! GridFTP over SSH. A shell replaces ssh and starts the server.

use std::path::Path;

use longhaul_gridftp::location::Location;
use longhaul_gridftp::session::{Options, Session};

use super::servers::{Memory, content, fetched, stored};

#[test]
fn a_server_that_ssh_starts_sends_and_receives_files() {
    let server = "/usr/sbin/globus-gridftp-server";
    if !Path::new(server).exists() || !rustix::process::geteuid().is_root() {
        longhaul_testing::skip(&format!("{server} and root are necessary"));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let start = format!(
        "exec timeout 120 setpriv --reuid nobody --regid nogroup --clear-groups {server} -ssh"
    );
    let options = Options {
        ssh: ["sh", "-c", &start].map(Into::into).to_vec(),
        ..Options::default()
    };
    let location = Location::parse(b"sshftp://nobody@127.0.0.1/").unwrap();
    let mut session = Session::open(&location, options).unwrap();
    assert!(session.is_extended() && !session.encrypts_data());
    let bytes = content(1_000_000, 5);
    let local = directory.path().join("f");
    let path = local.clone().into_os_string().into_encoded_bytes();
    let source = Memory::of(&bytes);
    stored(&mut session, &path, 1_000_000, &source);
    assert!(std::fs::read(&local).unwrap() == bytes);
    let sink = fetched(&mut session, &path, 1_000_000);
    assert!(sink.bytes() == bytes);
}

#[test]
fn a_program_that_is_no_server_is_an_error() {
    let location = Location::parse(b"sshftp://127.0.0.1/").unwrap();
    for (script, message) in [
        ("exit 1", "closed the control connection"),
        ("echo Welcome; exec cat", "does not speak FTP"),
    ] {
        let options = Options {
            ssh: ["sh", "-c", script].map(Into::into).to_vec(),
            ..Options::default()
        };
        let refused = Session::open(&location, options).unwrap_err().to_string();
        assert!(refused.contains(message), "{refused}");
    }
}
