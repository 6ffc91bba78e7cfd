//! The line with which each end of an SSH channel begins: who it is, and where
//! it can be reached beside the channel. See `FORMAT.md`.
//!
//! ```text
//! longhaul-remote/1 software=0.1.0 protocol=1 key=sha256:… port=50000 addresses=192.0.2.7,::1
//! ```

use std::fmt::Write as _;
use std::net::IpAddr;

/// The longest line, in bytes.
pub const MAXIMUM_LINE_BYTES: usize = 4096;

/// The longest release or key, in bytes.
const MAXIMUM_WORD_BYTES: usize = 128;

/// The longest name of a channel, in bytes: a local socket's has 107.
const MAXIMUM_CHANNEL_BYTES: usize = 64;

/// Most addresses of an end.
pub const MAXIMUM_ADDRESSES: usize = 16;

/// What the far side's line begins with.
pub const REMOTE: &str = "longhaul-remote/1";

/// What the near side's line begins with.
pub const CLIENT: &str = "longhaul-client/1";

/// The line if there is no longhaul.
pub const ABSENT: &str = "longhaul-absent/1";

/// What an end says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// Release of the software.
    pub software: String,
    /// Version of the protocol.
    pub protocol: u32,
    /// Fingerprint of its key, as written.
    pub key: String,
    /// Where it listens; `None` if it cannot.
    pub port: Option<u16>,
    /// Its addresses, the likeliest first; at most [`MAXIMUM_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// Name of the local socket that further channels join.
    pub channel: Option<String>,
    /// Its system ends what a login started when that ends.
    pub mortal: bool,
    /// What it may ask for follows the line.
    pub bound: bool,
}

/// A line of the far side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An end is there.
    Greeting(Greeting),
    /// No longhaul is there; the system and its machine.
    Absent(String),
}

impl Greeting {
    /// The line, with its end.
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

    /// Reads what follows the line's first word; words that are not known are
    /// passed over, for later releases.
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

/// A name that needs no quotes in any shell.
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

/// Reads a line without its end; `None` if it is not a greeting, but something that a shell's
/// profile printed.
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
    fn what_is_said_is_understood() {
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
    fn later_words_are_passed_over_and_broken_ones_are_not() {
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
