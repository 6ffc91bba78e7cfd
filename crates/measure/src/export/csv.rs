//! Comma-separated values as specified in RFC 4180.

use super::{Table, Values};

/// Formats a table as a CSV file.
pub fn write(table: &Table) -> String {
    let columns: Vec<(&str, Values)> = table.columns().collect();
    let names: Vec<String> = columns.iter().map(|(name, _)| text_cell(name)).collect();
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
        Values::Texts(all) => all[row].as_deref().map(text_cell),
    };
    shown.unwrap_or_default()
}

/// Quotes text so that spreadsheets do not evaluate it. Text that looks like a formula gets the
/// prefix `'`, which spreadsheets hide. Numbers in a text column are unchanged.
fn text_cell(text: &str) -> String {
    // Some spreadsheets evaluate formulas that follow white space.
    let first = text
        .trim_start_matches([' ', '\t', '\r', '\n'])
        .chars()
        .next();
    let formula = first.is_some_and(|first| "=+-@\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}".contains(first));
    if formula && text.parse::<f64>().is_err() {
        quoted(&format!("'{text}"))
    } else {
        quoted(text)
    }
}

/// Quotes text if necessary. Column names and values may contain any character.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_line_breaks_are_quoted() {
        assert_eq!(quoted("plain text"), "plain text");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }

    #[test]
    fn formulas_are_escaped() {
        assert_eq!(text_cell("=1+1"), "'=1+1");
        for formula in [
            "=cmd|' /C calc'!A0",
            "+1+1",
            "-2+3",
            "@SUM(A1)",
            "\t=1",
            " =1",
            "-",
        ] {
            let shown = text_cell(formula);
            assert!(
                shown.starts_with('\'') || shown.starts_with("\"'"),
                "{shown}"
            );
        }
        for plain in ["-1.5", "+2e-3", "-0", "a=b", "1-2", "", "~"] {
            assert_eq!(text_cell(plain), plain);
        }
        let numbers = Values::Numbers(vec![Some(-1.5)]);
        assert_eq!(cell(&numbers, 0), "-1.5");
    }
}
