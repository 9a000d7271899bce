//! `dlock leader`.

use super::args::LeaderArgs;
use super::connect;
use super::out::Out;
use super::watch::follow;
use crate::backend::Backend;
use crate::election;
use crate::lock::{ClaimId, FencingToken, LockStatus};
use crate::output::{Printer, json, sanitise};

/// Shows the value of the leader, or nothing without a leader. With `--follow` shows each change until a signal arrives.
pub async fn run(
    backend: &dyn Backend,
    args: &LeaderArgs,
    out: &mut dyn Out,
    printer: Printer,
) -> anyhow::Result<()> {
    let name = args.election.lock();
    let mut shown = Shown { json: args.json, any: false, last: None };
    if args.follow {
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
