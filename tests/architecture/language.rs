//! The English of the documents, the manual pages, the help, the messages, the decision records and the comments.

use std::fs;
use std::path::Path;

use dlock::backend::locator::SERVICES;
use dlock::cli::args;

use crate::records::records;
use crate::source::{comments, has_word, literals};
use crate::texts_in;

/// Words that a reader has to translate, and the replacements.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "the noun"),
    ("whom", "the noun"),
    ("nobody", "no, none, no other process"),
    ("somebody", "the noun"),
    ("everybody", "every process, all users"),
    ("anybody", "the noun"),
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
    "is told",
];

/// Words that open a clause in the place of a subject.
const HEADLESS: &[&str] = &["What", "Who", "Whom", "Whoever", "Whatever"];

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
        } else if fenced || line.trim_start().starts_with(['|', '#']) || line.is_empty() {
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
    let words = paragraphs.iter().flat_map(|paragraph| bad_words(file, paragraph));
    words.chain(paragraphs.iter().flat_map(|paragraph| bad_sentences(file, paragraph))).collect()
}

fn bad_words(file: &str, paragraph: &str) -> Vec<String> {
    // Identifiers are not English.
    let english: String = paragraph.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words = BANNED.iter().filter(|(word, _)| has_word(&english, word));
    let words = words.map(|(word, better)| format!("{file}: {word} (write: {better}): {paragraph}"));
    let phrases = PHRASES.iter().filter(|phrase| english.contains(**phrase));
    words.chain(phrases.map(|phrase| format!("{file}: {phrase}: {paragraph}"))).collect()
}

fn bad_sentences(file: &str, paragraph: &str) -> Vec<String> {
    let sentences = paragraph
        .split([';', ':'])
        .flat_map(|part| part.split(". "))
        .flat_map(|part| part.split_inclusive("? "));
    let is_bad = |sentence: &&str| {
        let words: Vec<_> = sentence.split_whitespace().collect();
        let has_subject =
            !words.first().is_some_and(|first| HEADLESS.contains(first)) || sentence.contains('?');
        words.len() > LONGEST_SENTENCE || !has_subject
    };
    sentences
        .filter(is_bad)
        .map(|sentence| format!("{file}: too long, or without a subject: {sentence}"))
        .collect()
}

/// Returns whether a literal is English, not SQL or a script.
fn is_message(literal: &str) -> bool {
    let first = literal.trim_start_matches('"').split(' ').next().unwrap_or_default();
    literal.starts_with('"') && !first.chars().all(|c| c.is_ascii_uppercase()) && !literal.contains("SELECT ")
}

/// Returns the sources of the manual pages.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(&folder).expect("read").map(|file| file.expect("readable").path()) {
            let is_page = folder.ends_with("manual/text") || file.ends_with("manual.md");
            if file.is_dir() {
                folders.push(file);
            } else if is_page {
                texts.push((file.display().to_string(), fs::read_to_string(&file).expect("read")));
            }
        }
    }
    assert!(texts.len() > SERVICES.len(), "{}", texts.len());
    texts
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
fn documents_records_and_manual_are_plain_english() {
    let documents = ["README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"];
    let documents = documents.into_iter().chain(["src/docs/changelog.md", "src/docs/gotchas.md"]);
    let documents = documents.map(|file| (file.to_owned(), read(file)));
    let all = documents.chain(pages()).chain(records());
    let mut found: Vec<_> = all.flat_map(|(file, text)| complaints(&file, &prose(&text))).collect();
    found.extend(complaints("help", &help()));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn comments_and_messages_are_plain_english() {
    let mut found = Vec::new();
    for (file, text) in ["src", "tests", "benches"].into_iter().flat_map(texts_in) {
        for comment in comments(&text) {
            found.extend(complaints(&file, &prose(&comment)));
        }
        let messages = literals(&text).into_iter().filter(|literal| is_message(literal));
        // The lists above.
        for message in messages.filter(|_| file != "architecture/language.rs") {
            found.extend(complaints(&file, &[message.to_owned()]));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
