//! Two networks that elect a leader while their links to the service are cut, and an observer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::servers::Site;
use crate::servers::proxy::{Conduct, Proxy};
use crate::site;
use crate::support::chance::{Random, length, seed};
use crate::support::running::CROWD;
use crate::support::wait::{let_pass, until_true, until_within};
use crate::support::{Running, Service, TestEnv, quiet};

/// The time in which links are cut at random.
const LENGTH: Duration = Duration::from_secs(8);

/// A network whose only link leads to the service.
struct Network {
    env: TestEnv,
    ways: Vec<Proxy>,
}

impl Network {
    fn before(site: &dyn Site, part: &Service) -> Self {
        let ports = site.ports();
        let ways: Vec<Proxy> = ports.iter().map(|port| Proxy::to(*port)).collect();
        let ends = ways.iter().zip(&ports);
        let part = ends.fold(part.clone(), |part, (way, port)| part.through(way.port(), *port));
        Self { env: TestEnv::on(part), ways }
    }

    /// Cuts its link in both directions and notifies neither side, or mends it.
    fn set(&self, conduct: Conduct) {
        self.ways.iter().for_each(|way| way.set(conduct));
    }
}

/// The lengths of the cuts: shorter and longer than a lease.
const CUTS: [Duration; 3] = [Duration::from_millis(700), Duration::from_secs(2), Duration::from_secs(7)];

/// Leads as `$1`. It logs its term in `$0.log` and proclaims one value after another. After a test creates `$0.stop` it
/// proclaims the last one. All processes of its tree keep one file locked, so the kernel shows whether another tree is
/// alive.
const LEADER: &str = r#"exec 9>>"$0.tree"
flock -n 9 || echo "overlap $1 $DLOCK_TOKEN" >>"$0.log"
echo "leads $1 $DLOCK_TOKEN" >>"$0.log"
n=0
last=
until [ "$last" ]; do
    [ -e "$0.stop" ] && last=yes
    n=$((n + 1))
    echo "tries $1-$DLOCK_TOKEN-$n" >>"$0.log"
    if "$dlock" proclaim --endpoint "$locks" -- "$1-$DLOCK_TOKEN-$n" 2>>"$0.err"; then
        echo "said $1-$DLOCK_TOKEN-$n" >>"$0.log"
    else
        last=
    fi
    sleep 0.1
done
exec sleep 1000"#;

/// A term with so many proclaimed values lasted long enough for every observer to see it.
const LONG_TERM: usize = 20;

/// One line that an observer printed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    claim: String,
    value: String,
    token: Option<u64>,
}

fn shown(observer: &Running) -> Vec<Shown> {
    let text = observer.out_so_far();
    let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let one = |object: Value| {
        Some(Shown {
            claim: object["claim"].as_str()?.to_owned(),
            value: object["value"].as_str()?.to_owned(),
            token: object["token"].as_str().and_then(|token| token.parse().ok()),
        })
    };
    objects.filter_map(one).collect()
}

/// The log that the leaders wrote.
struct Truth {
    lines: Vec<String>,
}

impl Truth {
    fn read(env: &TestEnv) -> Self {
        Self { lines: env.read("e.log").lines().map(str::to_owned).collect() }
    }

    fn those<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    /// Returns the tokens of the terms.
    fn terms(&self) -> Vec<u64> {
        let token = |words: &str| words.split(' ').nth(1).and_then(|token| token.parse().ok());
        self.those("leads").map(|words| token(words).expect("a token")).collect()
    }

    fn said_in(&self, term: u64) -> usize {
        self.those("said").filter(|value| value.contains(&format!("-{term}-"))).count()
    }

    /// Checks the lines of an observer against the log. An observer may miss values that lasted only briefly.
    fn judge(&self, seen: &[Shown]) {
        // An attempted value may have been stored although its leader received no answer.
        let tried: Vec<&str> = self.those("tries").collect();
        let mut at = 0_usize;
        let mut values = BTreeSet::new();
        for Shown { value, .. } in seen.iter().filter(|one| one.value.contains('-')) {
            if !values.insert(value.as_str()) {
                assert_eq!(tried.get(at.wrapping_sub(1)), Some(&value.as_str()), "{value} came again");
                continue;
            }
            let found = tried[at..].iter().position(|one| one == value);
            at += found.unwrap_or_else(|| panic!("{value} was never tried, or came too late: {seen:?}")) + 1;
        }
        // A claim does not lead again after its term is over.
        let mut claims: Vec<&str> = seen.iter().map(|one| one.claim.as_str()).collect();
        claims.dedup();
        assert_eq!(claims.len(), claims.iter().collect::<BTreeSet<_>>().len(), "a term came again: {seen:?}");
        let tokens: Vec<u64> = seen.iter().filter_map(|one| one.token).collect();
        assert!(tokens.is_sorted(), "terms in another order: {tokens:?}");
        for term in self.terms() {
            let must = self.said_in(term) >= LONG_TERM;
            assert!(!must || tokens.contains(&term), "the term {term} was not seen: {tokens:?}");
        }
    }
}

/// Waits until the last value of the leader is what all observers see. All links are mended.
fn await_last_value(own: &TestEnv, observer: &Running) {
    own.write("e.stop", "");
    until_within(
        CROWD,
        || format!("the last value; {:?}, {:?}", Truth::read(own).lines.last(), shown(observer).last()),
        || {
            let truth = Truth::read(own);
            let last = truth.lines.last()?.strip_prefix("said ")?.to_owned();
            let leads = own.status("x")["holders"][0]["label"] == last.as_str();
            (leads && shown(observer).last()?.value == last).then_some(())
        },
    );
}

/// Returns the link to cut next and the length of the cut. If chance has brought too few terms in its time, `in_turn`
/// is the number of cuts so far. Then the links are cut in turn, for longer than a lease, so that the leader loses its
/// own.
fn next_cut(random: &mut Random, in_turn: Option<usize>) -> (usize, Duration) {
    match in_turn {
        None => (random.below(2), CUTS[random.below(CUTS.len())]),
        Some(cuts) => (cuts % 2, CUTS[CUTS.len() - 1]),
    }
}

#[test]
fn one_leads_over_cut_links_and_observers_see_true_history() {
    let _load = quiet::loading();
    let site = site::start();
    let part = site.part();
    let networks = ["east", "west"].map(|name| (name, Network::before(&*site, &part)));
    let own = TestEnv::on(part);
    let observer = own.start(&mut own.verb("leader", ["x", "--follow", "--json"]));
    until_true("an observer", || observer.out_so_far() == "null\n");
    let mut candidates = Vec::new();
    for (n, (name, Network { env, .. })) in networks.iter().enumerate() {
        let mut command = env.verb("elect", ["-q", "--name", "x", "--ttl", "4s", "--grace", "200ms"]);
        command.args(["--forever", "--value", name]);
        command.args(["--", "bash", "-c", LEADER]).arg(own.path("e")).arg(name);
        candidates.push(env.start(&mut command));
        until_true(&format!("{name}; it said {:?}", candidates[n].err_so_far()), || {
            // Only a queue shows the waiters.
            let shown = own.holders("x") + own.waiters("x");
            shown == if site.kind().has_queue() { n + 1 } else { 1 }
        });
    }
    let mut random = Random(seed());
    let (begun, length) = (Instant::now(), length(LENGTH));
    let mut cuts = 0;
    while begun.elapsed() < length || Truth::read(&own).terms().len() < 2 {
        assert!(begun.elapsed() < length + CROWD, "{cuts} cuts, and nothing happened");
        let (link, cut) = next_cut(&mut random, (begun.elapsed() >= length).then_some(cuts));
        let (_, network) = &networks[link];
        network.set(Conduct::Hole);
        cuts += 1;
        let_pass(cut);
        network.set(Conduct::Pass);
        let_pass(Duration::from_millis(u64::try_from(random.below(2_500)).expect("small")));
    }
    await_last_value(&own, &observer);
    for one in &candidates {
        one.signal(Signal::TERM);
    }
    for one in candidates {
        let ended = one.finish_within(CROWD);
        assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()), "{}", ended.err);
    }
    until_true("no leader", || observer.out_so_far().ends_with("null\n"));
    observer.signal(Signal::INT);
    let seen = shown(&observer);
    observer.finish();
    let truth = Truth::read(&own);
    eprintln!(
        "{cuts} cuts, {} terms, {} values, {} seen",
        truth.terms().len(),
        truth.those("said").count(),
        seen.len()
    );
    assert_eq!(truth.those("overlap").collect::<Vec<_>>(), [""; 0], "two led at once");
    if site.kind().has_queue() {
        assert!(truth.terms().is_sorted(), "tokens fall: {:?}", truth.terms());
        truth.judge(&seen);
    }
    for (_, network) in &networks {
        network.env.await_no_process();
    }
    own.assert_free("x");
}
