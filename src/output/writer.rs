//! The one place that writes to standard error, and a report to standard output: never on the calling thread.
//!
//! Whoever reads a stream may stop reading: Ctrl-S, a full pipe, a full socket. A write then waits, and must not be
//! made not to: the open file description is the command's, too. So what is said is queued, a thread writes it in
//! order, and ends when there is nothing left; a process that says nothing never has one. No more than `ROOM` is
//! kept; what is dropped beyond that is counted, and the count stands where it was dropped.
//!
//! A process that has such a thread must not fork: the front says nothing before its last keeper is gone.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How many bytes wait at most. What fails, and what is said last, may take as much again.
const ROOM: usize = 16 << 10;
/// How long nothing of it may be taken before nobody is thought to read.
const STALL: Duration = Duration::from_millis(100);
/// How long a reader who is merely slow is waited for.
const SLOW: Duration = Duration::from_secs(1);
/// How long a busy machine may take to give the writing thread its turn.
const STARVED: Duration = Duration::from_secs(5);
/// The writing thread's stack: it frees a text, writes one, and seldom makes one.
const STACK: usize = 128 << 10;

/// When to give up waiting for what is said to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// When nobody seems to read, and soon: where a lock or a command may depend on this process.
    Brief,
    /// After so long.
    After(Duration),
    /// Not before it is written, as any program.
    Never,
}

/// The line for so many that were dropped.
type Count = Box<dyn Fn(u64) -> String + Send>;

enum Text {
    Line(String),
    /// What shows only how it is now: the next one takes its place, and it goes first.
    Drawing(String),
    Dropped(u64, Count),
}

/// Writes to one stream.
pub struct Writer {
    stream: BorrowedFd<'static>,
    queue: Mutex<Backlog>,
    moved: Condvar,
}

struct Backlog {
    entries: VecDeque<Text>,
    /// There is a thread, and the queue is empty only if it has written everything.
    writing: bool,
    /// When the thread last began a text or got rid of a part of it.
    moved_at: Option<Instant>,
    failed: Option<Errno>,
}

static STDERR: Writer = Writer::to(rustix::stdio::stderr());
static STDOUT: Writer = Writer::to(rustix::stdio::stdout());

/// Standard error, for messages.
pub fn messages() -> &'static Writer {
    &STDERR
}

/// Standard output, for a report.
pub fn output() -> &'static Writer {
    &STDOUT
}

/// Whether standard error is a terminal.
pub fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stderr())
}

/// The columns of the terminal that standard error is; `None` if it is none or does not say.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

impl Writer {
    const fn to(stream: BorrowedFd<'static>) -> Self {
        let queue = Backlog { entries: VecDeque::new(), writing: false, moved_at: None, failed: None };
        Self { stream, queue: Mutex::new(queue), moved: Condvar::new() }
    }

    /// Queues a line, which is written with one call as long as the kernel takes all of it. If there is no room it is
    /// dropped, and `count` makes the line that says so. `urgent` lines have twice the room.
    pub fn line(&'static self, text: String, urgent: bool, count: impl Fn(u64) -> String + Send + 'static) {
        let mut queue = self.lock();
        let room = if urgent { ROOM * 2 } else { ROOM };
        if queue.has_room(text.len(), room) {
            queue.entries.push_back(Text::Line(text));
        } else if let Some(Text::Dropped(dropped, _)) = queue.entries.back_mut() {
            *dropped += 1;
        } else {
            queue.entries.push_back(Text::Dropped(1, Box::new(count)));
        }
        self.start(&mut queue);
    }

    /// Queues a text that is written however much waits: once, before the process ends.
    pub fn last(&'static self, text: String) {
        let mut queue = self.lock();
        queue.entries.push_back(Text::Line(text));
        self.start(&mut queue);
    }

    /// Queues what replaces the last drawing; dropped without a count if there is no room.
    pub fn draw(&'static self, text: String) {
        let mut queue = self.lock();
        if let Some(Text::Drawing(old)) = queue.entries.back_mut() {
            *old = text;
        } else if queue.has_room(text.len(), ROOM) {
            queue.entries.push_back(Text::Drawing(text));
        }
        self.start(&mut queue);
    }

    /// Lets what is queued be written before something else writes to the stream. If nobody reads, it gives up at
    /// once, and drawings that are still queued are not made any more.
    pub fn settle(&'static self) {
        let mut queue = self.lock();
        while let Some(left) = queue.moved_at.filter(|_| queue.is_busy()).map(until_stalled)
            && !left.is_zero()
        {
            queue = self.wait(queue, left);
        }
        queue.entries.retain(|entry| !matches!(entry, Text::Drawing(_)));
    }

    /// Waits until everything is written, or nobody seems to read. To be called before the process ends.
    ///
    /// Errors: `TimedOut` if something is left, else the first one of the stream.
    pub fn finish(&'static self, limit: Limit) -> io::Result<()> {
        let begun = Instant::now();
        let mut queue = self.lock();
        while queue.is_busy() {
            let left = match limit {
                Limit::Brief => self.worth_waiting(&queue, begun),
                Limit::After(length) => length.saturating_sub(begun.elapsed()),
                Limit::Never => Duration::MAX,
            };
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.start(&mut queue);
            if !queue.writing {
                drop(queue);
                return self.write_here(begun + left.min(SLOW));
            }
            queue = self.wait(queue, left);
        }
        queue.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// How long to wait next for what has been queued since `begun`. A stream that has room is no reader's fault: the
    /// thread has not had its turn.
    fn worth_waiting(&self, queue: &Backlog, begun: Instant) -> Duration {
        let moved = queue.moved_at.map_or(begun, |at| at.max(begun));
        let left = until_stalled(moved).min(SLOW.saturating_sub(begun.elapsed()));
        if left.is_zero() && begun.elapsed() < STARVED && has_room(self.stream) { STALL } else { left }
    }

    /// Has a thread write what is queued, if none does. Without one it stays queued.
    fn start(&'static self, queue: &mut Backlog) {
        if queue.writing || queue.entries.is_empty() {
            return;
        }
        queue.moved_at = Some(Instant::now());
        let thread = thread::Builder::new().stack_size(STACK);
        queue.writing = thread.spawn(move || self.write_queue()).is_ok();
    }

    fn write_queue(&self) {
        let mut queue = self.lock();
        while let Some(entry) = queue.entries.pop_front() {
            queue.moved_at = Some(Instant::now());
            drop(queue);
            let text = entry.text();
            let mut rest = text.as_bytes();
            let mut failed = None;
            while !rest.is_empty() {
                match rustix::io::write(self.stream, rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        self.lock().moved_at = Some(Instant::now());
                        self.moved.notify_all();
                    }
                    Err(Errno::INTR) => {}
                    // Somebody else has made it so that it does not wait.
                    Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], None)),
                    // There is nobody to tell.
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            queue = self.lock();
            queue.failed = queue.failed.or(failed);
        }
        queue.writing = false;
        self.moved.notify_all();
    }

    /// Writes what is queued where the system has no thread to spare, in pieces that a stream takes whole if it takes
    /// anything. Only at the end of a process: should others write to it at the same moment, this waits for its reader.
    fn write_here(&self, deadline: Instant) -> io::Result<()> {
        let entries = std::mem::take(&mut self.lock().entries);
        let text: String = entries.into_iter().map(Text::text).collect();
        for piece in text.as_bytes().chunks(rustix::pipe::PIPE_BUF) {
            let mut rest = piece;
            while !rest.is_empty() {
                let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
                let mut stream = [PollFd::new(&self.stream, PollFlags::OUT)];
                match poll(&mut stream, left.ok().as_ref()) {
                    Ok(0) => return Err(ErrorKind::TimedOut.into()),
                    Ok(_) => match rustix::io::write(self.stream, rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(Errno::INTR | Errno::AGAIN) => {}
                        Err(error) => return Err(error.into()),
                    },
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Backlog>, limit: Duration) -> MutexGuard<'a, Backlog> {
        self.moved.wait_timeout(queue, limit).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Backlog {
    fn is_busy(&self) -> bool {
        self.writing || !self.entries.is_empty()
    }

    /// Whether a text of this length may wait beside the others; one that waits alone may have any.
    fn has_room(&self, length: usize, room: usize) -> bool {
        let waiting: usize = self.entries.iter().map(Text::length).sum();
        waiting == 0 || waiting + length <= room
    }
}

impl Text {
    fn length(&self) -> usize {
        match self {
            Self::Line(text) | Self::Drawing(text) => text.len(),
            Self::Dropped(..) => 0,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Line(text) | Self::Drawing(text) => text,
            Self::Dropped(dropped, count) => count(dropped),
        }
    }
}

/// Whether `stream` takes a few words now, without waiting for whoever reads.
pub fn has_room(stream: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&now)), Ok(1))
}

/// How long a thread that last moved something then may still be thought to do so.
fn until_stalled(moved_at: Instant) -> Duration {
    STALL.saturating_sub(moved_at.elapsed())
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
