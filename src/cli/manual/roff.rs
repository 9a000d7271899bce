//! Manual pages from Markdown.
//!
//! Of Markdown there is: headings (`## TITLE`), paragraphs, terms (`**TERM**` on a line of its own and on the next lines what it
//! means), fenced lines to type, with or without a name behind the fence, and within a line `` `what is typed` `` and `*what stands for something*`. A comment alone on its
//! line stands for a part that is made elsewhere.

use std::fmt::Write as _;

/// Why writing cannot fail.
pub(super) const INFALLIBLE: &str = "writing to a String cannot fail";

/// The longest line of a page: that of the source, which formatters fill as they like.
const LONGEST: usize = 78;

/// Makes a part of a page.
pub(super) type Part = (&'static str, fn(&mut String));

/// The sections of `text`; `parts` are those that comments stand for.
pub(super) fn sections(out: &mut String, text: &str, parts: &[Part]) {
    // What follows a heading is a paragraph anyway.
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
        if let Some(name) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            parts.iter().filter(|(part, _)| *part == name).for_each(|(_, make)| make(out));
        } else if line.starts_with("```") {
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

/// A term and what it means.
pub(super) fn term(out: &mut String, name: &str, text: &str) {
    write!(out, ".TP\n\\fB{}\\fR\n{}\n", escape(name), inline(text)).expect(INFALLIBLE);
}

/// A text with what is typed in bold, and what stands for something in italics.
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

/// Text as roff: dashes that can be copied, and no line that is taken for a request.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines().map(unasked).collect::<Vec<_>>().join("\n")
}

/// A line that is text, whatever it begins with.
fn unasked(line: &str) -> String {
    let request = line.starts_with('.') || line.starts_with('\'');
    if request { format!("\\&{line}") } else { line.to_owned() }
}

/// The page with its lines of text filled anew, none longer than [`LONGEST`] where a space allows that. What is typed stays as
/// it is.
pub(super) fn fold(page: &str) -> String {
    let mut out = String::with_capacity(page.len() + page.len() / 8);
    let mut typed = false;
    let mut text: Vec<&str> = Vec::new();
    // The line after it is a term.
    let mut term = false;
    for line in page.lines() {
        let request = line.starts_with('.');
        if request || typed || term {
            fill(&mut out, &std::mem::take(&mut text));
            if line == ".br" && out.ends_with(".br\n") {
                continue;
            }
            writeln!(out, "{line}").expect(INFALLIBLE);
            typed = if request { line == ".nf" || (typed && line != ".fi") } else { typed };
            term = line == ".TP";
        } else {
            text.extend(line.split(' ').filter(|word| !word.is_empty()));
        }
    }
    fill(&mut out, &text);
    out
}

/// Writes `words` as lines of text.
fn fill(out: &mut String, words: &[&str]) {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && line.len() + 1 + word.len() > LONGEST {
            writeln!(out, "{}", unasked(&line)).expect(INFALLIBLE);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        writeln!(out, "{}", unasked(&line)).expect(INFALLIBLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_sections() {
        let text = "## One two\n\nA `-b` of\n*C*.\n\n``` name\n.x  -y\n\n'z\n```\n\n**T t**\nMeans\nthis.\n\n<!-- part -->\n\nEnd.\n";
        let mut page = String::new();
        sections(&mut page, text, &[("part", |out| out.push_str(".PP\nMade.\n"))]);
        assert_eq!(
            fold(&page),
            ".SH \"ONE TWO\"\nA \\fB\\-b\\fR of \\fIC\\fR.\n.PP\n.RS 4\n.nf\n\\&.x  \\-y\n\n\\&'z\n.fi\n.RE\n.TP\n\\fBT t\\fR\n\
             Means this.\n.PP\nMade.\n.PP\nEnd.\n"
        );
    }

    #[test]
    fn text_is_never_a_request() {
        assert_eq!(escape(".so x\n'y\n-n \\fB"), "\\&.so x\n\\&'y\n\\-n \\efB");
        let words = format!("{} .so {}", "x".repeat(LONGEST - 2), "y".repeat(LONGEST));
        let folded = fold(&words);
        assert!(folded.lines().all(|line| !line.starts_with('.')), "{folded}");
        assert_eq!(folded.lines().count(), 3);
    }
}
