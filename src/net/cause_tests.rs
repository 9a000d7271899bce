//! Results of probes, and their sentences.

use tokio::net::TcpListener;

use super::*;

const MANNER: Manner = Manner {
    service: "Redis",
    encryption: "does it want rediss://?",
    hello: b"PING\r\n",
    is_own: |answer| answer.starts_with(b"+"),
};

/// Starts a server that takes one connection and sends `answer` to the first request, or closes the connection.
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

#[tokio::test]
async fn lack_of_encryption_is_final_only_at_all_servers() {
    let (own, other) = (server(Some(b"+PONG\r\n")).await, server(Some(b"+PONG\r\n")).await);
    let all = of_all(&[own, other], &MANNER, true).await.expect("neither speaks TLS");
    assert_eq!((all.kind, all.reason.question()), (ErrorKind::Denied, None));
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = gone.local_addr().expect("bound").to_string();
    let own = server(Some(b"+PONG\r\n")).await;
    let some = of_all(&[own, gone], &MANNER, true).await.expect("neither can be used");
    assert_eq!(some.kind, ErrorKind::Unavailable, "one may come back");
}

fn silence() -> Fault {
    Fault::spent(Reason::of(&"h:1", "does not answer").about(About::Service))
}

fn stranger() -> Fault {
    Fault::spent(complaint("h:1", &MANNER, false, &ProbeResult::Other).expect("it is something else"))
}

/// Returns the error after at most `wait` milliseconds of work that never completes.
async fn late(wait: u64, gives_up: bool, found: Fault) -> Result<(), Option<Fault>> {
    let clock = Clock::Boot;
    let deadline = clock.now() + Duration::from_millis(wait);
    by(clock, deadline, gives_up, std::future::pending(), || async { Some(found) }).await
}

#[tokio::test]
async fn finding_is_returned_at_the_deadline_or_when_decisive() {
    let clock = Clock::Boot;
    let soon = by(clock, clock.now() + Duration::from_secs(9), true, async { 7 }, || async {
        unreachable!("no search for the cause of a request that is done in time")
    });
    assert_eq!(soon.await, Ok(7));
    for (gives_up, found) in [(true, silence()), (false, stranger())] {
        let begun = clock.now();
        assert_eq!(late(400, gives_up, found.clone()).await, Err(Some(found)));
        assert!(clock.now().since(begun) >= Duration::from_millis(400));
    }
    // The test would take an hour if this waited.
    assert_eq!(late(3_600_000, true, stranger()).await, Err(Some(stranger())));
}
