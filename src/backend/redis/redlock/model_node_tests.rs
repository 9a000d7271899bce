//! Whether the model's node is what the scripts are: a server and the model are asked for the same, in an order of chance,
//! and each claim must stand alike afterwards.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, ConnectionLike};

use super::core::on_queues;
use super::model_node::{Node, Request, Rules};
use super::reply::{Position, Reply, Row};
use super::script::{ADJUST, ASSURE, CONFIRM, ENTER, LEAVE, LOOK, ORDER};
use crate::backend::redis::keys::{LockKeys, Naming};
use crate::backend::redis::script::{Script, Step};
use crate::lock::{ClaimId, LockName};

const RULES: Rules = Rules { door: true, order_again: true, moves: false, by_name: true };
const NAMES: usize = 2;
const CLAIMS: usize = 5;
const STEPS: usize = 60;
const SCHEDULES: u64 = 8;

/// A server of its own, reached through a socket in a folder that goes with it.
struct Server {
    process: Child,
    folder: PathBuf,
    connection: Connection,
}

impl Server {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("dlock-model-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("makes a folder");
        let socket = folder.join("socket");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .spawn();
        let mut process = process.expect("starts redis-server");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains("eady to accept connections"));
        assert!(ready, "redis-server serves");
        let client = redis::Client::open(format!("unix:{}", socket.display())).expect("an address");
        let connection = client.get_connection().expect("connects");
        Self { process, folder, connection }
    }

    fn flush(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).expect("forgets all");
    }

    fn take(&mut self, step: &Step, names: &[LockKeys]) -> Reply {
        let mut packed = Vec::new();
        step.pack(true, &mut packed);
        let reply = self.connection.req_packed_command(&packed).expect("answers");
        Reply::parse(&reply, names).expect("an answer to a step")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One who stands, or stood, in the queues of some names.
struct Claim {
    id: ClaimId,
    names: Vec<usize>,
    entered: bool,
}

struct Pair<'a> {
    server: &'a mut Server,
    model: Vec<Node>,
    claims: Vec<Claim>,
    keys: Vec<LockKeys>,
    slots: u32,
    random: u64,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("not so late")
}

fn word(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

impl<'a> Pair<'a> {
    fn new(server: &'a mut Server, slots: u32, random: u64) -> Self {
        server.flush();
        let naming = Naming { prefix: None, group: "quorum:" };
        let key = |n: usize| naming.of(&LockName::new(format!("n{n}")).expect("valid")).expect("has keys");
        let sets = [&[0][..], &[1], &[0, 1]];
        let claim = |n: usize| Claim {
            id: ClaimId::from_number(n as u128 + 1),
            names: sets[n % sets.len()].to_vec(),
            entered: false,
        };
        Self {
            server,
            model: (0..NAMES).map(|_| Node::default()).collect(),
            claims: (0..CLAIMS).map(claim).collect(),
            keys: (0..NAMES).map(key).collect(),
            slots,
            random,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn keys_of(&self, who: usize) -> Vec<LockKeys> {
        self.claims[who].names.iter().map(|name| self.keys[*name].clone()).collect()
    }

    fn row(&self, who: usize, n: usize) -> Row {
        self.model[self.claims[who].names[n]].row(RULES, who)
    }

    /// The token by which the claim has what it has, or had another; sometimes none.
    fn token(&mut self, who: usize, n: usize) -> Option<u64> {
        let has = self.row(who, n).granted().map(|part| part.token.get());
        match self.below(4) {
            0 => has.map(|token| token - 1),
            _ => has,
        }
    }

    fn slot(&mut self) -> u32 {
        u32::try_from(self.below(self.slots.into())).expect("few") + 1
    }

    /// Something that the claim may ask for, for its `n`th name.
    fn part(&mut self, who: usize, n: usize, kind: u64) -> Request {
        match kind {
            0 | 1 => {
                let wish = (self.below(2) == 0).then(|| self.slot());
                self.token(who, n).map_or(Request::Nothing, |token| Request::GiveBack { token, wish })
            }
            2..=4 => {
                let given = self.token(who, n);
                let token = given.unwrap_or(0).max(self.row(who, n).fence.saturating_sub(self.below(2)));
                let has = self.row(who, n).granted().and_then(|part| part.slot);
                let slot = has.filter(|_| kind != 4).unwrap_or_else(|| self.slot());
                Request::Confirm { token: token.max(1), slot, given }
            }
            _ => self.token(who, n).map_or(Request::Nothing, |token| Request::Assure { token }),
        }
    }

    fn requests(&mut self, who: usize) -> Vec<Request> {
        let names = self.claims[who].names.len();
        if !self.claims[who].entered {
            return vec![Request::Enter; names];
        }
        match self.below(12) {
            0 => vec![Request::Leave; names],
            1 => vec![Request::Nothing; names],
            2..=4 => {
                let other = usize::try_from(self.below(CLAIMS as u64)).expect("few");
                let score = self.row(other, 0).score.filter(|score| *score != 0).unwrap_or_else(now);
                vec![Request::Order(score + self.below(2)); names]
            }
            _ => {
                let kind = self.below(7);
                (0..names).map(|n| self.part(who, n, kind)).collect()
            }
        }
    }

    /// What asks the server for the same.
    fn step(&self, who: usize, requests: &[Request], hint: u64) -> Step {
        let each = |words: fn(Request) -> Vec<String>| requests.iter().flat_map(|r| words(*r)).collect();
        let (script, more): (&'static Script, Vec<String>) = match requests[0] {
            Request::Enter => {
                let mut more =
                    ["{}", &format!("slots:{}", self.slots), "60000", ""].map(String::from).to_vec();
                more.extend(requests.iter().map(|_| String::new()));
                more.push("1".to_owned());
                (&ENTER, more)
            }
            Request::Order(score) => (&ORDER, vec![score.to_string(), "{}".to_owned(), "0".to_owned()]),
            Request::Leave => (&LEAVE, ["0", "", "0"].map(String::from).to_vec()),
            _ if requests.iter().any(|r| matches!(r, Request::GiveBack { .. })) => (
                &ADJUST,
                each(|r| match r {
                    Request::GiveBack { token, wish } => vec![token.to_string(), word(wish)],
                    _ => vec![String::new(); 2],
                }),
            ),
            _ if requests.iter().any(|r| matches!(r, Request::Assure { .. })) => (
                &ASSURE,
                each(|r| match r {
                    Request::Assure { token } => vec![token.to_string()],
                    _ => vec![String::new()],
                }),
            ),
            Request::Confirm { .. } => (
                &CONFIRM,
                each(|r| match r {
                    Request::Confirm { token, slot, given } => {
                        vec![token.to_string(), slot.to_string(), word(given)]
                    }
                    _ => Vec::new(),
                }),
            ),
            _ => (&LOOK, Vec::new()),
        };
        on_queues(script, &self.keys_of(who), self.claims[who].id, hint, &more)
    }

    fn position(&mut self, who: usize, step: &Step) -> Option<Position> {
        match self.server.take(step, &self.keys_of(who)) {
            Reply::Position(position) => Some(position),
            Reply::Number(_) => None,
            Reply::Mismatch(other) => panic!("{other:?}"),
        }
    }

    /// Both do what one claim asks for by chance; says what that was.
    fn act(&mut self) -> String {
        let who = usize::try_from(self.below(CLAIMS as u64)).expect("few");
        let requests = self.requests(who);
        let hint = now();
        let answer = self.position(who, &self.step(who, &requests, hint));
        self.claims[who].entered = true;
        for (n, request) in requests.iter().enumerate() {
            // A server takes the time of an arrival from its own clock.
            let time = answer.as_ref().and_then(|answer| answer.rows[n].score).unwrap_or(hint);
            self.model[self.claims[who].names[n]].take(RULES, self.slots, who, *request, time);
        }
        for n in 0..requests.len() {
            self.model[self.claims[who].names[n]].settle(RULES, self.slots, hint);
        }
        format!("claim {who}: {requests:?}")
    }

    fn compare(&mut self, story: &[String]) {
        for who in (0..CLAIMS).filter(|who| self.claims[*who].entered).collect::<Vec<_>>() {
            let look = self.step(who, &vec![Request::Nothing; self.claims[who].names.len()], now());
            let position = self.position(who, &look).expect("says how it stands");
            for (n, real) in position.rows.iter().enumerate() {
                let model = self.row(who, n);
                let name = self.claims[who].names[n];
                let at = format!("claim {who}, name {name}, after\n{}", story.join("\n"));
                assert_eq!(model.fence, real.fence, "{at}");
                assert_eq!(model.score, real.score, "{at}");
                if model.score.is_none() {
                    continue;
                }
                let stands = |row: &Row| {
                    let mut taken = row.taken.clone();
                    taken.sort_unstable();
                    (row.granted(), row.behind, row.assured, taken)
                };
                assert_eq!(stands(&model), stands(real), "{at}");
            }
        }
    }
}

/// Whether there is a server to be had; where one must be, it is an error that there is none.
fn is_available() -> bool {
    let found = Command::new("redis-server").arg("--version").output().is_ok();
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    assert!(found || !required.split(',').any(|name| name == "redlock"), "redis-server is not installed");
    found
}

/// As many schedules with each number of slots.
#[test]
#[expect(clippy::print_stderr, reason = "who runs tests is told what could not be tried")]
fn nodes_of_the_model_do_what_the_scripts_do() {
    if !is_available() {
        return eprintln!("skipped: redis-server is not installed (Debian: redis-server)");
    }
    let mut server = Server::start();
    for schedule in 0..SCHEDULES {
        for slots in 1..=3 {
            let mut pair = Pair::new(&mut server, slots, schedule << 20);
            let mut story = vec![format!("schedule {schedule} for {slots} slots")];
            for _ in 0..STEPS {
                story.push(pair.act());
                pair.compare(&story);
            }
        }
    }
}
