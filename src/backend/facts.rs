//! Tables of what `doctor` says of a service, over the facts that a service reads.
//!
//! A fact that could not be read is `None`, and no rule applies by it: unknown is neither zero nor off.

use std::collections::HashMap;

use crate::lock::examination::{Risk, Weight};

/// One thing that `doctor` may say of a service with the facts `F`.
#[derive(Debug)]
pub struct Rule<F> {
    weight: Weight,
    /// What stands in the texts for `{0}` and `{1}`, if the rule applies.
    applies: fn(&F) -> Option<Vec<String>>,
    what: &'static str,
    remedy: Option<&'static str>,
}

impl<F> Rule<F> {
    /// A limit of this kind of service.
    pub const fn always(what: &'static str) -> Self {
        Self::note(|_| Some(Vec::new()), what)
    }

    /// A limit of this one as it is set up.
    pub const fn note(applies: fn(&F) -> Option<Vec<String>>, what: &'static str) -> Self {
        Self { weight: Weight::Note, applies, what, remedy: None }
    }

    /// Something that is wrong with this one, and what to do about it.
    pub const fn warning(
        applies: fn(&F) -> Option<Vec<String>>,
        what: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self { weight: Weight::Warning, applies, what, remedy: Some(remedy) }
    }

    /// That tokens fall with the service's data; `help` says what there is against it, or what becomes of them.
    pub const fn backup(help: fn(&F) -> Option<Vec<String>>) -> Self {
        Self::note(help, "after a restore from a backup, tokens can be lower than ones already issued; {0}")
    }

    /// That somebody on the way to a place can come by the password; `remedy` says how to have it encrypted.
    pub const fn open_password(place: fn(&F) -> Option<Vec<String>>, remedy: &'static str) -> Self {
        Self::warning(
            place,
            "the password may be sent without encryption, to {0} or to somebody who poses as it",
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

/// What `rules` say of a service with these facts.
pub fn risks<F>(rules: &[Rule<F>], facts: &F) -> Vec<Risk> {
    rules.iter().filter_map(|rule| rule.risk(facts)).collect()
}

/// That a rule without gaps in its texts applies, if `it_does`.
pub fn when(it_does: bool) -> Option<Vec<String>> {
    it_does.then(Vec::new)
}

/// That a rule with one gap in its texts applies.
pub fn with(word: impl Into<String>) -> Option<Vec<String>> {
    Some(vec![word.into()])
}

/// What a service says of itself by names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Properties(HashMap<String, String>);

impl Properties {
    /// The property `name`, if the service tells it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The same if it is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Whether the property `name` is `value`, if the service tells it.
    pub fn is(&self, name: &str, value: &str) -> Option<bool> {
        self.text(name).map(|told| told == value)
    }

    /// The properties whose names begin with `prefix`: the rest of the name, and the value.
    pub fn beginning(&self, prefix: &str) -> impl Iterator<Item = (String, String)> {
        let rest = move |name: &str| Some(name.strip_prefix(prefix)?.to_owned());
        self.0.iter().filter_map(move |(name, value)| Some((rest(name)?, value.clone())))
    }
}

impl FromIterator<(String, String)> for Properties {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The numbers that a version begins with; `None` of a text that is no version.
pub fn version(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split(['.', '-']).map_while(|part| part.parse().ok());
    Some([parts.next()?, parts.next()?, parts.next().unwrap_or(0)])
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Properties, Rule, Weight, risks};

    /// The warnings among what `rules` say.
    pub(crate) fn warnings<F>(rules: &[Rule<F>], facts: &F) -> Vec<String> {
        let all = risks(rules, facts).into_iter();
        all.filter(|risk| risk.weight == Weight::Warning).map(|risk| risk.what).collect()
    }

    /// Properties as a service tells them.
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
