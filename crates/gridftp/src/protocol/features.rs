//! Abilities that the server lists in its reply to `FEAT`.

use super::reply::Reply;

/// A checksum that the server can compute for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// SHA-1.
    Sha1,
    /// Adler-32, which finds damage in transit only.
    Adler32,
}

impl ChecksumKind {
    /// Returns the name that the command `CKSM` takes.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Sha256 => "SHA256",
            ChecksumKind::Sha512 => "SHA512",
            ChecksumKind::Sha1 => "SHA1",
            ChecksumKind::Adler32 => "ADLER32",
        }
    }

    /// Returns the number of hexadecimal digits of a checksum.
    pub fn digits(self) -> usize {
        match self {
            ChecksumKind::Sha256 => 64,
            ChecksumKind::Sha512 => 128,
            ChecksumKind::Sha1 => 40,
            ChecksumKind::Adler32 => 8,
        }
    }
}

/// Checksums in the order of preference.
const PREFERRED: [ChecksumKind; 4] = [
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
    ChecksumKind::Sha1,
    ChecksumKind::Adler32,
];

/// Abilities of a server. A server without `FEAT` has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one line of the reply"
)]
pub struct Features {
    /// `AUTH TLS`: the connections can be encrypted.
    pub tls: bool,
    /// `MLST`: facts of entries in a defined format.
    pub facts: bool,
    /// `MLSC`: such listings through the control connection.
    pub control_listing: bool,
    /// `PARALLEL`: extended block mode with several data connections.
    pub parallel: bool,
    /// `REST STREAM`: a transfer can begin within a file.
    pub restart: bool,
    /// `MFMT`: the time of the last change can be set.
    pub set_time: bool,
    /// `UTF8`: names are encoded in UTF-8.
    pub utf8: bool,
    /// `DCAU`: data connections can be authenticated, which must be switched off.
    pub data_authentication: bool,
    /// `CKSM`: the best checksum that both ends know.
    pub checksum: Option<ChecksumKind>,
}

impl Features {
    /// Reads the reply to `FEAT`.
    pub fn parse(reply: &Reply) -> Features {
        let mut features = Features::default();
        if !reply.is_success() || reply.lines.len() < 3 {
            return features;
        }
        for line in &reply.lines[1..reply.lines.len() - 1] {
            let line = String::from_utf8_lossy(line).to_ascii_uppercase();
            let (name, parameters) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            features.add(name, parameters);
        }
        features
    }

    fn add(&mut self, name: &str, parameters: &str) {
        let mut words = parameters.split([' ', ';', ',']);
        match name {
            "AUTH" => self.tls |= words.any(|word| word == "TLS"),
            "MLST" | "MLSD" => self.facts = true,
            "MLSC" => self.control_listing = true,
            "PARALLEL" => self.parallel = true,
            "REST" => self.restart |= words.any(|word| word == "STREAM"),
            "MFMT" => self.set_time = true,
            "UTF8" => self.utf8 = true,
            "DCAU" => self.data_authentication = true,
            "CKSM" => {
                let offered: Vec<&str> = parameters
                    .split(';')
                    .filter_map(|entry| entry.split(':').next())
                    .map(str::trim)
                    .collect();
                let known = PREFERRED.into_iter();
                self.checksum = known.clone().find(|kind| offered.contains(&kind.name()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::ReplyReader;
    use super::*;

    fn features(text: &str) -> Features {
        let mut reader = ReplyReader::default();
        reader.push(text.as_bytes());
        Features::parse(&reader.next_reply().unwrap().unwrap())
    }

    #[test]
    fn abilities_of_a_gridftp_server_are_read() {
        let found = features(
            "211-Extensions supported\r\n CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;\r\n \
             MFMT\r\n MLSC\r\n UTF8\r\n DCAU\r\n PARALLEL\r\n SIZE\r\n MLST Type*;Size*;\r\n ERET\r\n \
             REST STREAM\r\n211 End.\r\n",
        );
        assert_eq!(
            found,
            Features {
                tls: false,
                facts: true,
                control_listing: true,
                parallel: true,
                restart: true,
                set_time: true,
                utf8: true,
                data_authentication: true,
                checksum: Some(ChecksumKind::Sha256),
            }
        );
    }

    #[test]
    fn abilities_of_an_ftp_server_are_read() {
        let found = features("211-Features:\r\n AUTH SSL;TLS;\r\n rest stream\r\n211 End\r\n");
        assert!(found.tls && found.restart && !found.facts);
        assert_eq!(features("500 Unknown command.\r\n"), Features::default());
        assert_eq!(features("211 none\r\n"), Features::default());
        assert!(features("211-F\r\n AUTH TLS\r\n211 End\r\n").tls);
        assert!(!features("211-F\r\n AUTH GSSAPI\r\n211 End\r\n").tls);
    }
}
