//! `dlock list`.

use super::connect;
use super::out::{self, Out};
use super::settings::ListSettings;
use crate::backend::Backend;
use crate::lock::LockStatus;
use crate::output::{Message, Printer, json, sanitise, status};

/// Shows the locks that have holders or waiters, sorted by name.
pub fn run(settings: &ListSettings, out: &mut dyn Out, printer: &Printer) -> anyhow::Result<()> {
    connect::block_on(async {
        let backend = connect::open(&settings.viewing.connection)?;
        show(&*backend, settings, out, printer).await
    })
}

async fn show(
    backend: &dyn Backend,
    settings: &ListSettings,
    out: &mut dyn Out,
    printer: &Printer,
) -> anyhow::Result<()> {
    let locks = connect::ask(|deadline| backend.list(&settings.starting_with, deadline)).await?;
    let service = out::service(backend);
    if settings.viewing.json {
        return out.write(&json::list(&locks, service.backend));
    }
    out.write(&status::list(&locks, &out.layout()))?;
    if locks.iter().all(LockStatus::is_empty) {
        let prefix = sanitise::text(&settings.starting_with);
        printer.print(&Message::NoLocks { prefix, service });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::{Page, Queues, queue, viewing};

    #[tokio::test]
    async fn only_names_with_the_prefix_are_listed() {
        let backend = Queues::new(vec![queue("a", 1, 0), queue("ab", 1, 1), queue("c", 1, 0)]);
        let mut settings = ListSettings { starting_with: "a".into(), viewing: viewing(true) };
        let mut page = Page::default();
        show(&backend, &settings, &mut page, &Printer::default()).await.expect("shown");
        let object: serde_json::Value = serde_json::from_str(&page.text).expect("an object");
        assert_eq!(object["locks"].as_array().map(Vec::len), Some(2));
        settings.viewing.json = false;
        let mut page = Page::default();
        show(&backend, &settings, &mut page, &Printer::default()).await.expect("shown");
        assert_eq!(page.text.lines().count(), 4);
    }
}
