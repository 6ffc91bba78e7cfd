//! The XML of responses.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use crate::error::Error;
use crate::url::decode;

/// Maximum nesting of elements.
const MAXIMUM_DEPTH: usize = 8;

/// Maximum number of keys and prefixes of a page. Stores send at most 1,000.
const MAXIMUM_KEYS: usize = 10_000;

/// A page of a listing. Keys and prefixes are decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys of objects.
    pub keys: Vec<Vec<u8>>,
    /// Prefixes that several keys share.
    pub prefixes: Vec<Vec<u8>>,
    /// Token of the next page. `None` if this is the last one.
    pub next: Option<String>,
}

/// Receiver of the names of the elements that contain a text, and of the text.
type Tell<'a> = dyn FnMut(&[String], &str) -> Result<(), Error> + 'a;

/// Calls `tell` for each element.
fn walk(xml: &str, tell: &mut Tell<'_>) -> Result<(), Error> {
    let invalid = || Error::Unexpected("the store sent invalid XML".to_owned());
    let mut reader = Reader::from_str(xml);
    let (mut names, mut text): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        match reader.read_event().map_err(|_| invalid())? {
            Event::Start(element) => {
                if names.len() >= MAXIMUM_DEPTH {
                    return Err(invalid());
                }
                let name = element.local_name();
                names.push(name.as_ref().to_owned());
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece),
            Event::CData(piece) => text.push_str(&piece),
            Event::GeneralRef(entity) => match entity.resolve_char_ref() {
                Ok(Some(c)) => text.push(c),
                _ => {
                    text.push_str(resolve_predefined_entity(&entity).ok_or_else(invalid)?);
                }
            },
            Event::End(_) => {
                tell(&names, &text)?;
                names.pop();
                text.clear();
            }
            Event::DocType(_) => return Err(invalid()),
            Event::Eof if names.is_empty() => return Ok(()),
            Event::Eof => return Err(invalid()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

/// Parses a page of `ListObjectsV2`, which was requested with encoded keys.
///
/// # Errors
///
/// [`Error::Unexpected`].
pub fn parse_page(xml: &[u8]) -> Result<Page, Error> {
    let text = String::from_utf8_lossy(xml);
    let mut page = Page::default();
    let (mut is_listing, mut is_truncated, mut is_encoded) = (false, false, false);
    walk(&text, &mut |names, text| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names[..] {
            ["ListBucketResult"] => is_listing = true,
            ["ListBucketResult", "Contents", "Key"] => page.keys.push(text.into()),
            ["ListBucketResult", "CommonPrefixes", "Prefix"] => page.prefixes.push(text.into()),
            ["ListBucketResult", "IsTruncated"] => is_truncated = text.trim() == "true",
            ["ListBucketResult", "EncodingType"] => is_encoded = text.trim() == "url",
            ["ListBucketResult", "NextContinuationToken"] => page.next = Some(text.to_owned()),
            _ => {}
        }
        if page.keys.len() + page.prefixes.len() > MAXIMUM_KEYS {
            return Err(Error::Unexpected(
                "a page of a listing is too long".to_owned(),
            ));
        }
        Ok(())
    })?;
    if !is_listing || (is_truncated && page.next.is_none()) {
        return Err(Error::Unexpected(
            "the store sent an incomplete listing".to_owned(),
        ));
    }
    if !is_truncated {
        page.next = None;
    }
    if is_encoded {
        for key in page.keys.iter_mut().chain(&mut page.prefixes) {
            let text = String::from_utf8_lossy(key).replace('+', " ");
            let invalid = |_| Error::Unexpected("a key is not encoded correctly".to_owned());
            *key = decode(&text).map_err(invalid)?;
        }
    }
    Ok(page)
}

/// Returns the code and the message of an error.
pub fn reason(xml: &[u8]) -> Option<String> {
    let (mut code, mut message) = (None, String::new());
    let text = String::from_utf8_lossy(xml);
    walk(&text, &mut |names, text| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names[..] {
            ["Error", "Code"] => code = Some(text.to_owned()),
            ["Error", "Message"] => text.clone_into(&mut message),
            _ => {}
        }
        Ok(())
    })
    .ok()?;
    code.map(|code| format!("{code}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_parsed() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name>\
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>a&amp;b&#61;</NextContinuationToken>\
            <Contents><Key>a+b%2Bc</Key><Owner><ID>1</ID></Owner></Contents>\
            <Contents><Key>%C3%A4%0A</Key></Contents>\
            <CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = parse_page(xml.as_bytes()).unwrap();
        assert_eq!(page.keys, [b"a b+c".to_vec(), "ä\n".into()]);
        assert_eq!(page.prefixes, [b"d/".to_vec()]);
        assert_eq!(page.next.as_deref(), Some("a&b="));
        let plain = "<ListBucketResult><Contents><Key>a+b&lt;</Key></Contents></ListBucketResult>";
        assert_eq!(
            parse_page(plain.as_bytes()).unwrap().keys,
            [b"a+b<".to_vec()]
        );
    }

    #[test]
    fn broken_pages_are_refused() {
        for xml in [
            "",
            "<html></html>",
            "<ListBucketResult>",
            "<ListBucketResult><Contents></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult>&a;</ListBucketResult>",
            "<ListBucketResult>&a;</ListBucketResult>",
        ] {
            assert!(parse_page(xml.as_bytes()).is_err(), "{xml}");
        }
        let deep = "<a>".repeat(100_000);
        assert!(parse_page(deep.as_bytes()).is_err());
        let long = "<Contents><Key>k</Key></Contents>".repeat(MAXIMUM_KEYS + 1);
        assert!(parse_page(format!("<ListBucketResult>{long}").as_bytes()).is_err());
        let key = "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%2</Key>\
            </Contents></ListBucketResult>";
        assert!(parse_page(key.as_bytes()).is_err());
    }

    #[test]
    fn reasons_of_errors_are_found() {
        let xml = b"<Error><Code>NoSuchBucket</Code><Message>It is absent</Message></Error>";
        assert_eq!(reason(xml).as_deref(), Some("NoSuchBucket: It is absent"));
        assert_eq!(reason(b"<html>"), None);
    }
}
