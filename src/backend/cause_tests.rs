//! What a look finds, and how it is said.

use tokio::net::TcpListener;

use super::*;

const MANNER: Manner = Manner {
    service: "Redis",
    encryption: "does it want rediss://?",
    hello: b"PING\r\n",
    is_own: |answer| answer.starts_with(b"+"),
};

/// A server that takes one connection and says `answer` to the first request, or hangs up.
async fn server(answer: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = [0; 16];
        let _ = stream.read(&mut request).await;
        if let Some(answer) = answer {
            let _ = stream.write_all(answer).await;
            let _ = stream.read(&mut request).await;
        }
    });
    at
}

async fn cause(answer: Option<&'static [u8]>, encrypts: bool) -> Option<String> {
    let at = server(answer).await;
    let cause = of_all(std::slice::from_ref(&at), &MANNER, encrypts).await;
    cause.map(|(_, cause)| cause.replace(&at, "AT"))
}

#[tokio::test]
async fn a_server_is_told_from_another() {
    let foreign = "AT accepts connections but does not answer as Redis does";
    for (answer, encrypts, wanted) in [
        (Some(b"+PONG\r\n" as &[u8]), false, None),
        (
            Some(b"+PONG\r\n"),
            true,
            Some("AT does not speak TLS on this port; leave encryption out, or name another port".to_owned()),
        ),
        (Some(b"SSH-2.0-x\r\n"), false, Some(format!("{foreign}; is this the right port?"))),
        (Some(b"\x15\x03\x01\x00\x02\x02\x46"), false, Some(format!("{foreign}; does it want rediss://?"))),
        (None, false, Some(format!("{foreign}; does it want rediss://?"))),
        (None, true, None),
    ] {
        assert_eq!(cause(answer, encrypts).await, wanted, "{answer:?} {encrypts}");
    }
}

#[tokio::test]
async fn who_refuses_or_is_silent_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    let silent = of_all(std::slice::from_ref(&at), &MANNER, false).await;
    assert_eq!(
        silent.map(|(_, cause)| cause),
        Some(format!("{at} accepts connections but does not answer; is this the right port?"))
    );
    drop(listener);
    let (kind, refused) = of_all(&[at.clone(), at.clone()], &MANNER, true).await.expect("nobody is there");
    assert_eq!(kind, ErrorKind::Unavailable);
    assert_eq!(refused, format!("{at}: connection refused; {at}: connection refused; is it running there?"));
    assert_eq!(
        parted(&refused),
        (refused.strip_suffix("; is it running there?").expect("it"), Some(RUNNING))
    );
}

#[test]
fn what_is_about_reaching_a_service_is_said_of_the_service() {
    for (reason, wanted) in [
        ("h:1: connection refused", Some("cannot reach redis at h:1: connection refused")),
        ("[::1]:1: connection refused", Some("cannot reach redis at [::1]:1: connection refused")),
        ("h:1 does not answer", Some("cannot use redis: h:1 does not answer")),
        (
            "0 of 3 nodes can be used (h:1: connection refused)",
            Some("cannot use redis: 0 of 3 nodes can be used (h:1: connection refused)"),
        ),
        ("h:1: it takes no writes", None),
    ] {
        assert_eq!(headline("redis", reason).as_deref(), wanted);
    }
    assert_eq!(without_place("h:1: connection refused"), "connection refused");
    assert_eq!(without_place("no answer in time"), "no answer in time");
    assert_eq!(without_place("a:1: x; b:1: y"), "a:1: x; b:1: y");
    let error = io::Error::from_raw_os_error(113);
    assert_eq!(unreached(&"h:1", &error), "h:1: no route to host");
}

const SILENCE: (ErrorKind, &str) = (ErrorKind::Unavailable, "h:1 does not answer");
const STRANGER: (ErrorKind, &str) =
    (ErrorKind::Unavailable, "h:1 accepts connections but does not answer as etcd does");

/// What is known after at most `wait` of work that takes for ever.
async fn late(wait: u64, gives_up: bool, found: (ErrorKind, &str)) -> Result<(), Option<Cause>> {
    let (clock, found) = (Clock::Boot, (found.0, found.1.to_owned()));
    let deadline = clock.now() + Duration::from_millis(wait);
    by(clock, deadline, gives_up, std::future::pending(), || async { Some(found) }).await
}

#[tokio::test]
async fn what_was_found_is_known_at_the_deadline_or_as_soon_as_it_settles_the_matter() {
    let clock = Clock::Boot;
    let soon = by(clock, clock.now() + Duration::from_secs(9), true, async { 7 }, || async {
        unreachable!("nobody looks into what is done in time")
    });
    assert_eq!(soon.await, Ok(7));
    let wanted = |(kind, why): (ErrorKind, &str)| Err(Some((kind, why.to_owned())));
    for (gives_up, found) in [(true, SILENCE), (false, STRANGER)] {
        let begun = clock.now();
        assert_eq!(late(400, gives_up, found).await, wanted(found));
        assert!(clock.now().since(begun) >= Duration::from_millis(400));
    }
    // An hour would be noticed.
    assert_eq!(late(3_600_000, true, STRANGER).await, wanted(STRANGER));
}
