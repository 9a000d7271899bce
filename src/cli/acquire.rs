//! `dlock acquire`: leaves the pair of front and keeper behind and prints the claim.

use super::exit_code::{ExitCode, Failure};
use super::out::{Out, OutputEnd};
use super::run::Run;
use super::settings::{AcquireSettings, Beneficiary};
use crate::backend::Backend;
use crate::hold::{Adoption, environment};
use crate::lock::Moment;
use crate::output::Printer;
use crate::output::writer::{self, Limit};
use crate::supervise::adopted::{Adopted, Unfit};
use crate::supervise::caller::{Answer, Caller, Side};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::front::Front;
use crate::supervise::sys;

/// Acquires the lock and prints the claim; returns how this process is to end. The processes that go on with the lock
/// do not return.
pub(super) fn run(
    settings: &AcquireSettings,
    printer: Printer,
    started: Moment,
    out: &mut dyn Out,
) -> Result<ExitStatus, OutputEnd> {
    let process = match settings.beneficiary {
        Beneficiary::Process(pid) => Some(Adopted::open(pid).map_err(|unfit| refused(pid, unfit))?),
        Beneficiary::Nobody => None,
    };
    let mut run = Run::new(&settings.run, printer, started)?;
    if process.is_none() {
        let backend = run.backend();
        if !backend.is_detachable() {
            return Err(not_detachable(&*backend).into());
        }
    }
    // Read here, since it is blanked behind the fork.
    let mut outer = environment::held();
    if let Beneficiary::Process(pid) = settings.beneficiary {
        outer.retain(|held| !held.is_over_for(pid));
    }
    match Caller::fork().map_err(|error| system(&error))? {
        Side::Caller(caller) => answer(settings, caller, out),
        Side::Front(caller) => {
            let pid = process.as_ref().map(Adopted::pid);
            let answer = settings.format.writer();
            let adoption = Adoption { process: pid, caller, outer, answer };
            run.adoption = Some(adoption);
            lead(&mut run, process)
        }
    }
}

/// The sentence on a service where a hold ends with its process.
fn not_detachable(backend: &dyn Backend) -> Failure {
    let backend = backend.capabilities().backend;
    let reason = format!("--detach: the backend {backend} keeps no lease without a process");
    Failure::usage(reason).hint("hold the lock for a process with --for-pid PID")
}

/// The pair has ended before it could know that the claim was printed.
fn given_up() -> Failure {
    Failure::new(ExitCode::Lost, "the lock was given up before the claim was printed".to_owned())
}

fn system(error: &std::io::Error) -> Failure {
    Failure::new(ExitCode::System, format!("cannot start the lock holder: {error}"))
}

fn refused(pid: i32, unfit: Unfit) -> Failure {
    let usage = |reason: String| Failure::usage(format!("--for-pid {pid}: {reason}"));
    match unfit {
        Unfit::Gone => {
            usage("there is no such process".to_owned()).hint("in a shell script write --for-pid $$")
        }
        Unfit::Denied => {
            usage("dlock may not signal that process, so could not end it if the lock is lost".to_owned())
                .hint("run dlock as the user of that process")
        }
        Unfit::Hidden(reason) => Failure::new(
            ExitCode::System,
            format!("--for-pid: what belongs to a process cannot be found: {reason}"),
        ),
        Unfit::System(error) => Failure::new(
            ExitCode::System,
            format!("--for-pid {pid}: cannot open a pidfd for the process (needs Linux 5.3): {error}"),
        ),
    }
}

/// The life of the front; it ends the process.
fn lead(run: &mut Run<'_>, process: Option<Adopted>) -> ! {
    // Others take who has a claim in its environment for a process of that claim's, to be ended with it.
    sys::blank_variable(c"DLOCK_CLAIM");
    sys::blank_variable(c"DLOCK_HELD");
    let led = Front::new().map_err(|error| system(&error)).and_then(|mut front| {
        front.stay_behind();
        if let Some(process) = process {
            front.adopt(process);
        }
        run.supervise(&mut front)
    });
    let outcome = led.unwrap_or_else(|failure| {
        run.printer.print(&failure.message);
        let _unread = writer::messages().finish(Limit::Brief);
        ExitStatus::Exited(failure.code)
    });
    outcome.end_process()
}

/// Waits for the pair, and prints what it has to say.
fn answer(
    settings: &AcquireSettings,
    mut caller: Caller,
    out: &mut dyn Out,
) -> Result<ExitStatus, OutputEnd> {
    let outcome = match caller.await_answer() {
        Answer::Held(text) => {
            caller.unblock();
            if let Err(ended) = out.write(&text) {
                caller.give_up();
                return Err(ended);
            }
            if caller.done().is_ok() {
                return Ok(ExitStatus::Exited(0));
            }
            return Err(given_up().into());
        }
        Answer::Unheard(error) => {
            caller.give_up();
            return Err(system(&error).into());
        }
        Answer::Signalled(signal) => {
            caller.give_up();
            let outcome = ExitStatus::Signaled(signal);
            // The signal is taken and would end this process no more, should nobody read.
            if !out.has_room() {
                return Ok(outcome);
            }
            outcome
        }
        // Nothing was said, so nothing is held.
        Answer::Ended(ExitStatus::Exited(0)) => return Err(given_up().into()),
        Answer::Ended(ExitStatus::Exited(status))
            if caller.was_asked() && status == ExitCode::Lost.number() =>
        {
            return Err(given_up().into());
        }
        Answer::Ended(outcome) => {
            caller.unblock();
            outcome
        }
    };
    let status = match outcome {
        ExitStatus::Exited(status) => status,
        ExitStatus::Signaled(signal) => u8::try_from(128 + signal.number()).unwrap_or(255),
    };
    // The failure itself was told, and is what counts.
    let _ = out.write(&settings.format.failure(status));
    Ok(outcome)
}
