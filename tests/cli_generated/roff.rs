//! Manual pages from Markdown.
//!
//! It understands headings (`## TITLE`), paragraphs, terms (`**TERM**` on a line, and the meaning on the next lines), fenced
//! lines to type, with or without a name after the fence, and within a line `` `typed text` `` and `*placeholders*`. A comment on
//! a line of its own stands for a generated part.

use std::fmt::Write as _;

/// The reason why writing cannot fail.
pub(super) const INFALLIBLE: &str = "writing to a String cannot fail";

/// Writes the sections of `text`.
pub(super) fn sections(out: &mut String, text: &str) {
    // The text after a heading is a paragraph anyway.
    let mut fresh = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        if let Some(title) = line.strip_prefix("## ") {
            writeln!(out, ".SH \"{}\"", escape(&title.to_uppercase())).expect(INFALLIBLE);
            fresh = true;
            continue;
        }
        if line.starts_with("```") {
            let typed: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            lines_to_type(out, &typed, fresh);
        } else {
            let mut words: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            if let Some(name) = line.strip_prefix("**").and_then(|line| line.strip_suffix("**")) {
                term(out, name, &words.join("\n"));
            } else {
                words.insert(0, line);
                out.push_str(if fresh { "" } else { ".PP\n" });
                writeln!(out, "{}", inline(&words.join("\n"))).expect(INFALLIBLE);
            }
        }
        fresh = false;
    }
}

fn lines_to_type(out: &mut String, lines: &[&str], fresh: bool) {
    out.push_str(if fresh { "" } else { ".PP\n" });
    write!(out, ".RS 4\n.nf\n{}\n.fi\n.RE\n", escape(&lines.join("\n"))).expect(INFALLIBLE);
}

/// Writes a term and its meaning.
fn term(out: &mut String, name: &str, text: &str) {
    write!(out, ".TP\n\\fB{}\\fR\n{}\n", escape(name), inline(text)).expect(INFALLIBLE);
}

/// Returns a text with typed text in bold, and placeholders in italics.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (n, part) in escape(text).split('`').enumerate() {
        if n % 2 == 1 {
            write!(out, "\\fB{part}\\fR").expect(INFALLIBLE);
            continue;
        }
        for (n, part) in part.split('*').enumerate() {
            if n % 2 == 1 {
                write!(out, "\\fI{part}\\fR").expect(INFALLIBLE);
            } else {
                out.push_str(part);
            }
        }
    }
    out
}

/// Returns text as roff, with dashes that can be copied, and without a line that looks like a request.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines().map(unasked).collect::<Vec<_>>().join("\n")
}

/// Returns a line that is text, whatever it begins with.
fn unasked(line: &str) -> String {
    let request = line.starts_with('.') || line.starts_with('\'');
    if request { format!("\\&{line}") } else { line.to_owned() }
}

#[test]
fn text_is_never_a_request() {
    assert_eq!(escape(".so x\n'y\n-n \\fB"), "\\&.so x\n\\&'y\n\\-n \\efB");
}
