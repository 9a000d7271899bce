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
pub fn locate(connection: &Connection) -> Result<locator::Address, Failure> {
    let address = address(connection)?;
    // A configuration file or an environment may serve a whole fleet.
    if !matches!(address, locator::Address::Redlock(_))
        && matches!(connection.sources.of("max-ttl"), Source::Flag(_))
    {
        let reason = "--max-ttl is of several independent Redis servers, and this is another service";
        return Err(
            Failure::usage(reason).hint("leave it out, or name three servers or more with --endpoint")
        );
    }
    Ok(address)
}

fn address(connection: &Connection) -> Result<locator::Address, Failure> {
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
