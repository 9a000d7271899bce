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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::Failure;
    use crate::cli::testing::{Queues, queue};

    const CLAIM: &str = "abababababababababababababababab";

    fn seen(claim: &str, names: &str) -> anyhow::Result<Own> {
        let variable = |name: &str| match name {
            "DLOCK_CLAIM" => Some(claim.to_owned()),
            "DLOCK_NAMES" => Some(names.to_owned()),
            _ => None,
        };
        own(variable, Vec::new())
    }

    fn record(service: &str) -> HeldRecord {
        serde_json::from_str(&format!(
            r#"{{"service":"{service}","claim":"{CLAIM}","mode":"exclusive","names":["a"],"tokens":[1],"mark":null}}"#
        ))
        .expect("a record")
    }

    async fn outcome(own: Own) -> (Vec<String>, Option<Failure>) {
        let backend = Queues::new(vec![queue("a", 1, 1)]);
        let failure = proclaim(&backend, &own, "v").await.err().map(|error| Failure::from(&error));
        (backend.published(), failure)
    }

    #[tokio::test]
    async fn only_the_leader_proclaims() {
        let claims = queue("a", 1, 1);
        let [leads, waits] =
            [&claims.holders[0], &claims.waiters[0]].map(|entry| entry.claim.expect("a claim"));
        let names = || vec!["a".parse().expect("valid")];
        let own = |claim, record| Own { claim, names: names(), record };
        let (published, failure) = outcome(own(leads, Some(record("fake")))).await;
        assert_eq!((published, failure), (vec!["v".to_owned()], None));
        let (published, failure) = outcome(own(waits, None)).await;
        let said = failure.expect("it waits");
        assert_eq!((published.len(), said.code.number()), (0, 76));
        assert!(said.to_string().starts_with("claim 00000000 does not lead a (fake"), "{said}");
        let (published, failure) = outcome(own(waits, Some(record("other")))).await;
        assert_eq!((published.len(), failure.expect("elsewhere").code.number()), (0, 64));
        let (published, failure) = outcome(own(leads, Some(record("the same by another name")))).await;
        assert_eq!((published.len(), failure), (1, None));
    }

    #[tokio::test]
    async fn a_claim_on_some_of_the_names_proclaims_there() {
        let claim = queue("a", 1, 0).holders[0].claim.expect("a claim");
        let names: Vec<LockName> = ["b", "a"].map(|name| name.parse().expect("valid")).into();
        let own = Own { claim, names: names.clone(), record: Some(record("fake")) };
        assert_eq!(outcome(own).await, (vec!["v".to_owned()], None));
        let (published, failure) = outcome(Own { claim, names, record: None }).await;
        assert_eq!((published.len(), failure.expect("not known").code.number()), (0, 76));
    }

    #[test]
    fn claim_is_read_from_the_environment() {
        let own = seen(CLAIM, "a b\nc").expect("a claim");
        assert_eq!(own.claim.to_string(), CLAIM);
        assert_eq!(own.names.iter().map(LockName::as_str).collect::<Vec<_>>(), ["a b", "c"]);
        for (claim, names) in [("", "a"), ("x", "a"), (CLAIM, "")] {
            let error = seen(claim, names).err().expect("no claim");
            assert_eq!(Failure::from(&error).code, ExitCode::Usage);
        }
    }
}
