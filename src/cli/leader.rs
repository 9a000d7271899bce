//! `dlock leader`.

use super::args::LeaderArgs;
use super::connect;
use super::out::Out;
use super::settings::Connection;
use super::watch::follow;
use crate::backend::Backend;
use crate::election;
use crate::lock::{ClaimId, FencingToken, LockName, LockStatus};
use crate::output::{Printer, json, sanitise};
use crate::supervise::exit_status::ExitStatus;

/// Shows the value of the leader, or nothing without a leader. With `--follow` shows each change until a signal arrives.
pub fn run(
    args: &LeaderArgs,
    connection: &Connection,
    out: &mut dyn Out,
    printer: &Printer,
) -> anyhow::Result<ExitStatus> {
    connect::until_signalled(async {
        let backend = connect::open(connection)?;
        look(&*backend, args.election.lock(), (args.follow, args.json), out, printer).await
    })
}

async fn look(
    backend: &dyn Backend,
    name: &LockName,
    (follows, json): (bool, bool),
    out: &mut dyn Out,
    printer: &Printer,
) -> anyhow::Result<()> {
    let mut shown = Shown { json, any: false, last: None };
    if follows {
        let mut shown = |status: &LockStatus, _: &dyn Out| shown.text(status);
        return follow(backend, name, printer, out, &mut shown).await;
    }
    let status = connect::ask(|deadline| backend.inspect(name, deadline)).await?;
    out.write(&shown.text(&status))
}

/// The data that distinguish one leader from another.
type Leader = (Option<ClaimId>, Option<String>, Option<FencingToken>);

/// The output so far.
struct Shown {
    json: bool,
    /// Whether there was any, even about no leader.
    any: bool,
    last: Option<Leader>,
}

impl Shown {
    /// Returns the text about the leader of `status`, or nothing if it is unchanged.
    fn text(&mut self, status: &LockStatus) -> String {
        let leader = election::leader(status);
        // The bare line has no token: a token that arrives later must not repeat the line.
        let token = |entry: &crate::lock::Entry| entry.token.filter(|_| self.json);
        let seen = leader.map(|entry| (entry.claim, entry.label.clone(), token(entry)));
        if std::mem::replace(&mut self.any, true) && self.last == seen {
            return String::new();
        }
        self.last = seen;
        if self.json {
            return json::leader(leader);
        }
        let value =
            |leader: &crate::lock::Entry| sanitise::text(leader.label.as_deref().unwrap_or_default()) + "\n";
        leader.map(value).unwrap_or_default()
    }
}
