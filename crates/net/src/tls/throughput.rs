//! Measures the cost of a byte over loopback for longhaul's streams, rustls's buffered interface,
//! and the cipher alone as the lower limit. Run it by hand on an idle machine, pinned to one core
//! to measure the cost and to two to measure the rate:
//!
//! `taskset -c 0 cargo test --release -p longhaul-net throughput -- --ignored --nocapture`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ::aws_lc_rs::aead;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

use super::*;
use crate::clear;

const BLOCK: usize = 1 << 20;
const HEADER: usize = 64;
const BLOCKS: usize = 3_000;

/// Returns the user and system time of this process in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // Linux always reports 100 ticks a second to user space.
    ticks / 100.0
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn measure(name: &str, send: impl FnOnce() + Send + 'static, receive: impl FnOnce() -> usize) {
    let (start, before) = (Instant::now(), processor_seconds());
    let sender = thread::spawn(send);
    let bytes = receive();
    sender.join().unwrap();
    let gigabytes = bytes as f64 / 1e9;
    let wall = start.elapsed().as_secs_f64();
    let cost = (processor_seconds() - before) / gigabytes;
    println!(
        "{name:24} {:6.2} GB/s {cost:6.3} CPU s/GB",
        gigabytes / wall
    );
}

fn streams(name: &str, near: Stream, far: Stream) {
    let (mut writer, mut reader) = (near.writer, far.reader);
    let keep = (near.reader, far.writer);
    measure(
        name,
        move || {
            let (header, block) = (vec![1; HEADER], vec![2; BLOCK]);
            for _ in 0..BLOCKS {
                writer.write_all(&[&header, &block]).unwrap();
            }
            writer.finish().unwrap();
        },
        move || {
            let mut buffer = vec![0; BLOCK];
            let mut bytes = 0;
            loop {
                match reader.read(&mut buffer).unwrap() {
                    0 => return bytes,
                    count => bytes += count,
                }
            }
        },
    );
    drop(keep);
}

fn unbuffered(buffer_bytes: usize) {
    let options = TlsOptions {
        buffer_bytes,
        ..TlsOptions::default()
    };
    let server = TlsServer::new(&Identity::ephemeral().unwrap(), options).unwrap();
    let trust = ServerTrust::Fingerprint(server.fingerprint());
    let client = TlsClient::new(trust, None, options);
    let (a, b) = sockets();
    let accepted = thread::spawn(move || server.accept(b).unwrap());
    let near = client.handshake(a, &HostPort::new("localhost", 1)).unwrap();
    let name = format!("unbuffered, {} KiB", buffer_bytes >> 10);
    streams(&name, near, accepted.join().unwrap());
}

fn buffered() {
    let server = TlsServer::new(&Identity::ephemeral().unwrap(), TlsOptions::default()).unwrap();
    let trust = ServerTrust::Fingerprint(server.fingerprint());
    let client = TlsClient::new(trust, None, TlsOptions::default());
    let config = client.config(&HostPort::new("localhost", 1)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut near = ClientConnection::new(config, name).unwrap();
    let mut far = ServerConnection::new(Arc::clone(&server.config)).unwrap();
    // The same size as longhaul's buffer.
    near.set_buffer_limit(Some(256 << 10));
    let (mut a, mut b) = sockets();
    measure(
        "buffered",
        move || {
            let (header, block) = (vec![1; HEADER], vec![2; BLOCK]);
            let mut stream = rustls::Stream::new(&mut near, &mut a);
            for _ in 0..BLOCKS {
                stream.write_all(&header).unwrap();
                stream.write_all(&block).unwrap();
            }
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            let _ = stream.conn.complete_io(stream.sock);
        },
        move || {
            let mut stream = rustls::Stream::new(&mut far, &mut b);
            let mut buffer = vec![0; BLOCK];
            let mut bytes = 0;
            while bytes < BLOCKS * (HEADER + BLOCK) {
                bytes += stream.read(&mut buffer).unwrap();
            }
            bytes
        },
    );
}

/// Measures only the cipher and the socket: records of 16 KiB are encrypted in one buffer, and
/// decrypted directly into the reader's.
fn floor() {
    const RECORD: usize = 16 << 10;
    const TAG: usize = 16;
    const RUN: usize = 15;
    let key =
        || aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, &[7; 16]).unwrap());
    let nonce = || aead::Nonce::assume_unique_for_key([0; 12]);
    let (mut a, mut b) = sockets();
    measure(
        "floor",
        move || {
            let (key, block) = (key(), vec![2; RECORD * RUN]);
            let mut run = vec![0; (RECORD + TAG) * RUN];
            for _ in 0..BLOCKS * BLOCK / (RECORD * RUN) {
                for (plain, out) in block.chunks(RECORD).zip(run.chunks_mut(RECORD + TAG)) {
                    let (body, tag) = out.split_at_mut(RECORD);
                    body.copy_from_slice(plain);
                    let sealed = key.seal_in_place_separate_tag(nonce(), aead::Aad::empty(), body);
                    tag.copy_from_slice(sealed.unwrap().as_ref());
                }
                a.write_all(&run).unwrap();
            }
        },
        move || {
            let key = key();
            let mut run = vec![0; (RECORD + TAG) * RUN];
            let mut plain = vec![0; BLOCK];
            let mut bytes = 0;
            while b.read_exact(&mut run).is_ok() {
                for (record, out) in run.chunks(RECORD + TAG).zip(plain.chunks_mut(RECORD)) {
                    let (body, tag) = record.split_at(RECORD);
                    key.open_separate_gather(nonce(), aead::Aad::empty(), body, tag, out)
                        .unwrap();
                    bytes += RECORD;
                }
            }
            bytes
        },
    );
}

#[test]
#[ignore = "a measurement of half a minute"]
fn throughput() {
    for _ in 0..3 {
        let (a, b) = sockets();
        streams(
            "clear",
            clear::over_tcp(a).unwrap(),
            clear::over_tcp(b).unwrap(),
        );
        floor();
        buffered();
        for buffer_bytes in [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20] {
            unbuffered(buffer_bytes);
        }
    }
}
