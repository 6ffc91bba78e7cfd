use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use longhaul_units::Random;
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{CipherSuiteCommon, ConnectionTrafficSecrets, SupportedCipherSuite, Tls13CipherSuite};

use super::*;
use crate::known_hosts::{self, Knowledge};
use crate::provider::suites;
use crate::stream::{StreamReader, StreamWriter};
use crate::tcp::TcpOptions;
use crate::trust::{CertificateAuthority, KnownHosts};

type Outcome = (Result<Stream, TlsError>, Result<Stream, TlsError>);

fn listener() -> (TcpListener, HostPort) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, HostPort::new("localhost", address.port()))
}

fn socket_pair() -> (TcpStream, TcpStream, HostPort) {
    let (listener, host) = listener();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0, host)
}

/// Performs a handshake. Returns the client's result and the server's.
fn meet(client: &TlsClient, server: &TlsServer) -> Outcome {
    let (client_socket, server_socket, host) = socket_pair();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(server_socket));
        let connected = client.handshake(client_socket, &host);
        (connected, accepted.join().unwrap())
    })
}

fn server() -> TlsServer {
    TlsServer::new(&Identity::ephemeral().unwrap(), TlsOptions::default()).unwrap()
}

fn client(trust: ServerTrust) -> TlsClient {
    TlsClient::new(trust, None, TlsOptions::default())
}

fn pinned(server: &TlsServer) -> TlsClient {
    client(ServerTrust::Fingerprint(server.fingerprint()))
}

fn joined() -> (Stream, Stream) {
    let server = server();
    let (a, b) = meet(&pinned(&server), &server);
    (a.unwrap(), b.unwrap())
}

fn read_exactly(reader: &mut dyn StreamReader, count: usize) -> Vec<u8> {
    let mut all = vec![0; count];
    let mut filled = 0;
    while filled < count {
        let got = reader.read(&mut all[filled..]).unwrap();
        assert!(got > 0, "ended after {filled} of {count}");
        filled += got;
    }
    all
}

#[test]
fn a_pinned_server_is_believed() {
    let server = server();
    let (mut near, mut far) = {
        let (a, b) = meet(&pinned(&server), &server);
        (a.unwrap(), b.unwrap())
    };
    near.writer.write_all(&[b"head", b"", b"body"]).unwrap();
    assert_eq!(read_exactly(&mut *far.reader, 8), b"headbody");
    far.writer.write_all(&[b"answer"]).unwrap();
    // A buffer smaller than the record receives it in pieces.
    assert_eq!(read_exactly(&mut *near.reader, 2), b"an");
    assert_eq!(read_exactly(&mut *near.reader, 4), b"swer");
    assert_eq!(near.handle.peer_fingerprint(), Some(server.fingerprint()));
    assert_eq!(far.handle.peer_fingerprint(), None);
    assert!(near.handle.protection().starts_with("TLS 1.3, "));
    assert_eq!(near.handle.bytes_written().0, 8);
    assert_eq!(near.handle.bytes_read().0, 6);
    assert_eq!(near.handle.peer_address(), far.handle.local_address());
    assert!(near.handle.tcp_info().is_some());
}

/// Sends frames of any length, each after its length, in pieces of any length. A reader that
/// expects a frame's bytes never waits for more bytes than come.
#[test]
fn a_reader_needs_only_the_expected_bytes() {
    let lengths = [
        0, 1, 4095, 4096, 16_383, 16_384, 16_385, 131_072, 131_073, 700_001,
    ];
    let pieces = [1, 7, 5000, 16_384, 20_000, 300_000];
    let (near, mut far) = joined();
    far.handle.end_in_time();
    let mut writer = near.writer;
    let writing = std::thread::spawn(move || {
        for (at, length) in lengths.iter().enumerate() {
            let frame: Vec<u8> = (0..*length).map(|byte| byte as u8).collect();
            let piece = pieces[at % pieces.len()].max(length / 500);
            let head = (*length as u32).to_be_bytes();
            writer.write_all(&[&head]).unwrap();
            for part in frame.chunks(piece) {
                writer.write_all(&[part]).unwrap();
            }
        }
        writer
    });
    for length in lengths {
        let head = read_exactly(&mut *far.reader, 4);
        assert_eq!(head, (length as u32).to_be_bytes());
        far.reader.anticipate(length);
        let frame = read_exactly(&mut *far.reader, length);
        assert!((0..length).all(|byte| frame[byte] == byte as u8));
    }
    drop(writing.join().unwrap());
}

#[test]
fn another_key_than_pinned_is_refused() {
    let (server, other) = (server(), server());
    let (near, far) = meet(&pinned(&other), &server);
    let error = near.unwrap_err();
    let mismatch = matches!(&error, TlsError::Trust(TrustError::Mismatch { expected, found, .. })
        if *expected == other.fingerprint() && *found == server.fingerprint());
    assert!(mismatch, "{error}");
    let error = far.unwrap_err();
    assert!(matches!(error, TlsError::Refused { .. }), "{error}");
}

struct Home {
    _directory: tempfile::TempDir,
    file: PathBuf,
}

impl Home {
    fn new() -> Home {
        let directory = tempfile::tempdir().unwrap();
        Home {
            file: directory.path().join("known_hosts"),
            _directory: directory,
        }
    }

    fn trust(&self, accept_new: bool) -> KnownHosts {
        KnownHosts {
            file: self.file.clone(),
            accept_new,
            ask: None,
        }
    }
}

#[test]
fn an_unknown_server_is_refused_with_the_remedy() {
    let (home, server) = (Home::new(), server());
    let (near, _) = meet(&client(ServerTrust::KnownHosts(home.trust(false))), &server);
    let text = near.unwrap_err().to_string();
    let remedy = format!("--fingerprint {}", server.fingerprint());
    assert!(
        text.contains(&remedy) && text.contains("--accept-new"),
        "{text}"
    );
    assert!(!home.file.exists());
}

#[test]
fn a_server_is_pinned_on_first_use_and_may_not_change() {
    let (home, server, impostor) = (Home::new(), server(), server());
    let (listener, host) = listener();
    let accept_new = client(ServerTrust::KnownHosts(home.trust(true)));
    let careful = client(ServerTrust::KnownHosts(home.trust(false)));
    let try_with = |client: &TlsClient, server: &TlsServer| {
        std::thread::scope(|scope| {
            scope.spawn(|| server.accept(listener.accept().unwrap().0));
            client.connect(&host, Duration::from_secs(60), &TcpOptions::default())
        })
    };
    try_with(&accept_new, &server).unwrap();
    try_with(&careful, &server).unwrap();
    for client in [&accept_new, &careful] {
        let text = try_with(client, &impostor).unwrap_err().to_string();
        let place = format!("{}, line 1", home.file.display());
        assert!(
            text.contains("has changed") && text.contains(&place),
            "{text}"
        );
    }
}

#[test]
fn the_user_may_be_asked_about_an_unknown_key() {
    let (home, server) = (Home::new(), server());
    let (listener, host) = listener();
    let asked = Arc::new(AtomicUsize::new(0));
    let trust = |yes: bool| {
        let asked = Arc::clone(&asked);
        ServerTrust::KnownHosts(KnownHosts {
            ask: Some(Arc::new(move |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                yes
            })),
            ..home.trust(false)
        })
    };
    let try_with = |trust: ServerTrust, connections: usize| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..connections {
                    let _ = server.accept(listener.accept().unwrap().0);
                }
            });
            let minute = Duration::from_secs(60);
            client(trust).connect(&host, minute, &TcpOptions::default())
        })
    };
    let refused = try_with(trust(false), 1).unwrap_err();
    assert!(
        matches!(refused, TlsError::Trust(TrustError::Unknown { .. })),
        "{refused}"
    );
    assert!(!home.file.exists());
    try_with(trust(true), 2).unwrap();
    let knowledge = known_hosts::look_up(&home.file, &host, &server.fingerprint());
    assert_eq!(knowledge.unwrap(), Knowledge::Known);
    try_with(trust(true), 1).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn an_authority_vouches_for_names() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let root_key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = parameters.self_signed(&root_key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, root_key);
    let identity = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        let file = path(name);
        std::fs::write(&file, key.serialize_pem() + &certificate.pem()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        Identity::from_pem_files(&file, &file).unwrap()
    };
    std::fs::write(path("root"), root.pem()).unwrap();
    let authority = CertificateAuthority::from_pem_file(&path("root")).unwrap();
    let trust = ServerTrust::CertificateAuthority(authority);
    let serve = |name| TlsServer::new(&identity(name), TlsOptions::default()).unwrap();
    let (near, far) = meet(&client(trust.clone()), &serve("localhost"));
    assert!(near.is_ok() && far.is_ok());
    for wrong in [serve("other.example"), server()] {
        let error = meet(&client(trust.clone()), &wrong).0.unwrap_err();
        let refused = matches!(error, TlsError::Trust(TrustError::Authority { .. }));
        assert!(refused, "{error}");
    }
}

#[test]
fn a_client_may_show_its_key() {
    let (server, identity) = (server(), Identity::ephemeral().unwrap());
    let client = TlsClient {
        identity: Some(identity.clone()),
        ..pinned(&server)
    };
    let (near, far) = meet(&client, &server);
    near.unwrap();
    let shown = far.unwrap().handle.peer_fingerprint();
    assert_eq!(shown, Some(identity.fingerprint()));
}

#[test]
fn an_end_is_distinguished_from_a_truncation() {
    let (mut near, mut far) = joined();
    near.writer.write_all(&[b"x"]).unwrap();
    near.writer.finish().unwrap();
    assert_eq!(read_exactly(&mut *far.reader, 1), b"x");
    for _ in 0..2 {
        assert_eq!(far.reader.read(&mut [0; 8]).unwrap(), 0);
    }
    // The other direction still works.
    far.writer.write_all(&[b"still"]).unwrap();
    assert_eq!(read_exactly(&mut *near.reader, 5), b"still");
    drop(far.writer);
    let error = near.reader.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(near.writer.write_all(&[b"after the end"]).is_err());
}

#[test]
fn shutdown_wakes_a_blocked_reader() {
    let (near, far) = joined();
    let Stream {
        mut reader, handle, ..
    } = near;
    let waiting = std::thread::spawn(move || reader.read(&mut [0; 8]));
    handle.shutdown();
    assert!(waiting.join().unwrap().is_err());
    drop(far);
}

/// Returns a random size. Small and large sizes are equally likely.
fn size(random: &mut Random) -> usize {
    let scale = random.below(18);
    random.below((2 << scale) + 1) as usize
}

fn payload(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.below(256) as u8).collect()
}

fn write_in_pieces(writer: &mut dyn StreamWriter, mut data: &[u8], seed: u64) {
    let mut random = Random::new(seed);
    while !data.is_empty() {
        let mut parts = Vec::new();
        for _ in 0..random.below(5) {
            let (part, rest) = data.split_at(size(&mut random).min(data.len()));
            parts.push(part);
            data = rest;
        }
        writer.write_all(&parts).unwrap();
    }
    writer.finish().unwrap();
}

fn read_in_pieces(reader: &mut dyn StreamReader, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    let mut buffer = vec![0; 300_000];
    loop {
        let room = 1 + size(&mut random);
        match reader.read(&mut buffer[..room]).unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Sends both ways at the same time in pieces of random sizes, and compares.
fn exchange(near: Stream, far: Stream, bytes: usize, seed: u64) {
    println!("seed {seed}");
    let (there, back) = (payload(bytes, seed), payload(bytes, seed + 1));
    let (mut near, mut far) = (near, far);
    std::thread::scope(|scope| {
        scope.spawn(|| write_in_pieces(&mut *near.writer, &there, seed + 2));
        scope.spawn(|| write_in_pieces(&mut *far.writer, &back, seed + 3));
        let at_far = scope.spawn(|| read_in_pieces(&mut *far.reader, seed + 4));
        let at_near = scope.spawn(|| read_in_pieces(&mut *near.reader, seed + 5));
        assert!(at_far.join().unwrap() == there, "there, seed {seed}");
        assert!(at_near.join().unwrap() == back, "back, seed {seed}");
    });
}

#[test]
fn both_directions_carry_any_sizes_at_once() {
    for seed in 0..4 {
        let (near, far) = joined();
        exchange(near, far, 3_000_000, seed * 10);
    }
}

#[test]
fn the_least_memory_is_enough() {
    let small = TlsOptions {
        buffer_bytes: 0,
        ..TlsOptions::default()
    };
    let server = TlsServer {
        options: small,
        ..server()
    };
    let client = TlsClient {
        options: small,
        ..pinned(&server)
    };
    let (near, far) = meet(&client, &server);
    exchange(near.unwrap(), far.unwrap(), 1_000_000, 77);
}

/// Counts the keys created for sending and receiving.
struct CountingAead {
    inner: &'static dyn Tls13AeadAlgorithm,
    keys: AtomicUsize,
}

impl Tls13AeadAlgorithm for CountingAead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.inner.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.inner.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.inner.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.inner.extract_keys(key, iv)
    }
}

/// Returns the fastest suite, with keys that expire after 64 records.
fn short_lived_keys() -> (Arc<CryptoProvider>, &'static CountingAead) {
    let suite = suites(true)[0].tls13().unwrap();
    let counting: &'static CountingAead = Box::leak(Box::new(CountingAead {
        inner: suite.aead_alg,
        keys: AtomicUsize::new(0),
    }));
    let suite = Tls13CipherSuite {
        common: CipherSuiteCommon {
            confidentiality_limit: 64,
            ..suite.common
        },
        aead_alg: counting,
        ..*suite
    };
    let mut short = (*provider()).clone();
    short.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
    (Arc::new(short), counting)
}

#[test]
fn keys_are_renewed_while_data_flow() {
    let (provider, counting) = short_lived_keys();
    let identity = Identity::ephemeral().unwrap();
    let options = TlsOptions::default();
    let server = TlsServer::with_provider(&identity, options, Arc::clone(&provider)).unwrap();
    let client = TlsClient {
        provider,
        ..pinned(&server)
    };
    let (near, far) = meet(&client, &server);
    let before = counting.keys.load(Ordering::Relaxed);
    let bytes = 4_000_000;
    exchange(near.unwrap(), far.unwrap(), bytes, 5);
    let renewed = counting.keys.load(Ordering::Relaxed) - before;
    // Each direction has at least that many full records, and each key is created at both ends.
    let least = 2 * 2 * (bytes / (16 << 10) / 64);
    assert!(renewed >= least, "{renewed} of {least}");
}

#[test]
fn keys_are_renewed_towards_a_peer_that_never_writes() {
    let (provider, counting) = short_lived_keys();
    let identity = Identity::ephemeral().unwrap();
    let options = TlsOptions::default();
    let server = TlsServer::with_provider(&identity, options, Arc::clone(&provider)).unwrap();
    let client = TlsClient {
        provider,
        ..pinned(&server)
    };
    let (near, far) = meet(&client, &server);
    let (mut near, mut far) = (near.unwrap(), far.unwrap());
    let before = counting.keys.load(Ordering::Relaxed);
    let data = payload(16 << 20, 9);
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            near.writer.write_all(&[&data]).unwrap();
            near.writer.finish().unwrap();
        });
        read_in_pieces(&mut *far.reader, 1)
    });
    assert!(got == data);
    assert!(counting.keys.load(Ordering::Relaxed) - before >= 2 * 16);
    far.writer.write_all(&[b"thanks"]).unwrap();
    assert_eq!(read_exactly(&mut *near.reader, 6), b"thanks");
}

/// Returns a server's error, and its answer to a peer that sends `bytes` and then waits.
fn server_hears(bytes: &[u8], options: TlsOptions) -> (TlsError, Vec<u8>) {
    let (mut client_socket, server_socket, _) = socket_pair();
    let server = TlsServer {
        options,
        ..server()
    };
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(server_socket));
        client_socket.write_all(bytes).unwrap();
        let error = accepted.join().unwrap().unwrap_err();
        let mut answer = Vec::new();
        let _ = client_socket.read_to_end(&mut answer);
        (error, answer)
    })
}

#[test]
fn other_data_are_reported_as_not_tls() {
    let (error, _) = server_hears(b"GET / HTTP/1.1\r\n\r\n", TlsOptions::default());
    assert!(matches!(error, TlsError::NotTls { .. }), "{error}");
}

/// Returns a greeting of TLS 1.2: no supported_versions, one suite, X25519 and ECDSA.
fn old_greeting() -> Vec<u8> {
    let extensions = [
        &[0, 10, 0, 4, 0, 2, 0, 29][..],
        &[0, 13, 0, 4, 0, 2, 4, 3],
        &[0, 11, 0, 2, 1, 0],
        &[0, 23, 0, 0],
    ]
    .concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend((message.len() as u16).to_be_bytes());
    record.extend(message);
    record
}

#[test]
fn an_older_tls_is_refused_by_its_name() {
    let (error, answer) = server_hears(&old_greeting(), TlsOptions::default());
    assert!(matches!(error, TlsError::Version { .. }), "{error}");
    // The peer receives the reason: a fatal alert, protocol_version.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 70]);
}

#[test]
fn a_silent_peer_is_dropped_at_the_deadline() {
    let options = TlsOptions {
        handshake_timeout: Duration::from_millis(50),
        ..TlsOptions::default()
    };
    for begun in [&b""[..], &[22, 3, 1], &old_greeting()[..20]] {
        let (error, answer) = server_hears(begun, options);
        assert!(matches!(error, TlsError::Deadline { .. }), "{error}");
        assert_eq!(answer, b"");
    }
}

#[test]
fn a_silent_server_is_given_up_at_the_deadline() {
    let (client_socket, server_socket, host) = socket_pair();
    let server = server();
    let client = TlsClient {
        options: TlsOptions {
            handshake_timeout: Duration::from_millis(50),
            ..TlsOptions::default()
        },
        ..pinned(&server)
    };
    let error = client.handshake(client_socket, &host).unwrap_err();
    assert!(matches!(error, TlsError::Deadline { .. }), "{error}");
    drop(server_socket);
}

#[test]
fn a_server_of_another_protocol_is_reported() {
    let (client_socket, mut server_socket, host) = socket_pair();
    server_socket.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let error = pinned(&server())
        .handshake(client_socket, &host)
        .unwrap_err();
    assert!(matches!(error, TlsError::NotTls { .. }), "{error}");
    let (client_socket, server_socket, host) = socket_pair();
    server_socket.shutdown(Shutdown::Write).unwrap();
    let error = pinned(&server())
        .handshake(client_socket, &host)
        .unwrap_err();
    assert!(matches!(error, TlsError::Closed { .. }), "{error}");
}

#[test]
fn an_endless_greeting_is_cut_off() {
    // A ClientHello of 65,000 bytes in full records, of which 3 are sent.
    let mut bytes = Vec::new();
    for index in 0..3 {
        bytes.extend([22, 3, 1, 0x40, 0]);
        let mut body = vec![0; 16 << 10];
        if index == 0 {
            body[..4].copy_from_slice(&[1, 0, 0xfd, 0xe8]);
        }
        bytes.extend(body);
    }
    let (error, _) = server_hears(&bytes, TlsOptions::default());
    assert!(matches!(error, TlsError::TooLarge { .. }), "{error}");
}

#[test]
fn another_protocol_over_tls_is_refused() {
    let server = server();
    for names in [vec![b"h2".to_vec()], vec![]] {
        let (client_socket, server_socket, host) = socket_pair();
        let client = pinned(&server);
        let mut config = (*client.config(&host).unwrap()).clone();
        config.alpn_protocols = names;
        let connection =
            UnbufferedClientConnection::new(Arc::new(config), server_name(&host).unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| server.accept(server_socket));
            let client_socket = Socket::Tcp(client_socket);
            assert!(handshake::run(connection.unwrap(), &client_socket, deadline).is_err());
            let error = accepted.join().unwrap().unwrap_err();
            assert!(matches!(error, TlsError::Protocol { .. }), "{error}");
        });
    }
}

/// Forwards in both directions, and flips one bit, `after` bytes into the data to the server.
fn flip_one_bit(client: TcpStream, server: TcpStream, after: usize) {
    let (mut client_back, mut server_back) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut client, mut server) = (client, server);
    std::thread::spawn(move || io::copy(&mut server_back, &mut client_back));
    std::thread::spawn(move || {
        let mut passed = 0;
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            if (passed..passed + count).contains(&after) {
                buffer[after - passed] ^= 1;
            }
            passed += count;
            if server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    });
}

#[test]
fn a_flipped_bit_kills_the_stream() {
    static SERVER: LazyLock<TlsServer> = LazyLock::new(server);
    let (client_socket, middle_client, host) = socket_pair();
    let (middle_server, server_socket, _) = socket_pair();
    // Long after the handshake.
    flip_one_bit(middle_client, middle_server, 50_000);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| SERVER.accept(server_socket));
        let mut near = pinned(&SERVER).handshake(client_socket, &host).unwrap();
        let mut far = accepted.join().unwrap().unwrap();
        scope.spawn(move || {
            // Fails as soon as the other end has detected the damage.
            let _ = near.writer.write_all(&[&[1; 1_000_000]]);
        });
        let mut buffer = [0; 20_000];
        let error = loop {
            match far.reader.read(&mut buffer) {
                Ok(count) => assert!(count > 0 && buffer[..count].iter().all(|&b| b == 1)),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(far.writer.write_all(&[b"x"]).is_err());
        assert!(far.reader.read(&mut buffer).is_err());
    });
}

/// Forwards between two sockets, and returns the data sent from the first to the second.
fn carry_noting(near: UnixStream, far: TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    let (mut near_back, mut far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let (mut near, mut far) = (near, far);
    std::thread::spawn(move || {
        let _ = io::copy(&mut far_back, &mut near_back);
        let _ = near_back.shutdown(Shutdown::Write);
    });
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..count]);
            far.write_all(&buffer[..count]).unwrap();
        }
        let _ = far.shutdown(Shutdown::Write);
        seen
    })
}

#[test]
fn a_relay_cannot_read_a_stream() {
    const SECRET: &[u8] = b"what nobody between may read";
    let server = server();
    let (near, carried) = UnixStream::pair().unwrap();
    let (onward, server_socket, host) = socket_pair();
    let carrying = carry_noting(carried, onward);
    let patience = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(server_socket));
        let near = pinned(&server).handshake_over(near, &host, patience);
        let (mut near, mut far) = (near.unwrap(), accepted.join().unwrap().unwrap());
        near.writer.write_all(&[SECRET]).unwrap();
        assert_eq!(read_exactly(&mut *far.reader, SECRET.len()), SECRET);
        far.writer.write_all(&[SECRET]).unwrap();
        assert_eq!(read_exactly(&mut *near.reader, SECRET.len()), SECRET);
        assert_eq!(near.handle.peer_fingerprint(), Some(server.fingerprint()));
        assert!(near.handle.tcp_info().is_none());
    });
    let seen = carrying.join().unwrap();
    assert!(seen.len() > SECRET.len());
    assert!(!seen.windows(SECRET.len()).any(|part| part == SECRET));
}

#[test]
fn a_relay_to_another_server_is_detected() {
    let (meant, other) = (server(), server());
    let (near, carried) = UnixStream::pair().unwrap();
    let (onward, server_socket, host) = socket_pair();
    let carrying = carry_noting(carried, onward);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| other.accept(server_socket));
        let patience = Duration::from_secs(60);
        let error = pinned(&meant).handshake_over(near, &host, patience);
        let error = error.unwrap_err();
        assert!(matches!(error, TlsError::Trust(_)), "{error}");
        assert!(accepted.join().unwrap().is_err());
    });
    carrying.join().unwrap();
}

#[test]
fn suites_are_in_the_order_of_speed() {
    let first = |aes| suite_name(Some(suites(aes)[0]));
    assert_eq!(first(true), "TLS 1.3, AES-128-GCM");
    assert_eq!(first(false), "TLS 1.3, ChaCha20-Poly1305");
}

#[test]
fn addresses_are_names_too() {
    for host in ["::1", "fe80::1%eth0", "10.0.0.1", "dtn_1.example"] {
        assert!(server_name(&HostPort::new(host, 1)).is_ok(), "{host}");
    }
    assert!(server_name(&HostPort::new("a b", 1)).is_err());
}
