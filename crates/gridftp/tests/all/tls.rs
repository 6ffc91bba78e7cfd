//! TLS of control and data connections with a real server.

use std::path::PathBuf;

use longhaul_gridftp::Error;
use longhaul_gridftp::session::{Options, Session, TlsUse};

use super::servers::{Kind, Memory, Server, content, fetched, stored};

/// Starts a server with TLS. Returns the file with its certificate.
fn start() -> Option<(Server, tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert"), directory.path().join("key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let lines = format!(
        "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\nforce_anon_logins_ssl=YES\n\
         rsa_cert_file={}\nrsa_private_key_file={}\nrequire_ssl_reuse=YES\nssl_ciphers=HIGH\n",
        certificate.display(),
        key.display()
    );
    let server = Server::start_with(Kind::Vsftpd, &lines)?;
    Some((server, directory, certificate))
}

#[test]
fn data_travel_in_tls_if_the_server_offers_it() {
    let Some((server, _directory, certificate)) = start() else {
        return;
    };
    let options = Options {
        trusted: Some(certificate),
        tls: TlsUse::Required,
        ..Options::default()
    };
    let mut session = server.session_with(options);
    assert!(session.encrypts_data());
    let bytes = content(1_000_000, 5);
    for name in ["a", "b"] {
        let path = server.remote(name);
        let source = Memory::of(&bytes);
        stored(&mut session, &path, 1_000_000, &source);
        let sink = fetched(&mut session, &path, 1_000_000);
        assert!(sink.bytes() == bytes);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_ends_the_session() {
    let Some((server, _directory, _certificate)) = start() else {
        return;
    };
    let other = tempfile::NamedTempFile::new().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&other, made.cert.pem()).unwrap();
    let options = Options {
        trusted: Some(other.path().to_owned()),
        ..Options::default()
    };
    let refused = Session::open(&server.location(), options).unwrap_err();
    assert!(matches!(refused, Error::Tls(_)), "{refused}");
}

#[test]
fn a_server_without_tls_is_refused_if_tls_is_required() {
    let Some(server) = Server::start(Kind::Vsftpd) else {
        return;
    };
    let options = Options {
        tls: TlsUse::Required,
        ..Options::default()
    };
    let refused = Session::open(&server.location(), options).unwrap_err();
    assert!(matches!(refused, Error::ClearText), "{refused}");
}
