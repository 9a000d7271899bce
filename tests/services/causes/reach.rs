//! No server at the address, or a server of another protocol.

use super::NOTHING_TO_REACH;
use super::ports::{self, Full};
use super::scene::{Kind, Scene, Staged};
use crate::servers::{free_port, memcached, redis};

/// Stages an address with as many ports as `kind` has servers. `port` creates one and returns its number.
fn on<T: 'static>(kind: Kind, port: impl Fn() -> (T, u16)) -> Staged {
    if kind == Kind::File {
        return NOTHING_TO_REACH;
    }
    let made: Vec<(T, u16)> = (0..kind.servers()).map(|_| port()).collect();
    let ports: Vec<u16> = made.iter().map(|(_, port)| *port).collect();
    Scene::at(kind.at(&ports), made).staged()
}

pub(crate) fn refused(kind: Kind) -> Staged {
    on(kind, || ((), free_port()))
}

pub(crate) fn silent(kind: Kind) -> Staged {
    on(kind, ports::silent)
}

pub(crate) fn dropped(kind: Kind) -> Staged {
    on(kind, || {
        let full = Full::new();
        let port = full.port();
        (full, port)
    })
}

pub(crate) fn web(kind: Kind) -> Staged {
    on(kind, || ((), ports::web()))
}

/// Stages a Redis in the place of each service, and a memcached in the place of Redis.
pub(crate) fn other_service(kind: Kind) -> Staged {
    on(kind, || {
        let server = match kind {
            Kind::Redis | Kind::Redlock => memcached::start(),
            _ => redis::start(),
        };
        let port = server.port();
        (server, port)
    })
}
