//! The one place that writes to standard error, and reports to standard output: always on a thread of its own.
//!
//! A reader may stop reading: Ctrl-S, a full pipe, a full socket. Then a write blocks. dlock must not make the stream
//! non-blocking, because the command shares its open file description. So texts are queued, and one thread writes them in order
//! and ends when the queue is empty. The queue is bounded: further lines are dropped and counted.
//!
//! A process that has such a thread must not fork: the front prints nothing before its last keeper is gone.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;

use crate::sync::locked;

/// The most bytes that wait. Failures may use as much again.
const ROOM: usize = 16 << 10;
/// The stack of the thread.
const STACK: usize = 128 << 10;

/// How long a stream may take nothing before dlock gives up, where a lock or a command may depend on this process.
pub const BRIEF: Duration = Duration::from_millis(100);
/// The patience of any other program.
pub const NEVER: Duration = Duration::MAX;
/// The longest wait for a reader that is only slow.
const SLOW: Duration = Duration::from_secs(1);
/// The longest wait for the thread of a stream that has room.
const STARVED: Duration = Duration::from_secs(5);

/// Writes to one stream.
pub struct Writer {
    stream: BorrowedFd<'static>,
    queue: Mutex<Queue>,
    moved: Condvar,
}

struct Queue {
    texts: VecDeque<String>,
    /// The number of dropped lines, and the line that reports it. It is written in their place.
    dropped: (u64, Option<String>),
    /// Whether the thread exists.
    writing: bool,
    /// When the thread last began a text or wrote a part of it.
    moved_at: Option<Instant>,
    failed: Option<Errno>,
}

static STDERR: Writer = Writer::to(stderr());
static STDOUT: Writer = Writer::to(rustix::stdio::stdout());

/// Returns the writer to standard error, for messages.
pub fn messages() -> &'static Writer {
    &STDERR
}

/// Returns the writer to standard output, for a report.
pub fn output() -> &'static Writer {
    &STDOUT
}

/// Returns whether standard error is a terminal.
pub fn is_terminal() -> bool {
    rustix::termios::isatty(stderr())
}

/// Returns the columns of the terminal that standard error is, if they are known.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

impl Writer {
    const fn to(stream: BorrowedFd<'static>) -> Self {
        let texts = VecDeque::new();
        let queue = Queue { texts, dropped: (0, None), writing: false, moved_at: None, failed: None };
        Self { stream, queue: Mutex::new(queue), moved: Condvar::new() }
    }

    /// Queues a line. Without room it drops the line, and `count` makes the line that reports how many were dropped. `urgent`
    /// lines have twice the room.
    pub fn line(&'static self, text: String, urgent: bool, count: impl FnOnce(u64) -> String) {
        let mut queue = locked(&self.queue);
        let room = if urgent { ROOM * 2 } else { ROOM };
        let waiting: usize = queue.texts.iter().map(String::len).sum();
        if waiting > 0 && waiting + text.len() > room {
            let dropped = queue.dropped.0 + 1;
            queue.dropped = (dropped, Some(count(dropped)));
        } else {
            let dropped = std::mem::take(&mut queue.dropped).1;
            queue.texts.extend(dropped);
            queue.texts.push_back(text);
        }
        self.start(&mut queue);
    }

    /// Queues a text, whatever waits: once, before the process ends.
    pub fn last(&'static self, text: String) {
        let mut queue = locked(&self.queue);
        queue.texts.push_back(text);
        self.start(&mut queue);
    }

    /// Queues a drawing of the present state, unless the stream has not taken the texts before it.
    pub fn draw(&'static self, drawing: String) {
        let mut queue = locked(&self.queue);
        if !queue.is_busy() {
            queue.texts.push_back(drawing);
            self.start(&mut queue);
        }
    }

    /// Waits until everything is written. Gives up after the stream took nothing for `patience`. Must be called before the process
    /// ends.
    ///
    /// Errors: `TimedOut` if texts are left, else the first error of the stream.
    pub fn finish(&'static self, patience: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut queue = locked(&self.queue);
        while queue.is_busy() {
            let idle = queue.moved_at.map_or(begun, |at| at.max(begun)).elapsed();
            // A stream with room waits for the thread, not for a reader.
            let has_room = has_room(self.stream);
            let longest = patience.max(if has_room { STARVED } else { SLOW });
            if (idle >= patience && !has_room) || begun.elapsed() >= longest {
                return Err(ErrorKind::TimedOut.into());
            }
            self.start(&mut queue);
            if queue.writing {
                let wait = patience.saturating_sub(idle).clamp(Duration::from_millis(1), SLOW);
                queue = self.moved.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
            } else if has_room {
                // The system refuses the thread, so this one writes.
                drop(queue);
                self.write_queue();
                queue = locked(&self.queue);
            } else {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        queue.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Starts the thread, unless it exists. Where the system refuses it, the texts stay queued.
    fn start(&'static self, queue: &mut Queue) {
        if !queue.writing && queue.is_busy() {
            queue.moved_at = Some(Instant::now());
            let thread = thread::Builder::new().stack_size(STACK);
            queue.writing = thread.spawn(move || self.write_queue()).is_ok();
        }
    }

    fn write_queue(&self) {
        let mut queue = locked(&self.queue);
        while let Some(text) = queue.texts.pop_front().or_else(|| std::mem::take(&mut queue.dropped).1) {
            queue.moved_at = Some(Instant::now());
            drop(queue);
            let mut rest = text.as_bytes();
            let mut failed = None;
            while !rest.is_empty() && failed.is_none() {
                match rustix::io::write(self.stream, rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        locked(&self.queue).moved_at = Some(Instant::now());
                        self.moved.notify_all();
                    }
                    Err(Errno::INTR) => {}
                    // Another process made the stream non-blocking.
                    Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], None)),
                    Err(error) => failed = Some(error),
                }
            }
            queue = locked(&self.queue);
            queue.failed = queue.failed.or(failed);
        }
        queue.writing = false;
        self.moved.notify_all();
    }
}

impl Queue {
    fn is_busy(&self) -> bool {
        self.writing || !self.texts.is_empty() || self.dropped.0 > 0
    }
}

/// Writes `text`, a few words, to standard error if it has room now. Allocates nothing.
pub fn without_memory(text: &str) {
    if has_room(stderr()) {
        let _unread = rustix::io::write(stderr(), text.as_bytes());
    }
}

/// Returns whether `stream` takes a few words without blocking.
pub fn has_room(stream: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&now)), Ok(1))
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
