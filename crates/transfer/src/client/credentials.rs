//! Reads the trusted daemons and the credentials of the user from files and options.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use longhaul_net::client_tokens::{BadLine, ClientTokens, ClientTokensError};
use longhaul_net::config_directory::config_directory;
use longhaul_net::trust::{CertificateAuthority, KnownHosts, ServerTrust, UnknownServer};
use longhaul_proto::handshake::Credential;

use crate::console::{self, say};
use crate::endpoint::Remote;
use crate::settings::ConnectionSettings;
use crate::stop::{Exit, Stop};

fn configuration() -> Result<PathBuf, Stop> {
    config_directory().map_err(|error| Stop::because(Exit::Local, error))
}

/// Returns the rule that decides which daemon is trusted.
///
/// # Errors
///
/// A file named by the command cannot be used.
pub fn trust(arguments: &ConnectionSettings) -> Result<ServerTrust, Stop> {
    if let Some(fingerprint) = arguments.fingerprint {
        return Ok(ServerTrust::Fingerprint(fingerprint));
    }
    if let Some(file) = &arguments.authority {
        let authority = CertificateAuthority::from_pem_file(file);
        let authority = authority.map_err(|error| Stop::because(Exit::Usage, error))?;
        return Ok(ServerTrust::CertificateAuthority(authority));
    }
    let ask: longhaul_net::trust::Ask = Arc::new(ask_user);
    Ok(ServerTrust::KnownHosts(KnownHosts {
        file: configuration()?.join("known_hosts"),
        accept_new: arguments.accept_new,
        ask: console::can_ask().then_some(ask),
    }))
}

/// Asks the user to confirm an unknown key, as SSH does. Only a complete "yes" is accepted.
fn ask_user(server: &UnknownServer) -> bool {
    console::confirm(&format!(
        "The daemon {} was never met before. Its key is\n  {}\nIs that what `longhaul serve` \
         printed there? Continue (yes/no)? ",
        server.host, server.fingerprint
    ))
}

/// Returns the credential for a daemon.
///
/// # Errors
///
/// No file contains one.
pub fn credential(
    remote: &Remote,
    arguments: &ConnectionSettings,
    certificate: bool,
) -> Result<Option<Credential>, Stop> {
    let named = remote.principal.as_deref();
    // Options take precedence over the user's files.
    if certificate && arguments.token_file.is_none() {
        let principal = named.unwrap_or_default().to_owned();
        return Ok(Some(Credential {
            principal,
            token: None,
        }));
    }
    let file = match &arguments.token_file {
        Some(file) => file.clone(),
        None => configuration()?.join("tokens"),
    };
    if arguments.token_file.is_some() || file.exists() {
        let tokens = ClientTokens::load(&file);
        let tokens = tokens.map_err(|error| Stop::because(Exit::Authentication, error))?;
        let found = tokens.lookup(&remote.host, named);
        let found = found.map_err(|BadLine(line)| {
            let file = file.clone();
            Stop::because(Exit::Authentication, ClientTokensError::Line { file, line })
        })?;
        warn_of_bad_lines(&file, &tokens);
        if let Some((principal, token)) = found {
            let (principal, token) = (principal.to_owned(), Some(token.reveal()));
            return Ok(Some(Credential { principal, token }));
        }
    }
    let missing = if file.exists() {
        ""
    } else {
        ", which does not exist"
    };
    let text = format!(
        "no token for {}{} in {}{missing}: check how the host is written, else put a line \"{} {} \
         TOKEN\" there, with the token that the daemon's administrator gave you, or name another \
         file with --token-file",
        named.map_or(String::new(), |name| format!("{name} at ")),
        remote.host,
        file.display(),
        remote.host,
        named.unwrap_or("PRINCIPAL")
    );
    Err(Stop::new(Exit::Authentication, text))
}

/// Reports invalid lines of the tokens file, once per command.
fn warn_of_bad_lines(file: &Path, tokens: &ClientTokens) {
    static TOLD: Once = Once::new();
    let mut bad = tokens.bad_lines();
    let Some(line) = bad.next() else {
        return;
    };
    let more = match bad.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    TOLD.call_once(|| {
        let file = file.to_owned();
        let error = ClientTokensError::Line { file, line };
        say(&format!("{error}; it is passed over{more}"));
    });
}
