//! The English that users read (README.md, the manual pages, the help), the decision records and the traps.

use std::fs;
use std::path::Path;

use dlock::backend::locator::SERVICES;
use dlock::cli::args;

use crate::records::records;
use crate::source::has_word;

/// Words that a reader has to translate, and the replacements.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "the noun"),
    ("whom", "the noun"),
    ("nobody", "no, none, no other process"),
    ("somebody", "the noun"),
    ("time-out", "timeout"),
    ("folder", "directory"),
    ("hears", "is notified, receives"),
];

/// Phrases of the same kind.
const PHRASES: &[&str] = &[
    "all the same",
    "is none",
    "given back",
    "gives back",
    "of itself",
    "cost a lock",
    "goes on",
    "is told that",
];

const LONGEST_SENTENCE: usize = 40;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("read")
}

/// Returns the paragraphs of a Markdown text, without headings, tables, and fenced lines.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with(['|', '#']) || line.is_empty() {
            paragraphs.push(String::new());
        } else {
            let paragraph = paragraphs.last_mut().expect("one");
            // An item of a list, and a term, are sentences of their own.
            let separator = if line.starts_with("- ") || line.starts_with("**") { ". " } else { " " };
            paragraph.push_str(separator);
            paragraph.push_str(line);
            if line.starts_with("**") && line.ends_with("**") {
                paragraph.push_str(". ");
            }
        }
    }
    paragraphs
}

fn complaints(file: &str, paragraphs: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let lower = paragraph.to_lowercase();
        for (word, better) in BANNED.iter().filter(|(word, _)| has_word(&lower, word)) {
            found.push(format!("{file}: {word} (write: {better}): {paragraph}"));
        }
        for phrase in PHRASES.iter().filter(|phrase| lower.contains(**phrase)) {
            found.push(format!("{file}: {phrase}: {paragraph}"));
        }
        for sentence in paragraph.split([';', ':']).flat_map(|part| part.split(". ")) {
            let length = sentence.split_whitespace().count();
            if length > LONGEST_SENTENCE {
                found.push(format!("{file}: {length} words: {sentence}"));
            }
        }
    }
    found
}

/// Returns the texts of the manual pages, except those of the services, which come from the program.
fn pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/manual/text");
    let files = fs::read_dir(folder).expect("read").map(|file| file.expect("readable").path());
    let texts = files.map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("read")));
    let services = SERVICES.iter().map(|service| (service.name.to_owned(), service.manual.to_owned()));
    texts.chain(services).collect()
}

/// Returns the help of each option.
fn help() -> Vec<String> {
    let of = |command: &clap::Command| -> Vec<String> {
        let about = command.get_about().map(ToString::to_string);
        let texts = command.get_arguments().filter_map(|argument| argument.get_help());
        texts.map(ToString::to_string).chain(about).collect()
    };
    args::whole().get_subcommands().flat_map(of).collect()
}

#[test]
fn records_and_traps_are_plain_english() {
    let mut found = complaints("gotchas.md", &prose(&read("src/docs/gotchas.md")));
    found.extend(records().iter().flat_map(|(name, text)| complaints(name, &prose(text))));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn texts_for_users_are_plain_english() {
    let mut found = complaints("README.md", &prose(&read("README.md")));
    for (file, text) in pages() {
        found.extend(complaints(&file, &prose(&text)));
    }
    found.extend(complaints("help", &help()));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
