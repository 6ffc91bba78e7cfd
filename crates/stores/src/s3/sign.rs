//! Signatures of requests (AWS Signature Version 4, in the header).

use std::fmt::Write;

use aws_lc_rs::{digest, hmac};
use longhaul_units::rfc3339;

use super::credentials::Credentials;
use crate::client::Request;
use crate::url::{Url, encode};

/// Characters that a signature leaves unencoded.
const UNRESERVED: &[u8] = b"-._~";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

/// Writes a query with encoded names and values, in the order that a signature requires.
pub fn query(parameters: &[(&str, &str)]) -> String {
    let encoded = |text: &str| encode(text.as_bytes(), UNRESERVED);
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    let mut pairs: Vec<String> = parameters.iter().map(pair).collect();
    pairs.sort();
    pairs.join("&")
}

/// Adds the headers of a signature to a request, whose query was written by [`query`]. `now` is
/// the time in seconds since 1970.
pub fn sign<'a>(
    request: Request<'a>,
    credentials: &Credentials,
    region: &str,
    now: i64,
) -> Request<'a> {
    let time: String = rfc3339(now)
        .chars()
        .filter(|c| !"-:".contains(*c))
        .collect();
    let payload = sha256(request.body);
    let mut request = request
        .with("x-amz-content-sha256", payload.clone())
        .with("x-amz-date", time.clone());
    if let Some(token) = &credentials.session_token {
        request = request.with("x-amz-security-token", token);
    }
    let url: &Url = request.url;
    let mut headers: Vec<(String, String)> = request.headers.clone();
    headers.push(("host".to_owned(), url.authority()));
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| &name[..]).collect();
    let names = names.join(";");
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.trim()));
    let canonical = format!(
        "{}\n{}\n{}\n{}\n{names}\n{payload}",
        request.method,
        url.path,
        url.query.as_deref().unwrap_or_default(),
        lines.collect::<String>()
    );
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let first = format!("AWS4{}", credentials.secret_key).into_bytes();
    let key = [day, region, "s3", "aws4_request"]
        .iter()
        .fold(first, |key, text| mac(&key, text));
    let signature = hex(&mac(&key, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key
    );
    request.with("authorization", authorization)
}

#[cfg(test)]
mod tests {
    use ureq::http::Method;

    use super::*;

    /// Signs a request of the examples in Amazon's documentation of Signature Version 4.
    fn signature(path: &str, query: Option<String>, headers: &[(&str, &str)]) -> String {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let url = Url::parse("https://examplebucket.s3.amazonaws.com/").unwrap();
        let url = Url {
            query,
            ..url.with_path(path.as_bytes())
        };
        let mut request = Request::new(Method::GET, &url);
        for (name, value) in headers {
            request = request.with(name, *value);
        }
        // 2013-05-24T00:00:00Z
        let signed = sign(request, &credentials, "us-east-1", 1_369_353_600);
        let (_, value) = signed.headers.last().unwrap();
        value.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn the_examples_of_the_documentation_are_signed() {
        assert_eq!(
            signature("/test.txt", None, &[("range", "bytes=0-9")]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let listing = query(&[("prefix", "J"), ("max-keys", "2")]);
        assert_eq!(
            signature("/", Some(listing), &[]),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
        assert_eq!(query(&[("b", "x/y z"), ("a", "ä")]), "a=%C3%A4&b=x%2Fy%20z");
    }
}
