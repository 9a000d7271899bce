//! What is asked for that the service cannot do: told before it is asked for anything.

use super::exit_code::ExitCode;
use super::settings::RunSettings;
use crate::backend::Capabilities;
use crate::backend::service::Address;
use crate::lock::Mode;

/// An option, whether it was given, what it takes, and whether a service has that.
type Wish = (&'static str, bool, &'static str, fn(&Capabilities) -> bool);

/// Refuses what the service at `address` cannot do.
pub(super) fn refuse(settings: &RunSettings, address: &dyn Address) -> anyhow::Result<()> {
    let wishes: [Wish; 3] = [
        ("--shared", settings.mode == Mode::Shared, "has no shared locks", |can| can.shared),
        ("--supersede", settings.supersede, "keeps no queue of those who wait", |can| can.queue),
        ("--replace", settings.replace, "keeps no queue of those who wait", |can| can.queue),
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
