//! A bucket as a store.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ureq::http::Method;

use super::answer::{parse_page, reason};
use super::credentials::Credentials;
use super::location::MAXIMUM_KEY_BYTES;
use super::sign::{query, sign};
use crate::client::{Client, Failed, Options, Request, Response};
use crate::error::Error;
use crate::store::{Found, Listed, Object, Sink, Store, is_name};
use crate::time::{self, ObjectTime};
use crate::transfer::{check_encoding, check_part, failed, receive, version_of};
use crate::url::Url;

/// Maximum size of a page of a listing in bytes.
const PAGE_BYTES: u64 = 16 << 20;

/// Maximum number of pages in a row that add no entry.
const EMPTY_PAGES: u32 = 100;

/// Maximum number of characters of a key in a message.
const SHOWN_CHARACTERS: usize = 100;

/// Header of an object that rclone and longhaul write: its time in seconds since 1970.
const MTIME: &str = "x-amz-meta-mtime";

/// Way to a bucket.
#[derive(Clone, Debug)]
pub struct Access {
    /// Name of the bucket.
    pub bucket: String,
    /// URL of the store. `None`: Amazon's in the region.
    pub endpoint: Option<Url>,
    /// Region.
    pub region: String,
    /// True if the path of each URL begins with the bucket. Otherwise its host does.
    pub has_path_style: bool,
    /// Credentials. `None`: requests are not signed.
    pub credentials: Option<Credentials>,
    /// True if the user agrees to pay for the requests.
    pub requester_pays: bool,
}

impl Access {
    /// Returns the URL of the bucket, without a slash at the end of its path.
    fn url(&self, region: &str) -> Result<Url, Error> {
        let invalid = |error| Error::Unexpected(format!("URL of the store: {error}"));
        let mut url = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => Url::parse(&format!("https://s3.{region}.amazonaws.com")).map_err(invalid)?,
        };
        let path = url.path.trim_end_matches('/');
        if self.has_path_style {
            url.path = format!("{path}/{}", self.bucket);
        } else {
            url.path = path.to_owned();
            url.host = format!("{}.{}", self.bucket, url.host);
        }
        Ok(url)
    }
}

/// The objects of a bucket.
pub struct Bucket {
    client: Client,
    access: Access,
    /// Region that the store named.
    region: Mutex<String>,
}

/// Returns the current time in seconds.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

impl Bucket {
    /// Prepares requests to a bucket.
    ///
    /// # Errors
    ///
    /// The trusted certificates cannot be read.
    pub fn new(access: Access, options: Options) -> Result<Bucket, Error> {
        Ok(Bucket {
            client: Client::new(options)?,
            region: Mutex::new(access.region.clone()),
            access,
        })
    }

    fn region(&self) -> String {
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        region.clone()
    }

    /// Sends a signed request. If the store names another region, sends it there.
    fn send(
        &self,
        method: &Method,
        key: &[u8],
        parameters: &[(&str, &str)],
        headers: &[(&str, String)],
    ) -> Result<Response, Failed> {
        let region = self.region();
        let response = self.send_to(&region, method, key, parameters, headers)?;
        let named = response.header("x-amz-bucket-region").map(str::to_owned);
        let is_elsewhere = matches!(response.status, 301 | 307 | 400);
        if let Some(named) = named.filter(|named| is_elsewhere && *named != region) {
            let is_region = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if named.chars().all(is_region) {
                let response = self.send_to(&named, method, key, parameters, headers)?;
                *self.region.lock().unwrap_or_else(PoisonError::into_inner) = named;
                return Ok(response);
            }
        }
        Ok(response)
    }

    fn send_to(
        &self,
        region: &str,
        method: &Method,
        key: &[u8],
        parameters: &[(&str, &str)],
        headers: &[(&str, String)],
    ) -> Result<Response, Failed> {
        let bucket = self.access.url(region)?;
        let mut url = bucket.with_path(&[b"/", key].concat());
        url.path = format!("{}{}", bucket.path, url.path);
        url.query = (!parameters.is_empty()).then(|| query(parameters));
        let mut request = Request::new(method.clone(), &url);
        for (name, value) in headers {
            request = request.with(name, value);
        }
        if self.access.requester_pays {
            request = request.with("x-amz-request-payer", "requester");
        }
        if let Some(credentials) = &self.access.credentials {
            request = sign(request, credentials, region, now());
        }
        let response = self.client.send(&request)?;
        if matches!(response.status, 408 | 429 | 500 | 502..=504) {
            return Err(Failed::of_response(response, reason));
        }
        Ok(response)
    }

    /// Requests a page of the keys beneath a prefix.
    fn page(
        &self,
        prefix: &str,
        token: Option<&str>,
        most: &str,
    ) -> Result<super::answer::Page, Error> {
        let mut parameters = vec![
            ("list-type", "2"),
            ("delimiter", "/"),
            ("encoding-type", "url"),
            ("max-keys", most),
            ("prefix", prefix),
        ];
        parameters.extend(token.map(|token| ("continuation-token", token)));
        self.client.repeat(|| {
            let response = self.send(&Method::GET, b"", &parameters, &[])?;
            if response.status != 200 {
                return Err(Failed::of_response(response, reason));
            }
            Ok(parse_page(&response.read_all(PAGE_BYTES)?)?)
        })
    }

    fn get(
        &self,
        path: &[u8],
        object: &Object,
        range: Option<&Range<u64>>,
    ) -> Result<Response, Failed> {
        let mut headers = Vec::new();
        if let Some(version) = &object.version {
            headers.push(("if-match", version.text().to_owned()));
        }
        if let Some(range) = range {
            let last = range.end.saturating_sub(1);
            headers.push(("range", format!("bytes={}-{last}", range.start)));
        }
        self.send(&Method::GET, key_of(path), &[], &headers)
    }
}

/// Returns the key of a path.
fn key_of(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// Returns the prefix of the keys in a directory.
fn prefix_of(path: &[u8]) -> Result<String, Error> {
    let key = key_of(path);
    let key = key.strip_suffix(b"/").unwrap_or(key);
    let text = std::str::from_utf8(key);
    let text = text.map_err(|_| Error::Unexpected("the key is not UTF-8".to_owned()))?;
    Ok(if text.is_empty() {
        String::new()
    } else {
        format!("{text}/")
    })
}

/// Returns the entry of a key or of a common prefix; `None` for the prefix itself, which marks a
/// directory.
fn entry(key: &[u8], prefix: &str) -> Option<Listed> {
    let unreadable = || {
        let text = String::from_utf8_lossy(key).into_owned();
        let clean = text.chars().filter(|c| !c.is_control());
        Some(Listed::Unreadable(clean.take(SHOWN_CHARACTERS).collect()))
    };
    let Some(name) = key.strip_prefix(prefix.as_bytes()) else {
        return unreadable();
    };
    if name.is_empty() {
        return None;
    }
    let (name, is_directory) = match name.strip_suffix(b"/") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if !is_name(name) {
        unreadable()
    } else if is_directory {
        Some(Listed::Directory(name.to_vec()))
    } else {
        Some(Listed::Object(name.to_vec()))
    }
}

/// Parses a time as rclone writes it, such as `1354040105.123456789`.
fn parse_mtime(text: &str) -> Option<ObjectTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = whole.parse().ok().filter(|seconds: &i64| *seconds >= 0)?;
    let padded: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    Some(ObjectTime {
        seconds,
        nanoseconds: padded.parse().ok().filter(|_| digits)?,
    })
}

/// Returns the object that the response to `HEAD` describes.
fn object_of(response: &Response) -> Result<Object, Error> {
    let size = response.length();
    let size = size.ok_or_else(|| Error::Unexpected("the store tells no size".to_owned()))?;
    let kept = response.header(MTIME).and_then(parse_mtime);
    let modified = || {
        response
            .header("last-modified")
            .and_then(time::parse_header)
    };
    Ok(Object {
        size: Some(size),
        modified: kept.or_else(modified),
        mode: None,
        version: version_of(response),
        has_ranges: true,
        place: None,
    })
}

impl Store for Bucket {
    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error> {
        let key = key_of(path);
        if key.is_empty() || key.ends_with(b"/") {
            return Ok(Some(Found::Directory));
        }
        if key.len() > MAXIMUM_KEY_BYTES {
            return Ok(None);
        }
        let head = || self.send(&Method::HEAD, key, &[], &[]);
        let response = self.client.repeat(head)?;
        match response.status {
            200 => return object_of(&response).map(|object| Some(Found::Object(object))),
            404 => {}
            _ => return Err(response.into_error(reason)),
        }
        let page = self.page(&prefix_of(path)?, None, "1")?;
        let is_empty = page.keys.is_empty() && page.prefixes.is_empty();
        Ok((!is_empty).then_some(Found::Directory))
    }

    fn list(
        &self,
        path: &[u8],
        tell: &mut dyn FnMut(Listed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let prefix = prefix_of(path)?;
        let (mut token, mut empty) = (None::<String>, 0);
        loop {
            let page = self.page(&prefix, token.as_deref(), "1000")?;
            let has_entries = !page.keys.is_empty() || !page.prefixes.is_empty();
            empty = if has_entries { 0 } else { empty + 1 };
            for key in page.keys.iter().chain(&page.prefixes) {
                if let Some(listed) = entry(key, &prefix) {
                    tell(listed)?;
                }
            }
            match page.next {
                None => return Ok(()),
                next if next == token || empty >= EMPTY_PAGES => {
                    let text = "the listing of the store does not end";
                    return Err(Error::Unexpected(text.to_owned()));
                }
                next => token = next,
            }
        }
    }

    fn fetch(
        &self,
        path: &[u8],
        object: &Object,
        range: Range<u64>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        let mut range = range;
        self.client.repeat(|| {
            let response = self.get(path, object, Some(&range))?;
            check_part(&response, object, &range)?;
            if response.status != 206 {
                return Err(Failed::of_response(response, reason));
            }
            let mut advanced = 0;
            let received = receive(response, range.end - range.start, &mut advanced, sink);
            range.start += advanced;
            received.map_err(|error| failed(error, advanced))
        })
    }

    fn fetch_whole(&self, path: &[u8], object: &Object, sink: &mut Sink<'_>) -> Result<u64, Error> {
        let response = self.client.repeat(|| {
            let response = self.get(path, object, None)?;
            match response.status {
                200 => {}
                412 => return Err(Error::Changed.into()),
                _ => return Err(Failed::of_response(response, reason)),
            }
            check_encoding(&response)?;
            Ok(response)
        })?;
        let size = object.size.unwrap_or_default();
        let received = receive(response, size, &mut 0, sink);
        received.map_err(|error| self.client.silence_of(error))?;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_names_beneath_the_prefix() {
        let named = |key: &[u8]| entry(key, "a/");
        assert_eq!(named(b"a/b"), Some(Listed::Object(b"b".to_vec())));
        assert_eq!(named(b"a/b/"), Some(Listed::Directory(b"b".to_vec())));
        assert_eq!(named(b"a/"), None);
        for key in [
            &b"b"[..],
            b"a//",
            b"a/../",
            b"a/..",
            b"a/x/y",
            b"a/\0",
            b"/etc/passwd",
        ] {
            assert!(matches!(named(key), Some(Listed::Unreadable(_))), "{key:?}");
        }
        let long = [b"a/".to_vec(), vec![b'x'; 256]].concat();
        assert!(matches!(named(&long), Some(Listed::Unreadable(_))));
    }

    #[test]
    fn stored_times_are_parsed() {
        let time = |seconds, nanoseconds| {
            Some(ObjectTime {
                seconds,
                nanoseconds,
            })
        };
        assert_eq!(
            parse_mtime("1354040105.123456789"),
            time(1_354_040_105, 123_456_789)
        );
        assert_eq!(parse_mtime("7"), time(7, 0));
        assert_eq!(parse_mtime("7.5"), time(7, 500_000_000));
        for text in ["", "x", "-1", "7.x", "7.+1", "99999999999999999999"] {
            assert_eq!(parse_mtime(text), None, "{text}");
        }
    }
}
