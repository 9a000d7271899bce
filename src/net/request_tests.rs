//! The retry loop and its connections, with a scripted service and on paused time.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::*;
use crate::clock::Clock;
use crate::lock::reason::{About, Reason};
use crate::net::link::Stage;
use crate::net::rank::Rank;

/// The result of the next attempt to connect or of the next request.
#[derive(Clone, Copy, Debug)]
enum Next {
    Works,
    /// Also sends a greeting.
    Greets,
    Refuses,
    Denies,
    Breaks,
    Loads,
    Undoes,
    Redirects,
    Freezes,
    /// Only after a connection was made.
    Hangs,
}

impl Next {
    async fn happen(self) -> FaultResult<()> {
        match self {
            Self::Works | Self::Greets => Ok(()),
            Self::Refuses => Err(Fault::spent("refused")),
            Self::Denies => Err(Fault::new(ErrorKind::Denied, "denied").helped_by(Retry::OtherConnection)),
            Self::Breaks => Err(Fault::spent("broken")),
            Self::Loads => Err(Fault::unavailable("loading")),
            Self::Undoes => Err(Fault::unavailable("undone").helped_by(Retry::Again)),
            Self::Redirects => Err(Fault::unavailable("elsewhere").helped_by(Retry::OtherNode)),
            Self::Freezes | Self::Hangs => pending().await,
        }
    }
}

/// Follows the script, and then repeats its last step.
#[derive(Debug)]
struct Script(Mutex<VecDeque<Next>>);

impl Script {
    fn of(steps: &[Next]) -> Self {
        Self(Mutex::new(steps.iter().copied().collect()))
    }

    fn next(&self) -> Next {
        let mut steps = self.0.lock().expect("no test panics here");
        let next = if steps.len() > 1 { steps.pop_front() } else { steps.front().copied() };
        next.unwrap_or(Next::Works)
    }

    async fn happen(&self) -> FaultResult<()> {
        self.next().happen().await
    }
}

#[derive(Debug)]
struct Servers<const SOON: bool> {
    count: usize,
    dials: Script,
    found: Option<Fault>,
    /// When each attempt to connect was made, and to which server.
    log: Mutex<Vec<(Duration, usize)>>,
    start: Instant,
    /// Leaves the last request unanswered, except for as many as `answers` permits.
    unanswered: AtomicBool,
    answers: Semaphore,
}

impl<const SOON: bool> Dial for Servers<SOON> {
    type Connection = usize;
    type Node = u8;
    const ANSWERS_SOON: bool = SOON;

    fn servers(&self, _: &u8) -> usize {
        self.count
    }

    fn place(&self, _: &u8, server: usize) -> String {
        format!("h:{server}")
    }

    async fn dial(&self, _: &u8, server: usize, stage: &Stage) -> FaultResult<Arc<usize>> {
        self.log.lock().expect("no test panics here").push((self.start.elapsed(), server));
        let next = self.dials.next();
        if matches!(next, Next::Works | Next::Hangs | Next::Greets) {
            stage.connected();
        }
        if matches!(next, Next::Greets) {
            stage.answered();
        }
        next.happen().await.map(|()| Arc::new(server)).map_err(|fault| fault.at(&self.place(&0, server)))
    }

    async fn is_usable(&self, _: &usize) -> bool {
        true
    }

    async fn settled(&self, _: &usize) -> bool {
        let was_unanswered = self.unanswered.load(Ordering::Relaxed);
        if was_unanswered {
            self.answers.acquire().await.expect("it stays open").forget();
        }
        was_unanswered
    }

    fn peer(&self, connection: &usize) -> String {
        self.place(&0, *connection)
    }

    async fn look(&self) -> Option<Fault> {
        self.found.clone()
    }
}

fn link<const SOON: bool>(count: usize, dials: &[Next], found: Option<Fault>) -> Link<Servers<SOON>> {
    let start = Instant::now();
    let (unanswered, answers) = (AtomicBool::default(), Semaphore::new(0));
    let dials = Script::of(dials);
    let servers = Servers { count, dials, found, log: Mutex::default(), start, unanswered, answers };
    Link::new(servers, Clock::Runtime(start))
}

/// Makes a call with a deadline of `seconds` and returns its result and its duration.
async fn call<const SOON: bool>(
    link: &Link<Servers<SOON>>,
    seconds: u64,
    patience: Patience,
    requests: &[Next],
) -> (Result<usize, String>, Duration) {
    let (begun, requests) = (Instant::now(), Script::of(requests));
    let deadline = link.clock.now() + Duration::from_secs(seconds);
    let request = |connection: Arc<usize>| {
        let next = requests.next();
        link.dial.unanswered.store(matches!(next, Next::Freezes), Ordering::Relaxed);
        async move { next.happen().await.map(|()| *connection) }
    };
    let answer = link.call(deadline, patience, || 0, request).await;
    (answer.map_err(|fault| fault.to_string()), begun.elapsed())
}

fn dials<const SOON: bool>(link: &Link<Servers<SOON>>) -> Vec<usize> {
    link.dial.log.lock().expect("no test panics here").iter().map(|(_, server)| *server).collect()
}

fn ms(length: Duration) -> u128 {
    length.as_millis()
}

#[tokio::test(start_paused = true)]
async fn broken_connection_is_replaced_once() {
    let one = link::<false>(1, &[Next::Works], None);
    assert_eq!(call(&one, 9, Patience::Once, &[Next::Breaks, Next::Works]).await, (Ok(0), Duration::ZERO));
    assert_eq!(one.opened(), 2);
    let (answer, length) = call(&one, 9, Patience::Once, &[Next::Breaks, Next::Breaks, Next::Works]).await;
    assert_eq!((answer, length), (Err("h:0: broken".to_owned()), Duration::ZERO));
    let answer = call(&one, 9, Patience::Present, &[Next::Breaks, Next::Breaks, Next::Works]).await.0;
    assert_eq!(answer, Ok(0), "with more patience it is replaced again");
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_until_there_is_a_server() {
    let mut refused = vec![Next::Refuses; 8];
    refused.push(Next::Works);
    let one = link::<false>(1, &refused, None);
    let (answer, length) = call(&one, 60, Patience::Deadline, &[Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(0), 20 + 40 + 80 + 160 + 320 + 500 + 500 + 500));
}

#[tokio::test(start_paused = true)]
async fn a_hold_reaches_a_server_soon_after_its_return() {
    let one = link::<false>(1, &[&[Next::Refuses; 30][..], &[Next::Works]].concat(), None);
    one.connects_as(Rank::Holds);
    let (answer, length) = call(&one, 60, Patience::Deadline, &[Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(0), 20 + 40 + 28 * 50));
}

#[tokio::test(start_paused = true)]
async fn unreachable_service_is_an_answer_unless_waited_for() {
    let found = Fault::spent("nowhere");
    for (patience, wanted, length) in [
        (Patience::Once, "nowhere", 0),
        (Patience::Present, "nowhere", 0),
        (Patience::Deadline, "nowhere", 5000),
    ] {
        let three = link::<false>(3, &[Next::Refuses], Some(found.clone()));
        let (answer, took) = call(&three, 5, patience, &[Next::Works]).await;
        assert_eq!((answer, ms(took)), (Err(wanted.to_owned()), length), "{patience:?}");
    }
    let starting = link::<false>(1, &[Next::Refuses], Some(Fault::unavailable("starting")));
    let (answer, took) = call(&starting, 5, Patience::Present, &[Next::Works]).await;
    assert_eq!((answer, ms(took)), (Err("starting".to_owned()), 5000), "time may help");
    let denied = Fault::new(ErrorKind::Denied, "without encryption");
    let one = link::<false>(1, &[Next::Refuses], Some(denied));
    let (answer, took) = call(&one, 5, Patience::Deadline, &[Next::Works]).await;
    assert_eq!((answer, ms(took)), (Err("without encryption".to_owned()), 0), "time does not help");
    let one = link::<false>(1, &[Next::Works, Next::Refuses], Some(found));
    assert_eq!(call(&one, 5, Patience::Present, &[Next::Works]).await.0, Ok(0));
    let (answer, took) = call(&one, 5, Patience::Present, &[Next::Breaks]).await;
    assert_eq!((answer, ms(took)), (Err("h:0: refused".to_owned()), 5000), "it was there before");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_left_for_the_next_one() {
    let two = link::<false>(2, &[Next::Freezes, Next::Works], None);
    let (answer, length) = call(&two, 30, Patience::Once, &[Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(1), 1500));
    let two = link::<true>(2, &[Next::Works], None);
    let (answer, length) = call(&two, 30, Patience::Once, &[Next::Freezes, Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(1), 1500), "also if it froze after it was connected to");
    let two = link::<true>(2, &[Next::Freezes, Next::Works], None);
    let (answer, length) = call(&two, 1, Patience::Once, &[Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(1), 500), "half of the time is the other one's");
}

#[tokio::test(start_paused = true)]
async fn uniformly_slow_servers_get_more_time() {
    let two = link::<true>(2, &[Next::Works], None);
    let (clock, deadline) = (two.clock, two.clock.now() + Duration::from_secs(60));
    let request = |connection: Arc<usize>| async move {
        clock.sleep_until(clock.now() + Duration::from_millis(2500)).await;
        Ok(*connection)
    };
    let begun = Instant::now();
    assert_eq!(two.call(deadline, Patience::Present, || 0, request).await, Ok(0));
    assert_eq!(ms(begun.elapsed()), 1500 + 1500 + 20 + 2500);
    let begun = Instant::now();
    assert_eq!(two.call(deadline, Patience::Present, || 0, request).await, Ok(0), "and keep it");
    assert_eq!(ms(begun.elapsed()), 2500);
    assert_eq!(call(&two, 60, Patience::Present, &[Next::Works]).await.0, Ok(0));
    let (answer, length) = call(&two, 60, Patience::Present, &[Next::Freezes, Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(1), 1500), "until one was quick");
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_silent_connection_is_given_up() {
    for patience in [Patience::Once, Patience::Present, Patience::Deadline] {
        let one = link::<false>(1, &[Next::Works], None);
        let (answer, length) = call(&one, 3, patience, &[Next::Freezes]).await;
        assert_eq!((answer, ms(length)), (Err("h:0 does not answer in time".to_owned()), 3000));
        let (answer, length) = call(&one, 3, patience, &[Next::Works]).await;
        assert_eq!((answer, ms(length), one.opened()), (Ok(0), 0, 2), "a new connection is not held up");
    }
    let one = link::<false>(1, &[Next::Freezes], None);
    let answer = call(&one, 3, Patience::Once, &[Next::Works]).await.0;
    assert_eq!((answer, one.opened()), (Err("h:0 does not answer in time".to_owned()), 0));
}

#[tokio::test(start_paused = true)]
async fn the_port_is_doubted_only_if_nothing_ever_came_from_it() {
    for (dial, wanted) in
        [(Next::Works, "is silent; is this the right port?"), (Next::Greets, "does not answer in time")]
    {
        for patience in [Patience::Once, Patience::Present, Patience::Deadline] {
            let silent = Reason::of(&"h:0", "is silent").about(About::Service);
            let silent = Fault::spent(silent.asking("is this the right port?"));
            let one = link::<false>(1, &[dial], Some(silent));
            let answer = call(&one, 3, patience, &[Next::Freezes]).await.0;
            assert_eq!(answer, Err(format!("h:0 {wanted}")), "{dial:?} {patience:?}");
        }
    }
    // The probe found the service, which then fell silent.
    let one = link::<false>(1, &[Next::Works], None);
    assert!(call(&one, 3, Patience::Once, &[Next::Freezes]).await.0.is_err());
    assert!(one.answered.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_answer_once_every_server_gave_it() {
    let two = link::<false>(2, &[Next::Denies, Next::Works], None);
    assert_eq!(call(&two, 9, Patience::Once, &[Next::Works]).await.0, Ok(1));
    for patience in [Patience::Once, Patience::Present, Patience::Deadline] {
        let two = link::<false>(2, &[Next::Denies], None);
        let (answer, length) = call(&two, 9, patience, &[Next::Works]).await;
        assert_eq!((answer, ms(length)), (Err("h:0: denied".to_owned()), 0), "{patience:?}");
    }
    let two = link::<false>(2, &[Next::Denies, Next::Refuses, Next::Works], None);
    let answer = call(&two, 9, Patience::Once, &[Next::Works]).await.0;
    assert_eq!(answer, Err("h:0: denied".to_owned()), "that tells more");
    let two = link::<false>(2, &[Next::Denies, Next::Refuses, Next::Works], None);
    assert_eq!(call(&two, 9, Patience::Present, &[Next::Works]).await.0, Ok(0), "the other may come back");
}

#[tokio::test(start_paused = true)]
async fn working_server_is_kept() {
    let one = link::<false>(1, &[Next::Works], None);
    let (answer, length) = call(&one, 9, Patience::Once, &[Next::Undoes, Next::Undoes, Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(0), 3 + 6));
    let (answer, length) = call(&one, 9, Patience::Present, &[Next::Loads, Next::Loads, Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(0), 20 + 40));
    let answer = call(&one, 9, Patience::Once, &[Next::Loads, Next::Works]).await.0;
    assert_eq!(answer, Err("h:0: loading".to_owned()));
    assert_eq!(one.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn request_follows_a_redirect_to_the_named_node() {
    let one = link::<false>(1, &[Next::Works], None);
    let (node, requests) = (AtomicU32::new(0), Script::of(&[Next::Redirects, Next::Works]));
    let request = |_| {
        node.store(7, Ordering::Relaxed);
        requests.happen()
    };
    let named = || u8::try_from(node.load(Ordering::Relaxed)).expect("small");
    let deadline = one.clock.now() + Duration::from_secs(9);
    assert_eq!(one.call(deadline, Patience::Once, named, request).await, Ok(()));
    assert_eq!(one.opened(), 2, "each node has a connection of its own");
}

#[tokio::test(start_paused = true)]
async fn abandoned_connection_is_reported() {
    let one = link::<false>(1, &[Next::Works], None);
    let connection = one.connection(&0).await.expect("it works");
    let ((), news) = tokio::join!(one.given_up(&connection), async {
        tokio::task::yield_now().await;
        (one.give_up(&connection), one.give_up(&connection))
    });
    assert_eq!(news, (true, false), "news only once");
    one.given_up(&connection).await;
}

/// Counts the connections of a client of that rank that sends requests for thirty seconds without a pause.
async fn dials_in_a_lease(rank: Rank, next: Next) -> usize {
    let one = link::<false>(1, &[Next::Works, next], None);
    let connection = one.connection(&0).await.expect("it works");
    one.connects_as(rank);
    one.give_up(&connection);
    let end = one.clock.now() + Duration::from_secs(30);
    while one.clock.now() < end {
        assert!(call(&one, 5, Patience::Once, &[Next::Works]).await.0.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    one.dial.log.lock().expect("no test panics here").len() - 1
}

#[tokio::test(start_paused = true)]
async fn unanswered_connections_take_room_until_answered() {
    let one = link::<false>(1, &[Next::Works], None);
    for _ in 0..2 {
        assert!(call(&one, 3, Patience::Deadline, &[Next::Freezes]).await.0.is_err());
    }
    let (answer, length) = call(&one, 3, Patience::Deadline, &[Next::Works]).await;
    assert_eq!((answer.is_err(), ms(length), dials(&one).len()), (true, 3000, 2), "there is no third");
    let (waiting, ()) = tokio::join!(call(&one, 9, Patience::Deadline, &[Next::Works]), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        one.dial.answers.add_permits(1);
    });
    assert_eq!((waiting.0, ms(waiting.1), dials(&one).len()), (Ok(0), 2000, 2), "the one that is answered");
}

#[tokio::test(start_paused = true)]
async fn hanging_logins_take_room_and_unreachable_servers_do_not() {
    for (dial, wanted) in [(Next::Hangs, 2), (Next::Freezes, 5)] {
        let one = link::<false>(1, &[dial], None);
        for _ in 0..5 {
            assert!(call(&one, 1, Patience::Deadline, &[Next::Works]).await.0.is_err());
        }
        assert_eq!(dials(&one).len(), wanted, "{dial:?}");
    }
    let two = link::<true>(2, &[Next::Hangs, Next::Hangs, Next::Hangs, Next::Works], None);
    let (answer, length) = call(&two, 30, Patience::Deadline, &[Next::Works]).await;
    assert_eq!((answer, ms(length)), (Ok(1), 1500 + 1500 + 20 + 3000), "each has room of its own");
}

#[tokio::test(start_paused = true)]
async fn removal_does_not_rely_on_one_old_connection() {
    let one = link::<false>(1, &[Next::Works], None);
    let steps = [Next::Freezes, Next::Works];
    let (answer, length) = call(&one, 4, Patience::Deadline, &steps).await;
    assert_eq!((answer.is_err(), ms(length), one.opened()), (true, 4000, 1), "a new one is not doubted");
    one.dial.answers.add_permits(1);
    assert_eq!(call(&one, 4, Patience::Deadline, &[Next::Works]).await.0, Ok(0));
    let (answer, length) = call(&one, 4, Patience::Deadline, &steps).await;
    assert_eq!((answer, ms(length), one.opened()), (Ok(0), 2000, 3));
    let (answer, length) = call(&one, 4, Patience::Once, &steps).await;
    assert_eq!((answer.is_err(), ms(length), one.opened()), (true, 4000, 3), "others wait for the answer");
}

#[tokio::test(start_paused = true)]
async fn refused_waiter_retries_after_growing_pauses() {
    let waits = Rank::Waits { ahead: 1, ttl: Duration::from_secs(30) };
    let count = dials_in_a_lease(waits, Next::Denies).await;
    assert!((10..=25).contains(&count), "{count}");
    assert!(dials_in_a_lease(Rank::Holds, Next::Denies).await > 250);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_far_behind_replaces_its_connection_later() {
    for (ahead, longest) in [(1, 0), (2, 0), (3, 100), (22, 2000), (u32::MAX, 3000)] {
        let one = link::<false>(1, &[Next::Works], None);
        one.connects_as(Rank::Waits { ahead, ttl: Duration::from_secs(30) });
        assert_eq!(call(&one, 9, Patience::Once, &[Next::Works]).await.1, Duration::ZERO, "the first one");
        let connection = one.connection(&0).await.expect("it works");
        one.give_up(&connection);
        let (answer, length) = call(&one, 9, Patience::Once, &[Next::Works]).await;
        assert!(answer.is_ok() && (longest / 2..=longest).contains(&ms(length)), "{ahead}: {length:?}");
    }
}
