//! `dlock status`.

use super::connect;
use super::out::{Ended, Out};
use super::settings::StatusSettings;
use crate::backend::Backend;
use crate::output::{json, status};

/// Shows the lines of the named locks, one after another.
pub fn run(settings: &StatusSettings, out: &mut dyn Out) -> Result<(), Ended> {
    connect::block_on(async {
        let backend = connect::open(&settings.viewing.connection)?;
        show(&*backend, settings, out).await
    })
}

async fn show(backend: &dyn Backend, settings: &StatusSettings, out: &mut dyn Out) -> Result<(), Ended> {
    let kind = backend.capabilities().backend;
    for (n, name) in settings.names.iter().enumerate() {
        let line = backend.inspect(name, connect::deadline()).await?;
        if settings.viewing.json {
            out.write(&json::status(&line, kind))?;
            continue;
        }
        let gap = if n > 0 { "\n" } else { "" };
        out.write(&format!("{gap}{}", status::lock(&line, kind, &out.layout())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::{Lines, Page, line, viewing};

    #[tokio::test]
    async fn several_names_come_one_after_another() {
        let backend = Lines::new(vec![line("a", 1, 1)]);
        let names = ["b", "a"].map(|n| n.parse().expect("valid")).into();
        let mut settings = StatusSettings { names, viewing: viewing(false) };
        let mut page = Page::default();
        show(&backend, &settings, &mut page).await.expect("shown");
        assert!(
            page.text.starts_with("b (fake): free\n\na (fake): held, 1 waiting\n  STATE"),
            "{}",
            page.text
        );
        settings.viewing.json = true;
        let mut page = Page::default();
        show(&backend, &settings, &mut page).await.expect("shown");
        let locks: Vec<serde_json::Value> =
            page.text.lines().map(|l| serde_json::from_str(l).expect("an object a line")).collect();
        assert_eq!((&locks[0]["lock"], &locks[1]["lock"]), (&"b".into(), &"a".into()));
        assert_eq!(locks[1]["waiters"][0]["ahead"], 1);
    }

    #[tokio::test]
    async fn a_reader_that_has_gone_ends_it_quietly() {
        let settings = StatusSettings { names: vec!["a".parse().expect("valid")], viewing: viewing(true) };
        let mut page = Page { gone: true, ..Page::default() };
        let ended = show(&Lines::new(vec![]), &settings, &mut page).await;
        assert!(matches!(ended, Err(Ended::ReaderGone)));
    }
}
