//! `dlock list`.

use super::args::ListArgs;
use super::connect;
use super::out::{self, Out};
use super::settings::Connection;
use crate::backend::Backend;
use crate::lock::LockStatus;
use crate::output::{Message, Printer, json, sanitise, status};

/// Shows the locks that have holders or waiters, sorted by name.
pub fn run(
    args: &ListArgs,
    connection: &Connection,
    out: &mut dyn Out,
    printer: &Printer,
) -> anyhow::Result<()> {
    connect::block_on(async {
        let backend = connect::open(connection)?;
        show(&*backend, args, out, printer).await
    })
}

async fn show(
    backend: &dyn Backend,
    args: &ListArgs,
    out: &mut dyn Out,
    printer: &Printer,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::CommonArgs;
    use crate::cli::testing::{Page, Queues, queue};

    #[tokio::test]
    async fn only_names_with_the_prefix_are_listed() {
        let backend = Queues::new(vec![queue("a", 1, 0), queue("ab", 1, 1), queue("c", 1, 0)]);
        let common = CommonArgs::default();
        let mut args = ListArgs { starting_with: Some("a".into()), json: true, common };
        let mut page = Page::default();
        show(&backend, &args, &mut page, &Printer::default()).await.expect("shown");
        let object: serde_json::Value = serde_json::from_str(&page.text).expect("an object");
        assert_eq!(object["locks"].as_array().map(Vec::len), Some(2));
        args.json = false;
        let mut page = Page::default();
        show(&backend, &args, &mut page, &Printer::default()).await.expect("shown");
        assert_eq!(page.text.lines().count(), 4);
    }
}
