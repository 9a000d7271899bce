//! Standard output, for data.

use std::time::SystemTime;

use super::exit_code::{ExitCode, Failure};
use crate::backend::Backend;
use crate::lock::Error;
use crate::output::ServicePlace;
use crate::output::json;
use crate::output::printer::colour_wanted;
use crate::output::status::Layout;
use crate::output::writer;
use crate::supervise::sys;

/// Why a command that shows data ends early.
#[derive(Debug)]
pub enum OutputEnd {
    /// It failed.
    Failed(Failure),
    /// Whoever read its output has gone, as `head` does: no failure to tell.
    ReaderGone,
}

impl From<Failure> for OutputEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<anyhow::Error> for OutputEnd {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for OutputEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The service that `backend` is, for sentences.
pub fn service(backend: &dyn Backend) -> ServicePlace {
    let kind = backend.capabilities().backend;
    ServicePlace { backend: kind, place: backend.place(), remark: backend.remark() }
}

/// Where data goes.
pub trait Out {
    /// Writes all of `text` now.
    fn write(&mut self, text: &str) -> Result<(), OutputEnd>;
    /// Whether it takes a few words without waiting for whoever reads.
    fn has_room(&self) -> bool {
        true
    }
    /// How to lay out what is for people.
    fn layout(&self) -> Layout;
    /// The time `when`, for whoever reads it there.
    fn stamp(&self, when: SystemTime) -> String {
        json::time(when)
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Stdout {
    terminal: bool,
}

impl Stdout {
    /// The process's standard output.
    pub fn new() -> Self {
        Self { terminal: rustix::termios::isatty(rustix::stdio::stdout()) }
    }

    /// Whether people read it as it comes.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }
}

impl Default for Stdout {
    fn default() -> Self {
        Self::new()
    }
}

impl Out for Stdout {
    fn has_room(&self) -> bool {
        writer::has_room(rustix::stdio::stdout())
    }

    fn write(&mut self, text: &str) -> Result<(), OutputEnd> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // What was closed is /dev/null by now, which would take anything.
            let written = if sys::stream_was_closed(1) {
                Err(rustix::io::Errno::BADF)
            } else {
                rustix::io::write(rustix::stdio::stdout(), rest)
            };
            match written {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::PIPE) => return Err(OutputEnd::ReaderGone),
                Err(error) => {
                    let reason = format!("cannot write to standard output: {}", std::io::Error::from(error));
                    return Err(Failure::new(ExitCode::CannotCreate, reason).into());
                }
            }
        }
        Ok(())
    }

    fn layout(&self) -> Layout {
        let size =
            if self.terminal { rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok() } else { None };
        Layout {
            // A terminal that does not know its width says 0.
            width: size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0),
            colour: self.terminal && colour_wanted(),
            now: SystemTime::now(),
        }
    }

    /// By the clock on the wall on a terminal, in UTC for programs and files.
    fn stamp(&self, when: SystemTime) -> String {
        let local = if self.terminal { sys::local_time(when) } else { None };
        local.unwrap_or_else(|| json::time(when))
    }
}
