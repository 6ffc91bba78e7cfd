//! Logins that are kept, and those with two factors.

// Each group of tests is a separate crate and uses a part of this module.
#![allow(dead_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::support::sshd::{Setting, Sshd};

/// The only code that is accepted, once.
pub const CODE: &str = "12345678";

/// Returns a directory for sockets that only this user can write to.
pub fn runtime() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o700)).unwrap();
    place
}

/// The only socket there.
pub fn socket(runtime: &TempDir) -> Option<PathBuf> {
    let names = std::fs::read_dir(runtime.path().join("longhaul")).ok()?;
    let paths = names.map(|name| name.unwrap().path());
    // Copies that run have a directory there.
    let mut sockets = paths.filter(|path| path.extension().is_none() && !path.is_dir());
    let only = sockets.next();
    assert_eq!(sockets.next(), None);
    only
}

pub fn to_master(sshd: &Sshd, socket: &Path, what: &str) -> String {
    let words = shlex::split(&sshd.ssh()).unwrap();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["-O", what, "-S"]);
    let told = command.arg(socket).arg("dtn").output().unwrap();
    String::from_utf8_lossy(&told.stderr).into_owned()
}

/// The process of the master there.
pub fn master_at(sshd: &Sshd, socket: &Path) -> Pid {
    let said = to_master(sshd, socket, "check");
    let number = said.split_once("(pid=").unwrap().1.split_once(')').unwrap();
    Pid::from_raw(number.0.parse().unwrap()).unwrap()
}

/// The command of the PAM module for one-time codes.
pub const SECOND_FACTOR: &str = "/usr/bin/google-authenticator";

/// A key and a code, which serves once.
pub fn two_factors(more: &str, apart: bool) -> Sshd {
    let config = format!(
        "{more}\nUsePAM yes\nKbdInteractiveAuthentication yes\n\
         AuthenticationMethods publickey,keyboard-interactive"
    );
    let before = "codes=$home/../codes; pam=$home/../pam; \
        printf 'auth required pam_google_authenticator.so user=root secret=%s\\n' $codes >$pam; \
        printf '%s required pam_permit.so\\n' account session >>$pam; \
        printf 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP\\n\" TOTP_AUTH\\n12345678\\n23456789\\n' >$codes; \
        chmod 400 $codes; mount --bind $pam /etc/pam.d/sshd";
    Sshd::with(&Setting {
        config: &config,
        before,
        apart,
    })
}

/// True if logins with two factors are possible. Otherwise prints the reason for the skip.
pub fn has_two_factors() -> bool {
    let there = Path::new(SECOND_FACTOR).exists();
    if !there {
        let package = "libpam-google-authenticator";
        longhaul_testing::skip(&format!("{SECOND_FACTOR} is missing (Debian: {package})"));
    }
    there
}
