//! `dlock proclaim`.

use super::connect;
use super::exit_code::{ExitCode, Hinted as _};
use super::out;
use crate::backend::Backend;
use crate::hold::environment::{self, HeldRecord};
use crate::lock::{ClaimId, LockName};
use crate::output::sanitise;

/// Changes the value of the claim of this process, if it leads.
pub async fn run(backend: &dyn Backend, value: &str) -> anyhow::Result<()> {
    let (claim, names) = own(&environment::held())?;
    proclaim(backend, claim, &names, value).await
}

/// Returns the claim in the variables of dlock, and its names. A nested run may have names of another claim too.
fn own(held: &[HeldRecord]) -> anyhow::Result<(ClaimId, Vec<LockName>)> {
    let [_, claim, _, _, _, names, ..] = environment::NAMES;
    let [claim, names] = [claim, names].map(|name| std::env::var(name).unwrap_or_default());
    let names = names.lines().filter_map(|name| name.parse().ok());
    let claim = claim.parse().ok();
    let record = held.iter().find(|record| claim.is_some() && record.claim() == claim);
    let is_own = |name: &LockName| record.is_none_or(|record| record.names.contains(&name.to_string()));
    let names: Vec<_> = names.filter(is_own).collect();
    let refused = || {
        ExitCode::Usage
            .error("not inside a claim: DLOCK_CLAIM and DLOCK_NAMES name none")
            .hint("call dlock proclaim from the command of dlock elect")
    };
    Ok((claim.filter(|_| !names.is_empty()).ok_or_else(refused)?, names))
}

async fn proclaim(
    backend: &dyn Backend,
    claim: ClaimId,
    names: &[LockName],
    value: &str,
) -> anyhow::Result<()> {
    for name in names {
        if !connect::ask(|deadline| backend.publish(name, claim, value, deadline)).await? {
            let (claim, lock) = (claim.to_string(), sanitise::text(name.as_str()));
            let place = out::service(backend);
            return Err(ExitCode::Lost.error(format!("claim {} does not lead {lock} ({place})", &claim[..8])));
        }
    }
    Ok(())
}
