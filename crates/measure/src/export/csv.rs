//! Comma-separated values as RFC 4180 has them.

use super::{Table, Values};

/// The whole file.
pub fn write(table: &Table) -> String {
    let columns: Vec<(&str, Values)> = table.columns().collect();
    let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
    let mut text = names.join(",");
    for row in 0..table.rows() {
        text.push_str("\r\n");
        for (place, (_, values)) in columns.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(&cell(values, row));
        }
    }
    text.push_str("\r\n");
    text
}

fn cell(values: &Values, row: usize) -> String {
    let shown = match values {
        Values::Flags(all) => all[row].map(|flag| flag.to_string()),
        Values::Whole(all) => all[row].map(|number| number.to_string()),
        Values::Numbers(all) => all[row].map(|number| number.to_string()),
        Values::Times(all) => all[row].as_ref().map(|(_, text)| quoted(text)),
        Values::Texts(all) => all[row].as_deref().map(quoted),
    };
    shown.unwrap_or_default()
}

/// In quotes where it needs them: a name of a column or a value may hold anything.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_quoted() {
        assert_eq!(quoted("plain text"), "plain text");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
