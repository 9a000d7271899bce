//! The name of a test is `subject_condition_result`: short, and without relative clauses and pronouns.

use crate::source::blank;
use crate::texts_in;

const LONGEST: usize = 60;

const BANNED: &[&str] = &[
    "who",
    "whom",
    "whose",
    "whoever",
    "what",
    "that",
    "which",
    "nobody",
    "somebody",
    "everybody",
    "anybody",
];

fn is_outside(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// The names of functions under `#[test]` and `#[tokio::test]`, and of the cases of the contract.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let attributes = code.match_indices("#[test]").chain(code.match_indices("#[tokio::test"));
    let functions = attributes.filter_map(|(at, _)| code[at..].split_once("fn ")?.1.split(is_outside).next());
    // As `c07_loss_is_final`.
    let is_case = |word: &&str| matches!(word.as_bytes(), [b'c', b'0'..=b'9', b'0'..=b'9', b'_', ..]);
    functions.chain(code.split(is_outside).filter(is_case))
}

#[test]
fn every_test_is_named_briefly_and_without_pronouns() {
    let mut found = Vec::new();
    for (path, text) in ["src", "tests"].into_iter().flat_map(texts_in) {
        let code = blank(&text);
        let is_wrong =
            |name: &&str| name.len() > LONGEST || name.split('_').any(|word| BANNED.contains(&word));
        found.extend(names(&code).filter(is_wrong).map(|name| format!("{path}: {name}")));
    }
    found.dedup();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
