//! An archive over HTTP or HTTPS.

use std::ops::Range;

use ureq::http::Method;

use crate::client::{Client, Failed, Options, Request, Response};
use crate::error::Error;
use crate::page;
use crate::store::{Found, Listed, Object, Sink, Store};
use crate::time;
use crate::transfer::{
    check_encoding, check_part, check_version, failed, parse_content_range, receive, receive_all,
    version_of,
};
use crate::url::{Scheme, Url};

/// Maximum number of redirects of a request.
const REDIRECTS: u32 = 10;

/// Maximum size of a directory's page in bytes.
const PAGE_BYTES: u64 = 64 << 20;

/// An archive: the objects of one host and port.
pub struct Archive {
    client: Client,
    start: Url,
}

/// A response and the URL that sent it.
struct Answer {
    response: Response,
    url: Url,
}

impl Archive {
    /// Prepares requests to the host of a URL.
    ///
    /// # Errors
    ///
    /// The trusted certificates cannot be read.
    pub fn new(start: Url, options: Options) -> Result<Archive, Error> {
        let client = Client::new(options)?;
        Ok(Archive { client, start })
    }

    /// Sends a request, and follows redirects.
    fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &[(&str, String)],
    ) -> Result<Answer, Failed> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let mut request = Request::new(method.clone(), &url);
            for (name, value) in headers {
                request = request.with(name, value);
            }
            let response = self.client.send(&request)?;
            match response.status {
                301 | 302 | 303 | 307 | 308 => {}
                408 | 429 | 500 | 502..=504 => {
                    return Err(Failed::of_response(response, no_reason));
                }
                _ => return Ok(Answer { response, url }),
            }
            let target = response.header("location");
            let target = target.ok_or(Error::Redirect("no URL"))?;
            let next = url.join(target);
            let next = next.map_err(|_| Error::Redirect("a URL that is not http or https"))?;
            if url.scheme == Scheme::Https && next.scheme == Scheme::Http {
                return Err(Error::Redirect("a URL without encryption").into());
            }
            url = next;
        }
        Err(Error::Redirect("too many other URLs").into())
    }

    /// Returns the URL of an object's data: the one to which the server redirected, if any.
    fn place_of(&self, path: &[u8], object: &Object) -> Url {
        let place = object.place.as_deref();
        let place = place.and_then(|place| Url::parse(place).ok());
        place.unwrap_or_else(|| self.start.with_path(path))
    }

    /// Requests the data of an object. The URL of an earlier redirect may have expired: then the
    /// original one is requested.
    fn request(
        &self,
        path: &[u8],
        object: &Object,
        headers: &[(&str, String)],
    ) -> Result<Response, Failed> {
        let place = self.place_of(path, object);
        let answer = self.send(&Method::GET, &place, headers)?;
        let is_refused = matches!(answer.response.status, 400..=499)
            && !matches!(answer.response.status, 412 | 416);
        if is_refused && object.place.is_some() {
            let original = self.start.with_path(path);
            return Ok(self.send(&Method::GET, &original, headers)?.response);
        }
        Ok(answer.response)
    }

    /// Requests the size and the time of an object. Some servers answer only to `GET`.
    fn look(&self, url: &Url) -> Result<Answer, Error> {
        let answer = self.client.repeat(|| self.send(&Method::HEAD, url, &[]))?;
        if !matches!(answer.response.status, 400 | 403 | 405 | 501) {
            return Ok(answer);
        }
        let first = [("range", "bytes=0-0".to_owned())];
        self.client.repeat(|| self.send(&Method::GET, url, &first))
    }
}

fn no_reason(_: &[u8]) -> Option<String> {
    None
}

/// Returns the headers of a request for a version of an object.
fn condition(object: &Object) -> Option<(&'static str, String)> {
    let version = object.version.as_ref()?;
    Some(("if-range", version.text().to_owned()))
}

/// Returns the object that a response to `HEAD`, or to a request for one byte, describes.
fn object_of(answer: &Answer, requested: &Url) -> Object {
    let response = &answer.response;
    let part = response
        .header("content-range")
        .and_then(parse_content_range);
    let is_plain = check_encoding(response).is_ok();
    let size = match response.status {
        206 => part.and_then(|part| part.size),
        _ => response.length().filter(|_| is_plain),
    };
    let modified = response.header("last-modified");
    let has_ranges = response.header("accept-ranges").map(str::trim) != Some("none");
    Object {
        size,
        modified: modified.and_then(time::parse_header),
        mode: None,
        version: version_of(response),
        has_ranges: has_ranges && is_plain,
        place: (answer.url != *requested).then(|| answer.url.text()),
    }
}

/// Returns the URL of the page of a directory.
fn page_url(start: &Url, path: &[u8]) -> Url {
    let slash = if path.ends_with(b"/") { &b""[..] } else { b"/" };
    start.with_path(&[path, slash].concat())
}

impl Store for Archive {
    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error> {
        if path.is_empty() || path.ends_with(b"/") {
            return Ok(Some(Found::Directory));
        }
        let url = self.start.with_path(path);
        let answer = self.look(&url)?;
        match answer.response.status {
            200 | 206 => {}
            // An empty object has no first byte.
            416 => {}
            404 | 410 => return Ok(None),
            _ => return Err(answer.response.into_error(no_reason)),
        }
        let directory = page_url(&self.start, path);
        if answer.url.path == directory.path && answer.url.host == directory.host {
            return Ok(Some(Found::Directory));
        }
        let mut object = object_of(&answer, &url);
        if answer.response.status == 416 {
            object.size = Some(0);
        }
        Ok(Some(Found::Object(object)))
    }

    fn list(
        &self,
        path: &[u8],
        tell: &mut dyn FnMut(Listed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let url = page_url(&self.start, path);
        let page = self.client.repeat(|| {
            let answer = self.send(&Method::GET, &url, &[])?;
            if answer.response.status != 200 {
                return Err(answer.response.into_error(no_reason).into());
            }
            let media = answer.response.header("content-type").unwrap_or_default();
            if !media.trim_start().starts_with("text/html") {
                let text = "the server has no page that lists this directory";
                return Err(Error::Unexpected(text.to_owned()).into());
            }
            let url = answer.url;
            Ok((answer.response.read_all(PAGE_BYTES)?, url))
        });
        let (page, url) = page?;
        for listed in page::entries(&String::from_utf8_lossy(&page), &url) {
            tell(listed)?;
        }
        Ok(())
    }

    fn fetch(
        &self,
        path: &[u8],
        object: &Object,
        range: Range<u64>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        if !object.has_ranges {
            return Err(Error::NoRanges);
        }
        let mut range = range;
        self.client.repeat(|| {
            let last = range.end.saturating_sub(1);
            let mut headers = vec![("range", format!("bytes={}-{last}", range.start))];
            headers.extend(condition(object));
            let response = self.request(path, object, &headers)?;
            check_part(&response, object, &range)?;
            if response.status != 206 {
                return Err(Failed::of_response(response, no_reason));
            }
            let mut advanced = 0;
            let received = receive(response, range.end - range.start, &mut advanced, sink);
            range.start += advanced;
            received.map_err(|error| failed(error, advanced))
        })
    }

    fn fetch_whole(&self, path: &[u8], object: &Object, sink: &mut Sink<'_>) -> Result<u64, Error> {
        let response = self.client.repeat(|| {
            let response = self.request(path, object, &[])?;
            if response.status != 200 {
                return Err(Failed::of_response(response, no_reason));
            }
            check_version(&response, object)?;
            check_encoding(&response)?;
            Ok(response)
        })?;
        match object.size {
            Some(size) => {
                let mut advanced = 0;
                let received = receive(response, size, &mut advanced, sink);
                received.map(|()| size)
            }
            None => receive_all(response, sink),
        }
        .map_err(|error| self.client.silence_of(error))
    }
}
