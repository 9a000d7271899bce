//! Tests of the suite itself.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};

use crate::cases::{Case, all};
use crate::fixture::{Need, Opening};
use crate::fixtures::Subject;
use crate::memory::Mutation;
use crate::run::{Outcome, obstacle, run};

const CONTRACT: &str = include_str!("../../src/backend/mod.rs");

/// Returns one trial for each rule and each mutation.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("meta::every_clause_has_a_case", || check(&clauses_without(&case_clauses()))),
        Trial::test("meta::every_clause_has_a_mutation", || check(&clauses_without(&mutation_clauses()))),
        Trial::test("meta::every_case_names_a_clause", || check(&odd_cases())),
        Trial::test("meta::every_case_runs_on_a_fixture", || check(&idle_cases())),
    ];
    for subject in Subject::all() {
        let name = format!("meta::fixture_{}_is_complete", subject.name());
        trials.push(Trial::test(name, move || check(&incomplete(subject))));
    }
    for (mutation, clause) in Mutation::ALL {
        let name = format!("meta::mutation_{mutation:?}_is_caught");
        trials.push(Trial::test(name, || is_caught(*mutation, clause)));
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

fn mutation_clauses() -> BTreeSet<String> {
    Mutation::ALL.iter().map(|(_, clause)| (*clause).to_owned()).collect()
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

/// Returns the cases that every fixture ignores. They test nothing.
fn idle_cases() -> Vec<String> {
    let is_idle = |case: &Case| Subject::all().iter().all(|one| obstacle(*one, case).is_some());
    all().iter().filter(|case| is_idle(case)).map(|case| format!("no fixture runs {}", case.name)).collect()
}

/// Returns the contradictions between a fixture and its backend's capabilities, and too few cases that can run.
fn incomplete(subject: Subject) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(subject.is_paused())
        .build()
        .expect("a runtime");
    let facts = runtime
        .block_on(async { subject.open(Opening::default()).await.connect().await.client().capabilities() });
    let stated = [(Need::Leased, facts.leased), (Need::Queue, facts.queue)];
    let mut complaints: Vec<String> = stated
        .into_iter()
        .filter(|(need, has)| subject.lacks(*need).is_none() != *has)
        .map(|(need, has)| format!("{need:?} is {has} for the backend, the fixture says otherwise"))
        .collect();
    if facts.backend != subject.backend() {
        complaints.push(format!("the backend calls itself {}", facts.backend));
    }
    let idle = all().iter().filter(|case| obstacle(subject, case).is_none()).count();
    if idle < all().len() / 2 {
        complaints.push(format!("only {idle} cases can run"));
    }
    complaints
}

/// The suite must fail in a case of the clause that the mutation breaks.
fn is_caught(mutation: Mutation, own: &str) -> Result<(), Failed> {
    let cases = all();
    let mut about = cases.iter().filter(|c| clause(c) == own && obstacle(Subject::Memory, c).is_none());
    // One seed, so that a mutation is caught in every run or in none.
    let caught =
        about.any(|case| matches!(run(Subject::Memory, case, Some(mutation), 1), Outcome::Failed(_)));
    if caught { Ok(()) } else { Err(format!("no case of {own} fails with {mutation:?}").into()) }
}
