//! Links of a directory's page, as Apache, nginx and Python's server write it.

use crate::store::{Listed, is_name};
use crate::url::{Url, decode};

/// Maximum number of characters of a name in a message.
const SHOWN_CHARACTERS: usize = 100;

/// Returns the entries directly beneath a directory that the page links to. Other links, such as
/// those to the parent and to other orders of the page, are left out. A name may occur twice.
pub fn entries(page: &str, directory: &Url) -> Vec<Listed> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((value, after)) = next_link(rest) {
        rest = after;
        found.extend(entry(&unescape(value), directory));
    }
    found
}

/// Returns the value of the next attribute `href` of an element `a`, and the text after it.
fn next_link(mut text: &str) -> Option<(&str, &str)> {
    loop {
        text = &text[text.find('<')? + 1..];
        let is_link = text.get(..2).is_some_and(|start| {
            start.eq_ignore_ascii_case("a ") || start.eq_ignore_ascii_case("a\n")
        });
        if !is_link {
            continue;
        }
        let end = text.find('>')?;
        let (tag, after) = text.split_at(end);
        text = after;
        let lower = tag.to_ascii_lowercase();
        let Some(at) = lower.find("href") else {
            continue;
        };
        let value = tag[at + 4..].trim_start();
        let Some(value) = value.strip_prefix('=').map(str::trim_start) else {
            continue;
        };
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            _ => value.split_ascii_whitespace().next(),
        };
        if let Some(value) = value {
            return Some((value, after));
        }
    }
}

/// Replaces the character references that such pages have.
fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}

/// Returns the entry of a link; `None` if it does not lead directly beneath the directory.
fn entry(link: &str, directory: &Url) -> Option<Listed> {
    if link.starts_with(['?', '#']) || link.is_empty() {
        return None;
    }
    // nginx and Python's server leave a few characters unencoded.
    let encoded: String = link
        .chars()
        .flat_map(|c| {
            let mut bytes = [0; 4];
            let text = c.encode_utf8(&mut bytes).as_bytes().to_vec();
            let keep = c.is_ascii_graphic();
            text.into_iter().map(move |byte| {
                if keep {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
        })
        .collect();
    let url = directory.join(&encoded).ok()?;
    if url.origin() != directory.origin() || url.query.is_some() {
        return None;
    }
    // Both ends may encode different characters.
    let base = directory.decoded_path().ok()?;
    let path = match decode(&url.path) {
        Ok(path) => path,
        Err(_) => return Some(Listed::Unreadable(shown(link))),
    };
    let name = path.strip_prefix(&base[..])?;
    let (name, is_directory) = match name.strip_suffix(b"/") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() {
        return None;
    }
    let encoded_depth = url.path.trim_end_matches('/').matches('/').count();
    let depth = directory.path.matches('/').count();
    if encoded_depth > depth {
        // It leads to an entry of a directory below.
        return None;
    }
    Some(if !is_name(name) {
        Listed::Unreadable(shown(link))
    } else if is_directory {
        Listed::Directory(name.to_vec())
    } else {
        Listed::Object(name.to_vec())
    })
}

fn shown(link: &str) -> String {
    let clean = link.chars().filter(|c| !c.is_control());
    clean.take(SHOWN_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Vec<String> {
        let directory = Url::parse("https://h/data/set%201/").unwrap();
        let shown = |listed: &Listed| match listed {
            Listed::Directory(name) => format!("{}/", String::from_utf8_lossy(name)),
            Listed::Object(name) => String::from_utf8_lossy(name).into_owned(),
            Listed::Unreadable(text) => format!("? {text}"),
        };
        entries(page, &directory).iter().map(shown).collect()
    }

    #[test]
    fn pages_of_usual_servers_are_read() {
        let apache = "<table><tr><th><a href=\"?C=N;O=D\">Name</a></th></tr>\
            <tr><td><a href=\"/data/\">Parent Directory</a></td></tr>\
            <tr><td><a href=\"a%20b.nc\">a b.nc</a></td><td>1.2M</td></tr>\
            <tr><td><a href=\"sub/\">sub/</a></td></tr></table>";
        assert_eq!(names(apache), ["a b.nc", "sub/"]);
        let nginx = "<pre><a href=\"../\">../</a>\n<a href=\"x%26y\">x&amp;y</a>  1\n\
            <a href=\"a:b\">a:b</a></pre>";
        assert_eq!(names(nginx), ["x&y"]);
        let python = "<ul>\n<li><a href=\"a&amp;b\">a</a></li>\n<LI><A HREF='%C3%A4/'>x</A></ul>";
        assert_eq!(names(python), ["a&b", "ä/"]);
        let absolute = "<a class=x href=\"https://h/data/set 1/f\"><a href=/data/set%201/g >";
        assert_eq!(names(absolute), ["f", "g"]);
    }

    #[test]
    fn links_to_other_places_are_left_out() {
        for link in [
            "..",
            "../x",
            "/",
            "/etc/passwd",
            "https://other/data/set%201/x",
            "//other/x",
            "http://h/data/set%201/x",
            "x?y",
            "#x",
            "sub/x",
            "./",
            "",
            "javascript:alert(1)",
            "https://h:444/data/set%201/x",
        ] {
            let page = format!("<a href=\"{link}\">");
            assert_eq!(names(&page), [""; 0], "{link}");
        }
    }

    #[test]
    fn names_that_no_file_has_are_named() {
        for link in ["%2e%2e%2fx", "a%00b", "%2Fetc", "a%2"] {
            let page = format!("<a href=\"{link}\">");
            let found = names(&page);
            assert!(
                found.len() == 1 && found[0].starts_with("? "),
                "{link}: {found:?}"
            );
        }
        let long = format!("<a href=\"{}\">", "x".repeat(256));
        assert!(names(&long)[0].starts_with("? "));
    }

    #[test]
    fn broken_pages_end() {
        for page in [
            "<a href",
            "<a href=\"x",
            "<a ",
            "<",
            "<a href=>",
            "<a href=\">",
            "<a é>",
        ] {
            names(page);
        }
    }
}
