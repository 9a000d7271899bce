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
use crate::backend::service::Address;
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
pub fn locate(connection: &Connection) -> Result<Box<dyn Address>, Failure> {
    let address = parse(connection)?;
    let is_flag = |option: &str| matches!(connection.sources.of(option), Source::Flag(_));
    let useless = locator::useless(&*address).find(|option| is_flag(option.name));
    match useless {
        None => Ok(address),
        Some(option) => {
            let backend = address.service().name;
            let reason = format!("--{} is given, and the backend {backend} has no use for it", option.name);
            Err(Failure::usage(reason).hint(format!("leave it out, or {}", option.remedy)))
        }
    }
}

fn parse(connection: &Connection) -> Result<Box<dyn Address>, Failure> {
    locator::parse(&connection.options).map_err(|error| {
        // Whoever wrote no option wants to know where the value comes from.
        let said = error.about.iter().map(|option| connection.sources.of(option));
        let elsewhere: Vec<String> = said
            .filter(|source| !matches!(source, Source::Flag(_) | Source::Default))
            .map(ToString::to_string)
            .collect();
        let failure = Failure::usage(sanitise::text(&error.to_string()));
        if elsewhere.is_empty() { failure } else { failure.hint(format!("see {}", elsewhere.join(", "))) }
    })
}

/// The backend that `connection` means; reaches for no network yet.
pub fn open(connection: &Connection) -> Result<Arc<dyn Backend>, Failure> {
    Ok(locate(connection)?.open()?)
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
