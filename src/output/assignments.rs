//! The output of `acquire`: a claim for a script.

use std::fmt::Write as _;

use serde_json::Value;

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
            Self::Sh => |variables| exports(&without_ended(variables)),
            Self::Env => |variables| lines(&without_ended(variables)),
            Self::Json => |variables| object(&without_ended(variables)),
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

/// Returns `variables` without the holds that the last one proves to be over: leases without a process on the same locks. A shell
/// that acquires them again and again would collect such holds until it could start no program.
fn without_ended(variables: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let mut variables = variables.to_vec();
    for (_, text) in variables.iter_mut().filter(|(name, _)| *name == "DLOCK_HELD") {
        let mut holds: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        let Some(last) = holds.pop().filter(|last| last["mode"] == "exclusive") else { continue };
        let is_same = |hold: &Value| ["service", "names"].iter().all(|key| hold[key] == last[key]);
        holds.retain(|hold| !hold["mark"].is_null() || !is_same(hold));
        holds.push(last);
        *text = Value::from(holds).to_string();
    }
    variables
}

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
    fn earlier_leases_on_the_same_locks_are_left_out() {
        let hold = |claim: u8, names: &str, mode: &str, mark: &str| {
            format!(r#"{{"claim":"{claim}","mark":{mark},"mode":"{mode}","names":[{names}],"service":"s"}}"#)
        };
        let printed = |holds: &[String]| {
            let text = Format::Env.writer()(&[("DLOCK_HELD", format!("[{}]", holds.join(",")))]);
            text.lines().next().and_then(|line| line.strip_prefix("DLOCK_HELD=")).expect("a value").to_owned()
        };
        let (old, new) = (hold(1, r#""x""#, "shared", "null"), hold(9, r#""x""#, "exclusive", "null"));
        assert_eq!(printed(&[old.clone(), new.clone()]), format!("[{new}]"));
        let others = [hold(2, r#""y""#, "exclusive", "null"), hold(3, r#""x""#, "exclusive", "{}"), new];
        assert_eq!(printed(&others), format!("[{}]", others.join(",")));
        let shared = [old, hold(9, r#""x""#, "shared", "null")];
        assert_eq!(printed(&shared), format!("[{}]", shared.join(",")));
    }

    #[test]
    fn a_slot_is_said_once_and_none_is_empty() {
        let slot = [("DLOCK_SLOT", "2".to_owned())];
        assert_eq!(Format::Sh.writer()(&slot), "export DLOCK_SLOT='2'\n");
        assert_eq!(Format::Env.writer()(&slot), "DLOCK_SLOT=2\n");
        assert_eq!(Format::Sh.writer()(&[]), "export DLOCK_SLOT=''\n");
    }
}
