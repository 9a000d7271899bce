//! Standard output, for data.

use std::time::SystemTime;

use futures_util::future::{BoxFuture, ready};
use rustix::io::Errno;

use super::exit_code::ExitCode;
use crate::backend::Backend;
use crate::output::ServicePlace;
use crate::output::printer::colour_wanted;
use crate::output::status::Layout;
use crate::output::writer;
use crate::supervise::sys;

/// Returns the service of `backend`, for messages.
pub fn service(backend: &dyn Backend) -> ServicePlace {
    let kind = backend.client().capabilities().backend;
    ServicePlace { backend: kind, place: backend.client().place(), remark: backend.client().remark() }
}

/// The destination of data.
pub trait Out {
    /// Writes all of `text`, and blocks as long as the reader does not read.
    ///
    /// Errors: `Errno::PIPE` if the reader has closed it, as `head` does. dlock dies of SIGPIPE then.
    fn write(&mut self, text: &str) -> anyhow::Result<()>;
    /// Writes all of `text` as [`Out::write`] does, but on a thread of its own: the program can take a signal meanwhile.
    fn stream(&mut self, text: String) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(ready(self.write(&text)))
    }
    /// Returns whether it takes a few words without blocking.
    fn has_room(&self) -> bool {
        true
    }
    /// Returns the layout of texts for people.
    fn layout(&self) -> Layout;
}

/// Standard output.
#[derive(Debug)]
pub struct Stdout {
    /// Whether it is a terminal.
    pub is_terminal: bool,
}

impl Stdout {
    /// Returns the standard output of this process.
    pub fn of_process() -> Self {
        Self { is_terminal: rustix::termios::isatty(rustix::stdio::stdout()) }
    }
}

impl Out for Stdout {
    fn has_room(&self) -> bool {
        writer::has_room(rustix::stdio::stdout())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        write_all(text)
    }

    fn stream(&mut self, text: String) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async { tokio::task::spawn_blocking(move || write_all(&text)).await? })
    }

    fn layout(&self) -> Layout {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().filter(|_| self.is_terminal);
        Layout {
            // A terminal of unknown width reports 0.
            width: size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0),
            colour: self.is_terminal && colour_wanted(),
            now: SystemTime::now(),
        }
    }
}

/// Writes all of `text` to standard output.
fn write_all(text: &str) -> anyhow::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // A stream that was closed is /dev/null by now, which would take all.
        let written = if sys::stream_was_closed(1) {
            Err(Errno::BADF)
        } else {
            rustix::io::write(rustix::stdio::stdout(), rest)
        };
        match written {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Err(Errno::PIPE.into()),
            Err(error) => {
                let reason = format!("cannot write to standard output: {}", std::io::Error::from(error));
                return Err(ExitCode::CannotCreate.error(reason));
            }
        }
    }
    Ok(())
}
