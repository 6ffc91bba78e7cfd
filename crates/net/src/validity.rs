//! Validity period of a certificate (RFC 5280, section 4.1.2.5).

use std::fmt;

use longhaul_units::{microseconds_of, rfc3339};
use rustls::pki_types::{CertificateDer, UnixTime};

/// First and last second in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

/// Error for a certificate that is not valid now. The text continues the sentence "the certificate
/// …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotValid {
    /// The certificate has expired.
    Expired {
        /// Its last second.
        not_after: i64,
        /// The time of this host's clock.
        now: i64,
    },
    /// The certificate is not valid yet.
    NotYet {
        /// Its first second.
        not_before: i64,
        /// The time of this host's clock.
        now: i64,
    },
}

impl fmt::Display for NotValid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, said) = match self {
            NotValid::Expired { not_after, now } => {
                (now, format!("expired at {}", rfc3339(*not_after)))
            }
            NotValid::NotYet { not_before, now } => {
                let text = format!("is not valid before {}", rfc3339(*not_before));
                (now, text)
            }
        };
        write!(f, "{said} (the clock of this host says {})", rfc3339(*now))
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tag of the optional version, the first field.
const VERSION: u8 = 0xa0;

impl Validity {
    /// Reads the dates in a certificate; `None` if they are missing or malformed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let mut bytes: &[u8] = certificate;
        let mut certificate = expect(&mut bytes, SEQUENCE)?;
        let mut signed = expect(&mut certificate, SEQUENCE)?;
        if signed.first() == Some(&VERSION) {
            expect(&mut signed, VERSION)?;
        }
        // Serial number, signature algorithm and issuer precede the dates.
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            expect(&mut signed, tag)?;
        }
        let mut dates = expect(&mut signed, SEQUENCE)?;
        Some(Validity {
            not_before: time(&mut dates)?,
            not_after: time(&mut dates)?,
        })
    }

    /// Compares the dates with the clock of this host.
    ///
    /// # Errors
    ///
    /// [`NotValid`].
    pub fn check_now(&self) -> Result<(), NotValid> {
        self.check(UnixTime::now())
    }

    /// Compares the dates with a clock.
    ///
    /// # Errors
    ///
    /// [`NotValid`].
    pub(super) fn check(&self, now: UnixTime) -> Result<(), NotValid> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        match *self {
            Validity { not_after, .. } if now > not_after => {
                Err(NotValid::Expired { not_after, now })
            }
            Validity { not_before, .. } if now < not_before => {
                Err(NotValid::NotYet { not_before, now })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the content of the next DER element, which must have this tag.
fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = element(bytes)?;
    (found == tag).then_some(content)
}

/// Returns tag and content of the next DER element.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        // Longer lengths follow in one to four bytes.
        0x81..=0x84 => {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            digits
                .iter()
                .fold(0, |length, &digit| (length << 8) | usize::from(digit))
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    *bytes = after;
    Some((tag, content))
}

/// Parses the next element as a time in seconds since 1970.
fn time(bytes: &mut &[u8]) -> Option<i64> {
    let (tag, content) = element(bytes)?;
    let digits = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (century, digits) = match (tag, digits.len()) {
        (GENERALIZED_TIME, 14) => ("", digits),
        // RFC 5280, section 4.1.2.5.1: two digits of the year, 50 to 99 in the last century.
        (UTC_TIME, 12) if digits >= "50" => ("19", digits),
        (UTC_TIME, 12) => ("20", digits),
        _ => return None,
    };
    let digits = format!("{century}{digits}");
    let part = |from: usize, to: usize| digits.get(from..to);
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?
    );
    Some(microseconds_of(&text)?.div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn certificate(from: i32, until: i32) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(until, 2, 3);
        parameters.self_signed(&key).unwrap().der().clone()
    }

    fn at(seconds: i64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds as u64))
    }

    #[test]
    fn dates_are_read_in_both_forms_of_a_time() {
        for (from, until) in [(1975, 1999), (2000, 2049), (2050, 4096)] {
            let validity = Validity::of(&certificate(from, until)).unwrap();
            let begins = format!("{from}-01-01T00:00:00Z");
            let ends = format!("{until}-02-03T00:00:00Z");
            assert_eq!(rfc3339(validity.not_before), begins);
            assert_eq!(rfc3339(validity.not_after), ends);
        }
    }

    #[test]
    fn both_dates_are_within_the_validity() {
        let validity = Validity {
            not_before: 100,
            not_after: 200,
        };
        for now in [100, 150, 200] {
            assert_eq!(validity.check(at(now)), Ok(()));
        }
        let text = validity.check(at(201)).unwrap_err().to_string();
        assert!(
            text.starts_with("expired at 1970-01-01T00:03:20Z"),
            "{text}"
        );
        let text = validity.check(at(99)).unwrap_err().to_string();
        assert!(
            text.starts_with("is not valid before 1970-01-01T00:01:40Z"),
            "{text}"
        );
    }

    #[test]
    fn a_damaged_certificate_has_no_dates() {
        let whole = certificate(2000, 2001);
        for length in 0..whole.len().min(120) {
            let cut = CertificateDer::from(whole[..length].to_vec());
            assert_eq!(Validity::of(&cut), None);
        }
        let long = [SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(Validity::of(&CertificateDer::from(long.to_vec())), None);
    }
}
