//! The tokens that a user has for daemons, one `host:port principal token` a
//! line.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::tcp::HostPort;
use super::token::Token;

/// More than this is no file that a person wrote.
const MAXIMUM_FILE_BYTES: u64 = 1 << 20;

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientTokensError {
    /// It cannot be read.
    #[error("{file}: {cause}: check that the file belongs to this user")]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Others may read or change it.
    #[error(
        "{file} holds secrets that others may read or change (mode {mode:o}): run `chmod 600 \
         {file}`, and ask for new tokens if somebody did"
    )]
    Exposed {
        /// Which.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no such file.
    #[error("{file} is larger than {MAXIMUM_FILE_BYTES} bytes: it is no list of tokens")]
    TooLarge {
        /// Which.
        file: PathBuf,
    },
    /// A line is none. It is not repeated, as it may hold a secret.
    #[error("{file}, line {line}: not \"host:port principal lht_...\": correct the line")]
    Line {
        /// Which.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

#[derive(Debug)]
struct Entry {
    /// As [`HostPort`] prints it.
    host: String,
    principal: String,
    token: Token,
}

/// The tokens of a user.
#[derive(Debug, Default)]
pub struct ClientTokens {
    entries: Vec<Entry>,
}

impl ClientTokens {
    /// Reads the file; a missing one holds none.
    ///
    /// # Errors
    ///
    /// Where others than its owner may read or write it, or it is malformed.
    pub fn load(file: &Path) -> Result<ClientTokens, ClientTokensError> {
        match File::open(file) {
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
        // Of the open file: another may bear the name by now.
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
        ClientTokens::parse(&bytes).map_err(|line| ClientTokensError::Line {
            file: file.into(),
            line,
        })
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    ///
    /// The number of a bad line, from 1.
    pub fn parse(bytes: &[u8]) -> Result<ClientTokens, usize> {
        let mut entries = Vec::new();
        for (index, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let text = std::str::from_utf8(line).map_err(|_| index + 1)?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = text.split_whitespace().collect();
            let &[host, principal, token] = words.as_slice() else {
                return Err(index + 1);
            };
            entries.push(Entry {
                host: host.to_ascii_lowercase(),
                principal: principal.to_owned(),
                token: token.parse().map_err(|_| index + 1)?,
            });
        }
        Ok(ClientTokens { entries })
    }

    /// The token of `principal` at that daemon; the first line counts. Where no
    /// principal is named, the first line for that daemon says who the user is
    /// there.
    pub fn lookup(&self, host: &HostPort, principal: Option<&str>) -> Option<(&str, &Token)> {
        let wanted = host.to_string();
        self.entries
            .iter()
            .filter(|entry| entry.host == wanted)
            .find(|entry| principal.is_none_or(|name| name == entry.principal))
            .map(|entry| (entry.principal.as_str(), &entry.token))
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
        assert_eq!(tokens.lookup(&host, Some("bob")), Some(("bob", &b)));
        assert_eq!(tokens.lookup(&host, None), Some(("alice", &a)));
        assert_eq!(tokens.lookup(&host, Some("eve")), None);
        assert_eq!(tokens.lookup(&HostPort::new("::1", 8), None), None);
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
    fn a_bad_line_is_named_but_not_shown() {
        let (_home, file) = write(0o600, "\nh:1 alice lht_secret\n");
        let error = ClientTokens::load(&file).unwrap_err();
        assert!(matches!(error, ClientTokensError::Line { line: 2, .. }));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
