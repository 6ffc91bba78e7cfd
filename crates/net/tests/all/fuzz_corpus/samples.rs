//! Valid credential files, and answers of a kernel.

/// Returns target, name and text of each sample.
pub fn texts() -> Vec<(&'static str, &'static str, String)> {
    let secret = "A".repeat(43);
    let token = format!("lht_{secret}");
    let salt = "A".repeat(22);
    let hash = format!("lhh1${salt}${secret}");
    let fingerprint = format!("sha256:{secret}");
    let principals = format!(
        "[[principal]]\nname = \"alice\"\ntoken = \"{hash}\"\ncertificates = [\"{fingerprint}\"]\n\
         [[principal.root]]\nat = \"/data\"\npath = \"/srv/data\"\nrights = [\"read\", \"write\"]\n"
    );
    vec![
        ("principals", "sample", principals.clone()),
        (
            "principals",
            "with-url",
            format!("{principals}\0/data/run/../x"),
        ),
        ("principals", "empty", String::new()),
        (
            "known_hosts",
            "sample",
            format!("# mine\n[::1]:7 {fingerprint}\nhost:1 {fingerprint}\n"),
        ),
        ("known_hosts", "no-key", "host:1\n".to_owned()),
        (
            "client_tokens",
            "sample",
            format!("# mine\nhost:1 alice {token}\n"),
        ),
        ("client_tokens", "no-token", "host:1 alice\n".to_owned()),
    ]
}

/// Returns answers in the format of a little-endian kernel of Linux 6, made by hand: a socket of
/// each family, the end, a refusal.
pub fn kernel_answers() -> [(&'static str, Vec<u8>); 4] {
    let message = |kind: u8, content: &[u8]| {
        let length = u32::try_from(16 + content.len()).unwrap();
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([kind, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(content);
        bytes
    };
    let socket = |family: u8| {
        let mut content = vec![0; 72];
        content[..2].copy_from_slice(&[family, 1]);
        content[4..8].copy_from_slice(&[0x4e, 0x20, 0x13, 0x60]);
        content[24..40].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        content[44] = 9;
        // INET_DIAG_CONG, then INET_DIAG_INFO.
        content.extend([10, 0, 4, 0]);
        content.extend(b"cubic\0\0\0");
        content.extend([244, 0, 2, 0]);
        content.extend((0..240).map(|at| u8::from(at % 4 == 0)));
        message(20, &content)
    };
    let mut both = socket(2);
    both.extend(socket(10));
    let mut last = socket(10);
    last.extend(message(3, &[0; 4]));
    [
        ("both_families", both),
        ("last", last),
        ("done", message(3, &[0; 4])),
        ("refused", message(2, &(-1_i32).to_le_bytes())),
    ]
}
