//! `dlock doctor`.

use std::sync::Arc;

use futures_util::future::join_all;

use super::args::DoctorArgs;
use super::config_file;
use super::connect;
use super::exit_code::Failure;
use super::holder;
use super::layers::{Environment, Layers};
use super::out::{Out, OutputEnd};
use super::settings::{self, Viewing};
use super::source::{Resolved, Source};
use crate::backend::service::Address;
use crate::backend::trial::{self, Unshown};
use crate::backend::{Backend, Examination, Risk, Weight};
use crate::lock::{ClaimId, Error, ErrorKind};
use crate::net::passwords::without_passwords;
use crate::output::doctor::{Findings, Setting};
use crate::output::sanitise;
use crate::supervise::process_table::ProcessTable;
use crate::supervise::{limits, sys};

/// What holds where nobody says anything.
const DEFAULTS: [(&str, &str); 2] = [("ttl", "30s"), ("grace", "5s")];

/// `dlock doctor`.
#[derive(Debug)]
pub struct DoctorSettings {
    /// The configuration files that were read.
    pub files: Vec<String>,
    /// Every option that has a value.
    pub settings: Vec<Setting>,
    /// Whether only the tables are to be printed.
    pub schema: bool,
    /// Secrets that others may be able to read.
    pub doubts: Vec<Risk>,
    /// What is wrong with a configuration file that this user may not read.
    pub unread: Option<Failure>,
    /// The rest.
    pub viewing: Viewing,
}

impl DoctorSettings {
    /// Settles `args` with the environment and the configuration files.
    pub fn resolve(args: &DoctorArgs, around: &Environment) -> anyhow::Result<Self> {
        let (mut layers, unread) = Layers::load_readable(&args.common.connection, around)?;
        let (verbosity, log_format) = settings::messages(&mut layers, &args.common.messages)?;
        let connection = settings::connection(&mut layers, &args.common.connection)?;
        let mut settings = Vec::new();
        for option in config_file::KEYS.iter().copied().chain(["profile"]) {
            // Flags have been seen; the others may stand in the layers below.
            if layers.sources.find(option).is_none() {
                layers.texts(option, None)?;
            }
            settings.extend(setting(option, layers.sources.find(option)));
        }
        let files = layers.files().map(|path| sanitise::os(path.as_os_str())).collect();
        let viewing = Viewing { json: args.json, connection, verbosity, log_format };
        let doubts = layers.doubts;
        Ok(Self { files, settings, schema: args.schema, doubts, unread: unread.map(Failure::from), viewing })
    }

    /// Adds where the locks are, if nobody has said that.
    fn add_where(&mut self, address: &dyn Address) {
        let source = Source::Default.to_string();
        for (option, value) in [("endpoint", address.place()), ("backend", address.service().name.to_owned())]
        {
            if !self.settings.iter().any(|setting| setting.option == option) {
                self.settings.insert(0, Setting { option, value, source: source.clone() });
            }
        }
    }

    fn findings(&self, backend: &'static str, examination: Result<Examination, String>) -> Findings {
        Findings { backend, files: self.files.clone(), settings: self.settings.clone(), examination }
    }
}

fn setting(option: &'static str, found: Option<&Resolved>) -> Option<Setting> {
    let default = DEFAULTS.iter().find(|(known, _)| *known == option).map(|(_, value)| *value);
    let (value, source) = match found {
        Some(found) if option == "password" => ("(secret)".to_owned(), &found.source),
        Some(found) if option == "endpoint" => {
            let texts: Vec<String> = found.texts.iter().map(|text| without_passwords(text)).collect();
            (texts.join(" "), &found.source)
        }
        Some(found) => (found.texts.join(" "), &found.source),
        None => (default?.to_owned(), &Source::Default),
    };
    Some(Setting { option, value, source: source.to_string() })
}

/// Prints what was found; if the service could not be asked, that failure comes after it.
pub fn run(settings: &mut DoctorSettings, out: &mut dyn Out) -> Result<(), OutputEnd> {
    let address = connect::locate(&settings.viewing.connection)?;
    settings.add_where(&*address);
    if settings.schema {
        let none = || Failure::usage(format!("the backend {} has no tables", address.service().name));
        return out.write(&address.schema().ok_or_else(none)?);
    }
    if let Some(failure) = settings.unread.clone() {
        // Without it nothing says which service is meant.
        let error = Err(failure.message.to_string());
        show(&settings.findings(address.service().name, error), settings, out)?;
        return Err(failure.into());
    }
    connect::block_on(async {
        match connect::open(&settings.viewing.connection) {
            Ok(backend) => {
                let tries = async || try_out(&*address, &*backend).await;
                examine(&*backend, settings, tries, out).await
            }
            Err(failure) => {
                let error = Err(failure.message.to_string());
                show(&settings.findings(address.service().name, error), settings, out)?;
                Err(failure.into())
            }
        }
    })
}

/// Takes, renews and releases a lock of its own wherever a run may need one, and says where that fails.
///
/// In a directory nothing is made: its permissions are looked at instead.
async fn try_out(address: &dyn Address, backend: &dyn Backend) -> Vec<Risk> {
    if !backend.capabilities().leased {
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
    let is_told = |one: &Unshown| one.why.is_some() && failed.iter().any(|(place, _)| *place == one.place);
    let unshown: Vec<Risk> = unshown.into_iter().filter(|one| !is_told(one)).map(alternative).collect();
    failed.into_iter().map(|(place, error)| failed_trial(&place, error)).chain(unshown).collect()
}

fn alternative(Unshown { place, why }: Unshown) -> Risk {
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
    settings: &DoctorSettings,
    tries: impl AsyncFnOnce() -> Vec<Risk>,
    out: &mut dyn Out,
) -> Result<(), OutputEnd> {
    let mut found = backend.examine(connect::deadline()).await.map(with_this_host);
    // Where a look gets no answer, a lock would get none either, and its removal would be tried for long.
    if let Ok(found) = &mut found {
        found.risks.extend(tries().await);
        found.risks.extend_from_slice(&settings.doubts);
    }
    let kind = backend.capabilities().backend;
    let told = found.clone().map_err(|error| error.to_string());
    show(&settings.findings(kind, told), settings, out)?;
    found?;
    Ok(())
}

fn show(findings: &Findings, settings: &DoctorSettings, out: &mut dyn Out) -> Result<(), OutputEnd> {
    let text = if settings.viewing.json { findings.json() } else { findings.text(&out.layout()) };
    out.write(&text)
}

/// Adds what this host lacks.
fn with_this_host(mut found: Examination) -> Examination {
    // Where there is no descriptor to be had, nothing is known of /proc.
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
    use crate::cli::testing::{Page, Queues, viewing};

    fn resolved(option: &'static str, text: &str) -> Resolved {
        Resolved { option, texts: vec![text.to_owned()], source: Source::Environment("DLOCK_X".into()) }
    }

    #[test]
    fn secrets_are_only_said_to_be_there() {
        for (option, text, shown) in [
            ("password", "hunter2", "(secret)"),
            ("endpoint", "redis://u:hunter2@h", "redis://u:***@h"),
            ("endpoint", "redis://u@h", "redis://u@h"),
            ("user", "u", "u"),
        ] {
            let setting = setting(option, Some(&resolved(option, text))).expect("a value");
            assert_eq!((setting.value.as_str(), setting.source.as_str()), (shown, "DLOCK_X"));
        }
        assert_eq!(setting("ttl", None).map(|s| s.source), Some("default".into()));
        assert_eq!(setting("label", None), None);
    }

    #[tokio::test]
    async fn the_configuration_is_shown_also_if_the_service_cannot_be_asked() {
        let settings = DoctorSettings {
            files: Vec::new(),
            settings: setting("ttl", None).into_iter().collect(),
            schema: false,
            doubts: Vec::new(),
            unread: None,
            viewing: viewing(false),
        };
        let mut page = Page::default();
        let ended = examine(&Queues::new(vec![]), &settings, async || Vec::new(), &mut page).await;
        assert!(matches!(ended, Err(OutputEnd::Failed(_))));
        assert_eq!(page.text, "configuration\n  OPTION  VALUE  FROM\n  ttl     30s    default\n");
    }
}
