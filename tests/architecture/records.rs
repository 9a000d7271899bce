//! Decision records are numbered without gaps, dated, and listed in `src/docs/adr.md`, their only register.

use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs")
}

/// Returns the names and texts of all records, in the order of their names.
pub(crate) fn records() -> Vec<(String, String)> {
    let files = fs::read_dir(docs().join("adr")).expect("read").map(|file| file.expect("readable").path());
    let name = |path: &Path| path.file_name().expect("named").to_str().expect("UTF-8").to_owned();
    let mut records: Vec<_> =
        files.map(|path| (name(&path), fs::read_to_string(&path).expect("read"))).collect();
    assert!(!records.is_empty(), "there are records");
    records.sort();
    records
}

/// Returns the names of the records for which `is_wrong` is true.
fn wrong(is_wrong: impl Fn(&str, &str) -> bool) -> Vec<String> {
    records().into_iter().filter(|(name, text)| is_wrong(name, text)).map(|(name, _)| name).collect()
}

#[test]
fn index_lists_every_record_by_number_and_title() {
    let index = fs::read_to_string(docs().join("adr.md")).expect("read");
    let listed: Vec<_> = index.lines().filter(|line| line.contains("](adr/")).collect();
    let entry = |(number, (name, text)): (usize, &(String, String))| {
        assert!(is_record(name, number), "not named {number:04}-short-title.md: {name}");
        let title = text.lines().next().and_then(|line| line.strip_prefix(&format!("# {number}. ")));
        format!("- [{number}](adr/{name}) {}", title.expect("a title with the number of the file"))
    };
    let records = records();
    let expected: Vec<_> = (1..).zip(&records).map(entry).collect();
    assert_eq!(listed, expected);
}

#[test]
fn every_record_has_a_date_and_a_status() {
    let wrong = wrong(|_, text| {
        !text.lines().nth(2).and_then(|line| line.strip_prefix("Date: ")).is_some_and(|rest| {
            let date = rest.get(..10).unwrap_or_default();
            date.split('-').map(str::len).eq([4, 2, 2]) && rest[10..].starts_with(". Status: ")
        })
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

/// Returns whether `name` is `NNNN-short-title.md` with this number.
fn is_record(name: &str, number: usize) -> bool {
    let title = name.strip_prefix(&format!("{number:04}-")).and_then(|rest| rest.strip_suffix(".md"));
    title.is_some_and(|title| {
        !title.is_empty() && title.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}
