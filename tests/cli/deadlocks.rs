//! Random orders to lock five names, by runs inside runs, by `acquire` and by `elect`. The process that closes a cycle
//! of waits is refused at once, and no other process is refused.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::chance::{Random, rounds, usual_seed};
use crate::support::gate::Gate;
use crate::support::wait::until_or_else;
use crate::support::{Running, TestEnv, within};

/// The default number of scenarios; `DLOCK_TEST_ROUNDS` overrides it.
const SCENARIOS: usize = 4;
/// The number of orders in a scenario before all actors leave.
const ORDERS: usize = 14;
const LOCKS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The longest time that a cycle may go undetected.
const NOTICED: Duration = Duration::from_secs(1);

/// An actor named `$1`. It obeys the orders that the test writes to its gate: lock a name, or leave the lock taken
/// last. It writes the outcome to the log.
const ACTOR: &str = r#"who=$1
say() { echo "$who $*" >>log; }
level() {
    local order way mode name code mine
    while read -r order way mode name <"$who.gate"; do
        case $order in
        leave) return ;;
        take)
            if [ "$way" = acquire ]; then
                claim=$("$dlock" acquire -q --endpoint "$locks" "$mode" --name "$name" --for-pid $$)
                code=$?
                if [ $code = 0 ]; then
                    eval "$claim"
                    mine=$DLOCK_CLAIM
                    say held "$name"
                    level
                    "$dlock" release --endpoint "$locks" "$mine" --name "$name"
                    code=$?
                fi
            else
                # An election is always exclusive and takes no option for it.
                options=("$mode")
                [ "$way" != elect ] || options=()
                "$dlock" "$way" -q --endpoint "$locks" "${options[@]}" --name "$name" -- bash "$0" "$who" "$name"
                code=$?
            fi
            say ended $code "$name"
            ;;
        esac
    done
}
[ $# = 1 ] || say held "$2"
level
exit 0
"#;

/// An actor that holds a lock or waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    who: usize,
    shared: bool,
}

/// The expected outcome of an order to lock a name.
#[derive(PartialEq, Eq, Debug)]
enum Expected {
    Held,
    Waits,
    Refused,
}

/// The queues, and the locks of each actor in the order in which it took them.
#[derive(Default)]
struct Model {
    queues: BTreeMap<String, Vec<Entry>>,
    taken: BTreeMap<usize, Vec<String>>,
    /// The name that each waiting actor waits for.
    waiting: BTreeMap<usize, String>,
}

impl Model {
    /// Returns the actors ahead of `entry` in the queue of `name` that have to leave first.
    fn blockers(&self, name: &str, entry: Entry) -> Vec<usize> {
        let queue = self.queues.get(name).map_or(&[][..], Vec::as_slice);
        let ahead = queue.iter().take_while(|other| **other != entry);
        ahead.filter(|other| !(entry.shared && other.shared)).map(|other| other.who).collect()
    }

    /// Returns the actors that `who` waits for, directly and through others.
    fn waits_for(&self, who: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![who];
        while let Some(one) = open.pop() {
            let Some(name) = self.waiting.get(&one) else { continue };
            let entry = self.queues[name].iter().find(|entry| entry.who == one).expect("it waits");
            for blocker in self.blockers(name, *entry) {
                if !found.contains(&blocker) {
                    found.push(blocker);
                    open.push(blocker);
                }
            }
        }
        found
    }

    fn take(&mut self, name: &str, entry: Entry) -> Expected {
        self.queues.entry(name.to_owned()).or_default().push(entry);
        if self.blockers(name, entry).is_empty() {
            self.taken.entry(entry.who).or_default().push(name.to_owned());
            return Expected::Held;
        }
        self.waiting.insert(entry.who, name.to_owned());
        if self.waits_for(entry.who).contains(&entry.who) {
            self.waiting.remove(&entry.who);
            self.queues.get_mut(name).expect("it is there").pop();
            return Expected::Refused;
        }
        Expected::Waits
    }

    /// Leaves the lock taken last. Returns its name and its next holders.
    fn leave(&mut self, who: usize) -> (String, Vec<usize>) {
        let name = self.taken.get_mut(&who).and_then(Vec::pop).expect("it has taken one");
        self.queues.get_mut(&name).expect("it is there").retain(|entry| entry.who != who);
        let waiters: Vec<Entry> = self.queues[&name].clone();
        let waits = |entry: &Entry| self.waiting.get(&entry.who) == Some(&name);
        let next: Vec<usize> = waiters
            .into_iter()
            .filter(|entry| waits(entry) && self.blockers(&name, *entry).is_empty())
            .map(|entry| entry.who)
            .collect();
        for one in &next {
            self.waiting.remove(one);
            self.taken.entry(*one).or_default().push(name.clone());
        }
        (name, next)
    }

    fn waiters(&self, name: &str) -> usize {
        self.waiting.values().filter(|waited| *waited == name).count()
    }
}

/// One scenario: the actors and the orders so far.
struct Scenario<'a> {
    env: &'a TestEnv,
    round: usize,
    actors: Vec<(String, Running, Gate)>,
    model: Model,
    told: Vec<String>,
    /// The number of cycles that were closed.
    cycles: usize,
}

impl<'a> Scenario<'a> {
    fn start(env: &'a TestEnv, round: usize, actors: usize) -> Self {
        let actor = |n: usize| {
            let who = format!("r{round}p{n}");
            let gate = env.gate(&format!("{who}.gate"));
            let running = env.start(env.command("bash").arg(env.path("actor.sh")).arg(&who));
            (who, running, gate)
        };
        let actors = (0..actors).map(actor).collect();
        Self { env, round, actors, model: Model::default(), told: Vec::new(), cycles: 0 }
    }

    fn order(&mut self, who: usize, order: &str) {
        self.told.push(format!("{who}: {order}"));
        self.actors[who].2.write(order);
    }

    fn say(&self) -> String {
        let errors: Vec<_> = self.actors.iter().map(|(who, one, _)| (who, one.err_so_far())).collect();
        format!("scenario {}: {:?}; {errors:?}; the log:\n{}", self.round, self.told, self.env.read("log"))
    }

    /// Waits until `who` has logged `words` for the `n`th time.
    #[track_caller]
    fn await_said(&self, who: usize, words: &str, n: usize) {
        until_or_else(
            || format!("{who} says {words:?}; {}", self.say()),
            || (self.said(who, words) >= n).then_some(()),
        );
    }

    fn said(&self, who: usize, words: &str) -> usize {
        let line = format!("{} {words}", self.actors[who].0);
        self.env.read("log").lines().filter(|said| **said == line).count()
    }

    fn refused(&self) -> usize {
        let refused =
            |line: &&str| line.starts_with(&format!("r{}p", self.round)) && line.contains(" ended 75 ");
        self.env.read("log").lines().filter(refused).count()
    }

    fn take(&mut self, who: usize, way: &str, shared: bool, lock: &str) {
        let name = format!("{lock}{}", self.round);
        let held = format!("held {name}");
        let refused = format!("ended 75 {name}");
        let (before, refused_before) = (self.said(who, &held), self.said(who, &refused));
        self.order(who, &format!("take {way} {} {name}", if shared { "-s" } else { "-x" }));
        let begun = Instant::now();
        match self.model.take(&name, Entry { who, shared }) {
            Expected::Held => self.await_said(who, &held, before + 1),
            Expected::Refused => {
                self.await_said(who, &refused, refused_before + 1);
                within(begun.elapsed(), NOTICED);
                self.cycles += 1;
            }
            Expected::Waits => {
                let waiters = self.model.waiters(&name);
                until_or_else(
                    || format!("{waiters} waiters for {name}; {}", self.say()),
                    || (self.env.waiters(&name) == waiters).then_some(()),
                );
            }
        }
        assert_eq!(self.refused(), self.cycles, "refused without a cycle: {}", self.say());
    }

    fn leave(&mut self, who: usize) {
        let last = self.model.taken[&who].last().expect("it has taken one").clone();
        let before = self.said(who, &format!("ended 0 {last}"));
        let holds = |one: usize| self.said(one, &format!("held {last}"));
        let held: Vec<usize> = (0..self.actors.len()).map(holds).collect();
        self.order(who, "leave");
        let (name, next) = self.model.leave(who);
        self.await_said(who, &format!("ended 0 {name}"), before + 1);
        for one in next {
            self.await_said(one, &format!("held {name}"), held[one] + 1);
        }
        assert_eq!(self.refused(), self.cycles, "refused without a cycle: {}", self.say());
    }

    /// Returns the actors that do not wait.
    fn free(&self) -> Vec<usize> {
        (0..self.actors.len()).filter(|who| !self.model.waiting.contains_key(who)).collect()
    }

    fn play(&mut self, random: &mut Random) {
        for _ in 0..ORDERS {
            let free = self.free();
            let who = *random.pick(&free).expect("a cycle of all was refused");
            let taken = self.model.taken.get(&who).cloned().unwrap_or_default();
            let others: Vec<_> =
                LOCKS.into_iter().filter(|lock| !taken.contains(&format!("{lock}{}", self.round))).collect();
            if !taken.is_empty() && (others.is_empty() || random.below(8) == 0) {
                self.leave(who);
                continue;
            }
            let way = ["run", "acquire", "elect"][random.below(3)];
            let shared = way != "elect" && random.below(4) == 0;
            self.take(who, way, shared, random.pick(&others).expect("one that it has not"));
        }
        while let Some(who) =
            self.free().into_iter().find(|who| !self.model.taken.get(who).is_none_or(Vec::is_empty))
        {
            self.leave(who);
        }
        assert!(self.model.waiting.is_empty(), "an actor waits for ever: {}", self.say());
    }

    /// Orders all actors to leave their locks and to exit.
    fn end(self) {
        for (_, running, gate) in self.actors {
            gate.write("leave");
            assert_eq!(running.finish().code(), Some(0));
        }
        for lock in LOCKS {
            let name = format!("{lock}{}", self.round);
            assert_eq!(
                (self.env.holders(&name), self.env.waiters(&name)),
                (0, 0),
                "a claim is left in {name}"
            );
        }
    }
}

#[test]
fn only_cycles_are_refused_and_within_a_second() {
    let env = TestEnv::new();
    env.write("actor.sh", ACTOR);
    let mut random = Random(usual_seed());
    let rounds = rounds(SCENARIOS);
    let mut cycles = 0;
    for round in 0..rounds {
        let mut scenario = Scenario::start(&env, round, 2 + random.below(4));
        scenario.play(&mut random);
        cycles += scenario.cycles;
        scenario.end();
    }
    eprintln!("{rounds} scenarios, {cycles} cycles");
    assert!(cycles >= rounds / 2, "{cycles} cycles in {rounds} scenarios try nothing");
    env.await_no_process();
}
