//! Makes the texts of other users harmless.
//!
//! Other users choose names, labels, hosts and commands. On a terminal a control character could clear the screen, and a
//! bidirectional override could show a text that is not there.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Returns whether `c` could move the cursor, reorder what surrounds it or hide itself.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns `text` on one line. Control characters and characters that reorder or hide text are written as escapes.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns a text of the system as Unicode. Bytes that are not UTF-8 are written as `\xHH`. The result still needs [`text`].
pub fn os(text: &OsStr) -> String {
    let mut out = String::new();
    for chunk in text.as_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    out
}

/// Escapes the characters in finished JSON that JSON permits and a terminal would obey. The meaning is the same.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns `text` without the numbers that the standard library adds to the system's errors: ` (os error 13)`.
pub fn plain(text: &str) -> String {
    const BEGINNING: &str = " (os error ";
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.split(BEGINNING);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if is_number(number) => out.push_str(rest),
            _ => out.extend([BEGINNING, part]),
        }
    }
    out
}

/// Cuts `text` to at most `width` columns. A cut text ends in `…`.
pub fn cut(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = usize::from(width > 0);
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    text.chars().take_while(fits).chain((width > 0).then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_characters_become_visible() {
        assert_eq!(text("a\x1b[2Jb\nc\td"), "a\\u{1b}[2Jb\\nc\\td");
        assert_eq!(text("safe\u{202e}exe.txt"), "safe\\u{202e}exe.txt");
        assert_eq!(text("\u{9b}31m\u{7f}"), "\\u{9b}31m\\u{7f}");
        assert_eq!(text("日本 é 👩‍🚀 \\n"), "日本 é 👩‍🚀 \\n");
    }

    #[test]
    fn non_text_bytes_become_escapes() {
        assert_eq!(os(OsStr::from_bytes(b"a\xffb\xc3")), "a\\xffb\\xc3");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let hostile = "a\u{202e}\u{9b}\u{e0041}é";
        let safe = json(&serde_json::to_string(hostile).expect("a string"));
        assert_eq!(safe, "\"a\\u202e\\u009b\\udb40\\udc41é\"");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("still JSON"), hostile);
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        for (text, plain_text) in [
            ("a: Permission denied (os error 13); b", "a: Permission denied; b"),
            ("x (os error 2), y (os error 111)", "x, y"),
            ("x (os error 4", "x (os error 4"),
            ("lock a (os error of b), c", "lock a (os error of b), c"),
            ("a (os error ) b (os error 2)", "a (os error ) b"),
            ("no number", "no number"),
        ] {
            assert_eq!(plain(text), plain_text);
        }
    }

    #[test]
    fn cutting_counts_columns() {
        assert_eq!(cut("deploy", 6), "deploy");
        assert_eq!(cut("deploy", 5), "depl…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
    }

    proptest! {
        #[test]
        fn nothing_hostile_passes(any in "\\PC*|.*") {
            prop_assert!(!text(&any).chars().any(is_hostile));
        }
    }
}
