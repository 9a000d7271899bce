//! The command line: arguments, settings, exit statuses, and one file for each subcommand.

mod acquire;
pub mod args;
pub mod break_;
pub mod completions;
pub mod config_file;
pub mod connect;
mod credentials;
pub mod doctor;
mod elect;
mod ending;
pub mod exit_code;
mod exposure;
pub mod holder;
pub mod layers;
pub mod leader;
pub mod list;
pub mod manual;
mod notify;
pub mod out;
pub mod page;
pub mod parse;
pub mod proclaim;
mod progress;
pub mod release;
mod run;
pub mod settings;
pub mod shell;
pub mod source;
pub mod status;
#[cfg(test)]
mod testing;
mod unreached;
mod unsupported;
pub mod usage;
pub mod values;
pub mod watch;

use std::ffi::OsString;
use std::path::Path;

use crate::clock;
use crate::lock::Moment;
use crate::output::writer::{self, BRIEF, NEVER};
use crate::output::{LogFormat, Message, Printer, Verbosity};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::sys;
use args::{Invocation, ManArgs};
use doctor::DoctorSettings;
pub use exit_code::{ExitCode, Failure};
use layers::Environment;
use out::{Out as _, OutputEnd, Stdout};
use page::Page;
use settings::{
    AcquireSettings, BreakSettings, ClaimSettings, LeaderSettings, ListSettings, ProclaimSettings,
    RunSettings, StatusSettings, Viewing, WatchSettings,
};

/// The program: does what `words`, the command line without the program's name, say, and ends the process as that ended.
pub fn main(words: Vec<OsString>) -> ! {
    let started = clock::now();
    sys::take_over();
    std::panic::set_hook(Box::new(defect));
    end(words, started).end_process()
}

/// A defect of dlock is one line and exit status 70, also in the keeper: the front then ends the command.
fn defect(info: &std::panic::PanicHookInfo<'_>) {
    let at = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    let (text, payload) = (info.payload().downcast_ref::<String>(), info.payload());
    let what = text.map(String::as_str).or(payload.downcast_ref().copied()).unwrap_or("panic");
    let message = Message::failed(format!("this is a defect in dlock: {what}{at}; please report it"));
    Printer::new(Verbosity::Normal, LogFormat::Human).print(&message);
    let _unread = writer::messages().finish(BRIEF);
    sys::exit_now(ExitCode::Defect.number())
}

/// Does what `words` say, which are without the program's own name. A failure is printed here, once, and
/// nowhere else.
fn end(words: Vec<OsString>, started: Moment) -> ExitStatus {
    // Until the settings are known, messages look as the words alone suggest.
    let mut printer = Printer::new(Verbosity::Normal, early_format(&words));
    // Nothing that is under a lock may depend on who reads what is said of it; the rest are ordinary programs.
    let runs = words.first().is_some_and(|word| word == "run" || word == "elect");
    let limit = if runs { BRIEF } else { NEVER };
    let acquires = words.first().is_some_and(|word| word == "acquire");
    let format = acquires.then(|| settings::early_format(&words));
    let done = parse::parse(words)
        .map_err(OutputEnd::from)
        .and_then(|invocation| dispatch(invocation, &mut printer, started));
    match done {
        Ok(outcome) => {
            // A run has said its last words where its lock ended, and who dies of a signal waits for no reader.
            if !runs && matches!(outcome, ExitStatus::Exited(_)) {
                let _unread = writer::messages().finish(limit);
            }
            outcome
        }
        // As any program that writes to a pipe which nobody reads.
        Err(OutputEnd::ReaderGone) => ExitStatus::Signaled(Signal::PIPE),
        Err(OutputEnd::Failed(failure)) => {
            printer.print(&failure.message);
            let _unread = writer::messages().finish(limit);
            // A script that evaluates what it is given is to stop; if that cannot be said, the status says it.
            if let Some(text) = format.map(|format| format.failure(failure.code)) {
                drop(Stdout::new().write(&text));
            }
            ExitStatus::Exited(failure.code)
        }
    }
}

fn early_format(words: &[OsString]) -> LogFormat {
    let flag = |pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json";
    // The words after `--` are the command's.
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    let json = own.windows(2).any(flag)
        || own.iter().any(|word| word == "--log-format=json")
        || std::env::var("DLOCK_LOG_FORMAT").is_ok_and(|format| format.trim_end() == "json");
    if json { LogFormat::Json } else { LogFormat::Human }
}

fn dispatch(invocation: Invocation, printer: &mut Printer, started: Moment) -> Result<ExitStatus, OutputEnd> {
    let env = Environment::real();
    let mut out = Stdout::new();
    let told = |printer: &mut Printer, viewing: &Viewing| {
        *printer = Printer::new(viewing.verbosity, viewing.log_format);
    };
    match invocation {
        Invocation::Run(args) => return begin(&RunSettings::resolve(&args, &env)?, printer, started),
        Invocation::Elect(args) => return begin(&RunSettings::of_election(&args, &env)?, printer, started),
        Invocation::Proclaim(args) => {
            let settings = ProclaimSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            proclaim::run(&settings)?;
        }
        Invocation::Leader(args) => {
            let settings = LeaderSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            return leader::run(&settings, &mut out, printer);
        }
        Invocation::Acquire(args) => {
            let settings = AcquireSettings::resolve(*args, &env)?;
            *printer = Printer::new(settings.run.verbosity, settings.run.log_format);
            return acquire::run(&settings, *printer, started, &mut out);
        }
        Invocation::Release(args) => {
            let settings = ClaimSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            release::release(&settings)?;
        }
        Invocation::Renew(args) => {
            let settings = ClaimSettings::resolve(&args.lease, &env)?;
            told(printer, &settings.viewing);
            release::renew(&settings)?;
        }
        Invocation::Status(args) => {
            let settings = StatusSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            return Ok(ExitStatus::Exited(status::run(&settings, &mut out, printer)?));
        }
        Invocation::List(args) => {
            let settings = ListSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            list::run(&settings, &mut out, printer)?;
        }
        Invocation::Watch(args) => {
            let settings = WatchSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            return watch::run(&settings, &mut out, printer);
        }
        Invocation::Doctor(args) => {
            let mut settings = DoctorSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            doctor::run(&mut settings, &mut out)?;
        }
        Invocation::Break(args) => {
            let settings = BreakSettings::resolve(&args, &env)?;
            told(printer, &settings.viewing);
            break_::run(&settings, &mut out)?;
        }
        Invocation::Completions(args) => {
            let shell = args.shell.ok_or_else(|| Failure::usage("SHELL is missing"))?;
            out.write(completions::script(shell))?;
        }
        Invocation::Man(args) => show_manual(&args, &mut out)?,
        Invocation::Complete(words) => out.write(&completions::answer(&words))?,
        Invocation::Text(text) => out.write(&text)?,
    }
    Ok(ExitStatus::Exited(0))
}

/// Runs a command under a lock.
fn begin(settings: &RunSettings, printer: &mut Printer, started: Moment) -> Result<ExitStatus, OutputEnd> {
    *printer = Printer::new(settings.verbosity, settings.log_format);
    printer.busy_is_success = settings.busy_exit_code == 0;
    Ok(run::run(settings, *printer, started)?)
}

fn show_manual(args: &ManArgs, out: &mut Stdout) -> Result<(), OutputEnd> {
    if let Some(directory) = &args.dir {
        return Ok(manual::write_all(Path::new(directory))?);
    }
    manual::show(args.page.as_deref().and_then(Page::named).unwrap_or(Page::Main), out)
}
