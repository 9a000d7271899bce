//! From a connection's settings to a backend.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::exit_code::{ExitCode, Failure};
use super::out::Ended;
use super::settings::Connection;
use super::source::Source;
use crate::backend::{Backend, locator};
use crate::clock;
use crate::lock::Moment;
use crate::output::sanitise;

/// How long a command that only looks gives the service to answer a request.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The deadline of a request sent now.
pub fn deadline() -> Moment {
    clock::now() + PATIENCE
}

/// The address that `connection` means.
///
/// Errors: usage, also for a flag that the backend has no use for. Elsewhere a value may be meant for another service:
/// one environment and one file serve a whole fleet.
pub fn locate(connection: &Connection) -> Result<locator::Address, Failure> {
    let address = parse(connection)?;
    let backend = address.backend();
    let flagged = |option: &&&str| matches!(connection.sources.of(option), Source::Flag(_));
    match useless(&address).iter().find(flagged) {
        None => Ok(address),
        Some(&option) => {
            let hint = match option {
                "max-ttl" => "leave it out, or name three independent Redis servers or more with --endpoint",
                _ => "leave it out, or say which service is meant with --backend or --endpoint",
            };
            let reason = format!("--{option} is given, and the backend {backend} has no use for it");
            Err(Failure::usage(reason).hint(hint))
        }
    }
}

/// The options that mean nothing to the service at `address`.
fn useless(address: &locator::Address) -> &'static [&'static str] {
    match address {
        locator::Address::File(_) => {
            &["user", "password-file", "cacert", "cert", "key", "tls-server-name", "zk-layout", "max-ttl"]
        }
        locator::Address::Zk(_) => &["allow-network-fs", "max-ttl"],
        locator::Address::Redlock(_) => &["zk-layout", "allow-network-fs"],
        _ => &["zk-layout", "allow-network-fs", "max-ttl"],
    }
}

fn parse(connection: &Connection) -> Result<locator::Address, Failure> {
    locator::parse(&connection.options).map_err(|error| {
        // Who wrote no option wants to know where the value comes from.
        let said = ["endpoint", "backend", "prefix"].map(|option| connection.sources.of(option)).into_iter();
        let elsewhere =
            said.filter(|s| !matches!(s, Source::Flag(_) | Source::Default)).map(ToString::to_string);
        let elsewhere: Vec<_> = elsewhere.collect();
        let failure = Failure::usage(sanitise::text(&error.to_string()));
        if elsewhere.is_empty() { failure } else { failure.hint(format!("see {}", elsewhere.join(", "))) }
    })
}

/// The backend that `connection` means; reaches for no network yet.
pub fn open(connection: &Connection) -> Result<Arc<dyn Backend>, Failure> {
    Ok(locator::open(&locate(connection)?)?)
}

/// A runtime of this thread.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Runs `work` on a runtime of this thread.
pub fn block_on(work: impl Future<Output = Result<(), Ended>>) -> Result<(), Ended> {
    match runtime() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Failure::new(ExitCode::System, format!("cannot make a runtime: {error}")).into()),
    }
}
