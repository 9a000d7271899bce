//! The notifications of a service manager: their texts, and when the keeper lets the front send that it waits.

use std::time::Duration;

use super::settings::RunSettings;
use crate::clock;
use crate::lock::Moment;
use crate::output::live::place;
use crate::output::message::names;
use crate::supervise::channel::ToFront;
use crate::supervise::keeper::Keeper;
use crate::supervise::notify::{Notifier, Texts, address};

/// The time between two notifications of a wait.
const EVERY: Duration = Duration::from_secs(10);
/// The time that a notification adds to the manager's limit, in microseconds.
const EXTENSION: u64 = 30_000_000;

/// Returns the notifier of the front, if there is a service manager.
pub(super) fn notifier(settings: &RunSettings) -> Option<Notifier> {
    let address = address()?;
    let ready = settings.args.notify_ready;
    let subject = names(settings.names());
    let texts = Texts { waiting, started: started(&subject, ready), subject };
    Notifier::new(&address, texts, ready)
}

fn waiting(lock: &str, ahead: Option<u32>) -> String {
    let place = ahead.map_or_else(String::new, |ahead| format!(", {}", place(ahead, None)));
    format!("STATUS=waiting for {lock}{place}\nEXTEND_TIMEOUT_USEC={EXTENSION}\n")
}

fn started(lock: &str, ready: bool) -> String {
    let ready = if ready { "READY=1\n" } else { "" };
    format!("{ready}STATUS=running under {lock}\n")
}

/// The keeper's part. The front notifies at the beginning, when the place changes, and every ten seconds.
pub(super) struct Heartbeat<'a> {
    keeper: &'a Keeper<'a>,
    ahead: i32,
    /// When [`Heartbeat::tick`] is due.
    pub(super) next: Moment,
}

impl<'a> Heartbeat<'a> {
    /// Returns a heartbeat, if there is a service manager.
    pub(super) fn of(keeper: &'a Keeper<'a>) -> Option<Self> {
        address().map(|_| {
            let mut beat = Self { keeper, ahead: -1, next: Moment::NEVER };
            beat.tell();
            beat
        })
    }

    /// Notifies again, if it is time.
    pub(super) fn tick(&mut self) {
        if self.next <= clock::now() {
            self.tell();
        }
    }

    /// Notes the number of claims ahead.
    pub(super) fn waits(&mut self, ahead: Option<u32>) {
        let ahead = ahead.and_then(|ahead| i32::try_from(ahead).ok()).unwrap_or(-1);
        if std::mem::replace(&mut self.ahead, ahead) != ahead {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.keeper.tell(ToFront::Waiting { ahead: self.ahead }, &[]);
        self.next = clock::now() + EVERY;
    }
}
