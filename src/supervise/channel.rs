//! The channel between front and keeper: a pair of sockets that keeps message boundaries. Its closing shows each of
//! them the other's death.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::exit_status::ExitStatus;
use super::signals::Signal;
use super::wait;

/// A message from the front to the keeper: a signal arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToKeeper {
    /// The signal. A stop by the terminal while the job waits asks the keeper to leave the queue and end.
    pub signal: Signal,
    /// Whether the command has it already: the kernel sent it to the whole foreground group.
    pub everybody: bool,
    /// How often the keeper had stopped the front when the signal arrived, modulo 128. A SIGCONT from before the last
    /// stop must not undo that stop.
    pub stops: u8,
}

/// A message from the keeper to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToFront {
    /// The command runs, and has the standard streams and all inherited descriptors. The message carries the anchors,
    /// and before them a pidfd of the command if `handle` is set.
    Started {
        /// Whether the first descriptor is a pidfd of the command.
        handle: bool,
    },
    /// The claim is released: end like this.
    Done(ExitStatus),
    /// The claim is released: begin again with a new keeper after this pause.
    Again(Duration),
    /// The claim waits: notify the service manager.
    Waiting {
        /// How many entries are ahead; negative if unknown.
        ahead: i32,
    },
    /// The claim has left the queue, as a stop by the terminal asked.
    Suspended,
}

/// The most descriptors that one message may carry: the kernel's limit.
pub const MAX_DESCRIPTORS: usize = 253;

/// For how many milliseconds to retry if the socket has no room.
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
            // A lack of room or memory does not last long.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) if patience > 0 => {
                patience -= 1;
                wait::pause(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the next message, or `None` at the end of the other side.
///
/// Errors: `WouldBlock` if there is no message; others of recvmsg(2).
pub(super) fn receive(end: &OwnedFd) -> io::Result<Option<(Frame, Vec<OwnedFd>)>> {
    let mut bytes: Frame = [0; 6];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let data = io::IoSliceMut::new(&mut bytes);
    let got = match recvmsg(end, &mut [data], &mut control, RecvFlags::CMSG_CLOEXEC) {
        // The other side died with a message of this side unread. The kernel reports that once, before the messages of
        // the other side that can still be read.
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

/// Creates two connected ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends `message` to the keeper, from the front's end.
pub fn tell_keeper(end: &OwnedFd, message: ToKeeper) -> io::Result<()> {
    let ToKeeper { signal, everybody, stops } = message;
    send(end, frame(1, u8::from(everybody) | stops << 1, signal.number()), &[])
}

/// Sends `message` and `descriptors` to the front, from the keeper's end.
pub fn tell_front(end: &OwnedFd, message: ToFront, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = match message {
        ToFront::Done(ExitStatus::Exited(status)) => frame(2, status, 0),
        ToFront::Done(ExitStatus::Signaled(signal)) => frame(2, 0, signal.number()),
        ToFront::Suspended => frame(3, 0, 0),
        ToFront::Started { handle } => frame(4, u8::from(handle), 0),
        ToFront::Again(pause) => frame(5, 0, i32::try_from(pause.as_millis()).unwrap_or(i32::MAX)),
        ToFront::Waiting { ahead } => frame(6, 0, ahead),
    };
    send(end, bytes, descriptors)
}

/// Returns the front's next message, or `None` if the front is gone.
///
/// Errors: `WouldBlock` if there is no message; others of recvmsg(2); `InvalidData`.
pub fn heard_by_keeper(end: &OwnedFd) -> io::Result<Option<ToKeeper>> {
    let Some(([kind, small, large @ ..], _)) = receive(end)? else { return Ok(None) };
    let signal = if kind == 1 { known(large)? } else { return Err(garbled()) };
    Ok(Some(ToKeeper { signal, everybody: small & 1 != 0, stops: small >> 1 }))
}

/// Returns the keeper's next message with its descriptors, or `None` if the keeper is gone.
///
/// Errors: as for [`heard_by_keeper`].
pub fn heard_by_front(end: &OwnedFd) -> io::Result<Option<(ToFront, Vec<OwnedFd>)>> {
    let Some(([kind, small, large @ ..], descriptors)) = receive(end)? else { return Ok(None) };
    let message = match (kind, i32::from_ne_bytes(large)) {
        (2, 0) => ToFront::Done(ExitStatus::Exited(small)),
        (2, _) => ToFront::Done(ExitStatus::Signaled(known(large)?)),
        (3, _) => ToFront::Suspended,
        (4, _) => ToFront::Started { handle: small != 0 },
        (5, ms) => ToFront::Again(Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
        (6, ahead) => ToFront::Waiting { ahead },
        _ => return Err(garbled()),
    };
    Ok(Some((message, descriptors)))
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
    fn last_message_is_received_after_an_unread_one() {
        let (front, keeper) = pair().expect("a socket pair");
        let stop = ToKeeper { signal: Signal::TSTP, everybody: true, stops: 0 };
        tell_keeper(&front, stop).expect("room for a message");
        tell_front(&keeper, ToFront::Suspended, &[]).expect("room for a message");
        drop(keeper);
        let heard = heard_by_front(&front).expect("a message").map(|(message, _)| message);
        assert_eq!(heard, Some(ToFront::Suspended));
        assert!(heard_by_front(&front).expect("the end").is_none());
    }
}
