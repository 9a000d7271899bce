//! The Lua scripts that a Redis runs. Each is a whole file, and the one of the queues keeps the lock's key for the first
//! claim in the queue, so that a client that polls the key never finds it free during a hand-over.

use std::num::NonZeroU32;

use dlock::lock::Mode;

use crate::servers::{Server, redis};
use crate::support::chance::{Random, rounds, seed};

/// The number of steps on each queue.
const STEPS: usize = 25;
const QUEUES: usize = 150;

fn volatile() -> Server {
    redis::start_with(&["--appendonly", "no", "--maxmemory-policy", "noeviction"])
}

/// One queue in a real server, and its expected state.
struct Queue<'a> {
    server: &'a Server,
    lock: String,
    /// The claims in order of arrival.
    members: Vec<(String, Mode)>,
    /// Whether another program's client has the lock's key.
    is_foreign: bool,
}

impl Queue<'_> {
    fn side(&self, part: &str) -> String {
        format!("{{{}}}:{part}", self.lock)
    }

    fn step(&self, command: &str, id: &str, mode: Mode, own: &[&str]) -> String {
        let [queue, writers, leases, counters] =
            ["queue", "writers", "leases", "counters"].map(|p| self.side(p));
        let (mode, claim, claims) = (mode.to_string(), self.side(id), self.side(""));
        let text = include_str!("../../src/backend/redis/queue.lua");
        let keys = ["6", &self.lock, &queue, &writers, &leases, &counters, &claim];
        redis::raw(
            self.server.port(),
            &[&["EVAL", text], &keys[..], &[command, id, &mode, &claims, ""], own].concat(),
        )
    }

    fn remove(&self, id: &str, why: &[&str]) -> String {
        self.step("commit", id, Mode::Exclusive, &[&["[]", "remove", id, "1", ""], why].concat())
    }

    /// Ends the lease of a claim, and its key if the key is the claim's alone. Another claim notices that when it reads.
    fn expire(&self, id: &str) {
        redis::raw(self.server.port(), &["ZADD", &self.side("leases"), "1", id]);
        if redis::raw(self.server.port(), &["GET", &self.lock]).contains(id) {
            redis::raw(self.server.port(), &["DEL", &self.lock]);
        }
        self.step("read", &"9".repeat(32), Mode::Exclusive, &["0"]);
    }

    /// Expects exactly those claims in the queue, with rising tokens, and the first one in the lock's key.
    fn check(&self, after: &str, tokens: &mut Vec<(String, u64)>) {
        let shown = redis::raw(self.server.port(), &["ZRANGE", &self.side("queue"), "0", "-1", "WITHSCORES"]);
        let words: Vec<&str> = shown.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let ids: Vec<&str> = words.iter().step_by(2).copied().collect();
        let expected: Vec<&str> = self.members.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, expected, "after {after}");
        for pair in words.chunks(2) {
            let token: u64 = pair[1].parse().expect("a number");
            if let Some((_, known)) = tokens.iter().find(|(id, _)| id == pair[0]) {
                assert_eq!(token, *known, "{pair:?} after {after}");
            } else {
                assert!(tokens.iter().all(|(_, known)| *known < token), "{pair:?} after {after}");
                tokens.push((pair[0].to_owned(), token));
            }
        }
        let value = redis::raw(self.server.port(), &["GET", &self.lock]);
        let named = match self.members.first() {
            _ if self.is_foreign => "theirs".to_owned(),
            None => "$-1".to_owned(),
            Some((id, Mode::Exclusive)) => id.clone(),
            Some((_, mode)) => format!("dlock:{mode}"),
        };
        assert_eq!(value.lines().last(), Some(named.as_str()), "{:?} after {after}", self.members);
    }
}

/// Returns the mode for `slots`, or at random exclusive or shared without them.
fn mode(random: &mut Random, slots: Option<NonZeroU32>) -> Mode {
    match slots {
        Some(slots) => Mode::Slots(slots),
        None if random.below(2) == 0 => Mode::Exclusive,
        None => Mode::Shared,
    }
}

/// Claims enter, leave, are evicted and expire at random, and another program's client takes the lock in between. After
/// each step the lock's key must name the first claim, unless the other client has it.
#[test]
fn the_lock_is_never_free_while_a_claim_is_in_the_queue() {
    let (server, mut random) = (volatile(), Random(seed()));
    for n in 0..rounds(QUEUES) {
        let slots = u32::try_from(random.below(6)).ok().and_then(NonZeroU32::new).filter(|n| n.get() < 4);
        let lock = format!("x{n}");
        let mut queue = Queue { server: &server, lock, members: Vec::new(), is_foreign: false };
        let mut tokens = Vec::new();
        for _ in 0..STEPS {
            let (way, id) = (random.below(8), format!("{:032x}", random.next()));
            let ask = |words: &[&str]| redis::raw(server.port(), words);
            if way == 0 {
                if queue.is_foreign {
                    ask(&["DEL", &queue.lock]);
                    queue.step("read", &id, Mode::Exclusive, &["0"]);
                    queue.is_foreign = false;
                } else {
                    let said = ask(&["SET", &queue.lock, "theirs", "NX", "PX", "600000"]);
                    queue.is_foreign = said == "+OK\r\n";
                    assert_eq!(queue.is_foreign, queue.members.is_empty(), "{said}");
                }
                queue.check("another client's step", &mut tokens);
                continue;
            }
            if way < 5 || queue.members.is_empty() {
                let mode = mode(&mut random, slots);
                queue.step("append", &id, mode, &["about", "600000"]);
                queue.members.push((id, mode));
                queue.check("an arrival", &mut tokens);
                continue;
            }
            let (id, _) = queue.members.remove(random.below(queue.members.len()));
            match way {
                5 => drop(queue.remove(&id, &[])),
                6 => drop(queue.remove(&id, &["1000", "evicted", ""])),
                _ => queue.expire(&id),
            }
            queue.check("a departure", &mut tokens);
        }
    }
}
