//! Describes errors of rustls in sentences for users. The texts of rustls show names of its source
//! code.

use std::fmt::Debug;

use longhaul_units::rfc3339;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys};

/// Describes an error as part of a sentence, such as "the other end has no cipher in common with
/// this one".
pub(super) fn explained(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(cause) => certificate_fault(cause),
        Error::NoCertificatesPresented => "there is no certificate in it".to_owned(),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key does not belong to the certificate".to_owned()
        }
        Error::InconsistentKeys(_) => {
            "it cannot be checked whether the key belongs to the certificate".to_owned()
        }
        Error::AlertReceived(alert) => alert_words(*alert),
        Error::PeerIncompatible(cause) => {
            format!("the two ends have no common settings: {}", words(cause))
        }
        Error::PeerMisbehaved(cause) => {
            format!("the other end broke the TLS protocol: {}", words(cause))
        }
        Error::InvalidMessage(cause) => {
            format!(
                "a message of the other end is not valid TLS: {}",
                words(cause)
            )
        }
        Error::DecryptError => "data were changed or damaged on the way".to_owned(),
        Error::General(text) => text.clone(),
        Error::FailedToGetRandomBytes => "the system has no random numbers".to_owned(),
        Error::FailedToGetCurrentTime => "the system does not tell the time".to_owned(),
        Error::Other(cause) => cause.to_string(),
        other => words(other),
    }
}

/// Describes the fault of a certificate, as part of a sentence.
pub(super) fn certificate_fault(fault: &CertificateError) -> String {
    let fixed = match fault {
        CertificateError::ExpiredContext { not_after, .. } => {
            let date = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
            return format!("it, or one that it leads to, expired at {}", rfc3339(date));
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let date = i64::try_from(not_before.as_secs()).unwrap_or(i64::MAX);
            let date = rfc3339(date);
            return format!("it, or one that it leads to, is not valid before {date}");
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            // Each entry has the form `DnsName("host")`.
            let names = presented.iter().map(|name| match name.split('"').nth(1) {
                Some(quoted) => quoted,
                None => name,
            });
            let names: Vec<&str> = names.take(8).collect();
            return format!("it is valid only for {}", names.join(", "));
        }
        CertificateError::Other(inner) => match inner.to_string().as_str() {
            "UnsupportedCertVersion" => {
                "it is an X.509 certificate of version 1, and longhaul needs version 3: make one \
                 with an extension, such as basicConstraints=CA:FALSE"
            }
            "CaUsedAsEndEntity" => {
                "it is the certificate of an authority (CA:TRUE): make one for the host, with \
                 basicConstraints=CA:FALSE"
            }
            "EndEntityUsedAsCa" => {
                "it was signed with a certificate that is not an authority's (CA:FALSE)"
            }
            other => return words(&Plain(other)),
        },
        CertificateError::BadEncoding => "it is damaged, or not an X.509 certificate",
        CertificateError::Expired => "it expired",
        CertificateError::NotValidYet => "it is not valid yet",
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that longhaul does not know"
        }
        CertificateError::UnknownIssuer => "no certificate of the authority signed it",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed with an algorithm that is not supported"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it has no subjectAltName that is the name of the host"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not allow this use"
        }
        other => return words(other),
    };
    fixed.to_owned()
}

/// Describes the reason of an alert from the other end, as part of a sentence.
pub(super) fn alert_words(alert: AlertDescription) -> String {
    let fixed = match alert {
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => "it does not accept the certificate",
        AlertDescription::CertificateExpired => {
            "by its clock the certificate has expired, or is not valid yet"
        }
        AlertDescription::CertificateRevoked => "the certificate was revoked",
        AlertDescription::CertificateRequired => "it wants a certificate",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it has no cipher or signature in common with this end"
        }
        AlertDescription::UserCanceled => "its user interrupted it",
        AlertDescription::InternalError => "it had an error of its own",
        AlertDescription::BadRecordMac | AlertDescription::DecryptError => {
            "data were changed or damaged on the way"
        }
        AlertDescription::Unknown(number) => return format!("TLS alert {number}"),
        other => return format!("TLS alert \"{}\"", words(&other)),
    };
    fixed.to_owned()
}

/// Text whose debug form is the text itself.
struct Plain<'a>(&'a str);

impl Debug for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Converts a name of source code, such as `TooManyEmptyFragments`, to words.
fn words(name: &impl Debug) -> String {
    let name = format!("{name:?}");
    let mut words = String::with_capacity(name.len() + 8);
    let mut before_is_small = false;
    for letter in name.chars() {
        match letter {
            '(' | '{' | '[' => words.push_str(": "),
            ')' | '}' | ']' | '"' => {}
            letter if letter.is_uppercase() && before_is_small => {
                words.push(' ');
                words.extend(letter.to_lowercase());
            }
            letter if words.is_empty() => words.extend(letter.to_lowercase()),
            letter => words.push(letter),
        }
        before_is_small = letter.is_lowercase() || letter.is_ascii_digit();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{OtherError, PeerMisbehaved};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Named(&'static str);

    #[test]
    fn no_error_shows_a_name_of_source_code() {
        let other = |name| CertificateError::Other(OtherError(Arc::new(Named(name))));
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let faults = [
            other("UnsupportedCertVersion"),
            other("CaUsedAsEndEntity"),
            other("MaximumSignatureChecksExceeded"),
            CertificateError::ApplicationVerificationFailure,
            CertificateError::UnknownIssuer,
            CertificateError::ExpiredContext {
                time: at(9),
                not_after: at(5),
            },
            CertificateError::NotValidForNameContext {
                expected: ServerName::try_from("a.example").unwrap(),
                presented: vec!["DnsName(\"b.example\")".to_owned()],
            },
        ];
        let errors = faults.into_iter().map(Error::InvalidCertificate).chain([
            Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments),
            Error::AlertReceived(AlertDescription::CertificateUnknown),
            Error::AlertReceived(AlertDescription::NoRenegotiation),
            Error::AlertReceived(AlertDescription::Unknown(99)),
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
            Error::PeerSentOversizedRecord,
            Error::NoCertificatesPresented,
        ]);
        for error in errors {
            let text = explained(&error);
            let camel = text.as_bytes().windows(2).any(|pair| {
                pair[0].is_ascii_lowercase()
                    && pair[1].is_ascii_uppercase()
                    && !text.contains("alt")
            });
            assert!(
                !camel && !text.contains(['(', '{']) || text.contains("CA:"),
                "{text}"
            );
        }
        let expired = CertificateError::ExpiredContext {
            time: at(9),
            not_after: at(5),
        };
        assert!(certificate_fault(&expired).ends_with("1970-01-01T00:00:05Z"));
        assert_eq!(
            words(&PeerMisbehaved::TooManyEmptyFragments),
            "too many empty fragments"
        );
    }
}
