//! Breaks sentences between words.

use unicode_width::UnicodeWidthStr as _;

/// The least room for a sentence, however narrow the terminal.
const LEAST: usize = 20;

/// Returns the lines of `text` in at most `width` columns, where no single word is wider.
pub(super) fn lines(text: &str, width: Option<usize>) -> Vec<String> {
    let room = width.map_or(usize::MAX, |width| width.max(LEAST));
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("at least one");
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(lines("one two", None), ["one two"]);
        let wrapped = lines("End these 4 claims on a-lock-with-a-long-name?", Some(24));
        assert_eq!(wrapped, ["End these 4 claims on", "a-lock-with-a-long-name?"]);
        assert_eq!(
            lines("a-lock-with-quite-a-long-name: held", Some(1)),
            ["a-lock-with-quite-a-long-name:", "held"]
        );
        assert_eq!(lines("", Some(40)), [""]);
    }
}
