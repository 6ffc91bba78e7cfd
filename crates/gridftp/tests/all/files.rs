//! Transfers of files from and to real servers.

use longhaul_gridftp::Error;
use longhaul_gridftp::checksum::Checksum;
use longhaul_gridftp::protocol::ranges::Ranges;
use longhaul_gridftp::retrieve::Fetch;
use longhaul_gridftp::session::{Options, TransferMode};
use longhaul_gridftp::store::{Pieces, Put};

use super::servers::{Kind, Memory, Server, all, content, fetched, stored};

/// Sizes at the edges of blocks, and more files than commands are sent ahead.
fn sizes() -> Vec<usize> {
    let mut sizes = vec![0, 1, 262_143, 262_144, 262_145, 3_000_017, 0];
    sizes.extend((0..80).map(|number| number * 37));
    sizes
}

fn modes() -> [Options; 3] {
    let stream = Options {
        mode: TransferMode::Stream,
        ..Options::default()
    };
    let single = Options {
        connections: 1,
        ..Options::default()
    };
    [Options::default(), single, stream]
}

#[test]
fn files_are_fetched_in_batches() {
    for server in all() {
        let mut wanted = Vec::new();
        for (number, size) in sizes().into_iter().enumerate() {
            let bytes = content(size, number as u64);
            std::fs::write(server.local(&format!("f{number}")), &bytes).unwrap();
            wanted.push((server.remote(&format!("f{number}")), bytes));
        }
        // A file that does not exist fails, and only that file.
        wanted.insert(3, (server.remote("absent"), vec![0; 100]));
        for options in modes() {
            let mut session = server.session_with(options);
            // The second batch uses the data connections of the first one.
            for _ in 0..2 {
                let sinks: Vec<Memory> = wanted.iter().map(|_| Memory::default()).collect();
                let files: Vec<Fetch<'_>> = wanted
                    .iter()
                    .zip(&sinks)
                    .map(|((path, bytes), sink)| Fetch {
                        path,
                        size: bytes.len() as u64,
                        present: Ranges::default(),
                        sink,
                    })
                    .collect();
                let mut results = Vec::new();
                let all = session.retrieve(&files, &mut |index, result| {
                    assert_eq!(index, results.len());
                    results.push(result);
                });
                all.unwrap();
                for (index, result) in results.iter().enumerate() {
                    if index == 3 {
                        assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
                    } else {
                        assert!(result.is_ok(), "{index}: {result:?}");
                        assert!(sinks[index].bytes() == wanted[index].1, "{index}");
                    }
                }
                assert_eq!(results.len(), wanted.len());
            }
            session.close();
        }
    }
}

#[test]
fn a_fetch_continues_where_it_was_interrupted() {
    for server in all() {
        let bytes = content(2_000_000, 7);
        std::fs::write(server.local("f"), &bytes).unwrap();
        let path = server.remote("f");
        for options in modes() {
            let mut session = server.session_with(options);
            let mut present = Ranges::front(900_000);
            present.insert(1_500_000, 1_700_000).unwrap();
            let mut start = bytes.clone();
            start[900_000..1_500_000].fill(0);
            start[1_700_000..].fill(0);
            let sink = Memory::of(&start);
            let file = Fetch {
                path: &path,
                size: bytes.len() as u64,
                present,
                sink: &sink,
            };
            let mut result = None;
            let mut ended = |_, ended| result = Some(ended);
            session.retrieve(&[file], &mut ended).unwrap();
            result.unwrap().unwrap();
            assert!(sink.bytes() == bytes);
            let expected = if session.is_extended() {
                900_000
            } else {
                1_100_000
            };
            assert_eq!(sink.written.get(), expected);
        }
    }
}

#[test]
fn a_file_of_another_size_is_an_error() {
    for server in all() {
        std::fs::write(server.local("f"), content(1000, 7)).unwrap();
        let path = server.remote("f");
        for options in modes() {
            for size in [0, 999, 1001] {
                let mut session = server.session_with(options.clone());
                let sink = Memory::default();
                let file = Fetch {
                    path: &path,
                    size,
                    present: Ranges::default(),
                    sink: &sink,
                };
                let failed = session.retrieve(&[file], &mut |_, _| panic!("a result"));
                assert!(failed.is_err(), "{size}");
            }
        }
    }
}

#[test]
fn files_are_stored_in_batches() {
    for server in all() {
        for (round, options) in modes().into_iter().enumerate() {
            let mut session = server.session_with(options);
            let mut sources = Vec::new();
            for (number, size) in sizes().into_iter().enumerate() {
                let name = format!("r{round}f{number}");
                sources.push((name, Memory::of(&content(size, number as u64))));
            }
            // A file in an absent directory fails, and only that file.
            sources.insert(3, ("absent/f".to_owned(), Memory::of(b"absent")));
            let paths: Vec<Vec<u8>> = sources
                .iter()
                .map(|(name, _)| server.remote(name))
                .collect();
            let files: Vec<Put<'_>> = sources
                .iter()
                .zip(&paths)
                .map(|((_, source), path)| Put {
                    path,
                    size: source.bytes().len() as u64,
                    present: Ranges::default(),
                    source,
                })
                .collect();
            let mut results = Vec::new();
            session
                .store(&files, &mut |_, result| results.push(result))
                .unwrap();
            for (index, ((name, source), result)) in sources.iter().zip(&results).enumerate() {
                if index == 3 {
                    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
                } else {
                    assert!(result.is_ok(), "{index}: {result:?}");
                    let stored = std::fs::read(server.local(name)).unwrap();
                    assert!(stored == source.bytes(), "{name}");
                }
            }
            assert_eq!(results.len(), files.len());
        }
    }
}

#[test]
fn a_store_continues_where_it_was_interrupted() {
    for server in all() {
        let bytes = content(2_000_000, 9);
        let path = server.remote("f");
        for options in modes() {
            let mut session = server.session_with(options);
            let put = |source: &Memory, present| {
                let file = Put {
                    path: &path,
                    size: bytes.len() as u64,
                    present,
                    source,
                };
                let mut result = None;
                let mut ended = |_, ended| result = Some(ended);
                session.store(&[file], &mut ended).unwrap();
                result.unwrap().unwrap();
            };
            let mut put = put;
            let mut other = bytes.clone();
            other[900_000..].fill(0);
            put(&Memory::of(&other), Ranges::default());
            // The data before the end of the first range are not read again.
            let mut rest = bytes.clone();
            rest[..900_000].fill(1);
            put(&Memory::of(&rest), Ranges::front(900_000));
            assert!(std::fs::read(server.local("f")).unwrap() == bytes);
            std::fs::remove_file(server.local("f")).unwrap();
        }
    }
}

#[test]
fn a_shorter_file_replaces_a_longer_one() {
    for server in all() {
        for options in modes() {
            let mut session = server.session_with(options);
            for size in [5000, 10, 0] {
                let source = Memory::of(&content(size, 1));
                let path = server.remote("f");
                stored(&mut session, &path, size as u64, &source);
                assert_eq!(std::fs::read(server.local("f")).unwrap(), source.bytes());
            }
        }
    }
}

#[test]
fn downloads_uploads_and_listings_share_a_session() {
    for server in all() {
        let bytes = content(100_000, 3);
        for options in modes() {
            let mut session = server.session_with(options);
            for number in 0..3 {
                let path = server.remote(&format!("f{number}"));
                let source = Memory::of(&bytes);
                stored(&mut session, &path, 100_000, &source);
                let sink = fetched(&mut session, &path, 100_000);
                assert!(sink.bytes() == bytes);
                let mut count = 0;
                let directory = server.remote("");
                let mut found = |_| {
                    count += 1;
                    Ok(())
                };
                session.list(&directory, &mut found).unwrap();
                assert!(count > number);
            }
        }
    }
}

#[test]
fn a_file_is_read_in_order_from_an_offset() {
    for server in all() {
        let bytes = content(1_000_000, 4);
        std::fs::write(server.local("f"), &bytes).unwrap();
        let path = server.remote("f");
        let mut reader = server.session().into_reader(&path, 300_000).unwrap();
        let mut read = Vec::new();
        let mut part = [0; 10_000];
        loop {
            let count = reader.read(&mut part).unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&part[..count]);
        }
        assert!(read == bytes[300_000..]);
        assert_eq!(reader.read(&mut part).unwrap(), 0);
        let absent = server.remote("absent");
        assert!(server.session().into_reader(&absent, 0).is_err());
    }
}

#[test]
fn the_checksum_of_the_server_is_that_of_the_data() {
    let Some(server) = Server::start(Kind::Globus) else {
        return;
    };
    let bytes = content(1_000_000, 3);
    std::fs::write(server.local("f"), &bytes).unwrap();
    let mut session = server.session();
    let kind = session.features().checksum.unwrap();
    let mut checksum = Checksum::new(kind);
    checksum.update(&bytes);
    let path = server.remote("f");
    assert_eq!(
        session.checksum(kind, &path, (0, None)).unwrap(),
        checksum.finish()
    );
    let absent = server.remote("absent");
    assert!(
        session
            .checksum(kind, &absent, (0, None))
            .unwrap_err()
            .means_absent()
    );
}

#[test]
fn pieces_are_stored_as_they_arrive() {
    for server in all() {
        let bytes = content(3_000_001, 5);
        for options in modes() {
            let mut session = server.session_with(options);
            let path = server.remote("f");
            // The second transfer keeps the data of the first one.
            for (is_new, ranges) in [
                (true, vec![(1_000_000, 1_500_000), (0, 1_000_000)]),
                (false, vec![(2_000_000, 3_000_001), (1_500_000, 2_000_000)]),
                (false, vec![]),
            ] {
                let pieces = Pieces::new().unwrap();
                std::thread::scope(|scope| {
                    let storing = scope.spawn(|| session.store_pieces(&path, is_new, &pieces));
                    for (start, end) in ranges {
                        assert!(pieces.push(start as u64, bytes[start..end].to_vec()));
                    }
                    pieces.end();
                    storing.join().unwrap().unwrap();
                });
            }
            assert!(std::fs::read(server.local("f")).unwrap() == bytes);
            // A rejected file leaves the session usable.
            let pieces = Pieces::new().unwrap();
            pieces.push(0, vec![1]);
            pieces.end();
            let absent = server.remote("absent/f");
            let error = session.store_pieces(&absent, true, &pieces).unwrap_err();
            assert!(!error.ends_session(), "{error:?}");
            assert!(!pieces.push(1, vec![1]));
            let pieces = Pieces::new().unwrap();
            pieces.end();
            session.store_pieces(&path, true, &pieces).unwrap();
            assert_eq!(std::fs::read(server.local("f")).unwrap(), b"");
            session.close();
        }
    }
}

#[test]
fn a_server_that_is_killed_during_a_transfer_is_a_lost_connection() {
    for server in all() {
        for options in modes() {
            let mut session = server.session_with(options);
            let path = server.remote("f");
            let pieces = Pieces::new().unwrap();
            pieces.push(0, vec![1; 4 << 20]);
            std::thread::scope(|scope| {
                let storing = scope.spawn(|| session.store_pieces(&path, true, &pieces));
                // The transfer has begun when the server has stored some data.
                while std::fs::metadata(server.local("f")).map_or(0, |file| file.len()) == 0 {
                    std::thread::yield_now();
                }
                server.kill_sessions();
                pieces.end();
                let error = storing.join().unwrap().unwrap_err();
                assert!(error.is_lost_connection(), "{error:?}");
            });
            std::fs::remove_file(server.local("f")).unwrap();
        }
    }
}
