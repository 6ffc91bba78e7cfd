//! URLs of objects in buckets.

use crate::store::is_name;

/// Maximum length of a key in bytes.
pub const MAXIMUM_KEY_BYTES: usize = 1024;

/// Maximum length of the name of a bucket in bytes.
const MAXIMUM_BUCKET_BYTES: usize = 255;

/// A path in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name of the bucket.
    pub bucket: String,
    /// The key or prefix behind a slash. It is not encoded.
    pub path: Vec<u8>,
}

/// Reasons to reject a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The bucket is missing, or contains characters that no bucket has.
    #[error("the URL has no valid bucket: write s3://BUCKET/PREFIX")]
    Bucket,
    /// A name of the key is empty, `.` or `..`, or too long, or the key is not UTF-8.
    #[error("the key has a name that no file can have, is too long, or is not UTF-8")]
    Key,
}

impl Location {
    /// True if the text is a URL of a bucket.
    pub fn is_location(text: &[u8]) -> bool {
        text.starts_with(b"s3://")
    }

    /// Parses `s3://BUCKET[/KEY]`.
    ///
    /// # Errors
    ///
    /// [`LocationError`].
    pub fn parse(text: &[u8]) -> Result<Location, LocationError> {
        let rest = text.strip_prefix(b"s3://").ok_or(LocationError::Bucket)?;
        let end = rest.iter().position(|byte| *byte == b'/');
        let (bucket, path) = rest.split_at(end.unwrap_or(rest.len()));
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
        let is_valid = (1..=MAXIMUM_BUCKET_BYTES).contains(&bucket.len())
            && bucket.iter().all(allowed)
            && bucket[0].is_ascii_alphanumeric()
            && !bucket.windows(2).any(|pair| pair == b"..");
        if !is_valid {
            return Err(LocationError::Bucket);
        }
        let path = if path.is_empty() { b"/" } else { path };
        let key = path[1..].strip_suffix(b"/").unwrap_or(&path[1..]);
        let names_fit = key.is_empty() || key.split(|byte| *byte == b'/').all(is_name);
        if !names_fit || key.len() > MAXIMUM_KEY_BYTES || std::str::from_utf8(key).is_err() {
            return Err(LocationError::Key);
        }
        Ok(Location {
            bucket: String::from_utf8_lossy(bucket).into_owned(),
            path: path.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, bucket, path) in [
            ("s3://b", "b", "/"),
            ("s3://b/", "b", "/"),
            ("s3://my.bucket-1/a b/%20/", "my.bucket-1", "/a b/%20/"),
        ] {
            let found = Location::parse(url.as_bytes()).unwrap();
            assert_eq!(
                (&found.bucket[..], &found.path[..]),
                (bucket, path.as_bytes())
            );
        }
        for url in [
            "s3://",
            "s3:///x",
            "s3://a@b/x",
            "s3://a:1/x",
            "s3://a..b/x",
            "s3://-a/x",
        ] {
            assert_eq!(
                Location::parse(url.as_bytes()),
                Err(LocationError::Bucket),
                "{url}"
            );
        }
        for url in [
            "s3://b//x",
            "s3://b/a//",
            "s3://b/../x",
            "s3://b/a/.",
            "s3://b/a\0",
        ] {
            assert_eq!(
                Location::parse(url.as_bytes()),
                Err(LocationError::Key),
                "{url}"
            );
        }
        assert_eq!(Location::parse(b"s3://b/\xff"), Err(LocationError::Key));
    }
}
