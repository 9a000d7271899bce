//! Tests of the suite itself.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};

use crate::cases::{Case, all};
use crate::fixture::{Need, Opening};
use crate::fixtures::Subject;
use crate::memory::Mutation;
use crate::run::{Outcome, obstacle, run};

const CONTRACT: &str = include_str!("../../src/backend/mod.rs");
const MUTATIONS: &str = include_str!("memory/mutation.rs");

/// Returns one trial for each rule and each mutation.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("meta::every_clause_has_a_case", || check(&clauses_without(&case_clauses()))),
        Trial::test("meta::every_clause_has_a_mutation", || check(&clauses_without(&mutation_clauses()))),
        Trial::test("meta::every_case_names_a_clause", || check(&odd_cases())),
        Trial::test("meta::every_mutation_is_listed", || check(&unlisted_mutations())),
        Trial::test("meta::every_need_is_met_by_a_fixture", || check(&unmet_needs())),
    ];
    for subject in Subject::all() {
        let name = format!("meta::fixture_{}_is_complete", subject.name());
        trials.push(Trial::test(name, move || check(&incomplete(subject))));
    }
    for mutation in Mutation::ALL {
        let name = format!("meta::mutation_{mutation:?}_is_caught");
        trials.push(Trial::test(name, || is_caught(*mutation)));
    }
    trials
}

fn check(complaints: &[String]) -> Result<(), Failed> {
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n").into()) }
}

/// Returns the ids of the clauses in the contract's documentation.
fn clauses() -> BTreeSet<String> {
    let ids = CONTRACT.lines().filter_map(|line| line.strip_prefix("//! - **C")?.get(..2));
    let ids: BTreeSet<String> = ids.map(|digits| format!("c{digits}")).collect();
    assert!(ids.len() >= 15, "the contract is where it was: {ids:?}");
    ids
}

fn case_clauses() -> BTreeSet<String> {
    all().iter().map(|case| clause(case).to_owned()).collect()
}

fn clause(case: &Case) -> &'static str {
    case.name.split('_').next().expect("a first part")
}

/// Returns the variants of `Mutation` in its source, each with the clause in its documentation.
fn mutations_with_clauses() -> Vec<(String, String)> {
    let variants = MUTATIONS.lines().skip_while(|l| !l.starts_with("pub(crate) enum")).skip(1);
    let lines: Vec<&str> = variants.take_while(|l| *l != "}").map(str::trim).collect();
    let pairs = lines.chunks(2).map(|pair| {
        let clause = pair[0].strip_prefix("/// ").and_then(|doc| doc.split(':').next());
        (pair[1].trim_end_matches(',').to_owned(), clause.expect("a clause").to_lowercase())
    });
    pairs.collect()
}

fn mutation_clauses() -> BTreeSet<String> {
    mutations_with_clauses().into_iter().map(|(_, clause)| clause).collect()
}

fn clauses_without(covered: &BTreeSet<String>) -> Vec<String> {
    clauses().difference(covered).cloned().collect()
}

fn odd_cases() -> Vec<String> {
    let (clauses, cases) = (clauses(), all());
    let mut names = BTreeSet::new();
    let odd = cases.iter().filter(|case| !clauses.contains(clause(case)) || !names.insert(case.name));
    odd.map(|case| format!("{} names no clause, or is given twice", case.name)).collect()
}

fn unlisted_mutations() -> Vec<String> {
    let listed: Vec<String> = Mutation::ALL.iter().map(|mutation| format!("{mutation:?}")).collect();
    let missing = mutations_with_clauses().into_iter().map(|(name, _)| name).filter(|n| !listed.contains(n));
    missing.map(|name| format!("{name} is not in Mutation::ALL")).collect()
}

/// Returns the needs that no fixture meets. A case that every fixture ignores tests nothing.
fn unmet_needs() -> Vec<String> {
    let unmet = Need::ALL.iter().filter(|need| Subject::all().iter().all(|one| one.lacks(**need).is_some()));
    unmet.map(|need| format!("no fixture meets {need:?}")).collect()
}

/// Returns the contradictions between a fixture and its backend's capabilities, and too few cases that can run.
fn incomplete(subject: Subject) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(subject.is_paused())
        .build()
        .expect("a runtime");
    let facts =
        runtime.block_on(async { subject.open(Opening::default()).await.connect().await.capabilities() });
    let stated = [
        (Need::Leased, facts.leased),
        (Need::Queue, facts.queue),
        (Need::Shared, facts.shared),
        (Need::OtherProcess, subject.remote().is_some()),
    ];
    let mut complaints: Vec<String> = stated
        .into_iter()
        .filter(|(need, has)| subject.lacks(*need).is_none() != *has)
        .map(|(need, has)| format!("{need:?} is {has} for the backend, the fixture says otherwise"))
        .collect();
    if facts.backend != subject.backend() {
        complaints.push(format!("the backend calls itself {}", facts.backend));
    }
    let mute = Need::ALL.iter().filter(|need| subject.lacks(**need).is_some_and(str::is_empty));
    complaints.extend(mute.map(|need| format!("no reason for lacking {need:?}")));
    let idle = all().iter().filter(|case| obstacle(subject, case).is_none()).count();
    if idle < all().len() / 2 {
        complaints.push(format!("only {idle} cases can run"));
    }
    complaints
}

/// The suite must fail in a case of the clause that the mutation breaks.
fn is_caught(mutation: Mutation) -> Result<(), Failed> {
    let known = mutations_with_clauses();
    let own = known.iter().find(|(name, _)| *name == format!("{mutation:?}")).map(|(_, clause)| clause);
    let own = own.ok_or("no clause")?;
    let cases = all();
    let mut about = cases.iter().filter(|c| clause(c) == own && obstacle(Subject::Memory, c).is_none());
    // One seed, so that a mutation is caught in every run or in none.
    let caught =
        about.any(|case| matches!(run(Subject::Memory, case, Some(mutation), 1), Outcome::Failed(_)));
    if caught { Ok(()) } else { Err(format!("no case of {own} fails with {mutation:?}").into()) }
}
