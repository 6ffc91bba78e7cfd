//! Console for notices and questions. A process has one console, as it has one terminal. The
//! command line installs its implementation. Without one, notices are dropped and every question is
//! answered with no.

use std::fmt::Write as _;
use std::sync::OnceLock;

use longhaul_proto::text::is_hidden;

/// Shows notices and asks the user.
pub trait Console: Send + Sync {
    /// Shows a notice of one line.
    fn notice(&self, text: &str);

    /// Replaces the progress line.
    fn progress(&self, line: &str);

    /// Removes the progress line, if there is one.
    fn clear_progress(&self);

    /// True if a progress line is visible.
    fn shows_progress(&self) -> bool;

    /// Passes on another program's standard error, for example that of ssh.
    fn pass_on(&self, bytes: &[u8]);

    /// True if a user is there to answer.
    fn can_ask(&self) -> bool;

    /// Asks a question. Returns true only for a complete "yes", as SSH does.
    fn confirm(&self, question: &str) -> bool;

    /// Returns the bytes that the process has allocated; `None` if they are not counted.
    fn live_heap(&self) -> Option<u64> {
        None
    }
}

static CONSOLE: OnceLock<Box<dyn Console>> = OnceLock::new();

/// Sets the process's console. Only the first call has an effect.
pub fn install(console: impl Console + 'static) {
    let _ = CONSOLE.set(Box::new(console));
}

fn installed() -> Option<&'static dyn Console> {
    CONSOLE.get().map(|console| &**console)
}

/// Shows a notice of one line.
pub fn say(text: &str) {
    if let Some(console) = installed() {
        console.notice(text);
    }
}

/// Replaces the progress line.
pub fn progress_line(line: &str) {
    if let Some(console) = installed() {
        console.progress(line);
    }
}

/// Removes the progress line, if there is one.
pub fn clear_line() {
    if let Some(console) = installed() {
        console.clear_progress();
    }
}

/// True if a progress line is visible.
pub fn shows_progress() -> bool {
    installed().is_some_and(Console::shows_progress)
}

/// Passes on another program's standard error.
pub fn pass_on(bytes: &[u8]) {
    if let Some(console) = installed() {
        console.pass_on(bytes);
    }
}

/// True if a user is there to answer.
pub fn can_ask() -> bool {
    installed().is_some_and(Console::can_ask)
}

/// Asks the user, if one is there. Returns true only for a complete "yes".
pub fn confirm(question: &str) -> bool {
    installed().is_some_and(|console| console.can_ask() && console.confirm(question))
}

/// Returns the bytes that the process has allocated; `None` if they are not counted.
pub fn live_heap() -> Option<u64> {
    installed().and_then(Console::live_heap)
}

/// Replaces characters that would move a terminal's cursor or reverse the direction of text.
pub fn harmless(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => c,
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(harmless).collect()
}

/// Escapes every hidden character in JSON text (`\\u202e`) except newlines. The value stays the
/// same.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character == '\n' || !is_hidden(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// Maximum length in bytes of foreign text in the log.
pub const MAXIMUM_LOGGED_BYTES: usize = 200;

/// Converts foreign text to one line of limited length without control characters. A line break in
/// it could imitate another message.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = harmless(text).replace(['\n', '\t'], "\u{fffd}");
    line.truncate(line.floor_char_boundary(most));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_other_programs_is_one_short_line() {
        assert_eq!(
            one_line("a\nlonghaul: b\x1b[2J", 200),
            "a\u{fffd}longhaul: b\u{fffd}[2J"
        );
        assert_eq!(one_line("aaé", 3), "aa");
    }

    #[test]
    fn json_shows_no_hidden_character_and_keeps_its_value() {
        let name = "a\x1b[2J\u{9b}2J\u{202e}\u{e0001}\u{7f}é\n";
        let json = serde_json::json!({ "name": name });
        for text in [json.to_string(), format!("{json:#}")] {
            let escaped = escaped_json(&text);
            assert!(escaped.contains("\\u202e") && escaped.contains("\\udb40\\udc01"));
            let shown = |c: char| c == '\n' || !is_hidden(c);
            assert!(escaped.chars().all(shown), "{escaped:?}");
            let value: serde_json::Value = serde_json::from_str(&escaped).unwrap();
            assert_eq!(value, json);
        }
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert_eq!(harmless("a\x1b[2J\r\n\tb"), "a\u{fffd}[2J\u{fffd}\n\tb");
        let all: String = ('\0'..=char::MAX).collect();
        let moves = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
        assert!(!harmless(&all).contains(moves));
    }
}
