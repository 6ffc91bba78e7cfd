//! `https://` and `http://`: a path at an archive. It can only be a source.

use std::io;
use std::sync::Arc;

use longhaul_engine::listing::Depth;
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_stores::archive::Archive;
use longhaul_stores::client::Options;
use longhaul_stores::url::{Scheme, Url, UrlError};

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Kind, ListsHosts, NoSource, Source, SourceOpening, Tell};
use super::local::list_in;
use super::promises::Promises;
use crate::object_files::Objects;
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::stop::{Exit, Stop};

pub(super) const KIND: Definition = Definition {
    name: "`https://HOST/PATH`",
    notation: Some("https://HOST/PATH or http:// (an archive)"),
    promises: Promises {
        source: true,
        files: true,
        trees: true,
        ranges: true,
        resumes: true,
        repeatable: true,
        times: true,
        digests: true,
        listing: true,
        ordered_listing: true,
        foreign: true,
        ..Promises::NOTHING
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    if !Url::is_url(text) {
        return None;
    }
    let refused = |error| Some(Err(EndpointError::Http(error)));
    let Ok(shown) = std::str::from_utf8(text) else {
        return refused(UrlError::Character);
    };
    let parsed = Url::parse(shown).and_then(|url| Ok((url.decoded_path()?, url)));
    match parsed {
        // The text of an endpoint is shown, stored and visible to other users.
        Ok((_, url)) if url.query.is_some() => Some(Err(EndpointError::Query)),
        Ok((path, url)) => Some(Ok(Endpoint::new(HttpPath {
            text: text.to_vec(),
            url,
            path,
        }))),
        Err(error) => refused(error),
    }
}

/// A path at an archive.
#[derive(Clone, Debug)]
struct HttpPath {
    /// The URL as given.
    text: Vec<u8>,
    url: Url,
    /// The decoded path.
    path: Vec<u8>,
}

impl Kind for HttpPath {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        self.text.clone()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"http".to_vec(), self.text.clone()])
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn host_name(&self) -> Option<&str> {
        Some(&self.url.host)
    }

    fn path(&self) -> Option<&[u8]> {
        Some(&self.path)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        // The text still identifies the source.
        let same = self.clone();
        Some(Endpoint::new(HttpPath { path, ..same }))
    }

    fn list(&self, depth: Depth, hosts: &dyn ListsHosts, tell: &mut Tell<'_>) -> Result<(), Stop> {
        let objects = self.open_archive(hosts.connection())?;
        list_in(&objects, &self.path, depth, tell)
    }
}

impl Source for HttpPath {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        let objects = self.open_archive(opening.connection())?;
        opening.open_in(Arc::new(objects), &self.path)
    }
}

impl HttpPath {
    fn open_archive(&self, connection: &ConnectionSettings) -> Result<Objects, Stop> {
        let host = &self.url.host;
        if self.url.scheme == Scheme::Http && connection.data_security != DataSecurity::Clear {
            let text = format!(
                "{host}: http:// sends the data in clear text, and nothing authenticates them: use \
                 https://, or accept this with --data-security clear"
            );
            return Err(Stop::new(Exit::Usage, text));
        }
        let options = Options {
            silence: connection.timeout,
            trusted: connection.authority.clone(),
            ..Options::default()
        };
        let archive = Archive::new(self.url.clone(), options);
        let stop = |error| Stop::new(Exit::Authentication, format!("{host}: {error}"));
        Ok(Objects::new(Arc::new(archive.map_err(stop)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_may_contain_a_secret_are_refused_without_showing_it() {
        for url in [
            "https://u:hidden@h/x",
            "https://h/x?token=hidden",
            "https://hidden@h/",
        ] {
            let refused = parse(url.as_bytes()).unwrap().unwrap_err().to_string();
            assert!(!refused.contains("hidden"), "{refused}");
        }
        for url in [
            "https://h/../x",
            "https://h/a%2fb",
            "https://h/%00",
            "http:///x",
        ] {
            assert!(parse(url.as_bytes()).unwrap().is_err(), "{url}");
        }
        assert!(parse(b"h:http://x").is_none() && parse(b"http:x").is_none());
        let endpoint = parse(b"https://h:8443/a%20b/").unwrap().unwrap();
        assert_eq!(endpoint.text(), b"https://h:8443/a%20b/");
        assert_eq!(endpoint.path(), Some(&b"/a b/"[..]));
        assert!(endpoint.host().is_none() && endpoint.sink().is_none());
    }
}
