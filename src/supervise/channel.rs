//! What front and keeper say to each other.
//!
//! A pair of sockets that keeps message boundaries; its closing is how each learns of the other's death.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::exit_status::ExitStatus;
use super::signals::Signal;
use super::wait;

/// From the front to the keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToKeeper {
    /// This signal came. `everybody` has it already: the terminal sent it to the whole foreground group.
    Signal {
        /// Which.
        signal: Signal,
        /// Whether the command has it already.
        everybody: bool,
        /// How often the keeper had stopped the front when it came, modulo 128: a SIGCONT from before the last stop must
        /// not undo that.
        stops: u8,
    },
    /// The job is to be suspended while it waits: leave the queue and end.
    Suspend,
}

/// From the keeper to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToFront {
    /// The guard instant has been set, and counts from now on.
    Guard,
    /// The command runs and has the standard streams and whatever else was inherited. Comes with the descriptors
    /// that carry the hold, before them a handle on the command if `handle` says so.
    Started {
        /// Whether the first descriptor is a handle on the command.
        handle: bool,
    },
    /// The command has stopped, and the front is to be stopped with it by the signal that follows.
    Stopped {
        /// Its pid.
        pid: i32,
    },
    /// All is done and released: end like this.
    Done(ExitStatus),
    /// All is done and released: begin again with a new keeper, and so many milliseconds from now.
    Again {
        /// From now until it is to begin.
        pause_ms: i32,
    },
    /// The keeper waits, and so many are ahead if it is not negative: what a service manager is to be told.
    Waiting {
        /// Its place.
        ahead: i32,
    },
    /// Out of the queue, as asked by [`ToKeeper::Suspend`].
    Suspended,
}

/// The most descriptors that one message carries: the kernel's limit.
pub const MAX_DESCRIPTORS: usize = 253;

/// How many milliseconds a message waits for room.
const PATIENCE: u32 = 20;

/// A kind, a small number, and a number of four bytes.
pub(super) type Frame = [u8; 6];

pub(super) fn frame(kind: u8, small: u8, large: i32) -> Frame {
    let [a, b, c, d] = large.to_ne_bytes();
    [kind, small, a, b, c, d]
}

pub(super) fn send(end: &OwnedFd, bytes: Frame, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let data = io::IoSlice::new(&bytes);
    let mut patience = PATIENCE;
    loop {
        match sendmsg(end, &[data], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            // What is refused for want of room or memory is not refused for long.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) if patience > 0 => {
                patience -= 1;
                wait::pause(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The next message, `None` at the end of the other side, `WouldBlock` if none has come.
pub(super) fn receive(end: &OwnedFd) -> io::Result<Option<(Frame, Vec<OwnedFd>)>> {
    let mut bytes: Frame = [0; 6];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let data = io::IoSliceMut::new(&mut bytes);
    let got = match recvmsg(end, &mut [data], &mut control, RecvFlags::CMSG_CLOEXEC) {
        // The other side died with a message of ours unread. That is said once, and before the messages of its
        // own that are still to be had.
        Err(Errno::CONNRESET) => return receive(end),
        other => other?,
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    Ok(Some((bytes, descriptors)))
}

/// One end of the channel.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two connected ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Tells the keeper.
    pub fn tell_keeper(&self, message: ToKeeper) -> io::Result<()> {
        let bytes = match message {
            ToKeeper::Signal { signal, everybody, stops } => {
                frame(1, u8::from(everybody) | stops << 1, signal.number())
            }
            ToKeeper::Suspend => frame(2, 0, 0),
        };
        send(&self.0, bytes, &[])
    }

    /// Tells the front.
    pub fn tell_front(end: &OwnedFd, message: ToFront, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = match message {
            ToFront::Guard => frame(1, 0, 0),
            ToFront::Stopped { pid } => frame(2, 0, pid),
            ToFront::Done(ExitStatus::Exited(status)) => frame(3, status, 0),
            ToFront::Done(ExitStatus::Signaled(signal)) => frame(3, 0, signal.number()),
            ToFront::Again { pause_ms } => frame(6, 0, pause_ms),
            ToFront::Waiting { ahead } => frame(7, 0, ahead),
            ToFront::Suspended => frame(4, 0, 0),
            ToFront::Started { handle } => frame(5, u8::from(handle), 0),
        };
        send(end, bytes, descriptors)
    }

    /// What the front says next; `None` when it is gone.
    pub fn heard_by_keeper(end: &OwnedFd) -> io::Result<Option<ToKeeper>> {
        let Some(([kind, small, large @ ..], _)) = receive(end)? else { return Ok(None) };
        match kind {
            1 => {
                let (everybody, stops) = (small & 1 != 0, small >> 1);
                Ok(Some(ToKeeper::Signal { signal: known(large)?, everybody, stops }))
            }
            2 => Ok(Some(ToKeeper::Suspend)),
            _ => Err(garbled()),
        }
    }

    /// What the keeper says next, and the descriptors that came with it; `None` when it is gone.
    pub fn heard_by_front(&self) -> io::Result<Option<(ToFront, Vec<OwnedFd>)>> {
        let Some(([kind, small, large @ ..], descriptors)) = receive(&self.0)? else { return Ok(None) };
        let message = match (kind, i32::from_ne_bytes(large)) {
            (1, _) => ToFront::Guard,
            (2, pid) => ToFront::Stopped { pid },
            (3, 0) => ToFront::Done(ExitStatus::Exited(small)),
            (3, _) => ToFront::Done(ExitStatus::Signaled(known(large)?)),
            (4, _) => ToFront::Suspended,
            (5, _) => ToFront::Started { handle: small != 0 },
            (6, pause_ms) => ToFront::Again { pause_ms },
            (7, ahead) => ToFront::Waiting { ahead },
            _ => return Err(garbled()),
        };
        Ok(Some((message, descriptors)))
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn known(number: [u8; 4]) -> io::Result<Signal> {
    Signal::new(i32::from_ne_bytes(number)).ok_or_else(garbled)
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message between front and keeper made no sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_word_is_heard_though_ours_was_not() {
        let (front, keeper) = Channel::pair().expect("a socket pair");
        front.tell_keeper(ToKeeper::Suspend).expect("room for a message");
        Channel::tell_front(&keeper.0, ToFront::Suspended, &[]).expect("room for a message");
        drop(keeper);
        let heard = front.heard_by_front().expect("a message").map(|(message, _)| message);
        assert_eq!(heard, Some(ToFront::Suspended));
        assert!(front.heard_by_front().expect("the end").is_none());
    }

    #[test]
    fn what_is_said_is_heard() {
        let (front, keeper) = Channel::pair().expect("a socket pair");
        let signal = |stops| ToKeeper::Signal { signal: Signal::TERM, everybody: stops == 0, stops };
        for message in [signal(0), signal(127), ToKeeper::Suspend] {
            front.tell_keeper(message).expect("room for a message");
            assert_eq!(Channel::heard_by_keeper(&keeper.0).expect("a message"), Some(message));
        }
        for message in [
            ToFront::Guard,
            ToFront::Started { handle: true },
            ToFront::Stopped { pid: 4_194_304 },
            ToFront::Done(ExitStatus::Exited(255)),
            ToFront::Done(ExitStatus::Signaled(Signal::KILL)),
            ToFront::Again { pause_ms: 60_000 },
            ToFront::Waiting { ahead: -1 },
            ToFront::Suspended,
        ] {
            Channel::tell_front(&keeper.0, message, &[front.as_fd()]).expect("room for a message");
            let (heard, descriptors) = front.heard_by_front().expect("a message").expect("not the end");
            assert_eq!(heard, message);
            assert_eq!(descriptors.len(), 1);
        }
        let none = front.heard_by_front().expect_err("nothing was said");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        drop(keeper);
        assert!(front.heard_by_front().expect("the end").is_none());
    }
}
