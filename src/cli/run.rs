//! `dlock run`: the front's side, and the keeper's duty.

use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::bail;

use super::connect;
use super::elect::stands_again;
use super::ending::Ending;
use super::exit_code::{ExitCode, Failure};
use super::holder;
use super::notify::{Heartbeat, notifier};
use super::progress::ProgressPrinter;
use super::settings::RunSettings;
use crate::backend::service::Address;
use crate::backend::{Backend, Evict};
use crate::clock;
use crate::hold::{Adoption, HoldEnd, Job, Plan, Verdict, Wait, hold};
use crate::lock::{ClaimId, Holder, Verb};
use crate::output::message::names;
use crate::output::writer::{self, BRIEF};
use crate::output::{Message, Ms, Printer, Verbosity, file, metrics, sanitise};
use crate::supervise::channel::ToFront;
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::failure::CommandFate;
use crate::supervise::front::{Front, FrontEnd, WaitLimits};
use crate::supervise::keeper::{Keeper, KeeperSetup};
use crate::supervise::{inherited, sys};

/// The time limit to clean up after a keeper that died.
const CLEANING: Duration = Duration::from_secs(2);

/// The data of both processes.
pub(super) struct Run<'a> {
    pub(super) settings: &'a RunSettings,
    pub(super) printer: Printer,
    address: Box<dyn Address>,
    plan: Plan,
    /// The pause before the present campaign; `None` before the first.
    pause: Option<Duration>,
    /// The adopted process in the place of a command, if there is one.
    pub(super) adoption: Option<Adoption>,
}

/// Runs the command under the lock, and returns how dlock is to end. Takes over the signals of the process, so nothing else may
/// follow.
pub(super) fn run(settings: &RunSettings, printer: Printer) -> anyhow::Result<ExitStatus> {
    check_writable(settings)?;
    let mut run = Run::new(settings, printer)?;
    // The process ends soon, and its memory and descriptors with it.
    let mut front = ManuallyDrop::new(Front::new().map_err(refused)?);
    (front.starts_again, front.notifier) = (settings.forever, notifier(settings));
    run.supervise(&mut front)
}

/// Waits for the reader of the messages. Nothing is held any more.
fn last_words() {
    let _unread = writer::messages().finish(BRIEF);
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn refused(error: std::io::Error) -> anyhow::Error {
    ExitCode::System.error(format!("cannot start: {error}"))
}

/// Checks the files to write, before dlock asks for the lock.
fn check_writable(settings: &RunSettings) -> anyhow::Result<()> {
    let (report, metrics) = (&settings.args.report, &settings.args.metrics_file);
    if report == metrics && report.as_ref().is_some_and(|path| matches!(file::is_stream(path), Ok(false))) {
        bail!("--report and --metrics-file name the same file; give each its own");
    }
    let files = [("report", report), ("metrics file", metrics)];
    for (what, path) in files {
        if let Some(path) = path {
            if let Some(descriptor) = file::descriptor(path) {
                inherited::keep(descriptor);
            }
            file::check_writable(path).map_err(|error| {
                let path = path.display();
                ExitCode::CannotCreate.error(format!("cannot write the {what} to {path}: {error}"))
            })?;
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    /// Returns a run with these settings, of a command.
    pub(super) fn new(settings: &'a RunSettings, printer: Printer) -> anyhow::Result<Self> {
        let address = connect::locate(&settings.connection)?;
        Ok(Self { settings, printer, address, plan: settings.plan, pause: None, adoption: None })
    }

    /// The service.
    pub(super) fn backend(&self) -> Arc<dyn Backend> {
        self.address.backend()
    }

    /// Lets `front` fork a keeper, and watches the keeper until its end.
    pub(super) fn supervise(&mut self, front: &mut Front) -> anyhow::Result<ExitStatus> {
        loop {
            let patience = WaitLimits { gone_by: self.plan.gone_by(), stopped: self.plan.ttl };
            match front.supervise(patience, |setup| self.keep(setup)).map_err(refused)? {
                FrontEnd::Done(outcome) => return Ok(outcome),
                FrontEnd::Again(pause) => {
                    front.begin_again().map_err(refused)?;
                    self.plan.started = clock::now() + pause;
                    self.pause = Some(pause);
                }
                FrontEnd::Signaled(signal) => {
                    return Ok(self.conclude(&Ending::signaled(signal), None, false));
                }
                FrontEnd::KeeperFailed(failure) => {
                    // Processes that may still run stay under the lock: until the lease expires or, without one, until they end.
                    let is_over = front.is_over(failure.tree);
                    if is_over {
                        front.clean_up(CLEANING, |id| self.evict(id));
                    }
                    let kept = front.keeps_the_lock();
                    if kept && failure.tree.is_gone() {
                        self.printer.print(&Message::KeptByNested { lock: names(self.settings.names()) });
                    }
                    let ending = Ending::keeper_failed(self.settings, &*self.address, &failure, kept);
                    let began = failure.command != CommandFate::NotStarted;
                    let outcome = self.conclude(&ending, None, began);
                    if kept {
                        front.end_the_rest();
                    }
                    return Ok(outcome);
                }
            }
        }
    }

    /// Removes the claim of a keeper that is gone. At an unreachable service it ends with its TTL.
    fn evict(&self, number: u128) {
        let Ok(runtime) = connect::runtime() else { return };
        let backend = self.backend();
        let id = ClaimId::from_number(number);
        let by = holder::of_process(std::process::id(), self.settings.first_word.clone(), None);
        let deadline = clock::now() + CLEANING;
        connect::run_on(runtime, async {
            for name in self.settings.names() {
                // A claim is removed as a whole, but it may be on only some of the names.
                if matches!(backend.evict(name, id, Evict::Force, &by, deadline).await, Ok(true)) {
                    return;
                }
            }
        });
    }

    /// Runs the keeper. Does not return to the front's code.
    fn keep(&self, setup: KeeperSetup<'_>) {
        match connect::runtime() {
            Ok(runtime) => connect::run_on(runtime, self.keep_in_runtime(setup, self.backend())),
            Err(error) => self.printer.print(&Failure::from(&refused(error)).message),
        }
        last_words();
        // Without the clean-up of the runtime and of libc: there is nothing to save, and the front waits.
        sys::exit_now(ExitCode::System.number())
    }

    async fn keep_in_runtime(&self, setup: KeeperSetup<'_>, backend: Arc<dyn Backend>) {
        let keeper = match Keeper::settle(setup) {
            Ok(keeper) => keeper,
            Err(error) => return self.printer.print(&Failure::from(&refused(error)).message),
        };
        let word = match self.hold(&keeper, backend).await {
            Err(error) => Some(ToFront::Done(self.conclude(&Ending::failure(&error), None, false))),
            Ok(ended) => match ended.verdict {
                Verdict::Abandoned => None,
                Verdict::Suspended => Some(ToFront::Suspended),
                Verdict::LeftAlone => Some(ToFront::Done(ExitStatus::Exited(0))),
                _ => Some(self.conclude_or_begin_again(&ended)),
            },
        };
        last_words();
        if let Some(word) = word {
            keeper.tell(word, &[]);
        }
        sys::exit_now(0)
    }

    async fn hold(&self, keeper: &Keeper<'_>, backend: Arc<dyn Backend>) -> anyhow::Result<HoldEnd> {
        let settings = self.settings;
        if self.printer.verbosity == Verbosity::Verbose
            && let Some(hidden) = keeper.ender().table.as_ref().err()
        {
            self.printer.print(&Message::TreeHidden { reason: hidden.to_string() });
        }
        for name in settings.names() {
            // A name that is a path in other programs does not exclude them.
            if let Some((directory, file)) = self.address.path_meant(name) {
                let (directory, file) = (sanitise::os(directory.as_os_str()), sanitise::os(&file));
                let lock = sanitise::text(name.as_str());
                self.printer.print(&Message::PathAsName { lock, directory, file });
            }
        }
        let adoption = self.adoption.as_ref().map(Adoption::again).transpose().map_err(refused)?;
        let job = Job {
            backend: Arc::clone(&backend),
            names: settings.names().to_vec(),
            mode: settings.mode,
            holder: self.holder(keeper.start.front_pid),
            replace: settings.args.replace,
            once_per: settings.once_per(),
            no_nest: settings.args.no_nest,
            plan: self.plan,
            argv: settings.argv.clone(),
            adoption,
        };
        let waits = self.plan.wait != Wait::Once;
        let lock = names(settings.names());
        let service = connect::service(&*self.address);
        let asked_for_ttl = settings.connection.sources.find("ttl").is_some();
        let mut progress = ProgressPrinter::new(
            self.printer,
            lock,
            service,
            waits,
            keeper.start,
            self.plan.started,
            asked_for_ttl,
        );
        progress.heartbeat = Heartbeat::of(keeper);
        let ended = hold(&job, keeper, &mut progress).await.map_err(refused)?;
        progress.erase();
        Ok(ended)
    }

    /// Returns the holder: the process that users see and may signal.
    fn holder(&self, front: i32) -> Holder {
        let (pid, verb) = match &self.adoption {
            None => (front, Verb::Run),
            Some(adoption) => adoption.process.map_or((front, Verb::Detach), |pid| (pid, Verb::Acquire)),
        };
        let (command, label) = (self.settings.first_word.clone(), self.settings.label.clone());
        let replace = self.settings.args.replace;
        Holder { replace, verb, ..holder::of_process(u32::try_from(pid).unwrap_or_default(), command, label) }
    }

    /// Concludes the run, or begins it again. Returns the last word to the front.
    fn conclude_or_begin_again(&self, ended: &HoldEnd) -> ToFront {
        let ending = Ending::of(self.settings, &*self.address, ended);
        let outcome = self.conclude(&ending, Some(ended), ended.held.is_some());
        let Some(pause) = stands_again(self.settings, ended, self.pause) else {
            return ToFront::Done(outcome);
        };
        self.printer.print(&Message::StandsAgain {
            lock: names(self.settings.names()),
            held_ms: ended.held.map(Ms),
            pause_ms: Ms(pause),
        });
        ToFront::Again(pause)
    }

    /// Prints how the run ended, writes the report, and returns how dlock is to end. `held` is whether the lock was held: after a
    /// campaign in vain, the report of the last term stays.
    fn conclude(&self, ending: &Ending, ended: Option<&HoldEnd>, held: bool) -> ExitStatus {
        if let Some(message) = &ending.message {
            self.printer.print(message);
        }
        if let Some(message) = ended.and_then(|ended| self.finished(ended)) {
            self.printer.print(&message);
        }
        let backend = self.address.service().name;
        let told_of = held || self.pause.is_none();
        if told_of && (self.settings.args.report.is_some() || self.settings.args.metrics_file.is_some()) {
            let report = ending.report(self.settings, backend, ended);
            self.write(self.settings.args.report.as_deref(), "report", |path| report.write(path));
            self.write(self.settings.args.metrics_file.as_deref(), "metrics", |path| {
                metrics::write(&report, path, SystemTime::now())
            });
        }
        last_words();
        ending.outcome
    }

    /// Returns the message about a run that went well.
    fn finished(&self, ended: &HoldEnd) -> Option<Message> {
        let (Verdict::Ran(outcome), Some(held)) = (&ended.verdict, ended.held) else { return None };
        let outcome = match outcome {
            ExitStatus::Exited(status) => format!("exited {status}"),
            ExitStatus::Signaled(signal) => format!("died of {signal}"),
        };
        let lock = names(self.settings.names());
        Some(Message::Finished { lock, held_ms: Ms(held), outcome })
    }

    fn write(&self, path: Option<&Path>, what: &'static str, write: impl Fn(&Path) -> std::io::Result<()>) {
        let Some(path) = path else { return };
        if let Err(error) = write(path) {
            let (path, reason) = (path.display().to_string(), error.to_string());
            self.printer.print(&Message::NotWritten { what, path, reason });
        }
    }
}
