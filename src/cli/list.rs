//! `dlock list`.

use super::args::ListArgs;
use super::connect;
use super::out::{self, Out};
use crate::backend::Backend;
use crate::lock::LockStatus;
use crate::output::{Message, Printer, json, sanitise, status};

/// Shows the locks that have holders or waiters, sorted by name.
pub async fn run(
    backend: &dyn Backend,
    args: &ListArgs,
    out: &mut dyn Out,
    printer: Printer,
) -> anyhow::Result<()> {
    let prefix = args.starting_with.as_deref().unwrap_or_default();
    let locks = connect::ask(|deadline| backend.list(prefix, deadline)).await?;
    let service = out::service(backend);
    if args.json {
        return out.write(&json::list(&locks, service.backend));
    }
    out.write(&status::list(&locks, &out.layout()))?;
    if locks.iter().all(LockStatus::is_empty) {
        let prefix = sanitise::text(prefix);
        printer.print(&Message::NoLocks { prefix, service });
    }
    Ok(())
}
