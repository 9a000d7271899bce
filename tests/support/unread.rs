//! A standard error without a reader.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The kind of stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A pipe, as in `2>&1 | pager`.
    Pipe,
    /// A stream socket, as for a service manager's log.
    Socket,
}

/// A stream that was full before the test began.
pub(crate) struct Unread {
    reader: File,
    writer: OwnedFd,
    /// The number of bytes that filled it. They are read first.
    filling: usize,
}

impl Unread {
    /// Returns a stream without room for another byte.
    pub(crate) fn full(kind: Kind) -> Self {
        let (reader, writer): (OwnedFd, OwnedFd) = match kind {
            Kind::Pipe => std::io::pipe().map(|(r, w)| (r.into(), w.into())).expect("a pipe"),
            Kind::Socket => UnixStream::pair().map(|(r, w)| (r.into(), w.into())).expect("a socket"),
        };
        let filling = fill(&writer);
        Self { reader: File::from(reader), writer, filling }
    }

    /// Returns the writing end, for a program's standard error.
    pub(crate) fn writer(&self) -> OwnedFd {
        self.writer.try_clone().expect("a descriptor")
    }

    /// Reads the rest to its end, which comes when every process that had the stream has ended. `pause` runs before
    /// each read of at most `size` bytes.
    pub(crate) fn rest(self, size: usize, mut pause: impl FnMut()) -> String {
        let Self { mut reader, writer, filling } = self;
        drop(writer);
        let (mut all, mut bytes) = (Vec::new(), vec![0; size]);
        loop {
            pause();
            match reader.read(&mut bytes).expect("a stream to read") {
                0 => break,
                count => all.extend_from_slice(&bytes[..count]),
            }
        }
        String::from_utf8_lossy(&all[filling..]).into_owned()
    }
}

/// Fills `stream`, and leaves it blocking, as it was. Returns the number of bytes.
fn fill(stream: &OwnedFd) -> usize {
    let flags = fcntl_getfl(stream).expect("its flags");
    fcntl_setfl(stream, flags | OFlags::NONBLOCK).expect("its flags set");
    let mut file = File::from(stream.as_fd().try_clone_to_owned().expect("a descriptor"));
    let mut filled = 0;
    for piece in [4096, 1] {
        while let Ok(count) = file.write(&vec![b'.'; piece]) {
            filled += count;
        }
    }
    fcntl_setfl(stream, flags).expect("its flags as they were");
    filled
}
