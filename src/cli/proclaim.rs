//! `dlock proclaim`.

use super::connect;
use super::exit_code::{ExitCode, Hinted as _};
use super::out;
use super::settings::Connection;
use crate::backend::Backend;
use crate::hold::environment::{self, HeldRecord};
use crate::lock::{ClaimId, LockName};
use crate::output::sanitise;

/// The claim of this process, by its environment.
struct Own {
    claim: ClaimId,
    names: Vec<LockName>,
    /// The record of the outer dlock; `None` if the environment has none.
    record: Option<HeldRecord>,
}

/// Changes the value of the claim of this process, if it leads.
pub fn run(value: &str, connection: &Connection) -> anyhow::Result<()> {
    let own = own(|name| std::env::var(name).ok(), environment::held())?;
    connect::block_on(async {
        let backend = connect::open(connection)?;
        proclaim(&*backend, &own, value).await
    })
}

/// Returns the claim in the variables of dlock.
fn own(variable: impl Fn(&str) -> Option<String>, held: Vec<HeldRecord>) -> anyhow::Result<Own> {
    let [_, claim, _, _, _, names, ..] = environment::NAMES;
    let claim: Option<ClaimId> = variable(claim).and_then(|text| text.parse().ok());
    let names = variable(names).unwrap_or_default();
    let names: Vec<LockName> = names.lines().filter_map(|name| name.parse().ok()).collect();
    match claim {
        Some(claim) if !names.is_empty() => {
            let record = held.into_iter().find(|record| record.claim() == Some(claim));
            Ok(Own { claim, names, record })
        }
        _ => Err(ExitCode::Usage
            .error("not inside a claim: DLOCK_CLAIM and DLOCK_NAMES name none")
            .hint("call dlock proclaim from the command of dlock elect")),
    }
}

async fn proclaim(backend: &dyn Backend, own: &Own, value: &str) -> anyhow::Result<()> {
    for name in own.led() {
        if !connect::ask(|deadline| backend.publish(name, own.claim, value, deadline)).await? {
            return Err(own.does_not_lead(name, backend));
        }
    }
    Ok(())
}

impl Own {
    /// Returns the names of this claim. A run that is nested in a run of some of them has a claim of the outer run on the others.
    fn led(&self) -> impl Iterator<Item = &LockName> {
        let holds = |record: &HeldRecord, name| record.position(name).is_some();
        self.names.iter().filter(move |name| self.record.as_ref().is_none_or(|record| holds(record, name)))
    }

    /// Returns the error of a claim that was taken at another service, or does not lead.
    fn does_not_lead(&self, name: &LockName, backend: &dyn Backend) -> anyhow::Error {
        let place = out::service(backend);
        let (claim, lock) = (self.claim.to_string(), sanitise::text(name.as_str()));
        let reason = format!("claim {} does not lead {lock} ({place})", &claim[..8]);
        // One service can have several names, so the names are compared only now.
        let elsewhere = self.record.as_ref().is_some_and(|record| record.service != backend.identity());
        if elsewhere {
            let hint = "it was taken elsewhere: give the --backend, --endpoint and --prefix of dlock elect, or set them in \
                        the environment of both";
            return ExitCode::Usage.error(reason).hint(hint);
        }
        ExitCode::Lost.error(reason)
    }
}
