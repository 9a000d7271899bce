//! Tables of the findings of `doctor`, derived from the facts of a service.
//!
//! A fact that could not be read is `None`, and rules on it do not apply: unknown means neither zero nor off.

use std::collections::HashMap;

use crate::lock::examination::{Risk, Weight};

/// One finding that `doctor` may report for a service with the facts `F`.
#[derive(Debug)]
pub struct Rule<F> {
    weight: Weight,
    /// Returns the texts for `{0}` and `{1}`, if the rule applies.
    applies: fn(&F) -> Option<Vec<String>>,
    what: &'static str,
    remedy: Option<&'static str>,
}

impl<F> Rule<F> {
    /// Creates a note on a limit of this kind of service.
    pub const fn always(what: &'static str) -> Self {
        Self::note(|_| Some(Vec::new()), what)
    }

    /// Creates a note on a limit of this service's configuration.
    pub const fn note(applies: fn(&F) -> Option<Vec<String>>, what: &'static str) -> Self {
        Self { weight: Weight::Note, applies, what, remedy: None }
    }

    /// Creates a warning about this service, with the remedy.
    pub const fn warning(
        applies: fn(&F) -> Option<Vec<String>>,
        what: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self { weight: Weight::Warning, applies, what, remedy: Some(remedy) }
    }

    /// Creates the note that a restored backup lowers tokens. `help` returns the precaution or the consequence.
    pub const fn backup(help: fn(&F) -> Option<Vec<String>>) -> Self {
        Self::note(help, "after a restore from a backup, tokens can be lower than ones already issued; {0}")
    }

    /// Creates the warning that the password can be intercepted on the way to a place. `remedy` is how to encrypt it.
    pub const fn open_password(place: fn(&F) -> Option<Vec<String>>, remedy: &'static str) -> Self {
        Self::warning(
            place,
            "the password may be sent without encryption, to {0} or to a server that poses as it",
            remedy,
        )
    }

    fn risk(&self, facts: &F) -> Option<Risk> {
        let words = (self.applies)(facts)?;
        let filled = |text: &str| {
            let numbered = words.iter().enumerate();
            numbered.fold(text.to_owned(), |text, (n, word)| text.replace(&format!("{{{n}}}"), word))
        };
        Some(Risk { weight: self.weight, what: filled(self.what), remedy: self.remedy.map(filled) })
    }
}

/// Returns the findings of `rules` for a service with these facts.
pub fn risks<F>(rules: &[Rule<F>], facts: &F) -> Vec<Risk> {
    rules.iter().filter_map(|rule| rule.risk(facts)).collect()
}

/// Makes a rule without placeholders apply, if `it_does`.
pub fn when(it_does: bool) -> Option<Vec<String>> {
    it_does.then(Vec::new)
}

/// Makes a rule with one placeholder apply.
pub fn with(word: impl Into<String>) -> Option<Vec<String>> {
    Some(vec![word.into()])
}

/// The named properties that a service reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Properties(HashMap<String, String>);

impl Properties {
    /// Returns the property `name`, if the service reports it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the property `name`, if it is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns whether the property `name` is `value`, if the service reports it.
    pub fn is(&self, name: &str, value: &str) -> Option<bool> {
        self.text(name).map(|told| told == value)
    }
}

impl FromIterator<(String, String)> for Properties {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// Returns the leading numbers of a version; `None` if the text is not a version.
pub fn version(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split(['.', '-']).map_while(|part| part.parse().ok());
    Some([parts.next()?, parts.next()?, parts.next().unwrap_or(0)])
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Properties, Rule, Weight, risks};

    /// Returns the warnings among the findings of `rules`.
    pub(crate) fn warnings<F>(rules: &[Rule<F>], facts: &F) -> Vec<String> {
        let all = risks(rules, facts).into_iter();
        all.filter(|risk| risk.weight == Weight::Warning).map(|risk| risk.what).collect()
    }

    /// Returns properties as a service reports them.
    pub(crate) fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[Rule<Properties>] = &[
        Rule::always("a limit"),
        Rule::warning(|f| when(f.number("replicas")? == 0), "no replicas", "add one"),
        Rule::warning(
            |f| Some(vec![f.text("table")?.to_owned(), f.text("engine")?.to_owned()]),
            "{0} is {1}, so {0} is lost",
            "change {0}",
        ),
    ];

    fn said(pairs: &[(&str, &str)]) -> Vec<String> {
        let all = risks(RULES, &testing::properties(pairs)).into_iter();
        all.map(|risk| format!("{} ({})", risk.what, risk.remedy.unwrap_or_default())).collect()
    }

    #[test]
    fn unknown_facts_say_nothing() {
        assert_eq!(said(&[("replicas", "?"), ("table", "t")]), ["a limit ()"]);
    }

    #[test]
    fn known_facts_fill_the_sentences() {
        let all = said(&[("replicas", "0"), ("table", "t"), ("engine", "e")]);
        assert_eq!(all, ["a limit ()", "no replicas (add one)", "t is e, so t is lost (change t)"]);
    }

    #[test]
    fn versions_are_read_as_far_as_they_are_numbers() {
        for (text, numbers) in [
            ("7.0.15", Some([7, 0, 15])),
            ("3.6.0-rc.1", Some([3, 6, 0])),
            ("8.0", Some([8, 0, 0])),
            ("unknown", None),
        ] {
            assert_eq!(version(text), numbers, "{text}");
        }
    }
}
