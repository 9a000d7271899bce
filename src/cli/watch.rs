//! `dlock watch`.

use std::time::Duration;

use super::args::WatchArgs;
use super::connect;
use super::out::{self, Out};
use crate::backend::{Backend, Observer};
use crate::lock::{Error, LockName, LockStatus};
use crate::output::status::Detail;
use crate::output::{Message, Printer, ServicePlace, json, status};

/// The time between two attempts to reach a lost service.
const AGAIN: Duration = Duration::from_secs(1);

/// Shows the queue of a lock now and after each change, until a signal arrives.
pub async fn run(
    backend: &dyn Backend,
    args: &WatchArgs,
    out: &mut dyn Out,
    printer: Printer,
) -> anyhow::Result<()> {
    let service = out::service(backend);
    let mut shown = |queue: &LockStatus, out: &dyn Out| shown(queue, &service, args.json, out);
    follow(backend, args.lock.lock(), printer, out, &mut shown).await
}

/// Writes the text that `shown` makes of the queue of `name`, now and after each change, until a permanent error. Reports an
/// outage once, and waits until it is over.
pub(super) async fn follow(
    backend: &dyn Backend,
    name: &LockName,
    printer: Printer,
    out: &mut dyn Out,
    shown: &mut dyn FnMut(&LockStatus, &dyn Out) -> String,
) -> anyhow::Result<()> {
    let (mut observer, mut last) = begin(backend, name).await?;
    let text = shown(&last, out);
    out.stream(text).await?;
    loop {
        let next = match observer.next().await {
            Ok(next) => next,
            Err(error) if error.is_transient() => {
                let error = Error { reason: error.reason.what(), ..error };
                printer
                    .print(&Message::Warned { reason: format!("{error}; trying again until interrupted") });
                let (again, next) = regain(backend, name).await?;
                observer = again;
                next
            }
            Err(error) => return Err(error.into()),
        };
        if next != last {
            let text = shown(&next, out);
            out.stream(text).await?;
            last = next;
        }
    }
}

pub(super) type Begun = (Box<dyn Observer>, LockStatus);

/// Starts an observer. An observer retries silently, so a request before it finds a service that cannot be used.
pub(super) async fn begin(backend: &dyn Backend, name: &LockName) -> Result<Begun, Error> {
    connect::ask(|deadline| backend.inspect(name, deadline)).await?;
    let observed = |_| async {
        let mut observer = backend.observe(name).await?;
        let first = observer.next().await?;
        Ok::<Begun, Error>((observer, first))
    };
    let begun = tokio::time::timeout(connect::PATIENCE, connect::ask(observed));
    begun.await.unwrap_or_else(|_| {
        let late = Error::unavailable(format!("{}: no answer in time", backend.client().place()));
        Err(late.during(backend.client().capabilities().backend, "watch the queue", Some(name)))
    })
}

async fn regain(backend: &dyn Backend, name: &LockName) -> Result<Begun, Error> {
    loop {
        tokio::time::sleep(AGAIN).await;
        match begin(backend, name).await {
            Err(error) if error.is_transient() => {}
            done => return done,
        }
    }
}

fn shown(queue: &LockStatus, service: &ServicePlace, as_json: bool, out: &dyn Out) -> String {
    if as_json {
        return json::status(queue, service.backend);
    }
    let layout = out.layout();
    let stamp = format!("{}  ", json::time(layout.now));
    status::lock(&stamp, queue, service, Detail::Usual, &layout)
}
