//! Expiry and revocation of tokens, and limits of principals.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::Daemon;
use crate::support::process::{Running, longhaul, run};
use crate::support::random::Random;
use crate::support::tree;

struct Site {
    place: TempDir,
}

impl Site {
    fn new() -> Site {
        let place = tempfile::tempdir().unwrap();
        let large = Random::new(1).bytes(8 << 20);
        tree::write(&place.path().join("data/large"), &large);
        Site { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Makes a token, and returns it and its hash.
    fn token(&self) -> [String; 2] {
        let made = run(longhaul().args(["token", "--principal", "alice"])).expect(0);
        let made = String::from_utf8(made.output).unwrap();
        let token = made
            .split_whitespace()
            .find(|word| word.starts_with("lht_"));
        let hash = made.split('"').find(|word| word.starts_with("lhh1"));
        [token, hash].map(|text| text.unwrap().to_owned())
    }

    fn write_principals(&self, credentials: &str) {
        let text = format!(
            "[[principal]]\nname = \"alice\"\n{credentials}\n[[principal.root]]\nat = \"/\"\n\
             path = {:?}\nrights = [\"read\"]\n",
            self.path("data")
        );
        fs::write(self.path("principals.toml"), text).unwrap();
    }

    fn daemon(&self, credentials: &str) -> Daemon {
        self.write_principals(credentials);
        let file = self.path("principals.toml");
        Daemon::of(vec!["--principals".into(), file.into()], |command| command)
    }

    /// Returns a command that authenticates with a token.
    fn pull(&self, daemon: &Daemon, token: &str, name: &str) -> Command {
        let tokens = self.path(&format!("tokens-{name}"));
        fs::write(&tokens, format!("{} alice {token}\n", daemon.address)).unwrap();
        fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
        let mut pull = longhaul();
        pull.args(["cp", "--json", "--fingerprint", &daemon.fingerprint]);
        pull.arg("--token-file")
            .arg(tokens)
            .arg(daemon.url("large"));
        pull.arg(self.path(name));
        pull
    }
}

fn begun(mut pull: Command) -> Running {
    let pull = Running::start(pull.args(["--timeout", "20", "--bwlimit", "1MB/s"]));
    let moves = |event: &Value| event["moved_bytes"].as_u64() > Some(0);
    pull.event(moves).unwrap();
    pull
}

#[test]
fn a_revoked_token_ends_its_sessions_and_no_others() {
    let site = Site::new();
    let [old, new] = [(); 2].map(|()| site.token());
    let both = format!(
        "tokens = [{{ hash = {:?} }}, {{ hash = {:?}, expires = 2999-01-01T00:00:00Z }}]",
        old[1], new[1]
    );
    let daemon = site.daemon(&both);
    let by_old = begun(site.pull(&daemon, &old[0], "old"));
    let by_new = begun(site.pull(&daemon, &new[0], "new"));
    site.write_principals(&format!("token = {:?}", new[1]));
    daemon.running().signal(Signal::HUP);
    daemon.running().await_words("was revoked: 1;");
    by_old.wait().expect(3).says(&["was revoked"]);
    let again = run(&mut site.pull(&daemon, &old[0], "again"));
    again.expect(4);
    by_new.wait().expect(0);
    let same = |name: &str| fs::read(site.path(name)).unwrap();
    assert!(same("new") == same("data/large"));
}

#[test]
fn an_expired_token_is_refused_with_its_date() {
    let site = Site::new();
    let [token, hash] = site.token();
    let expired = format!("tokens = [{{ hash = {hash:?}, expires = 2020-02-03T04:05:06Z }}]");
    let daemon = site.daemon(&expired);
    let refused = run(&mut site.pull(&daemon, &token, "copy")).expect(4);
    refused.says(&["expired at 2020-02-03T04:05:06Z"]);
    assert!(!Path::new(&site.path("copy")).exists());
}

#[test]
fn a_limit_of_a_principal_is_named_in_the_refusal() {
    let site = Site::new();
    let [token, hash] = site.token();
    let limited = format!("token = {hash:?}\nlimits = {{ sessions = 1, streams = 1 }}");
    let daemon = site.daemon(&limited);
    let first = begun(site.pull(&daemon, &token, "first"));
    let mut second = site.pull(&daemon, &token, "second");
    let second = run(second.args(["--timeout", "1"]));
    assert_ne!(second.code, Some(0));
    let text = "the principal alice has as many sessions as its limit allows (1)";
    assert!(second.errors.contains(text), "{}", second.errors);
    first.kill();
}
