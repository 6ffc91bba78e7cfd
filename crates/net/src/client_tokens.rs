//! The user's tokens for daemons, one `host:port principal token` a line.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_system::named_files::kept_to_read;

use super::tcp::HostPort;
use super::token::Token;

/// Maximum size of the file in bytes. No list written by hand is larger.
const MAXIMUM_FILE_BYTES: u64 = 1 << 20;

/// Reasons why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientTokensError {
    /// The file cannot be read.
    #[error("{file}: {cause}: check that the file belongs to this user")]
    File {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// Users other than the owner may read or change the file.
    #[error(
        "{file} holds secrets that others may read or change (mode {mode:o}): run `chmod 600 \
         {file}`, and ask for new tokens if somebody did"
    )]
    Exposed {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is too large.
    #[error("{file} is larger than {MAXIMUM_FILE_BYTES} bytes: it is no list of tokens")]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// A line is invalid. The error does not show it, as it may contain a secret.
    #[error("{file}, line {line}: not \"host:port principal lht_...\": correct the line")]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
}

/// Content of a line, as far as it can be parsed.
#[derive(Debug)]
struct Entry {
    /// Line number, from 1.
    line: usize,
    /// Host and port in the form of [`HostPort`].
    host: String,
    /// Name of the principal; `None` if it is missing.
    principal: Option<String>,
    /// The token; `None` if the line is invalid.
    token: Option<Token>,
}

/// The tokens of a user.
#[derive(Debug, Default)]
pub struct ClientTokens {
    entries: Vec<Entry>,
}

/// Error for an invalid line that may be the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine(
    /// Line number, from 1.
    pub usize,
);

impl ClientTokens {
    /// Reads the file. A missing file is an empty list.
    ///
    /// # Errors
    ///
    /// Users other than the owner may read or write the file, or it cannot be read or is too large.
    pub fn load(file: &Path) -> Result<ClientTokens, ClientTokensError> {
        match kept_to_read(file) {
            Ok(opened) => ClientTokens::read(file, &opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ClientTokens::default()),
            Err(cause) => Err(ClientTokensError::File {
                file: file.into(),
                cause,
            }),
        }
    }

    fn read(file: &Path, opened: &File) -> Result<ClientTokens, ClientTokensError> {
        let file_error = |cause| ClientTokensError::File {
            file: file.into(),
            cause,
        };
        // Checked on the open file, because the name may belong to another file by now.
        let mode = opened.metadata().map_err(file_error)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            let file = file.into();
            return Err(ClientTokensError::Exposed { file, mode });
        }
        let mut bytes = Vec::new();
        opened
            .take(MAXIMUM_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(file_error)?;
        if bytes.len() as u64 > MAXIMUM_FILE_BYTES {
            return Err(ClientTokensError::TooLarge { file: file.into() });
        }
        Ok(ClientTokens::parse(&bytes))
    }

    /// Parses the text of such a file. Invalid lines are kept as far as they can be parsed, because
    /// a lookup may need one.
    pub fn parse(bytes: &[u8]) -> ClientTokens {
        let lines = bytes.split(|&b| b == b'\n').enumerate();
        let entries = lines.filter_map(|(index, line)| {
            let text = String::from_utf8_lossy(line);
            let words: Vec<&str> = text.split_whitespace().collect();
            let first = words.first().filter(|word| !word.starts_with('#'))?;
            Some(Entry {
                line: index + 1,
                host: first.to_ascii_lowercase(),
                principal: words.get(1).map(|&word| word.to_owned()),
                token: match words.as_slice() {
                    [_, _, token] => token.parse().ok(),
                    _ => None,
                },
            })
        });
        ClientTokens {
            entries: entries.collect(),
        }
    }

    /// Returns the numbers of the invalid lines, from 1.
    pub fn bad_lines(&self) -> impl Iterator<Item = usize> {
        let bad = self.entries.iter().filter(|entry| entry.token.is_none());
        bad.map(|entry| entry.line)
    }

    /// Returns the token of `principal` for a daemon, from the first matching line. If `principal`
    /// is `None`, returns the first line for that daemon, with its principal.
    ///
    /// # Errors
    ///
    /// [`BadLine`] if that line is invalid. Later lines are not used, as they may belong to another
    /// principal.
    pub fn lookup(
        &self,
        host: &HostPort,
        principal: Option<&str>,
    ) -> Result<Option<(&str, &Token)>, BadLine> {
        let wanted = host.to_string();
        let is_wanted = |entry: &&Entry| match (principal, &entry.principal) {
            (Some(named), Some(found)) => named == found,
            // An incomplete line may belong to any principal.
            (None, _) | (_, None) => true,
        };
        let here = self.entries.iter().filter(|entry| entry.host == wanted);
        let Some(entry) = here.into_iter().find(is_wanted) else {
            return Ok(None);
        };
        match (&entry.principal, &entry.token) {
            (Some(principal), Some(token)) => Ok(Some((principal.as_str(), token))),
            _ => Err(BadLine(entry.line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(mode: u32, text: &str) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("tokens");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        (home, file)
    }

    #[test]
    fn finds_the_token_of_a_principal() {
        let [a, b] = [(); 2].map(|()| Token::generate().unwrap());
        let text = format!(
            "# x\n[::1]:7 alice {}\n[::1]:7  bob\t{}",
            a.reveal(),
            b.reveal()
        );
        let (_home, file) = write(0o600, &text);
        let tokens = ClientTokens::load(&file).unwrap();
        let host = HostPort::new("::1", 7);
        assert_eq!(tokens.lookup(&host, Some("bob")), Ok(Some(("bob", &b))));
        assert_eq!(tokens.lookup(&host, None), Ok(Some(("alice", &a))));
        assert_eq!(tokens.lookup(&host, Some("eve")), Ok(None));
        assert_eq!(tokens.lookup(&HostPort::new("::1", 8), None), Ok(None));
        assert_eq!(tokens.bad_lines().count(), 0);
    }

    #[test]
    fn a_missing_file_is_empty() {
        let tokens = ClientTokens::load(Path::new("/nonexistent/tokens")).unwrap();
        assert!(tokens.entries.is_empty());
    }

    #[test]
    fn an_exposed_file_is_refused_with_its_remedy() {
        for mode in [0o640, 0o604, 0o620] {
            let (_home, file) = write(mode, "");
            let error = ClientTokens::load(&file).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn an_invalid_line_affects_only_its_own_host() {
        let good = Token::generate().unwrap();
        let text = format!(
            "h:1 alice lht_secret\n\u{fffd}\nh:1 bob {0}\ng:1\nh:2 carol {0} more\nf:1 dave {0}",
            good.reveal()
        );
        let tokens = ClientTokens::parse(text.as_bytes());
        let at = |host: &str, port| HostPort::new(host, port);
        assert_eq!(tokens.lookup(&at("f", 1), None), Ok(Some(("dave", &good))));
        assert_eq!(
            tokens.lookup(&at("h", 1), Some("bob")),
            Ok(Some(("bob", &good)))
        );
        // The wanted principal is not clear, so no other principal's token is used.
        assert_eq!(tokens.lookup(&at("h", 1), None), Err(BadLine(1)));
        assert_eq!(tokens.lookup(&at("h", 1), Some("alice")), Err(BadLine(1)));
        assert_eq!(tokens.lookup(&at("G", 1), Some("eve")), Err(BadLine(4)));
        assert_eq!(tokens.lookup(&at("h", 2), None), Err(BadLine(5)));
        let bad: Vec<usize> = tokens.bad_lines().collect();
        assert_eq!(bad, [1, 2, 4, 5]);
    }

    #[test]
    fn a_bad_line_is_named_but_not_shown() {
        let file = PathBuf::from("tokens");
        let error = ClientTokensError::Line { file, line: 2 };
        assert!(error.to_string().starts_with("tokens, line 2: "));
        let tokens = ClientTokens::parse(b"h:1 alice lht_secret");
        assert!(!format!("{tokens:?}").contains("secret"), "{tokens:?}");
    }
}
