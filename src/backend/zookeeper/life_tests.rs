//! A life beside a server that breaks its connections.

use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::backend::Options;
use crate::backend::zookeeper::config::ZkConfig;
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, Mode};
use crate::queue::store::Key;

const TTL: Duration = Duration::from_secs(20);
/// Codes of requests in ZooKeeper's protocol (`ZooDefs.OpCode`).
const GET_DATA: i32 = 4;
const CLOSE: i32 = -11;

/// The numbers of connections and of requests to close, of the only session.
#[derive(Default, Debug)]
struct Scene {
    connections: watch::Sender<u32>,
    closed: watch::Sender<u32>,
    /// Breaks the connections up to that one.
    broken: watch::Sender<u32>,
}

/// Serves one connection: it accepts the session, answers reads never, and everything else that there is no such node.
async fn serve(scene: &Scene, mut stream: TcpStream) -> std::io::Result<()> {
    let length = stream.read_u32().await?;
    stream.read_exact(&mut vec![0; length as usize]).await?;
    let timeout = i32::try_from(TTL.as_millis()).expect("small").to_be_bytes();
    let answer =
        [&[0; 4][..], &timeout, &7_i64.to_be_bytes(), &16_i32.to_be_bytes(), &[1; 16], &[0]].concat();
    stream.write_u32(u32::try_from(answer.len()).expect("small")).await?;
    stream.write_all(&answer).await?;
    scene.connections.send_modify(|count| *count += 1);
    loop {
        let length = stream.read_u32().await?;
        let (number, code) = (stream.read_i32().await?, stream.read_i32().await?);
        stream.read_exact(&mut vec![0; length as usize - 8]).await?;
        if code == CLOSE {
            scene.closed.send_modify(|count| *count += 1);
        }
        if code != GET_DATA {
            let no_node = (-101_i32).to_be_bytes();
            let answer = [&16_i32.to_be_bytes()[..], &number.to_be_bytes(), &[0; 8], &no_node].concat();
            stream.write_all(&answer).await?;
        }
    }
}

async fn accept(scene: Arc<Scene>, listener: TcpListener) {
    for number in 1.. {
        let (stream, _) = listener.accept().await.expect("a connection");
        let scene = Arc::clone(&scene);
        tokio::spawn(async move {
            let mut broken = scene.broken.subscribe();
            tokio::select! {
                _ = serve(&scene, stream) => {}
                _ = broken.wait_for(|broken| *broken >= number) => {}
            }
        });
    }
}

async fn reaches(count: &watch::Sender<u32>, wanted: u32) {
    count.subscribe().wait_for(|count| *count >= wanted).await.expect("the scene lives");
}

/// The library resumes the session by itself while the claim's own task does not run, as on a busy host.
#[tokio::test]
async fn broken_connection_does_not_close_the_session() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let options =
        Options { endpoints: vec![listener.local_addr().expect("bound").to_string()], ..Options::default() };
    let scene = Arc::<Scene>::default();
    tokio::spawn(accept(Arc::clone(&scene), listener));

    let config = ZkConfig::parse(&options).expect("valid");
    let ensemble = Arc::new(Ensemble::new(config, Clock::Boot));
    let session = ensemble.session(TTL, Moment::NEVER).await.expect("a session");
    let names = vec!["a".parse().expect("valid")];
    let (id, mode, holder) = (ClaimId::from_number(1), Mode::Exclusive, Holder::default());
    let request =
        Request { names: names.clone(), id, mode, ttl: TTL, holder, ancestors: Vec::new(), supersede: false };
    let life = Arc::new(Life::new(&ensemble, &request, session, ensemble.clock.now()));
    let keys = vec![Key { order: 1, text: "entry".into() }];
    life.own.set(Own { id, names, mode, ttl: TTL, keys }).expect("not set");

    let mut connected = Box::pin(life.keep_connected());
    let begun = std::future::poll_fn(|context| Poll::Ready(connected.as_mut().poll(context))).await;
    assert!(begun.is_pending());
    scene.broken.send_replace(1);
    reaches(&scene.connections, 2).await;
    tokio::select! {
        () = connected => panic!("the session is over: {:?}", life.note()),
        () = reaches(&scene.closed, 1) => panic!("the session was closed"),
        () = reaches(&scene.connections, 3) => {}
    }
    assert_eq!(*scene.closed.borrow(), 0);
}
