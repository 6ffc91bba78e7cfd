//! Errors in TOML files as text.

/// Returns the error as one line: the line number, if it is known, and the cause.
pub fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    let start = error.span().and_then(|span| text.get(..span.start));
    match start {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}
