//! The table of cases.

use crate::bench::Bench;
use crate::fixture::{Boxed, Need};
use crate::{
    cases_detached, cases_enter, cases_evict, cases_exclusion, cases_life, cases_limits, cases_order,
    cases_token, cases_view,
};

/// One case. Its name begins with the clause that it tests.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Bench) -> Boxed<()>,
}

/// Creates a table of cases from functions and their needs.
macro_rules! cases {
    ($($name:ident [$($need:ident),*]),* $(,)?) => {
        /// The cases of this file.
        pub(crate) const CASES: &[$crate::cases::Case] = &[$(
            $crate::cases::Case {
                name: stringify!($name),
                needs: &[$($crate::fixture::Need::$need),*],
                run: |b| Box::pin($name(b)),
            }
        ),*];
    };
}
pub(crate) use cases;

pub(crate) fn all() -> Vec<Case> {
    [
        cases_exclusion::CASES,
        cases_order::CASES,
        cases_token::CASES,
        cases_life::CASES,
        cases_enter::CASES,
        cases_evict::CASES,
        cases_view::CASES,
        cases_limits::CASES,
        cases_detached::CASES,
    ]
    .concat()
}
