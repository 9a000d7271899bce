//! Connections over TCP to a host, whichever of its addresses answers.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

use super::socket::tend;

/// How long an address of several has to answer before the next one is tried beside it.
pub const STAGGER: Duration = Duration::from_millis(250);

/// For how long what was sent over a socket that is closed may still be delivered, and done: Linux sends again what nobody has
/// acknowledged until 102.2 s after it was first sent (`tcp_orphan_retries`; measured: given up after 106 s). The rest is for the
/// way and for the service.
pub const LATE: Duration = Duration::from_secs(120);

/// Connects to one address, as [`connect`] does.
pub async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    tend(&stream)?;
    Ok(stream)
}

/// Connects to `port` of `host`, at the first of its addresses that answers. Without asking the system for what needs no asking:
/// that takes a thread.
///
/// Errors: the first that an address gave, or that there is none. Takes as long as the system does where none answers; dropping the
/// future closes what was begun.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            own.map(|address| SocketAddr::new(address, port)).to_vec()
        }
        Err(_) => lookup_host((host, port)).await?.collect(),
    };
    let connected = first_of(addresses.into_iter().map(connect_to)).await;
    connected.unwrap_or_else(|| Err(io::Error::other("the host has no address")))
}

/// The first success of `attempts`, one for each address of a host: while one is silent the next is begun beside it, as in "Happy
/// Eyeballs" (RFC 8305, section 5).
///
/// Errors: the first, once all have failed; `None` if there is no attempt. Dropping the future drops those that were begun.
pub async fn first_of<T, E>(
    attempts: impl IntoIterator<Item = impl Future<Output = Result<T, E>>>,
) -> Option<Result<T, E>> {
    let mut left = attempts.into_iter();
    let mut begun = Vec::new();
    let mut failure = None;
    loop {
        let next = left.next();
        let more = next.is_some();
        begun.extend(next.map(Box::pin));
        if begun.is_empty() {
            return failure.map(Err);
        }
        tokio::select! {
            biased;
            (answer, at, _) = select_all(&mut begun) => match answer {
                Ok(done) => return Some(Ok(done)),
                Err(error) => {
                    drop(begun.swap_remove(at));
                    failure.get_or_insert(error);
                }
            },
            () = sleep(STAGGER), if more => {}
        }
    }
}
