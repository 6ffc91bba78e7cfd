//! `s3://`: a path in a bucket of an object store. It can only be a source.

use std::io;
use std::sync::Arc;

use longhaul_engine::listing::Depth;
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_stores::client::Options;
use longhaul_stores::s3::bucket::{Access, Bucket};
use longhaul_stores::s3::credentials::Profile;
use longhaul_stores::s3::location::Location;
use longhaul_stores::url::{Scheme, Url};

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Kind, ListsHosts, NoSource, Source, SourceOpening, Tell};
use super::local::list_in;
use super::promises::Promises;
use crate::object_files::Objects;
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::stop::{Exit, Stop};

/// Region of stores that have none.
const USUAL_REGION: &str = "us-east-1";

pub(super) const KIND: Definition = Definition {
    name: "`s3://BUCKET/PREFIX`",
    notation: Some("s3://BUCKET/PREFIX (an object store)"),
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
    Location::is_location(text).then(|| match Location::parse(text) {
        Ok(location) => Ok(Endpoint::new(S3Path {
            text: text.to_vec(),
            location,
        })),
        Err(error) => Err(EndpointError::S3(error)),
    })
}

/// A path in a bucket.
#[derive(Clone, Debug)]
struct S3Path {
    /// The URL as given.
    text: Vec<u8>,
    location: Location,
}

impl Kind for S3Path {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        self.text.clone()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"s3".to_vec(), self.text.clone()])
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn host_name(&self) -> Option<&str> {
        Some(&self.location.bucket)
    }

    fn path(&self) -> Option<&[u8]> {
        Some(&self.location.path)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        let bucket = self.location.bucket.clone();
        let location = Location { bucket, path };
        // The text still identifies the source.
        let text = self.text.clone();
        Some(Endpoint::new(S3Path { text, location }))
    }

    fn list(&self, depth: Depth, hosts: &dyn ListsHosts, tell: &mut Tell<'_>) -> Result<(), Stop> {
        let objects = self.open_bucket(hosts.connection())?;
        list_in(&objects, &self.location.path, depth, tell)
    }
}

impl Source for S3Path {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        let objects = self.open_bucket(opening.connection())?;
        opening.open_in(Arc::new(objects), &self.location.path)
    }
}

impl S3Path {
    fn open_bucket(&self, connection: &ConnectionSettings) -> Result<Objects, Stop> {
        let access = self.access(connection)?;
        let options = Options {
            silence: connection.timeout,
            trusted: connection.authority.clone(),
            ..Options::default()
        };
        let bucket = Bucket::new(access, options);
        let bucket = bucket.map_err(|error| self.stop(Exit::Authentication, error))?;
        Ok(Objects::new(Arc::new(bucket)))
    }

    /// Returns the way to the bucket, from the options, the environment and the profile.
    fn access(&self, connection: &ConnectionSettings) -> Result<Access, Stop> {
        let asked = &connection.s3;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = asked.endpoint.clone();
        let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3"));
        let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL"));
        let endpoint = endpoint.map(|url| Url::parse(&url)).transpose();
        let endpoint = endpoint.map_err(|error| self.stop(Exit::Usage, error))?;
        let is_clear = |endpoint: &Url| endpoint.scheme == Scheme::Http;
        if endpoint.as_ref().is_some_and(is_clear)
            && connection.data_security != DataSecurity::Clear
        {
            let text = "the store at http:// sends the data in clear text, and nothing \
                        authenticates them: use https://, or accept this with --data-security clear";
            return Err(self.stop(Exit::Usage, text));
        }
        let profile = Profile::find(&variable);
        let profile = profile.map_err(|error| self.stop(Exit::Authentication, error))?;
        let credentials = profile.credentials.filter(|_| !asked.anonymous);
        if credentials.is_none() && !asked.anonymous {
            let text = "neither AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY nor the profile of \
                        ~/.aws has credentials (for a public bucket: --s3-anonymous)";
            return Err(self.stop(Exit::Authentication, text));
        }
        let region = asked.region.clone().or(profile.region);
        // A certificate for *.HOST does not cover a bucket with a dot.
        let has_dot = self.location.bucket.contains('.');
        let has_path_style = endpoint.is_some() || has_dot;
        Ok(Access {
            bucket: self.location.bucket.clone(),
            endpoint,
            region: region.unwrap_or_else(|| USUAL_REGION.to_owned()),
            has_path_style,
            credentials,
            requester_pays: asked.requester_pays,
        })
    }

    fn stop(&self, exit: Exit, text: impl std::fmt::Display) -> Stop {
        Stop::new(exit, format!("s3://{}: {text}", self.location.bucket))
    }
}
