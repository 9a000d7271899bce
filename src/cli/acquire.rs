//! `dlock acquire`: leaves the pair of front and keeper behind and prints the claim.

use super::exit_code::{ExitCode, Failure, Hinted as _};
use super::out::Out;
use super::run::Run;
use super::settings::AcquireSettings;
use crate::hold::{Adoption, environment};
use crate::output::Printer;
use crate::output::writer::{self, BRIEF};
use crate::supervise::adopted::{Adopted, Unfit};
use crate::supervise::caller::{Answer, Caller, Side};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::front::Front;
use crate::supervise::sys;

/// Acquires the lock and prints the claim. Returns how this process is to end. The processes that keep the lock do not return.
pub(super) fn run(
    settings: &AcquireSettings,
    printer: Printer,
    out: &mut dyn Out,
) -> anyhow::Result<ExitStatus> {
    let open = |pid| Adopted::open(pid).map_err(|unfit| refused(pid, unfit));
    let process = settings.for_pid.map(open).transpose()?;
    let mut run = Run::new(&settings.run, printer)?;
    if process.is_none() {
        let backend = run.backend();
        if !backend.client().is_detachable() {
            let backend = backend.client().capabilities().backend;
            let reason = format!("--detach: {backend} as it is used here keeps no lease without a process");
            return Err(ExitCode::Usage.error(reason).hint("hold the lock for a process with --for-pid PID"));
        }
    }
    // Read before the fork, because it is blanked after it.
    let mut outer = environment::held();
    if let Some(pid) = settings.for_pid {
        outer.retain(|held| !held.is_over_for(pid));
    }
    match Caller::fork().map_err(|error| system(&error))? {
        Side::Caller(caller) => answer(settings, caller, out),
        Side::Front(caller) => {
            let answer = settings.format.writer();
            let adoption = Adoption { process: settings.for_pid, caller, outer, answer };
            run.adoption = Some(adoption);
            lead(&mut run, process)
        }
    }
}

/// Returns the error of a pair that ended before it knew that the claim was printed.
fn given_up() -> anyhow::Error {
    ExitCode::Lost.error("the lock was given up before the claim was printed".to_owned())
}

fn system(error: &std::io::Error) -> anyhow::Error {
    ExitCode::System.error(format!("cannot start the lock holder: {error}"))
}

fn refused(pid: i32, unfit: Unfit) -> anyhow::Error {
    let usage = |reason: String| ExitCode::Usage.error(format!("--for-pid {pid}: {reason}"));
    match unfit {
        Unfit::Gone => {
            usage("there is no such process".to_owned()).hint("in a shell script write --for-pid $$")
        }
        Unfit::Denied => {
            usage("dlock may not signal that process, so could not end it if the lock is lost".to_owned())
                .hint("run dlock as the user of that process")
        }
        Unfit::Hidden(reason) => {
            ExitCode::System.error(format!("--for-pid: what belongs to a process cannot be found: {reason}"))
        }
        Unfit::System(error) => ExitCode::System.error(format!(
            "--for-pid {pid}: cannot open a pidfd for the process (needs Linux 5.3): {error}"
        )),
    }
}

/// Runs the front, and ends its process.
fn lead(run: &mut Run<'_>, process: Option<Adopted>) -> ! {
    // A process with a claim in its environment counts as a process of that claim, and is killed with it.
    sys::blank_variable(c"DLOCK_CLAIM");
    sys::blank_variable(c"DLOCK_HELD");
    let led = Front::new().map_err(|error| system(&error)).and_then(|mut front| {
        front.stays_behind = true;
        front.ender.adopted = process;
        run.supervise(&mut front)
    });
    let outcome = led.unwrap_or_else(|error| {
        let failure = Failure::from(&error);
        run.printer.print(&failure.message);
        let _unread = writer::messages().finish(BRIEF);
        ExitStatus::Exited(failure.code.number())
    });
    outcome.end_process()
}

/// Waits for the answer of the pair, and prints it.
fn answer(settings: &AcquireSettings, mut caller: Caller, out: &mut dyn Out) -> anyhow::Result<ExitStatus> {
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
            return Err(given_up());
        }
        Answer::Unheard(error) => {
            caller.give_up();
            return Err(system(&error));
        }
        Answer::Signalled(signal) => {
            caller.give_up();
            let outcome = ExitStatus::Signaled(signal);
            // This process handles the signal, so the signal would not end it during a blocked write.
            if !out.has_room() {
                return Ok(outcome);
            }
            outcome
        }
        // Without an answer nothing is held.
        Answer::Ended(ExitStatus::Exited(0)) => return Err(given_up()),
        Answer::Ended(ExitStatus::Exited(status))
            if caller.was_asked && status == ExitCode::Lost.number() =>
        {
            return Err(given_up());
        }
        Answer::Ended(outcome) => {
            caller.unblock();
            outcome
        }
    };
    // The failure was printed, and its exit status counts.
    let _ = out.write(&settings.format.failure(outcome.in_shell()));
    Ok(outcome)
}
