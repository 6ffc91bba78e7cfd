//! Words and phrases that make a reader read twice.

/// A phrase in small letters, and what to write instead.
type Phrase = (&'static str, &'static str);

/// Each is correct English, and each stood where the field has a plainer word.
const PHRASES: [Phrase; 41] = [
    ("whoever", "name the user, client, process or host"),
    ("whosoever", "name the user, client, process or host"),
    ("he", "write \"it\", \"you\" or the role"),
    ("him", "write \"it\", \"you\" or the role"),
    ("his", "write \"its\", \"your\" or the role"),
    ("himself", "write \"itself\" or the role"),
    ("what is said", "name the output or the message"),
    ("that is said", "write \"reports\" or \"prints\""),
    ("it is said", "write \"reports\" or \"prints\""),
    ("is told", "write \"reports\" or \"receives\""),
    ("are told", "write \"reports\" or \"receives\""),
    ("tells of", "write \"reports\""),
    ("tell of", "write \"report\""),
    ("told apart", "write \"distinguished\""),
    ("so many", "give the number, or write \"that many\""),
    ("so often", "give the number, or write \"that often\""),
    ("so long as", "write \"while\" or \"as long as\""),
    ("none where", "write \"if\" and the condition"),
    ("goes on", "write \"continues\" or \"resumes\""),
    ("go on", "write \"continue\" or \"resume\""),
    ("went on", "write \"continued\" or \"resumed\""),
    ("beside it", "write \"next to it\" or \"in addition\""),
    ("beside them", "write \"next to them\" or \"in addition\""),
    ("beside each other", "write \"in parallel\""),
    ("beside the way", "write \"in addition\""),
    ("over there", "write \"on the remote host\""),
    ("shall", "write \"must\", \"should\" or \"will\""),
    ("but for", "write \"except\""),
    ("save for", "write \"except\""),
    ("all the same", "write \"nevertheless\" or \"still\""),
    ("in vain", "write \"unnecessarily\""),
    ("has it", "write \"as in\" and the tool or page"),
    ("have it", "write \"support it\" or name what they have"),
    ("as it were", "leave it out"),
    ("mend", "write \"fix\""),
    ("mended", "write \"fixed\""),
    ("each by itself", "write \"separately\""),
    ("came to nothing", "write \"failed\""),
    ("which see", "write a link"),
    ("thereof", "name the thing"),
    ("wherein", "write \"in which\""),
];

/// Returns the phrases in a text, each with its replacement. Case does not count, and a phrase
/// consists of whole words.
pub fn found(text: &str) -> impl Iterator<Item = Phrase> {
    let plain = plain(text);
    PHRASES
        .into_iter()
        .filter(move |(phrase, _)| plain.contains(&format!(" {phrase} ")))
}

/// Returns the words in small letters, with single spaces between them and at both ends.
/// Punctuation becomes a separate word, so that a phrase does not span it.
fn plain(text: &str) -> String {
    let mut plain = String::from(" ");
    for c in text.to_lowercase().chars() {
        let parts_words = !c.is_alphanumeric() && !"'’-".contains(c);
        if c.is_whitespace() {
            plain.push(' ');
        } else if parts_words {
            plain.extend([' ', c, ' ']);
        } else {
            plain.push(c);
        }
    }
    plain.push(' ');
    plain
        .split_whitespace()
        .fold(String::from(" "), |line, word| line + word + " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrases(text: &str) -> Vec<&'static str> {
        found(text).map(|(phrase, _)| phrase).collect()
    }

    #[test]
    fn whole_words_are_found_in_any_case() {
        assert_eq!(phrases("Whoever\n writes"), ["whoever"]);
        assert_eq!(phrases("(he)"), ["he"]);
        assert_eq!(phrases("then it goes  on."), ["goes on"]);
    }

    #[test]
    fn parts_of_words_and_other_sentences_are_not() {
        assert_eq!(phrases("the shell, this ghe"), [""; 0]);
        assert_eq!(phrases("it goes. On the way"), [""; 0]);
        assert_eq!(phrases("shallow, recommend, history"), [""; 0]);
    }

    #[test]
    fn phrases_are_small_letters_and_stand_once() {
        for (index, (phrase, instead)) in PHRASES.iter().enumerate() {
            assert_eq!(phrases(phrase).first(), Some(phrase), "{phrase}");
            assert!(!instead.is_empty(), "{phrase}");
            assert!(PHRASES[..index].iter().all(|(other, _)| other != phrase));
        }
    }
}
