//! The tables of FORMAT.md agree with the derives of the messages.
//!
//! `cargo xtask wire` writes the table of all types: the number, name and type of each field and
//! variant that is encoded by a derive of `minicbor`. A table that describes the fields of one
//! type has all of their numbers, and no others.

use std::fmt::Write as _;

use super::Finding;
use super::tree::Tree;
use crate::workspace;

const RULE: &str = "wire";

/// The document that has the table.
const DOCUMENT: &str = "FORMAT.md";

/// The line before the table. The table ends at the first empty line after its rows.
const BEGINNING: &str = "| type | encoding | fields or variants |\n|---|---|---|\n";

/// Files with messages: all below the first, and the second.
const SOURCES: [&str; 2] = [
    "crates/proto/src/",
    "crates/transfer/src/between_hosts/job_protocol.rs",
];

/// The line after which a table describes the fields of one type.
const DESCRIPTION: &str = "| field | what |";

/// Compares the tables with the sources.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.get(DOCUMENT) else {
        return Vec::new();
    };
    let types = types_of(tree);
    let mut findings = check_descriptions(&document.text, &types);
    findings.extend(check_table(&document.text, &rows(&types)));
    findings
}

/// Compares the generated table.
fn check_table(text: &str, rows: &str) -> Option<Finding> {
    let Some((before, old)) = split(text) else {
        let missing = Finding::new(DOCUMENT, 1, RULE, "has no table of wire types");
        return (!rows.is_empty()).then_some(missing);
    };
    let at = first_difference(old, rows)?;
    let line = before.lines().count() + at + 1;
    let message = "the table differs from the derives: run \"cargo xtask wire\"";
    Some(Finding::new(DOCUMENT, line, RULE, message))
}

/// Compares the numbers in each table of one type's fields.
fn check_descriptions(text: &str, types: &[WireType]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut name = "";
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        if let Some((bold, _)) = line
            .strip_prefix("**")
            .and_then(|rest| rest.split_once("**"))
        {
            name = bold;
        }
        let found = types.iter().find(|kind| kind.name == name);
        let (true, Some(kind)) = (line == DESCRIPTION, found) else {
            continue;
        };
        let mut described = Vec::new();
        while let Some((_, row)) = lines.next_if(|(_, row)| row.starts_with('|')) {
            let numbers = row.split('|').nth(1).unwrap_or_default().split(',');
            described.extend(numbers.filter_map(|number| number.trim().parse::<u32>().ok()));
        }
        let mut numbers = kind.fields.clone();
        numbers.sort_unstable();
        described.sort_unstable();
        if described != numbers {
            let message = format!(
                "the table of {name} has the fields {described:?}, and the code has {numbers:?}"
            );
            findings.push(Finding::new(DOCUMENT, index + 1, RULE, message));
        }
    }
    findings
}

/// Writes the table.
///
/// # Errors
///
/// If the document has no table, or cannot be written.
pub fn write(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no argument, so no \"{argument}\""));
    }
    let tree = Tree::of_repository()?;
    let document = tree.get(DOCUMENT).ok_or("FORMAT.md is missing")?;
    let (before, old) = split(&document.text).ok_or("FORMAT.md has no table of wire types")?;
    let after = &document.text[before.len() + old.len()..];
    let text = format!("{before}{}{after}", rows(&types_of(&tree)));
    std::fs::write(workspace::root().join(DOCUMENT), text).map_err(|error| error.to_string())
}

/// The text up to the rows of the table, and the rows.
fn split(text: &str) -> Option<(&str, &str)> {
    let start = text.find(BEGINNING)? + BEGINNING.len();
    let end = text[start..]
        .find("\n\n")
        .map_or(text.len(), |at| start + at + 1);
    Some((&text[..start], &text[start..end]))
}

/// The index of the first line that differs.
fn first_difference(old: &str, new: &str) -> Option<usize> {
    if old == new {
        return None;
    }
    let same = old.lines().zip(new.lines()).take_while(|(a, b)| a == b);
    Some(same.count())
}

/// The rows of all types.
fn rows(types: &[WireType]) -> String {
    types.iter().map(|kind| kind.rows.as_str()).collect()
}

/// All types, in the order of the files and of their text.
fn types_of(tree: &Tree) -> Vec<WireType> {
    let is_source = |path: &str| SOURCES.iter().any(|source| path.starts_with(source));
    let files = tree.rust().filter(|(file, _)| is_source(&file.path));
    let code = files.map(|(_, rust)| {
        let lines: Vec<&str> = rust.product_code().map(|(_, code)| code).collect();
        lines.join("\n")
    });
    code.flat_map(|code| types(&code)).collect()
}

/// A type that derives its encoding.
struct WireType {
    name: String,
    /// Its rows in the table of all types.
    rows: String,
    /// Numbers of a struct's fields.
    fields: Vec<u32>,
}

/// A piece of Rust and the attributes before it.
struct Item<'a> {
    attributes: Vec<&'a str>,
    rest: &'a str,
}

impl<'a> Item<'a> {
    fn new(text: &'a str) -> Item<'a> {
        let mut attributes = Vec::new();
        let mut rest = text.trim_start();
        while rest.starts_with("#[") {
            let inner = enclosed(&rest[1..]);
            attributes.push(inner);
            rest = rest[1 + inner.len() + 2..].trim_start();
        }
        Item { attributes, rest }
    }

    /// The number in `n(NUMBER)`.
    fn number(&self) -> Option<u32> {
        self.attributes.iter().find_map(|attribute| {
            let attribute = attribute.strip_prefix("cbor(").unwrap_or(attribute);
            let digits = attribute.strip_prefix("n(")?.split(')').next()?;
            digits.parse().ok()
        })
    }

    /// True if `minicbor::bytes` encodes it: the only module that `with` names here.
    fn is_bytes(&self) -> bool {
        let cbor = self
            .attributes
            .iter()
            .filter_map(|a| a.strip_prefix("cbor("));
        let mut parts = cbor.flat_map(|attribute| attribute.split(','));
        parts.any(|part| part.trim_start().starts_with("with ="))
    }

    fn has(&self, word: &str) -> bool {
        let mut cbor = self.attributes.iter().filter(|a| a.starts_with("cbor("));
        cbor.any(|attribute| attribute.contains(word))
    }
}

/// The text within the bracket that begins a text.
fn enclosed(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return text.get(1..at).unwrap_or_default();
        }
    }
    ""
}

/// Parts between the commas that are in no bracket.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The types in a source that derive their encoding.
fn types(code: &str) -> Vec<WireType> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("#[derive(") {
        let item = Item::new(&code[at..]);
        let derives = item.attributes.first().copied().unwrap_or_default();
        if !derives
            .split(['(', ',', ')'])
            .any(|word| word.trim() == "Encode")
        {
            continue;
        }
        let is_enum = item
            .rest
            .split_whitespace()
            .take(2)
            .any(|word| word == "enum");
        let rest = item.rest.trim_start_matches("pub(crate) ");
        let Some(open) = rest.find(['{', '(']) else {
            continue;
        };
        let head = rest[..open].split_whitespace().last();
        let name = head
            .unwrap_or_default()
            .split('<')
            .next()
            .unwrap_or_default();
        let body = enclosed(&rest[open..]);
        let rows = if is_enum {
            enum_rows(name, &item, body)
        } else {
            format!("| `{name}` | {} | {} |\n", encoding(&item), fields(body))
        };
        let items = parts(body).into_iter().map(Item::new);
        found.push(WireType {
            name: name.to_owned(),
            rows,
            fields: items.filter_map(|item| item.number()).collect(),
        });
    }
    found
}

fn encoding(item: &Item<'_>) -> &'static str {
    if item.has("transparent") {
        "as its field"
    } else if item.has("map") {
        "map"
    } else {
        "array"
    }
}

fn enum_rows(name: &str, item: &Item<'_>, body: &str) -> String {
    let variants: Vec<Item<'_>> = parts(body).into_iter().map(Item::new).collect();
    let numbered = variants.iter().filter_map(|variant| {
        let name = variant.rest.split(['(', '{', ' ']).next()?.trim();
        let content = variant.rest[name.len()..].trim_start();
        let content = fields(enclosed(content));
        let colon = if content.is_empty() { "" } else { ": " };
        Some(format!("{} `{name}`{colon}{content}", variant.number()?))
    });
    let numbered: Vec<String> = numbered.collect();
    if item.has("index_only") {
        return format!("| `{name}` | plain enum | {} |\n", numbered.join(" · "));
    }
    let mut rows = String::new();
    for (index, variant) in numbered.iter().enumerate() {
        let first = format!("`{name}` | enum");
        let beginning = if index == 0 { &first } else { " | " };
        let _ = writeln!(rows, "| {beginning} | {variant} |");
    }
    rows
}

/// Fields with their numbers, names and types.
fn fields(body: &str) -> String {
    let fields = parts(body).into_iter().map(Item::new).filter_map(|item| {
        let number = item.number()?;
        let rest = item
            .rest
            .trim_start_matches("pub(crate)")
            .trim_start_matches("pub ");
        let (name, kind) = match rest.split_once(": ") {
            Some((name, kind)) => (format!("`{}` ", name.trim()), kind),
            None => (String::new(), rest),
        };
        let mut kind = if item.is_bytes() {
            bytes(kind)
        } else {
            type_name(kind)
        };
        if item.has("default") && !kind.ends_with('?') {
            kind.push('?');
        }
        Some(format!("{number} {name}{kind}"))
    });
    fields.collect::<Vec<String>>().join(" · ")
}

/// A byte string, with its length if that is fixed.
fn bytes(kind: &str) -> String {
    let optional = if kind.contains("Option<") { "?" } else { "" };
    let length = kind
        .split(';')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    let length = length.and_then(|length| length.trim().parse::<u32>().ok());
    match length {
        Some(length) => format!("{length} bytes{optional}"),
        None => format!("bytes{optional}"),
    }
}

/// Returns the type's name in the words of FORMAT.md.
fn type_name(kind: &str) -> String {
    let kind = kind.trim();
    let inner = |name: &str| kind.strip_prefix(name)?.strip_suffix('>').map(type_name);
    if let Some(inner) = inner("Option<") {
        return format!("{inner}?");
    }
    if let Some(inner) = inner("Box<") {
        return inner;
    }
    if let Some(inner) = inner("Vec<") {
        return if inner.ends_with('?') {
            format!("array of ({inner})")
        } else {
            format!("array of {inner}")
        };
    }
    if kind.starts_with('(') {
        let inner: Vec<String> = parts(enclosed(kind)).into_iter().map(type_name).collect();
        return format!("({})", inner.join(", "));
    }
    if let Some((inner, count)) = kind
        .strip_prefix('[')
        .and_then(|k| k.trim_end_matches(']').split_once(';'))
    {
        return format!("{} of {}", count.trim(), type_name(inner));
    }
    let name = kind.rsplit("::").next().unwrap_or(kind);
    if let Some(length) = name.strip_prefix("ByteArray<") {
        return format!("{} bytes", length.trim_end_matches('>'));
    }
    match name {
        "ByteVec" => "bytes".to_owned(),
        "String" => "text".to_owned(),
        name if name.starts_with(char::is_uppercase) => format!("`{name}`"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    const SOURCE: &str = "\
        /// A thing.\n\
        #[derive(Clone, Encode, Decode)]\n\
        #[cbor(map)]\n\
        pub struct A {\n\
            /// Text.\n\
            #[n(0)]\n\
            pub name: ByteVec,\n\
            #[cbor(n(4), with = \"minicbor::bytes\")]\n\
            pub key: Option<[u8; 32]>,\n\
            #[n(2)]\n\
            #[cbor(default)]\n\
            pub(crate) list: Vec<(B, u32)>,\n\
        }\n\
        #[derive(Encode)]\n\
        #[cbor(index_only)]\n\
        enum B { #[n(0)] One, #[n(3)] Two }\n\
        #[derive(Debug)]\n\
        struct NotEncoded { a: u8 }\n\
        #[derive(Encode)]\n\
        enum C { #[n(1)] D(#[n(0)] Box<A>), #[n(2)] E { #[n(0)] of: u8 }, #[n(3)] F }\n\
        #[derive(Encode)]\n\
        #[cbor(transparent)]\n\
        pub struct Id(#[n(0)] pub u64);\n";

    const ROWS: &str = "\
        | `A` | map | 0 `name` bytes · 4 `key` 32 bytes? · 2 `list` array of (`B`, u32)? |\n\
        | `B` | plain enum | 0 `One` · 3 `Two` |\n\
        | `C` | enum | 1 `D`: 0 `A` |\n\
        |  |  | 2 `E`: 0 `of` u8 |\n\
        |  |  | 3 `F` |\n\
        | `Id` | as its field | 0 u64 |\n";

    #[test]
    fn derives_become_rows() {
        let document = format!("{BEGINNING}{ROWS}\nMore.\n");
        let tree = sample(&[("FORMAT.md", &document), ("crates/proto/src/a.rs", SOURCE)]);
        assert_eq!(rows(&types_of(&tree)), ROWS);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_description_has_all_numbers_and_no_others() {
        let described = |rows: &str| {
            let text =
                format!("**A**, map:\n\n{DESCRIPTION}\n|---|---|\n{rows}\n{BEGINNING}{ROWS}");
            let tree = sample(&[("FORMAT.md", &text), ("crates/proto/src/a.rs", SOURCE)]);
            check(&tree).len()
        };
        assert_eq!(described("| 0 | name |\n| 2, 4 | the rest |\n"), 0);
        assert_eq!(described("| 0 | name |\n| 4 | the rest |\n"), 1);
        assert_eq!(described("| 0, 2, 4 | all |\n| 5 | more |\n"), 1);
    }

    #[test]
    fn another_number_is_found_in_its_line() {
        let document = format!(
            "# Formats\n\n{BEGINNING}{}",
            ROWS.replace("3 `Two`", "2 `Two`")
        );
        let tree = sample(&[("FORMAT.md", &document), ("crates/proto/src/a.rs", SOURCE)]);
        let found = check(&tree);
        assert_eq!((found.len(), found[0].line), (1, 6));
    }
}
