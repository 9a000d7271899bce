//! `dlock doctor`.

use std::sync::Arc;

use futures_util::future::join_all;

use super::args::DoctorArgs;
use super::config_file;
use super::connect;
use super::exit_code::{ExitCode, Failure};
use super::holder;
use super::layers::{Environment, Layers};
use super::out::Out;
use super::settings;
use super::source::Source;
use super::values;
use crate::backend::service::Address;
use crate::backend::trial::{self, Unshown};
use crate::backend::{Backend, Examination, Risk, Weight};
use crate::lock::{ClaimId, Error, ErrorKind};
use crate::net::passwords::without_passwords;
use crate::output::doctor::{Findings, Setting};
use crate::output::sanitise;
use crate::supervise::process_table::ProcessTable;
use crate::supervise::{limits, sys};

/// The defaults.
const DEFAULTS: [(&str, &str); 2] = [("ttl", "30s"), ("grace", "5s")];

/// Prints the findings. If the service could not be asked, returns that error after it.
pub fn run(args: &DoctorArgs, around: &Environment, out: &mut dyn Out) -> anyhow::Result<()> {
    let (mut layers, unread) = Layers::load_readable(&args.common.connection, around)?;
    settings::set_printer(&mut layers, &args.common.messages, around)?;
    let connection = settings::connection(&mut layers, &args.common.connection)?;
    let address = connect::locate(&connection)?;
    let backend = address.service().name;
    if args.schema {
        let none = || ExitCode::Usage.error(format!("the backend {backend} has no tables"));
        return out.write(&address.schema().ok_or_else(none)?);
    }
    let mut findings = Findings {
        backend,
        files: layers.files().map(|path| sanitise::os(path.as_os_str())).collect(),
        settings: all_settings(&mut layers, &*address)?,
        examination: Err(String::new()),
    };
    // The file that this user may not read may name another service.
    if let Some(error) = unread.or_else(|| check_durations(&mut layers).err()) {
        findings.examination = Err(Failure::from(&error).to_string());
        show(&findings, args.json, out)?;
        return Err(error);
    }
    connect::block_on(async {
        let backend = address.backend();
        let tries = async || [try_out(&*address, &*backend).await, layers.doubts].concat();
        examine(&*backend, findings, tries, args.json, out).await
    })
}

/// Checks the values that only other subcommands use.
fn check_durations(layers: &mut Layers) -> anyhow::Result<()> {
    layers.text("ttl", None)?.as_ref().map(values::ttl).transpose()?;
    for option in ["grace", "wait"] {
        layers.text(option, None)?.as_ref().map(values::length).transpose()?;
    }
    Ok(())
}

/// Returns every option that has a value, and where the locks are.
fn all_settings(layers: &mut Layers, address: &dyn Address) -> anyhow::Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for option in config_file::KEYS.iter().copied().chain(["profile"]) {
        settings.extend(setting(option, layers.texts(option, None)?));
    }
    for (option, value) in [("endpoint", address.place()), ("backend", address.service().name.to_owned())] {
        if !settings.iter().any(|setting| setting.option == option) {
            settings.insert(0, Setting { option, value: vec![value], source: Source::Default.to_string() });
        }
    }
    Ok(settings)
}

fn setting(option: &'static str, found: Option<(Vec<String>, Source)>) -> Option<Setting> {
    let default = DEFAULTS.iter().find(|(known, _)| *known == option).map(|(_, value)| *value);
    let (value, source) = match found {
        Some((_, source)) if option == "password" => (vec!["(secret)".to_owned()], source),
        Some((texts, source)) => {
            // Only an endpoint can have a password in it.
            let shown =
                |text: &String| if option == "endpoint" { without_passwords(text) } else { text.clone() };
            (texts.iter().map(shown).collect(), source)
        }
        None => (vec![default?.to_owned()], Source::Default),
    };
    Some(Setting { option, value, source: source.to_string() })
}

/// Acquires, renews and releases a lock at each node that a run may need, and returns the failures as risks.
///
/// Creates nothing in a directory: the permissions are checked instead.
async fn try_out(address: &dyn Address, backend: &dyn Backend) -> Vec<Risk> {
    if !backend.client().capabilities().leased {
        return Vec::new();
    }
    let deadline = connect::deadline();
    let holder = holder::invoker("dlock doctor".to_owned());
    let tried = async |backend: &dyn Backend, alternatives: &[(String, Arc<dyn Backend>)]| {
        let id = sys::random()
            .map(ClaimId::from_bytes)
            .map_err(|error| Error::new(ErrorKind::System, error.to_string()))?;
        let stem = format!("dlock-doctor-{id}").parse().map_err(|_| Error::nonsense("no name"))?;
        let mut unshown = Vec::new();
        for name in backend.everywhere(stem, deadline).await? {
            unshown.extend(trial::of(backend, &name, id, &holder, alternatives, deadline).await?);
        }
        Ok(unshown)
    };
    let alternatives = address.alternatives().into_iter().map(|one| (one.place(), one.backend()));
    let alternatives: Vec<_> = alternatives.collect();
    let whole = tried(backend, &alternatives).await;
    let each = address.each();
    let each = each.iter().map(|one| async { Some((one.place(), tried(&*one.backend(), &[]).await.err()?)) });
    let each: Vec<(String, Error)> = join_all(each).await.into_iter().flatten().collect();
    let (unshown, whole) = match whole {
        Ok(unshown) => (unshown, None),
        Err(error) => (Vec::new(), Some((address.place(), error))),
    };
    let failed = if each.is_empty() { whole.into_iter().collect() } else { each };
    // A trial of its own says more than that it cannot be asked.
    let is_told = |(place, why): &Unshown| why.is_some() && failed.iter().any(|(failed, _)| failed == place);
    let unshown: Vec<Risk> = unshown.into_iter().filter(|one| !is_told(one)).map(alternative).collect();
    failed.into_iter().map(|(place, error)| failed_trial(&place, error)).chain(unshown).collect()
}

fn alternative((place, why): Unshown) -> Risk {
    if let Some(error) = why {
        // A server that takes no writes now is passed over, as it should be.
        let weight = if error.reason.is_about_the_service() { Weight::Warning } else { Weight::Note };
        let (why, remedy) = error.reason.apart();
        let what = format!("cannot tell whether {place} is one service with the other endpoints: {why}");
        return Risk { weight, what, remedy };
    }
    let what = format!(
        "{place} does not show a lock that another endpoint has given: they are not one service, and two commands can run \
         under one lock"
    );
    Risk::warning(what, "name the servers of one service only")
}

fn failed_trial(place: &str, error: Error) -> Risk {
    let (why, remedy) = error.reason.apart();
    let what = format!("no lock could be taken, renewed and released at {place}: {why}");
    Risk { weight: Weight::Warning, what, remedy }
}

async fn examine(
    backend: &dyn Backend,
    mut findings: Findings,
    tries: impl AsyncFnOnce() -> Vec<Risk>,
    json: bool,
    out: &mut dyn Out,
) -> anyhow::Result<()> {
    let mut found = backend.examine(connect::deadline()).await.map(with_this_host);
    if let Ok(found) = &mut found {
        found.risks.extend(tries().await);
    }
    findings.examination = found.clone().map_err(|error| error.to_string());
    show(&findings, json, out)?;
    found?;
    Ok(())
}

fn show(findings: &Findings, json: bool, out: &mut dyn Out) -> anyhow::Result<()> {
    out.write(&if json { findings.json() } else { findings.text(&out.layout()) })
}

/// Adds the risks of this host.
fn with_this_host(mut found: Examination) -> Examination {
    // Without a free descriptor nothing is known of /proc.
    if let Ok(Err(hidden)) = ProcessTable::open() {
        let what = format!(
            "{hidden}: only the command and its process group can be ended, not descendants that have left it, and \
             dlock holds a lock until it is known that nothing is left"
        );
        found.risks.push(Risk::warning(what, "mount the /proc of this PID namespace"));
    }
    if let Some(lacks) = limits::emulation() {
        let what = format!("{lacks}: every run ends with 71");
        found.risks.push(Risk::warning(what, "use a dlock that was built for the architecture of this host"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_only_said_to_be_there() {
        for (option, text, shown) in [
            ("password", "hunter2", "(secret)"),
            ("endpoint", "redis://u:hunter2@h", "redis://u:***@h"),
            ("endpoint", "redis://u@h", "redis://u@h"),
            ("user", "u", "u"),
        ] {
            let found = (vec![text.to_owned()], Source::Environment("DLOCK_X".into()));
            let setting = setting(option, Some(found)).expect("a value");
            assert_eq!((setting.value, setting.source.as_str()), (vec![shown.to_owned()], "DLOCK_X"));
        }
        assert_eq!(setting("ttl", None).map(|s| s.source), Some("default".into()));
        assert_eq!(setting("label", None), None);
    }
}
