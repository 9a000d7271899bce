//! One line of the table: the same cause on every service.

use std::fmt::Write as _;
use std::time::Duration;

use super::scene::{ALL, Kind, Scene, Staged};
use crate::support::{Finished, Service, TestEnv, within};

/// The time limit for a dlock that does not wait.
const ONCE: Duration = Duration::from_secs(8);
/// The time limit for reporting a lasting cause with a wait of half a minute.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A cause for which a service cannot be used.
pub(crate) struct Cause {
    name: &'static str,
    code: i32,
    /// The words that every service prints.
    words: &'static [&'static str],
    /// Time changes nothing: dlock reports it at once, no matter how long the wait is.
    lasts: bool,
    /// The connection may end before the reason arrives.
    overtaken: bool,
}

impl Cause {
    /// Creates a cause that may pass.
    pub(crate) fn passing(name: &'static str, code: i32, words: &[&'static str]) -> Self {
        Self { name, code, words: words.to_vec().leak(), lasts: false, overtaken: false }
    }

    /// Creates a cause that does not pass by itself.
    pub(crate) fn lasting(name: &'static str, code: i32, words: &[&'static str]) -> Self {
        Self { lasts: true, ..Self::passing(name, code, words) }
    }

    pub(crate) fn or_overtaken(self) -> Self {
        Self { overtaken: true, lasts: false, ..self }
    }

    fn ask(&self, kind: Kind, scene: &Scene) -> Finished {
        let service = Service { backend: kind.backend(), endpoint: scene.endpoint.clone(), prefix: None };
        let env = TestEnv::on(service);
        let wait = if self.lasts { ["--wait", "30s"] } else { ["--wait", "0"] };
        let mut command = scene.dress(env.run(wait));
        command.args(["--name", "x", "--", "touch", "started"]);
        let ended = env.finish(&mut command);
        assert!(!env.exists("started"), "{}: the command ran", kind.name());
        ended
    }

    /// Returns the fault in the outcome, if there is one.
    fn judge(&self, scene: &Scene, ended: &Finished) -> Option<String> {
        let last = ended.err.lines().last().unwrap_or_default();
        let code = scene.code.unwrap_or(self.code);
        if ended.code() != Some(code) && !(self.overtaken && ended.code() == Some(69)) {
            return Some(format!("exits with {:?}, not {code}", ended.code()));
        }
        let words = if scene.words.is_empty() { self.words } else { scene.words.as_slice() };
        if let Some(word) = words.iter().find(|word| !last.contains(**word)) {
            return Some(format!("does not say {word:?}"));
        }
        let limit = if self.lasts { AT_ONCE } else { ONCE };
        within(ended.took, limit);
        ["os error", "deadline", "frame", "broken pipe"]
            .into_iter()
            .find(|word| last.contains(word))
            .map(|word| format!("says {word:?}"))
    }
}

/// Walks `cause` over all services, as `stage` sets it up, and prints the outcome of each.
#[track_caller]
pub(crate) fn walk(cause: &Cause, stage: impl Fn(Kind) -> Staged) {
    let (mut text, mut wrong) = (String::new(), String::new());
    for kind in ALL {
        if let Some(missing) = kind.missing() {
            panic!("{missing}; tests/run installs it");
        }
        let line = match stage(kind) {
            Staged::Never(why) => format!("-- | - | cannot be: {why}"),
            Staged::At(scene) => {
                let ended = cause.ask(kind, &scene);
                let said = ended.err.lines().last().unwrap_or_default();
                if let Some(what) = cause.judge(&scene, &ended) {
                    let _ = writeln!(wrong, "{} {what}: {}", kind.name(), ended.err);
                }
                let code = ended.code().map_or_else(|| "signal".to_owned(), |code| code.to_string());
                format!("{code} | {:.1}s | {}", ended.took.as_secs_f32(), said.trim_start_matches("dlock: "))
            }
        };
        let _ = writeln!(text, "{:9} | {} | {line}", kind.name(), cause.name);
    }
    eprint!("{text}");
    assert!(wrong.is_empty(), "{}:\n{wrong}", cause.name);
}
