//! The output of `acquire`: a claim for a script.

use std::fmt::Write as _;

use super::json;

/// The format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// `export NAME='…'` lines, which sh, bash, zsh and fish read alike.
    #[default]
    Sh,
    /// `NAME=VALUE` lines without quoting; those of several lines are left out.
    Env,
    /// An object.
    Json,
}

impl Format {
    /// Returns the format of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "sh" => Some(Self::Sh),
            "env" => Some(Self::Env),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// Returns the function that makes the text of a claim from its variables.
    pub fn writer(self) -> fn(&[(&'static str, String)]) -> String {
        match self {
            Self::Sh => exports,
            Self::Env => lines,
            Self::Json => object,
        }
    }

    /// Returns a command that stops a script which evaluates it with `status`; nothing for formats that scripts do not evaluate.
    pub fn failure(self, status: u8) -> String {
        match self {
            Self::Sh => format!("sh -c 'exit {status}'\n"),
            Self::Env | Self::Json => String::new(),
        }
    }
}

const INFALLIBLE: &str = "writing to a String cannot fail";

/// The variable that not every claim has.
const OPTIONAL: &str = "DLOCK_SLOT";

/// Returns `variables`, with an empty value for the missing one: the script may have it from another claim.
fn with_all<'a>(variables: &'a [(&'static str, String)]) -> impl Iterator<Item = (&'static str, &'a str)> {
    let lacks = !variables.iter().any(|(name, _)| *name == OPTIONAL);
    variables.iter().map(|(name, value)| (*name, value.as_str())).chain(lacks.then_some((OPTIONAL, "")))
}

fn exports(variables: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in with_all(variables) {
        writeln!(text, "export {name}={}", quoted(value)).expect(INFALLIBLE);
    }
    text
}

/// Returns `text` as one word of a shell. Within quotation marks a backslash escapes in fish and not in other shells, so
/// backslashes are outside.
fn quoted(text: &str) -> String {
    let mut word = String::from("'");
    for c in text.chars() {
        match c {
            '\'' => word.push_str(r"'\''"),
            '\\' => word.push_str(r"'\\'"),
            c => word.push(c),
        }
    }
    word + "'"
}

fn lines(variables: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in with_all(variables).filter(|(_, value)| !value.contains('\n')) {
        writeln!(text, "{name}={value}").expect(INFALLIBLE);
    }
    text
}

fn object(variables: &[(&'static str, String)]) -> String {
    let members = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
    json::line(&serde_json::Value::Object(members.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Vec<(&'static str, String)> {
        vec![("DLOCK_NAME", r"it's a\b".into()), ("DLOCK_NAMES", "a\nb".into())]
    }

    #[test]
    fn each_format_has_its_form() {
        let text = |format: Format| format.writer()(&variables());
        let exports =
            "export DLOCK_NAME='it'\\''s a'\\\\'b'\nexport DLOCK_NAMES='a\nb'\nexport DLOCK_SLOT=''\n";
        assert_eq!(text(Format::Sh), exports);
        assert_eq!(text(Format::Env), "DLOCK_NAME=it's a\\b\nDLOCK_SLOT=\n");
        assert_eq!(text(Format::Json), "{\"DLOCK_NAME\":\"it's a\\\\b\",\"DLOCK_NAMES\":\"a\\nb\"}\n");
    }

    #[test]
    fn a_slot_is_said_once_and_none_is_empty() {
        let slot = [("DLOCK_SLOT", "2".to_owned())];
        assert_eq!(Format::Sh.writer()(&slot), "export DLOCK_SLOT='2'\n");
        assert_eq!(Format::Env.writer()(&slot), "DLOCK_SLOT=2\n");
        assert_eq!(Format::Sh.writer()(&[]), "export DLOCK_SLOT=''\n");
    }
}
