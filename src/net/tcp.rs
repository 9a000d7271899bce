//! TCP connections to the first address of a host that answers.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

use super::socket::tend;

/// The time that an address has to answer before the next one is tried in parallel.
pub const STAGGER: Duration = Duration::from_millis(250);

/// How long data sent over a closed socket may still be delivered, and executed. Linux retransmits unacknowledged data
/// until 102.2 s after the first transmission (`tcp_orphan_retries`; measured: given up after 106 s). The rest is for
/// the network and the service.
pub const LATE: Duration = Duration::from_secs(120);

/// Connects to one address, with the options of [`tend`].
pub async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    tend(&stream)?;
    Ok(stream)
}

/// Connects to `port` of `host`, at the first of its addresses that answers. Literal addresses and `localhost` are not
/// looked up, because a lookup takes a thread.
///
/// Errors: the first one of any address, or that there is no address. If no address answers, it takes as long as the
/// system's timeout. Dropping the future closes all attempts.
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

/// Returns the first success of `attempts`, one for each address of a host. While one is silent, the next starts in
/// parallel, as in "Happy Eyeballs" (RFC 8305, section 5).
///
/// Errors: the first, once all have failed; `None` if there is no attempt. Dropping the future drops all started
/// attempts.
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
