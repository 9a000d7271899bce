//! `dlock status`.

use super::args::StatusArgs;
use super::connect;
use super::exit_code::ExitCode;
use super::out::{self, Out};
use crate::backend::Backend;
use crate::lock::{Error, LockStatus};
use crate::output::status::Detail;
use crate::output::{Message, Printer, json, status};
use crate::supervise::exit_status::ExitStatus;

/// Shows the queues of the named locks, one after another, or of all locks.
pub async fn run(
    backend: &dyn Backend,
    args: &StatusArgs,
    out: &mut dyn Out,
    printer: Printer,
) -> anyhow::Result<ExitStatus> {
    let locks = look(backend, args).await?;
    let service = out::service(backend);
    let detail = if args.wide { Detail::Wide } else { Detail::Usual };
    for (n, lock) in locks.iter().enumerate() {
        if args.json {
            out.write(&json::status(lock, service.backend))?;
            continue;
        }
        let gap = if n > 0 { "\n" } else { "" };
        out.write(&status::lock(gap, lock, &service, detail, &out.layout()))?;
    }
    if locks.is_empty() && !args.json {
        printer.print(&Message::NoLocks { prefix: String::new(), service });
    }
    let is_busy = args.exit_code && locks.iter().any(|lock| !lock.is_empty());
    Ok(ExitStatus::Exited(if is_busy { ExitCode::Busy.number() } else { 0 }))
}

async fn look(backend: &dyn Backend, args: &StatusArgs) -> Result<Vec<LockStatus>, Error> {
    if args.names.is_empty() && args.named.is_empty() {
        return connect::ask(|deadline| backend.list("", deadline)).await;
    }
    let mut locks = Vec::new();
    for name in args.names.iter().chain(&args.named) {
        locks.push(connect::ask(|deadline| backend.inspect(name, deadline)).await?);
    }
    Ok(locks)
}
