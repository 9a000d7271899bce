//! Refuses options that the service does not support, before dlock uses it.

use super::exit_code::ExitCode;
use super::settings::RunSettings;
use crate::backend::Capabilities;
use crate::backend::service::Address;
use crate::lock::Mode;

/// An option, whether it was given, the reason to refuse it, and whether a service supports it.
type Wish = (&'static str, bool, &'static str, fn(&Capabilities) -> bool);

/// Refuses options that the service at `address` does not support.
pub(super) fn refuse(settings: &RunSettings, address: &dyn Address) -> anyhow::Result<()> {
    let wishes: [Wish; 3] = [
        ("--shared", settings.mode == Mode::Shared, "has no shared locks", |can| can.shared),
        ("--supersede", settings.args.supersede, "keeps no queue of waiters", |can| can.queue),
        ("--replace", settings.args.replace, "keeps no queue of waiters", |can| can.queue),
    ];
    if wishes.iter().all(|(_, given, ..)| !given) {
        return Ok(());
    }
    let can = address.open().capabilities();
    let lacking = wishes.iter().find(|(_, given, _, has)| *given && !has(&can));
    lacking.map_or(Ok(()), |(option, _, why, _)| {
        Err(ExitCode::Usage.error(format!("{option}: {} {why}", address.place())))
    })
}
