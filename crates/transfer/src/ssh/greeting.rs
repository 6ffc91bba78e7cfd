//! First line that each end of an SSH channel sends: its release, its key, and the addresses where
//! it accepts connections beside the channel. See `FORMAT.md`.
//!
//! ```text
//! longhaul-remote/1 software=0.1.0 protocol=1 key=sha256:… port=50000 addresses=192.0.2.7,::1
//! ```

use std::fmt::Write as _;
use std::net::IpAddr;

/// Maximum length of a line in bytes.
pub const MAXIMUM_LINE_BYTES: usize = 4096;

/// Maximum length of a release or key in bytes.
const MAXIMUM_WORD_BYTES: usize = 128;

/// Maximum length of a channel name in bytes. A local socket's path has at most 107 bytes.
const MAXIMUM_CHANNEL_BYTES: usize = 64;

/// Maximum number of addresses of an end.
pub const MAXIMUM_ADDRESSES: usize = 16;

/// First word of the remote end's line.
pub const REMOTE: &str = "longhaul-remote/1";

/// First word of the local end's line.
pub const CLIENT: &str = "longhaul-client/1";

/// First word of the line if the host has no longhaul.
pub const ABSENT: &str = "longhaul-absent/1";

/// Description that an end sends of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// Release of the software.
    pub software: String,
    /// Version of the protocol.
    pub protocol: u32,
    /// Fingerprint of its key, in text form.
    pub key: String,
    /// Port on which it listens; `None` if it does not listen.
    pub port: Option<u16>,
    /// Its addresses, most likely first; at most [`MAXIMUM_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// Name of the local socket that further channels join.
    pub channel: Option<String>,
    /// True if its system kills the processes of a login when the login ends.
    pub mortal: bool,
    /// True if an Order `Allow` follows the line. It limits the requests that this end may make.
    pub bound: bool,
}

/// First line from the remote host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Greeting of a running longhaul.
    Greeting(Greeting),
    /// The host has no longhaul; holds its system and machine type.
    Absent(String),
}

impl Greeting {
    /// Returns the line, including the newline.
    pub fn line(&self, begins: &str) -> String {
        let mut line = format!(
            "{begins} software={} protocol={} key={}",
            self.software, self.protocol, self.key
        );
        if let Some(port) = self.port {
            // Writing to a string does not fail.
            let _ = write!(line, " port={port}");
        }
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        if !addresses.is_empty() {
            let _ = write!(line, " addresses={}", addresses.join(","));
        }
        if let Some(channel) = &self.channel {
            let _ = write!(line, " channel={channel}");
        }
        if self.mortal {
            line += " mortal=1";
        }
        if self.bound {
            line += " bound=1";
        }
        line + "\n"
    }

    /// Parses the words after the first one. Unknown words are ignored, for compatibility with
    /// later releases.
    fn parse(words: &str) -> Option<Greeting> {
        let mut greeting = Greeting::default();
        for word in words.split(' ') {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            match name {
                "software" => greeting.software = value.to_owned(),
                "protocol" => greeting.protocol = value.parse().ok()?,
                "key" => greeting.key = value.to_owned(),
                "port" => greeting.port = Some(value.parse().ok().filter(|port| *port > 0)?),
                "addresses" => greeting.addresses = addresses(value)?,
                "channel" => greeting.channel = Some(channel(value)?),
                "mortal" => greeting.mortal = value == "1",
                "bound" => greeting.bound = value == "1",
                _ => {}
            }
        }
        let is_word = |word: &str| (1..=MAXIMUM_WORD_BYTES).contains(&word.len());
        let whole = is_word(&greeting.software) && is_word(&greeting.key);
        whole.then_some(greeting)
    }
}

/// Parses a channel name. Accepts only characters that need no quotes in any shell.
fn channel(value: &str) -> Option<String> {
    let plain = value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let fits = (1..=MAXIMUM_CHANNEL_BYTES).contains(&value.len());
    (plain && fits).then(|| value.to_owned())
}

fn addresses(value: &str) -> Option<Vec<IpAddr>> {
    let parsed = value.split(',').take(MAXIMUM_ADDRESSES);
    parsed.map(|address| address.parse().ok()).collect()
}

/// Parses a line without its newline. Returns `None` if it is not a greeting, such as output of a
/// shell's profile.
pub fn parse(line: &[u8], begins: &str) -> Option<Line> {
    if line.len() > MAXIMUM_LINE_BYTES {
        return None;
    }
    let text = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    if text.contains(char::is_control) {
        return None;
    }
    let (first, rest) = text.split_once(' ')?;
    match first {
        ABSENT => Some(Line::Absent(rest.to_owned())),
        first if first == begins => Greeting::parse(rest).map(Line::Greeting),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Greeting {
        Greeting {
            software: "0.1.0".into(),
            protocol: 1,
            key: "sha256:abc".into(),
            port: Some(50_000),
            addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            channel: Some("longhaul-7f".into()),
            mortal: true,
            bound: true,
        }
    }

    #[test]
    fn a_written_greeting_is_parsed() {
        for greeting in [
            whole(),
            Greeting {
                port: None,
                addresses: Vec::new(),
                mortal: false,
                bound: false,
                ..whole()
            },
        ] {
            let line = greeting.line(REMOTE);
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(
                parse(line.as_bytes(), REMOTE),
                Some(Line::Greeting(greeting))
            );
            assert_eq!(parse(line.as_bytes(), CLIENT), None);
        }
    }

    #[test]
    fn unknown_words_are_ignored_and_invalid_ones_are_refused() {
        let later = format!("{REMOTE} new=1 software=2 key=k addresses=::1 more");
        assert!(matches!(
            parse(later.as_bytes(), REMOTE),
            Some(Line::Greeting(_))
        ));
        for broken in [
            "Welcome to dtn7!",
            "longhaul-remote/1 software=2",
            "longhaul-remote/1 software=2 key=k port=0",
            "longhaul-remote/1 software=2 key=k port=70000",
            "longhaul-remote/1 software=2 key=k addresses=here",
            "longhaul-remote/1 software=2 key=k protocol=one",
            "longhaul-remote/1 software=2 key=k channel=$(x)",
        ] {
            assert_eq!(parse(broken.as_bytes(), REMOTE), None, "{broken}");
        }
        let absent = parse(b"longhaul-absent/1 Linux x86_64", REMOTE);
        assert_eq!(absent, Some(Line::Absent("Linux x86_64".into())));
    }
}
