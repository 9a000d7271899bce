//! Elections: the leader, its proclamations and the programs that follow them.

use rustix::process::Signal;

use crate::support::gate::Gate;
use crate::support::process::is_alive;
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, until};

/// Logs that it leads, and the token of the term. Obeys the orders that the test writes to its gate: proclaim a value,
/// or `end`.
const LEADER: &str = r#"echo "$$ $DLOCK_TOKEN" >>"$0.up"
while read -r order <"$0.gate"; do
    case $order in end) exit "${1:-0}" ;; esac
    "$dlock" proclaim --endpoint "$locks" -- "$order" && echo "$order" >>"$0.said"
done"#;

/// A candidate whose command is [`LEADER`].
struct Candidate<'a> {
    env: &'a TestEnv,
    name: &'a str,
    running: Running,
    gate: Gate,
}

impl<'a> Candidate<'a> {
    fn start(env: &'a TestEnv, name: &'a str, options: &[&str], status: &str) -> Self {
        Self::telling(env, name, &[&["-q"], options].concat(), status)
    }

    /// Starts a candidate as [`Candidate::start`] does, but without `-q`.
    fn telling(env: &'a TestEnv, name: &'a str, options: &[&str], status: &str) -> Self {
        let gate = env.gate(&format!("{name}.gate"));
        let mut command = env.verb("elect", ["--name", "x", "--value", name]);
        command.args(options).args(["--", "bash", "-c", LEADER]).arg(env.path(name)).arg(status);
        Self { env, name, running: env.start(&mut command), gate }
    }

    /// Waits for its `n`th term. Returns the PID of its command and the token of the term.
    #[track_caller]
    fn leads(&self, n: usize) -> (i32, u64) {
        let what = || format!("term {n} of {}; it said {:?}", self.name, self.running.err_so_far());
        let line = until(&what(), || {
            let text = self.env.read(&format!("{}.up", self.name));
            let whole = text.ends_with('\n');
            text.lines().nth(n - 1).filter(|_| whole).map(str::to_owned)
        });
        let (pid, token) = line.split_once(' ').expect("two words");
        (pid.parse().expect("a pid"), token.parse().expect("a token"))
    }

    fn order(&self, order: &str) {
        self.gate.write(order);
    }

    #[track_caller]
    fn proclaims(&self, value: &str) {
        self.order(value);
        let said = format!("{}.said", self.name);
        until_true(&format!("{value} is proclaimed"), || {
            self.env.read(&said).lines().any(|line| line == value)
        });
    }
}

fn leader(env: &TestEnv, options: &[&str]) -> String {
    let mut command = env.verb("leader", ["x"]);
    env.finish(command.args(options)).silently(0).text()
}

#[test]
fn a_leader_shows_its_value_and_changes_it_from_inside() {
    let env = TestEnv::new();
    assert_eq!(leader(&env, &[]), "");
    assert_eq!(leader(&env, &["--json"]), "null\n");
    let one = Candidate::start(&env, "one", &[], "7");
    let (_, token) = one.leads(1);
    assert_eq!(leader(&env, &[]), "one\n");
    let two = Candidate::start(&env, "two", &[], "0");
    env.await_waiters("x", 1);
    assert_eq!(leader(&env, &[]), "one\n", "a candidate is no leader");
    for value in ["10.0.0.1:80", "-v", "", "日本"] {
        one.order(value);
        until_true("the value", || leader(&env, &[]) == format!("{value}\n"));
    }
    let shown: serde_json::Value = serde_json::from_str(&leader(&env, &["--json"])).expect("JSON");
    assert_eq!((&shown["value"], &shown["label"]), (&"日本".into(), &"日本".into()));
    assert_eq!((&shown["token"], &shown["pid"]), (&token.to_string().into(), &one.running.pid().into()));
    one.order("end");
    assert_eq!(one.running.finish().code(), Some(7));
    assert!(two.leads(1).1 > token, "the next term has a greater token");
    until_true("the next leader's value", || leader(&env, &[]) == "two\n");
    two.order("end");
    two.running.finish().silently(0);
    assert_eq!(leader(&env, &[]), "");
    env.assert_free("x");
}

#[test]
fn two_followers_see_every_change_in_order() {
    let env = TestEnv::new();
    let follow = |options: &[&str]| {
        let mut command = env.verb("leader", ["x", "--follow"]);
        env.start(command.args(options))
    };
    let (bare, json) = (follow(&[]), follow(&["--json"]));
    let values = |json: &Running| -> Vec<String> {
        let lines = json.out_so_far();
        let whole = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut values: Vec<_> = whole.map(|o| o["value"].as_str().unwrap_or("null").to_owned()).collect();
        // If the backend does not hand over the lock, there may be no leader for a moment.
        let (first, last) = (0, values.len().saturating_sub(1));
        let mut at = 0..;
        values.retain(|value| {
            let is_between = at.next().is_some_and(|at| at > first && at < last);
            !(env.is_redlock() && is_between && value == "null")
        });
        // The token may appear a moment after the leader.
        values.dedup();
        values
    };
    let seen = |wanted: &[&str]| {
        let bare_wanted = wanted.iter().filter(|value| **value != "null").map(|value| format!("{value}\n"));
        let bare_wanted = bare_wanted.collect::<String>();
        until_true(&format!("{wanted:?}; there is {:?}", values(&json)), || {
            bare.out_so_far() == bare_wanted && values(&json) == wanted
        });
    };
    seen(&["null"]);
    // A renewal, which comes far later, would show the changes too.
    let one = Candidate::start(&env, "one", &["--ttl", "120s"], "0");
    seen(&["null", "one"]);
    one.proclaims("a");
    seen(&["null", "one", "a"]);
    one.proclaims("b");
    seen(&["null", "one", "a", "b"]);
    let two = Candidate::start(&env, "two", &[], "0");
    env.await_waiters("x", 1);
    one.order("end");
    one.running.finish().silently(0);
    two.leads(1);
    seen(&["null", "one", "a", "b", "two"]);
    two.order("end");
    two.running.finish().silently(0);
    seen(&["null", "one", "a", "b", "two", "null"]);
    for one in [bare, json] {
        one.signal(Signal::INT);
        let ended = one.finish();
        assert_eq!((ended.signal(), ended.err.as_str()), (Some(Signal::INT.as_raw()), ""));
    }
}

#[test]
fn forever_candidate_rejoins_at_the_end_of_the_queue() {
    let env = TestEnv::new();
    let one = Candidate::start(&env, "one", &["--forever"], "3");
    let (_, first) = one.leads(1);
    let two = Candidate::start(&env, "two", &[], "0");
    env.await_waiters("x", 1);
    one.order("end");
    let (_, second) = two.leads(1);
    // After a short term the candidate pauses. Then it queues behind the leader.
    env.await_waiters("x", 1);
    two.order("end");
    two.running.finish().silently(0);
    let (command, third) = one.leads(2);
    assert!(first < second && second < third, "{first} {second} {third}");
    assert_eq!(leader(&env, &[]), "one\n");
    one.running.signal(Signal::TERM);
    let ended = one.running.finish();
    assert_eq!((ended.signal(), ended.err.as_str()), (Some(Signal::TERM.as_raw()), ""));
    assert!(!is_alive(command));
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn report_describes_the_last_term_despite_a_later_candidacy() {
    let env = TestEnv::new();
    let files = ["--report", "report.json", "--metrics-file", "metrics.prom"];
    let one = Candidate::telling(&env, "one", &[&["--forever"] as &[_], &files].concat(), "3");
    let (_, token) = one.leads(1);
    one.order("end");
    until_true("the end of a term", || one.running.err_so_far().contains("campaigning again for x"));
    let metrics = env.read("metrics.prom");
    one.running.signal(Signal::TERM);
    assert_eq!(one.running.finish().signal(), Some(Signal::TERM.as_raw()));
    let report: serde_json::Value = serde_json::from_str(&env.read("report.json")).expect("a report");
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"ran".into(), &3.into()), "{report}");
    assert_eq!(report["token"], token.to_string(), "{report}");
    assert_eq!(env.read("metrics.prom"), metrics);
}

#[test]
fn a_broken_term_is_over_and_its_candidate_stands_again() {
    let env = TestEnv::new();
    let one = Candidate::telling(&env, "one", &["--forever"], "0");
    let (command, first) = one.leads(1);
    env.finish(&mut env.verb("break", ["x", "--yes"])).silently(0);
    let (again, second) = one.leads(2);
    assert!(!is_alive(command) && again != command && second > first);
    assert!(one.running.err_so_far().contains("broken"), "{}", one.running.err_so_far());
    // A signal that ends a wait also ends a pause. A signal that arrives before dlock knows that the command has ended
    // belongs to the term.
    one.order("end");
    let ends = || one.running.err_so_far().matches("campaigning again for x").count();
    until_true("the end of the second term", || ends() == 2);
    one.running.signal(Signal::TERM);
    assert_eq!(one.running.finish().signal(), Some(Signal::TERM.as_raw()));
    env.await_no_process();
}

#[test]
fn every_term_inherits_streams_directory_and_descriptors() {
    let env = TestEnv::new();
    let script = r#"exec 3>three; exec "$dlock" elect -q --endpoint "$locks" --name x --forever -- bash -c '
        echo "out $DLOCK_TOKEN"; echo "err" >&2; echo "three" >&3; pwd >>where; echo up >>up'"#;
    let running = env.start(&mut env.bash(script));
    until_true("two terms", || env.read("up") == "up\nup\n");
    running.signal(Signal::TERM);
    let ended = running.finish();
    let count = |text: &str, word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count(&ended.text(), "out "), count(&ended.err, "err")), (2, 2), "{ended:?}");
    assert_eq!(env.read("three"), "three\nthree\n");
    assert_eq!(env.read("where"), format!("{0}\n{0}\n", env.root().display()));
}

#[test]
fn non_leader_proclaims_nothing() {
    let env = TestEnv::new();
    let proclaim = |claim: &str, names: &str, held: &str| {
        let mut command = env.verb("proclaim", ["late"]);
        command.env("DLOCK_CLAIM", claim).env("DLOCK_NAMES", names).env("DLOCK_HELD", held);
        env.finish(&mut command)
    };
    // The record of a claim on x that was taken at another service, or at this one under another name of it.
    let record = |claim: &str| {
        format!(r#"[{{"service":"other","claim":"{claim}","mode":"exclusive","names":["x"],"tokens":[1]}}]"#)
    };
    env.finish(&mut env.verb("proclaim", ["x"])).failed(64, &["not inside a claim"]);
    env.finish(&mut env.verb("proclaim", ["a\tb"])).failed(64, &["VALUE", "control character"]);
    let holder = env.held(&["--name", "x", "--label", "own"]);
    let claim = holder.claim().to_owned();
    let waiter = env.hold(&["-q", "--name", "x"]);
    env.await_waiters("x", 1);
    if !env.is_redlock() {
        let waiting = env.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
        proclaim(&waiting, "x", "").failed(76, &["does not lead x"]);
    }
    proclaim(&claim, "x", "").silently(0);
    assert_eq!(leader(&env, &[]), "late\n");
    // In a nested run the claim of the outer run is the first, and it does not lead the run's own names.
    proclaim(&claim, "y\nx", "").failed(76, &["does not lead y"]);
    proclaim(&claim, "y\nx", &record(&claim)).silently(0);
    proclaim(&claim, "y", &record(&claim)).failed(64, &["not inside a claim"]);
    holder.release().silently(0);
    proclaim(&claim, "x", "").failed(76, &["does not lead x"]);
    proclaim(&claim, "x", &record(&claim)).failed(76, &["does not lead x"]);
    waiter.let_go();
    waiter.running.finish().silently(0);
}

#[test]
fn an_election_has_one_leader_of_one_name() {
    let env = TestEnv::new();
    for (options, word) in [
        (&["--name", "x", "-s"] as &[&str], "one leader"),
        (&["--name", "x", "--slots", "2"], "one leader"),
        (&["--name", "x", "--name", "y"], "one name"),
        (&["--name", "x", "--label", "a"], "--value"),
        (&["--name", "x", "--replace"], "--replace is for dlock run"),
        (&["--name", "x", "--forever", "--once-per", "1h"], "--forever"),
        (&[], "--name is missing"),
    ] {
        let mut command = env.verb("elect", options);
        env.finish(command.args(["--", "true"])).failed(64, &[word]);
    }
    env.finish(&mut env.verb("elect", ["--name", "x"])).failed(64, &["COMMAND is missing"]);
    env.finish(&mut env.verb("elect", ["--name", "x", "--forever", "--", "/nonexistent"]))
        .failed(127, &["cannot find"]);
    env.finish(&mut env.verb("elect", ["--name", "x", "--forever", "--once-per", "0", "--", "/nonexistent"]))
        .failed(127, &["cannot find"]);
    let host = env.finish(
        &mut env.verb("elect", ["--name", "x", "--", "sh", "-c", r#""$dlock" leader x --endpoint "$locks""#]),
    );
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(host.text(), format!("{name}\n"));
}
