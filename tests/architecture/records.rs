//! Decision records are numbered, dated, and found from the documentation and from the index.

use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs")
}

/// The names and texts of all records.
fn records() -> Vec<(String, String)> {
    let files = fs::read_dir(docs().join("adr")).expect("read").map(|file| file.expect("readable").path());
    let name = |path: &Path| path.file_name().expect("named").to_str().expect("UTF-8").to_owned();
    let records: Vec<_> = files.map(|path| (name(&path), fs::read_to_string(&path).expect("read"))).collect();
    assert!(!records.is_empty(), "there are records");
    records
}

/// Those of which `is_wrong` is true.
fn wrong(is_wrong: impl Fn(&str, &str) -> bool) -> Vec<String> {
    records().into_iter().filter(|(name, text)| is_wrong(name, text)).map(|(name, _)| name).collect()
}

#[test]
fn every_record_is_in_the_documentation_and_once_in_the_index() {
    let list = fs::read_to_string(docs().join("mod.rs")).expect("read");
    let index = fs::read_to_string(docs().join("adr.md")).expect("read");
    let missing = wrong(|name, _| {
        let number = name[..4].trim_start_matches('0');
        !list.contains(&format!("adr/{name}"))
            || index.matches(&format!("[{number}](adr/{name})")).count() != 1
    });
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(
        index.matches("](adr/").count(),
        records().len(),
        "the index names a record that is not there"
    );
}

#[test]
fn every_record_has_its_number_its_date_and_how_it_stands() {
    let wrong = wrong(|name, text| {
        let number = name[..4].trim_start_matches('0');
        let mut lines = text.lines();
        let title = lines.next().is_some_and(|title| title.starts_with(&format!("# {number}. ")));
        let dated = lines.nth(1).and_then(|line| line.strip_prefix("Date: ")).is_some_and(|rest| {
            let date = rest.get(..10).unwrap_or_default();
            date.split('-').map(str::len).eq([4, 2, 2]) && rest[10..].starts_with(". Status: ")
        });
        !title || !dated
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn links_of_records_lead_to_records() {
    let lost = wrong(|_, text| {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.filter(|link| !link.contains("://")).any(|link| !docs().join("adr").join(link).is_file())
    });
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn decision_records_are_numbered() {
    let unnamed = wrong(|name, _| !is_record(name));
    assert!(unnamed.is_empty(), "not named NNNN-title.md: {unnamed:?}");
    assert!(is_record("0001-two-phase-claim.md"));
    assert!(!is_record("1-title.md") && !is_record("0001-Title.md") && !is_record("0001.md"));
}

fn is_record(name: &str) -> bool {
    let Some((number, rest)) = name.split_once('-') else { return false };
    let Some(title) = rest.strip_suffix(".md") else { return false };
    number.len() == 4
        && number.bytes().all(|b| b.is_ascii_digit())
        && !title.is_empty()
        && title.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
