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

/// From the front to the keeper: a signal came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToKeeper {
    /// Which. A stop by the terminal while the job waits means to leave the queue and end.
    pub signal: Signal,
    /// Whether the command has it already: the terminal sent it to the whole foreground group.
    pub everybody: bool,
    /// How often the keeper had stopped the front when it came, modulo 128: a SIGCONT from before the last stop must
    /// not undo that.
    pub stops: u8,
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
    /// Out of the queue, as a stop by the terminal asked.
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
        let ToKeeper { signal, everybody, stops } = message;
        send(&self.0, frame(1, u8::from(everybody) | stops << 1, signal.number()), &[])
    }

    /// Tells the front.
    pub fn tell_front(end: &OwnedFd, message: ToFront, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = match message {
            ToFront::Guard => frame(1, 0, 0),
            ToFront::Done(ExitStatus::Exited(status)) => frame(2, status, 0),
            ToFront::Done(ExitStatus::Signaled(signal)) => frame(2, 0, signal.number()),
            ToFront::Again { pause_ms } => frame(5, 0, pause_ms),
            ToFront::Waiting { ahead } => frame(6, 0, ahead),
            ToFront::Suspended => frame(3, 0, 0),
            ToFront::Started { handle } => frame(4, u8::from(handle), 0),
        };
        send(end, bytes, descriptors)
    }

    /// What the front says next; `None` when it is gone.
    pub fn heard_by_keeper(end: &OwnedFd) -> io::Result<Option<ToKeeper>> {
        let Some(([kind, small, large @ ..], _)) = receive(end)? else { return Ok(None) };
        let signal = if kind == 1 { known(large)? } else { return Err(garbled()) };
        Ok(Some(ToKeeper { signal, everybody: small & 1 != 0, stops: small >> 1 }))
    }

    /// What the keeper says next, and the descriptors that came with it; `None` when it is gone.
    pub fn heard_by_front(&self) -> io::Result<Option<(ToFront, Vec<OwnedFd>)>> {
        let Some(([kind, small, large @ ..], descriptors)) = receive(&self.0)? else { return Ok(None) };
        let message = match (kind, i32::from_ne_bytes(large)) {
            (1, _) => ToFront::Guard,
            (2, 0) => ToFront::Done(ExitStatus::Exited(small)),
            (2, _) => ToFront::Done(ExitStatus::Signaled(known(large)?)),
            (3, _) => ToFront::Suspended,
            (4, _) => ToFront::Started { handle: small != 0 },
            (5, pause_ms) => ToFront::Again { pause_ms },
            (6, ahead) => ToFront::Waiting { ahead },
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
        front
            .tell_keeper(ToKeeper { signal: Signal::TSTP, everybody: true, stops: 0 })
            .expect("room for a message");
        Channel::tell_front(&keeper.0, ToFront::Suspended, &[]).expect("room for a message");
        drop(keeper);
        let heard = front.heard_by_front().expect("a message").map(|(message, _)| message);
        assert_eq!(heard, Some(ToFront::Suspended));
        assert!(front.heard_by_front().expect("the end").is_none());
    }

    #[test]
    fn what_is_said_is_heard() {
        let (front, keeper) = Channel::pair().expect("a socket pair");
        let signal = |stops| ToKeeper { signal: Signal::TERM, everybody: stops == 0, stops };
        for message in [signal(0), signal(127)] {
            front.tell_keeper(message).expect("room for a message");
            assert_eq!(Channel::heard_by_keeper(&keeper.0).expect("a message"), Some(message));
        }
        for message in [
            ToFront::Guard,
            ToFront::Started { handle: true },
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
