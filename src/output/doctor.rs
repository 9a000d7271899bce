//! The findings of `doctor`, for people and for programs.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::status::{Layout, text};
use super::table::Table;
use super::{json, sanitise};
use crate::lock::{Examination, Risk, Weight};

/// A resolved option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// Its name, without dashes.
    pub option: &'static str,
    /// The value, or several; a secret is only mentioned.
    #[serde(serialize_with = "joined")]
    pub value: Vec<String>,
    /// The source.
    pub source: String,
}

fn joined<S: Serializer>(values: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&values.join(" "))
}

/// All findings.
#[derive(Debug)]
pub struct Findings {
    /// The backend's name.
    pub backend: &'static str,
    /// The configuration files that were read.
    pub files: Vec<String>,
    /// The options that have a value.
    pub settings: Vec<Setting>,
    /// The answer of the service, or the reason why it gave none.
    pub examination: Result<Examination, String>,
}

impl Findings {
    /// Returns the text for people.
    pub fn text(&self, layout: &Layout) -> String {
        let title = |words: &str| {
            if layout.colour { format!("\x1b[1m{words}\x1b[0m\n") } else { format!("{words}\n") }
        };
        let mut table = Table::new(&["OPTION", "VALUE", "FROM"]);
        for setting in &self.settings {
            let mut values = setting.value.iter().cloned();
            let first = values.next().unwrap_or_default();
            table.row([setting.option.to_owned(), first, setting.source.clone()]);
            values.for_each(|value| table.row([String::new(), value, String::new()]));
        }
        let mut out = title("configuration");
        out.push_str(&text(&table, &Layout { width: None, ..*layout }, "  "));
        for file in &self.files {
            out.extend(["  read ", &sanitise::text(file), "\n"]);
        }
        let Ok(found) = &self.examination else { return out };
        out.push_str(&title("service"));
        let server = sanitise::text(&format!("{} at {}", found.server, found.reached));
        let round_trip = format!("{:.2}ms", rounded(found.round_trip));
        out.extend(["  ", &server, ", round trip ", &round_trip, "\n"]);
        if !found.risks.is_empty() {
            out.push_str(&title("risks"));
        }
        for weight in [Weight::Warning, Weight::Note] {
            for risk in found.risks.iter().filter(|risk| risk.weight == weight) {
                out.push_str(&line_of(risk, layout));
            }
        }
        out.push_str(&title(&verdict(&found.risks)));
        out
    }

    /// Returns one JSON object and a newline.
    pub fn json(&self) -> String {
        let found = self.examination.as_ref().ok();
        let object = Object {
            backend: self.backend,
            files: &self.files,
            settings: &self.settings,
            server: found.map(|f| f.server.as_str()),
            reached: found.map(|f| f.reached.as_str()),
            round_trip_ms: found.map(|f| rounded(f.round_trip)),
            risks: found.map(|f| f.risks.as_slice()),
            error: self.examination.as_ref().err().map(String::as_str),
        };
        json::line(&object)
    }
}

/// Returns the verdict.
fn verdict(risks: &[Risk]) -> String {
    let warnings = risks.iter().filter(|risk| risk.weight == Weight::Warning).count();
    match warnings {
        0 => "no problems found".to_owned(),
        1 => "1 warning: fix it, or locks can be lost".to_owned(),
        n => format!("{n} warnings: fix them, or locks can be lost"),
    }
}

/// Returns one risk in one line.
fn line_of(risk: &Risk, layout: &Layout) -> String {
    let remedy = risk.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    let sentence = sanitise::text(&format!("{}{remedy}", risk.what));
    let kind = match (risk.weight, layout.colour) {
        (Weight::Warning, true) => "\x1b[1mwarning\x1b[0m",
        (Weight::Warning, false) => "warning",
        (Weight::Note, _) => "note",
    };
    format!("  {kind}: {sentence}\n")
}

/// Returns milliseconds with three decimals.
fn rounded(length: Duration) -> f64 {
    (length.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

#[derive(Serialize)]
struct Object<'a> {
    backend: &'a str,
    files: &'a [String],
    settings: &'a [Setting],
    server: Option<&'a str>,
    reached: Option<&'a str>,
    round_trip_ms: Option<f64>,
    risks: Option<&'a [Risk]>,
    error: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn setting(option: &'static str, value: &[&str], source: &str) -> Setting {
        Setting { option, value: value.iter().map(ToString::to_string).collect(), source: source.into() }
    }

    fn findings() -> Findings {
        Findings {
            backend: "etcd",
            files: vec!["/etc/dlock/config.toml".into()],
            settings: vec![
                setting("backend", &["etcd"], "--backend"),
                setting("password", &["(secret)"], "DLOCK_PASSWORD"),
                setting("endpoint", &["h:2379", "i:2379"], "DLOCK_ENDPOINT"),
            ],
            examination: Ok(Examination {
                server: "etcd 3.4.23".into(),
                reached: "http://h:2379".into(),
                round_trip: Duration::from_micros(420),
                risks: vec![
                    Risk { weight: Weight::Note, what: "a limit".into(), remedy: None },
                    Risk::warning("a fault", "mend it"),
                ],
            }),
        }
    }

    #[test]
    fn programs_read_one_text() {
        assert!(findings().json().contains(r#""option":"endpoint","value":"h:2379 i:2379""#));
    }

    #[test]
    fn people_read_tables_with_warnings_first() {
        let now = SystemTime::UNIX_EPOCH;
        let layout = Layout { width: None, colour: false, now };
        assert_eq!(
            findings().text(&layout),
            concat!(
                "configuration\n",
                "  OPTION    VALUE     FROM\n",
                "  backend   etcd      --backend\n",
                "  password  (secret)  DLOCK_PASSWORD\n",
                "  endpoint  h:2379    DLOCK_ENDPOINT\n",
                "            i:2379\n",
                "  read /etc/dlock/config.toml\n",
                "service\n",
                "  etcd 3.4.23 at http://h:2379, round trip 0.42ms\n",
                "risks\n",
                "  warning: a fault; mend it\n",
                "  note: a limit\n",
                "1 warning: fix it, or locks can be lost\n",
            )
        );
    }
}
