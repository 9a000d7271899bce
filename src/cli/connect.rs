//! Opens the backend of a connection's settings.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use signal_hook_tokio::Signals;
use tokio::runtime::{Builder, Runtime};

use super::exit_code::{ExitCode, Hinted as _};
use super::settings::Connection;
use super::source::Source;
use crate::backend::service::Address;
use crate::backend::{Backend, locator};
use crate::clock;
use crate::lock::{self, Moment};
use crate::output::{ServicePlace, sanitise};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::sys;

/// The time limit of a request of a command without a claim.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the deadline of a request that is sent now.
pub fn deadline() -> Moment {
    clock::now() + PATIENCE
}

/// Makes a request, and repeats it once after a transient error: after a broken connection, the next one may lead to another
/// server.
///
/// The request must be safe to repeat: the first one may have taken effect although its answer was lost.
pub async fn ask<T, F>(request: impl Fn(Moment) -> F) -> lock::Result<T>
where
    F: Future<Output = lock::Result<T>>,
{
    let deadline = deadline();
    match request(deadline).await {
        Err(error) if error.is_transient() && clock::now() < deadline => request(deadline).await,
        done => done,
    }
}

/// Returns the address of `connection`.
///
/// Errors: usage. A flag that the backend does not support is an error. A variable or a key of a file is not: one environment and
/// one file serve many hosts.
pub fn locate(connection: &Connection) -> anyhow::Result<Box<dyn Address>> {
    let address = locator::parse(&connection.options).map_err(|error| {
        // A value from elsewhere than the command line needs its source.
        let is_known =
            connection.options.backend.as_deref().is_none_or(|name| locator::by_name(name).is_ok());
        let at_fault = if is_known { &["endpoint", "backend", "prefix"][..] } else { &["backend"] };
        let said = at_fault.iter().map(|option| connection.sources.of(option));
        let elsewhere: Vec<String> = said
            .filter(|source| !matches!(source, Source::Flag(_) | Source::Default))
            .map(ToString::to_string)
            .collect();
        let text = sanitise::text(&error);
        if elsewhere.is_empty() {
            return ExitCode::Usage.error(text);
        }
        let see = format!("see {}", elsewhere.join(", "));
        match text.rsplit_once("; ").filter(|(_, advice)| advice.ends_with('?')) {
            Some((reason, question)) => {
                ExitCode::Usage.error(reason.to_owned()).hint(format!("{question} {see}"))
            }
            None => ExitCode::Usage.error(text).hint(see),
        }
    })?;
    let is_flag = |option: &str| matches!(connection.sources.of(option), Source::Flag(_));
    let useless = locator::useless(&*address).find(|option| is_flag(option));
    match useless {
        None => Ok(address),
        Some(option) => {
            let backend = address.service().name;
            let reason = format!("--{option} is given, and the backend {backend} has no use for it");
            Err(ExitCode::Usage
                .error(reason)
                .hint("leave it out, or name its service with --backend or --endpoint"))
        }
    }
}

/// Returns the service at `address`, for messages.
pub fn service(address: &dyn Address) -> ServicePlace {
    ServicePlace { backend: address.service().name, place: address.place(), remark: String::new() }
}

/// Returns the backend of `connection`. Does not use the network yet.
pub fn open(connection: &Connection) -> anyhow::Result<Arc<dyn Backend>> {
    Ok(locate(connection)?.backend())
}

/// Returns a runtime of this thread.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Runs `work` on `runtime`, and ends the runtime. It does not wait for threads that are left: the system may look up a host's
/// address for ten seconds and more, and cannot be interrupted.
pub fn run_on<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    // Boxed, the work of all subcommands shares one compiled loop.
    let done = runtime.block_on(work.boxed_local());
    runtime.shutdown_background();
    done
}

/// Runs `work` on a runtime of this thread.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_on(runtime().map_err(refused)?, work)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn refused(error: io::Error) -> anyhow::Error {
    ExitCode::System.error(format!("cannot start the runtime: {error}"))
}

/// The time limit to close the sessions of a service.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs `work` with the backend of `connection` until it ends or a signal arrives, and returns how the process is to end. The
/// session of the service is closed first: the server would keep it until its TTL. A signal that was ignored from the start stays
/// ignored.
pub fn until_signalled(
    connection: &Connection,
    work: impl AsyncFnOnce(&dyn Backend) -> anyhow::Result<()>,
) -> anyhow::Result<ExitStatus> {
    let work = async { work(&*open(connection)?).await };
    let runtime = runtime().map_err(refused)?;
    let heard =
        [Signal::INT, Signal::TERM, Signal::HUP].into_iter().filter(|signal| !sys::is_ignored(*signal));
    let ended = runtime.block_on(async {
        let signals = Signals::new(heard.map(Signal::number)).map_err(refused)?;
        let mut told = signals.filter_map(async |number| Signal::new(number)).boxed_local();
        tokio::select! {
            biased;
            Some(signal) = told.next() => Ok(ExitStatus::Signaled(signal)),
            ended = work => ended.map(|()| ExitStatus::Exited(0)),
        }
    });
    // The clients of services close their sessions in tasks of their own when `work` is dropped. tokio reports the end of a task only
    // to its owner, so the number of tasks is polled.
    let closed = async {
        while runtime.metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // A session that is still open ends with its TTL.
    let _late = runtime.block_on(async { tokio::time::timeout(CLOSING, closed).await });
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::lock::{Error, ErrorKind};

    /// Returns the answer after errors of the first requests, and the number of requests.
    async fn asked(first: &[ErrorKind]) -> (lock::Result<usize>, usize) {
        let times = Cell::new(0);
        let answer = ask(|_| {
            let at = times.replace(times.get() + 1);
            let failed = first.get(at).map(|kind| Error::new(*kind, "the connection broke"));
            async move { failed.map_or(Ok(at), Err) }
        });
        (answer.await, times.get())
    }

    #[tokio::test]
    async fn transient_request_failure_is_retried_once() {
        assert!(matches!(asked(&[]).await, (Ok(0), 1)));
        assert!(matches!(asked(&[ErrorKind::Unavailable]).await, (Ok(1), 2)));
        assert!(matches!(asked(&[ErrorKind::Unavailable; 3]).await, (Err(_), 2)));
        assert!(matches!(asked(&[ErrorKind::Corrupt]).await, (Err(_), 1)));
    }
}
