//! Runs the committed inputs of the fuzz targets of this crate. `cargo test -p longhaul-gridftp
//! --test all fuzz_corpus:: -- --ignored` writes the samples again.

#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../../fuzz/src/gridftp.rs"]
mod gridftp;

use longhaul_gridftp::protocol::block::{END_OF_DATA, END_OF_FILE, Header};

/// Replies of vsftpd and of the server of Globus.
const REPLIES: [(&str, &str); 3] = [
    (
        "features",
        "211-Features:\r\n AUTH TLS\r\n CKSM MD5:10;SHA256:11;\r\n PARALLEL\r\n REST STREAM\r\n211 End\r\n",
    ),
    (
        "error",
        "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.\r\n",
    ),
    (
        "transfer",
        "229 Entering Extended Passive Mode (|||53577|)\r\n227 Passive (127,0,0,1,62,212).\r\n\
         150 Beginning transfer.\r\n111 Range Marker 0-8,10-20\r\n226 Transfer Complete.\r\n",
    ),
];

/// Lines of directories.
const LISTINGS: [(&str, &str); 4] = [
    (
        "facts",
        " Type=file;Modify=20261127232325;Size=3;UNIX.mode=0644;UNIX.slink=/t/small; a b;c=d",
    ),
    ("itself", " Type=cdir;X.count=10; ."),
    ("unix", "-rw-r--r--    1 0  0  3000000 Nov 27 23:23 big"),
    ("link", "lrwxrwxrwx 1 a b 5 Nov 27 23:23 link -> to"),
];

/// URLs.
const LOCATIONS: [(&str, &str); 3] = [
    ("gsiftp", "gsiftp://u%40v:p@host:2811/a%20b/"),
    ("ftp", "ftp://[::1]:21/~/x"),
    ("break", "ftp://h/%0d%0aDELE%20x"),
];

#[test]
fn corpora_are_replayed() {
    corpus::replay("ftp_reply", gridftp::reply);
    corpus::replay("ftp_listing", gridftp::listing);
    corpus::replay("ftp_location", gridftp::location);
    corpus::replay("gridftp_block", gridftp::block);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (target, samples) in [
        ("ftp_reply", &REPLIES[..]),
        ("ftp_listing", &LISTINGS),
        ("ftp_location", &LOCATIONS),
    ] {
        for (name, text) in samples {
            corpus::save(target, name, text.as_bytes());
        }
    }
    let header = |flags, length, offset| {
        Header {
            flags,
            length,
            offset,
        }
        .bytes()
    };
    let frames = [
        &[3][..],
        &header(0, 3, 0),
        b"abc",
        &header(END_OF_DATA | END_OF_FILE, 0, 1),
    ]
    .concat();
    corpus::save("gridftp_block", "frames", &frames);
    let outside = [&[20][..], &header(0, 3, u64::MAX)].concat();
    corpus::save("gridftp_block", "outside", &outside);
}
