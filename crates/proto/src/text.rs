//! Characters that control a terminal instead of being displayed.

/// True if a character controls how text is shown: control characters, ends of lines and
/// paragraphs, and Unicode's format characters, among them those that change the direction of text
/// and those without width.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_move_text_are_hidden_and_readable_ones_are_not() {
        for hidden in
            "\0\n\r\t\x1b\x7f\u{85}\u{200e}\u{200f}\u{2028}\u{202e}\u{2066}\u{2069}\u{feff}".chars()
        {
            assert!(is_hidden(hidden), "{hidden:?}");
        }
        for seen in "a é ß 漢 و ש 😀 \u{301}\u{a0}\u{2027}\u{202f}\u{2070}".chars() {
            assert!(!is_hidden(seen), "{seen:?}");
        }
    }
}
