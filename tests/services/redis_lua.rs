//! The Lua scripts that a Redis runs. Each is a whole file, and the one of the queues grants as
//! [`dlock::lock::queue::held`] does.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use dlock::lock::Mode;
use dlock::lock::queue::held;

use crate::servers::{Server, redis};
use crate::support::chance::{Random, rounds, seed};

/// The number of steps on each queue.
const STEPS: usize = 25;
const QUEUES: usize = 150;

/// Returns the Lua files in `folder` and below.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").path());
    let found = entries.flat_map(|path| if path.is_dir() { scripts(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "lua")).collect()
}

fn volatile() -> Server {
    redis::start_with(&["--appendonly", "no", "--maxmemory-policy", "noeviction"])
}

#[test]
fn each_script_is_complete_in_its_file() {
    let server = volatile();
    let scripts = scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend/redis"));
    assert!((1..=6).contains(&scripts.len()), "{scripts:?}");
    for path in scripts {
        let text = fs::read_to_string(&path).expect("UTF-8");
        let said = redis::raw(server.port(), &["SCRIPT", "LOAD", &text]);
        assert!(said.starts_with("$40\r\n"), "{}: {said}", path.display());
    }
}

/// A claim in a queue.
struct Member {
    id: String,
    mode: Mode,
    /// 0 while it waits.
    token: u64,
}

/// One queue in a real server, and its expected state.
struct Queue<'a> {
    server: &'a Server,
    lock: String,
    /// In order of arrival.
    members: Vec<Member>,
    highest_token: u64,
}

impl Queue<'_> {
    fn claim_key(&self, id: &str) -> String {
        format!("{{{}}}:claim:{id}", self.lock)
    }

    fn step(&self, command: &str, id: &str, own: &[&str]) -> String {
        let (queue, counters) = (format!("{{{}}}:queue", self.lock), format!("{{{}}}:counters", self.lock));
        let (claim, claims) = (self.claim_key(id), self.claim_key(""));
        let text = include_str!("../../src/backend/redis/queue.lua");
        let first = ["EVAL", text, "4", &self.lock, &queue, &counters, &claim, command, id, &claims, ""];
        redis::raw(self.server.port(), &[&first, own].concat())
    }

    fn enter(&self, id: &str, mode: Mode) -> String {
        self.step("enter", id, &["about", &mode.to_string(), "600000", "", "0"])
    }

    /// Expires the keys that end with the claim's lease. Another claim notices that when it polls.
    fn expire(&self, id: &str, holds_alone: bool) {
        redis::raw(self.server.port(), &["DEL", &self.claim_key(id)]);
        if holds_alone {
            redis::raw(self.server.port(), &["DEL", &self.lock]);
        }
        if let Some(other) = self.members.first() {
            self.step("look", &other.id, &[]);
        }
    }

    fn modes(&self) -> Vec<Mode> {
        self.members.iter().map(|member| member.mode).collect()
    }

    /// Expects that exactly those claims hold that the rule names. Each keeps its token, and each new holder has a
    /// greater one than all before.
    fn check(&mut self, after: &str) {
        let script = "local said = { redis.call('GET', KEYS[1]) or '-' }
            for n = 2, #KEYS do
              local c = redis.call('HMGET', KEYS[n], 'token', 'slot')
              said[n] = (c[1] or '0') .. ' ' .. (c[2] or '0')
            end
            return said";
        let claims: Vec<String> = self.members.iter().map(|member| self.claim_key(&member.id)).collect();
        let number = (claims.len() + 1).to_string();
        let mut words = vec!["EVAL", script, &number, &self.lock];
        words.extend(claims.iter().map(String::as_str));
        let all = redis::raw(self.server.port(), &words);
        let mut said = all.lines().filter(|line| !line.starts_with(['*', '$']));
        let proof = match self.members.first() {
            None => "-".to_owned(),
            Some(Member { id, mode: Mode::Exclusive, .. }) => id.clone(),
            Some(Member { mode, .. }) => format!("dlock:{mode}"),
        };
        assert_eq!(said.next(), Some(proof.as_str()), "{:?} after {after}", self.modes());
        let (modes, before) = (self.modes(), self.highest_token);
        let mut slots = Vec::new();
        for (at, (line, member)) in said.zip(&mut self.members).enumerate() {
            let (token, slot) = line.split_once(' ').expect("a token and a slot");
            let (token, slot) = (token.parse().expect("a number"), slot.parse::<u32>().expect("a number"));
            assert_eq!(token > 0, at < held(&modes), "claim {at} of {modes:?} after {after}: {all}");
            let is_new = member.token == 0 && token > before;
            assert!(
                is_new || token == member.token,
                "{token} after {before}, claim {at} after {after}: {all}"
            );
            member.token = token;
            self.highest_token = self.highest_token.max(token);
            if let (Mode::Slots(most), true) = (member.mode, token > 0) {
                assert!((1..=most.get()).contains(&slot) && !slots.contains(&slot), "slot {slot}: {all}");
                slots.push(slot);
            }
        }
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

/// Claims enter, leave, are evicted and expire at random. After each step the script must have granted as the rule
/// does.
#[test]
fn queues_are_granted_by_the_rule() {
    let (server, mut random) = (volatile(), Random(seed()));
    for n in 0..rounds(QUEUES) {
        let slots = u32::try_from(random.below(6)).ok().and_then(NonZeroU32::new).filter(|n| n.get() < 4);
        let mut queue =
            Queue { server: &server, lock: format!("x{n}"), members: Vec::new(), highest_token: 0 };
        for _ in 0..STEPS {
            let (way, id) = (random.below(8), format!("{:032x}", random.next()));
            if way < 4 || queue.members.is_empty() {
                let mode = mode(&mut random, slots);
                queue.enter(&id, mode);
                queue.members.push(Member { id, mode, token: 0 });
                queue.check("an arrival");
                continue;
            }
            if way == 4 {
                let other = if slots.is_some() { Mode::Shared } else { Mode::Slots(NonZeroU32::MIN) };
                let said = queue.enter(&id, other);
                assert!(said.contains("mismatch"), "{other} in {:?}: {said}", queue.modes());
                queue.check("a claim of another kind");
                continue;
            }
            let holders = held(&queue.modes());
            let at = random.below(queue.members.len());
            let Member { id, .. } = queue.members.remove(at);
            match way {
                5 => drop(queue.step("leave", &id, &["0"])),
                6 => drop(queue.step("evict", &id, &["force", "", "1000"])),
                _ => queue.expire(&id, at == 0 && holders == 1),
            }
            queue.check("a departure");
        }
    }
}
