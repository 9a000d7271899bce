//! How many connections a server has at once, and when a waiter or a hold asks for another one.

use super::*;

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
    let silent = Err("h:0 does not answer in time".to_owned());
    assert_eq!((answer, ms(length), dials(&one).len()), (silent, 3000, 2), "there is no third");
    let (waiting, answered) = tokio::join!(call(&one, 9, Patience::Deadline, &[Next::Works]), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        one.dial.answers.add_permits(1);
    });
    assert_eq!((waiting.0, ms(waiting.1), answered), (Ok(0), 2000, ()), "as soon as one is answered");
    assert_eq!(dials(&one).len(), 2, "which is used again");
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
    assert_eq!(
        (answer, ms(length)),
        (Ok(1), 1500 + 1500 + 20 + 3000),
        "the other server has room of its own"
    );
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
async fn only_a_late_connection_is_used_again() {
    for (late, opened) in [(true, 1), (false, 2)] {
        let one = link::<false>(1, &[Next::Works], None);
        let connection = one.connection(&0).await.expect("it works");
        one.dial.unanswered.store(true, Ordering::Relaxed);
        one.dial.answers.add_permits(1);
        assert!(if late { one.leave_unanswered(&connection) } else { one.give_up(&connection) });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(one.connection(&0).await.is_ok());
        assert_eq!(one.opened(), opened, "late: {late}");
    }
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

#[tokio::test(start_paused = true)]
async fn a_hold_asks_for_room_until_there_is_some_and_a_waiter_once() {
    for (rank, wanted) in [(Rank::Holds, Ok(0)), (Rank::Free, Err("h:0: full".to_owned()))] {
        let steps = [&[Next::Works][..], &[Next::Fills; 20], &[Next::Works]].concat();
        let one = link::<false>(1, &steps, None);
        let connection = one.connection(&0).await.expect("it works");
        one.connects_as(rank);
        one.give_up(&connection);
        let (answer, length) = call(&one, 5, Patience::Once, &[Next::Works]).await;
        assert_eq!(answer, wanted);
        assert!(length <= Duration::from_millis(100 * 20), "{length:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_is_named_when_the_next_attempt_has_no_time() {
    for (length, said) in [(200, "h:0: full"), (400, "h:0 does not answer in time")] {
        let one = link::<false>(1, &[Next::Fills, Next::Freezes], None);
        one.connects_as(Rank::Waits { ahead: 0, ttl: Duration::from_secs(1) });
        let full = call(&one, 5, Patience::Once, &[Next::Works]).await.0;
        assert_eq!(full, Err("h:0: full".to_owned()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let deadline = one.clock.now() + Duration::from_millis(length);
        let request = |connection: Arc<usize>| async move { Ok(*connection) };
        let answer = one.call(deadline, Patience::Deadline, || 0, request).await;
        assert_eq!(answer.map_err(|fault| fault.to_string()), Err(said.to_owned()), "{length} ms");
    }
}
