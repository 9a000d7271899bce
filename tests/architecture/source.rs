//! Rust source as text: enough of its grammar to find words and paths.

/// Returns the code with spaces in the place of comments and the insides of literals. Lines keep their numbers.
pub(crate) fn blank(text: &str) -> String {
    let blank = |piece: &str| piece.chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
    let pieces = pieces(text).into_iter();
    pieces.map(|(piece, is_code)| if is_code { piece.to_owned() } else { blank(piece) }).collect()
}

/// Returns the pieces of the text, each with whether it is code, not a comment or a literal.
fn pieces(text: &str) -> Vec<(&str, bool)> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let name = text[from..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' if !name => raw_string(rest).unwrap_or(0),
            '\'' => character(rest).unwrap_or(0),
            _ => 0,
        };
        if length == 0 {
            at += c.len_utf8();
        } else {
            pieces.extend([(&text[from..at], true), (&rest[..length], false)]);
            at += length;
            from = at;
        }
    }
    pieces.push((&text[from..], true));
    pieces
}

/// Returns the comments as Markdown, consecutive lines as one.
pub(crate) fn comments(text: &str) -> Vec<String> {
    let mut comments = vec![String::new()];
    for (piece, _) in pieces(text) {
        if let Some(line) = piece.strip_prefix("//") {
            let line = line.trim_start_matches(['/', '!']);
            let comment = comments.last_mut().expect("one");
            comment.push_str(line.strip_prefix(' ').unwrap_or(line));
            comment.push('\n');
        } else if !piece.trim().is_empty() {
            comments.push(String::new());
        }
    }
    comments
}

/// Returns the literals of several words.
pub(crate) fn literals(text: &str) -> Vec<&str> {
    let literals = pieces(text).into_iter().filter(|(piece, is_code)| !is_code && !piece.starts_with("//"));
    literals.map(|(piece, _)| piece).filter(|piece| piece.contains(' ')).collect()
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match text.get(at..at + 2) {
            Some("/*") => (depth, at) = (depth + 1, at + 2),
            Some("*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + body.find(&end)? + end.len())
}

/// Returns the length of a character literal, or `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let inner = &text[1..];
    let first = inner.chars().next()?;
    let least = if first == '\\' { 2 } else { first.len_utf8() };
    let close = inner.get(least..)?.find('\'')?;
    (first == '\\' || close == 0).then_some(1 + least + close + 1)
}

/// Returns the positions where `word` is a whole word in the code.
pub(crate) fn words(code: &str, word: &str) -> Vec<usize> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let alone = |at: &usize| !code[..*at].ends_with(inside) && !code[at + word.len()..].starts_with(inside);
    code.match_indices(word).map(|(at, _)| at).filter(alone).collect()
}

pub(crate) fn has_word(code: &str, word: &str) -> bool {
    !words(code, word).is_empty()
}

/// Adds the paths of one use tree, `a::{b, c::d}`, to `found`. Returns the text after it.
pub(crate) fn tree<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = base.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(mut inner) = rest.strip_prefix('{') {
            loop {
                inner = tree(inner, &path, found).trim_start();
                if let Some(renamed) = inner.strip_prefix("as ") {
                    inner =
                        renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
                }
                match inner.chars().next() {
                    Some(',') => inner = inner[1..].trim_start(),
                    Some('}') | None => return inner.get(1..).unwrap_or(""),
                    // A star, or text that is not a use tree.
                    Some(c) => inner = &inner[c.len_utf8()..],
                }
            }
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        let Some(after) = rest[end..].strip_prefix("::") else {
            found.push(path);
            return &rest[end..];
        };
        rest = after.trim_start();
    }
}
