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
pub mod source;
pub mod status;
#[cfg(test)]
mod testing;
mod unreached;
pub mod usage;
pub mod values;
pub mod watch;

use std::ffi::OsString;

use rustix::io::Errno;

use crate::backend::Backend;
use crate::clock;
use crate::lock::Moment;
use crate::output::assignments::Format;
use crate::output::writer::{self, BRIEF, NEVER};
use crate::output::{LogFormat, Message, Printer, Verbosity};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::sys;
use args::{CommonArgs, Invocation};
use exit_code::{ExitCode, Failure};
use layers::Environment;
use out::{Out as _, Stdout};
use settings::{AcquireSettings, Connection, RunSettings};

/// Runs the program with `words`, the command line without the program's name, and ends the process.
pub fn main(words: Vec<OsString>) -> ! {
    let started = clock::now();
    sys::take_over();
    std::panic::set_hook(Box::new(defect));
    end(words, started).end_process()
}

/// Reports a defect of dlock in one line and exits 70. In the keeper too: the front then kills the command.
fn defect(info: &std::panic::PanicHookInfo<'_>) {
    let at = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    let (text, payload) = (info.payload().downcast_ref::<String>(), info.payload());
    let what = text.map(String::as_str).or(payload.downcast_ref().copied()).unwrap_or("panic");
    let message = Message::failed(format!("this is a defect in dlock: {what}{at}; please report it"));
    Printer::new(Verbosity::Normal, LogFormat::Human).print(&message);
    let _unread = writer::messages().finish(BRIEF);
    sys::exit_now(ExitCode::Defect.number())
}

/// Reports that the system refuses memory, and exits 71. Allocates nothing.
pub fn end_without_memory() -> ! {
    writer::without_memory("dlock: the system refused memory; is there a limit (ulimit -v)?\n");
    sys::exit_now(ExitCode::System.number())
}

/// Runs the program, and returns how the process is to end. Failures are printed here, once, and nowhere else.
fn end(words: Vec<OsString>, started: Moment) -> ExitStatus {
    // Until the settings are known, messages have the format that the words alone suggest.
    let log_format = early(&words, "--log-format").map(str::to_owned);
    let log_format = log_format.or_else(|| std::env::var("DLOCK_LOG_FORMAT").ok());
    let is_json = log_format.is_some_and(|format| format.trim_end() == "json");
    let log_format = if is_json { LogFormat::Json } else { LogFormat::Human };
    let env = Environment::real(Printer::new(Verbosity::Normal, log_format));
    // A command under a lock never depends on the reader of the messages. The other subcommands are ordinary programs.
    let runs = words.first().is_some_and(|word| word == "run" || word == "elect");
    let patience = if runs { BRIEF } else { NEVER };
    let acquires = words.first().is_some_and(|word| word == "acquire");
    let format = early(&words, "--format").and_then(Format::named).unwrap_or_default();
    match parse::parse(words).and_then(|invocation| dispatch(invocation, &env, started)) {
        Ok(outcome) => {
            // A run has finished its messages already, and a signal ends dlock at once.
            if !runs && matches!(outcome, ExitStatus::Exited(_)) {
                let _unread = writer::messages().finish(patience);
            }
            outcome
        }
        Err(error) if error.downcast_ref() == Some(&Errno::PIPE) => ExitStatus::Signaled(Signal::PIPE),
        Err(error) => {
            let Failure { code, message } = Failure::from(&error);
            env.printer.get().print(&message);
            let _unread = writer::messages().finish(patience);
            // A script that evaluates the output must stop. Where the output cannot be written, the exit status remains.
            if acquires {
                drop(Stdout::of_process().write(&format.failure(code.number())));
            }
            ExitStatus::Exited(code.number())
        }
    }
}

/// Returns the value that `words` give `option`, although they may have errors. The words after `--` belong to the command.
fn early<'w>(words: &'w [OsString], option: &str) -> Option<&'w str> {
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    let after = own.windows(2).filter(|pair| pair[0] == option).filter_map(|pair| pair[1].to_str());
    let joined = own.iter().filter_map(|word| word.to_str()?.strip_prefix(option)?.strip_prefix('='));
    after.chain(joined).last()
}

/// Runs one subcommand. Settings set the printer of `env` when they are resolved.
fn dispatch(invocation: Invocation, env: &Environment, started: Moment) -> anyhow::Result<ExitStatus> {
    let mut out = Stdout::of_process();
    let printer = || env.printer.get();
    match invocation {
        Invocation::Run(args) => return begin(&RunSettings::resolve(*args, env, started)?, printer()),
        Invocation::Elect(args) => return begin(&RunSettings::of_election(*args, env, started)?, printer()),
        Invocation::Acquire(args) => {
            return acquire::run(&AcquireSettings::resolve(*args, env, started)?, printer(), &mut out);
        }
        Invocation::Leader(args) => {
            return connect::until_signalled(&Connection::resolve(&args.common, env)?, async |at| {
                leader::run(at, &args, &mut out, printer()).await
            });
        }
        Invocation::Watch(args) => {
            return connect::until_signalled(&Connection::resolve(&args.common, env)?, async |at| {
                watch::run(at, &args, &mut out, printer()).await
            });
        }
        Invocation::Status(args) => {
            return at(&args.common, env, async |at| status::run(at, &args, &mut out, printer()).await);
        }
        Invocation::List(args) => {
            at(&args.common, env, async |at| list::run(at, &args, &mut out, printer()).await)?;
        }
        Invocation::Proclaim(args) => {
            at(&args.common, env, async |at| proclaim::run(at, &args.value).await)?;
        }
        Invocation::Release(args) => at(&args.common, env, async |at| release::release(at, &args).await)?,
        Invocation::Renew(args) => at(&args.common, env, async |at| release::renew(at, &args).await)?,
        Invocation::Break(args) => at(&args.common, env, async |at| break_::run(at, &args, &mut out).await)?,
        Invocation::Doctor(args) => doctor::run(&args, env, &mut out)?,
        Invocation::Completions(args) => out.write(completions::script(&args.shell))?,
        Invocation::Man(args) => manual::show(args.page.unwrap_or(page::PAGES[0]), &mut out)?,
        Invocation::Complete(words) => out.write(&completions::answer(&words))?,
        Invocation::Text(text) => out.write(&text)?,
    }
    Ok(ExitStatus::Exited(0))
}

/// Runs `work` with the backend that `common` and `env` name.
fn at<T>(
    common: &CommonArgs,
    env: &Environment,
    work: impl AsyncFnOnce(&dyn Backend) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let connection = Connection::resolve(common, env)?;
    connect::block_on(async { work(&*connect::open(&connection)?).await })
}

/// Runs a command under a lock.
fn begin(settings: &RunSettings, printer: Printer) -> anyhow::Result<ExitStatus> {
    let busy_is_success = settings.busy() == ExitStatus::Exited(0);
    run::run(settings, Printer { busy_is_success, ..printer })
}
