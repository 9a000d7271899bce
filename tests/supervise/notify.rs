//! Messages to a service manager.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

use crate::support::wait::LIMIT;
use crate::support::{Running, TestEnv};

struct Manager {
    socket: OwnedFd,
    address: String,
}

impl Manager {
    fn new(env: &TestEnv, is_abstract: bool) -> Self {
        let path = env.path("notify").display().to_string();
        let (socket, address) = if is_abstract {
            let address = SocketAddr::from_abstract_name(&path).expect("a name");
            (UnixDatagram::bind_addr(&address), format!("@{path}"))
        } else {
            (UnixDatagram::bind(&path), path)
        };
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(LIMIT)).expect("a limit");
        let socket = OwnedFd::from(socket);
        sockopt::set_socket_passcred(&socket, true).expect("a socket that names who sends");
        Self { socket, address }
    }

    fn start(&self, env: &TestEnv, words: &[&str]) -> Running {
        let mut command = env.run(["-q", "--name", "x"]);
        env.start(command.args(words).env("NOTIFY_SOCKET", &self.address))
    }

    /// Returns the next message, which must be from `from`.
    #[track_caller]
    fn receives(&self, from: &Running) -> String {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; 4096];
        let data = &mut [std::io::IoSliceMut::new(&mut text)];
        let got = recvmsg(&self.socket, data, &mut control, RecvFlags::empty()).expect("a message in time");
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid.as_raw_nonzero().get()),
            _ => None,
        });
        assert_eq!(sender, Some(from.pid()), "the main process is the one that was started");
        String::from_utf8(text[..got.bytes].to_vec()).expect("text")
    }

    /// Waits for a message that contains `words`.
    #[track_caller]
    fn awaits(&self, from: &Running, words: &str) -> String {
        loop {
            let text = self.receives(from);
            if text.contains(words) {
                return text;
            }
        }
    }

    /// Returns whether no message is unread.
    fn is_silent(&self) -> bool {
        let mut text = [0; 4096];
        let got = rustix::net::recv(&self.socket, &mut text, RecvFlags::DONTWAIT);
        matches!(got, Err(rustix::io::Errno::AGAIN))
    }
}

#[test]
fn wait_reports_its_place_and_extends_the_start() {
    for is_abstract in [false, true] {
        let env = TestEnv::new();
        let manager = Manager::new(&env, is_abstract);
        let holder = env.held(&["--name", "x"]);
        let first = env.hold(&["-q", "--name", "x"]);
        env.await_waiters("x", 1);
        let waiter = manager.start(&env, &["--notify-ready", "--", "sh", "-c", "echo $NOTIFY_SOCKET"]);
        let begun = manager.receives(&waiter);
        assert!(begun.starts_with("STATUS=waiting for x\n") || begun.contains("2nd"), "{begun}");
        let told = manager.awaits(&waiter, "2nd in queue");
        assert_eq!(told, "STATUS=waiting for x, 2nd in queue\nEXTEND_TIMEOUT_USEC=30000000\n");
        holder.release().silently(0);
        first.let_go();
        first.running.finish().silently(0);
        manager.awaits(&waiter, "READY=1\nSTATUS=running under x\n");
        let ended = waiter.finish().silently(0);
        assert_eq!(ended.text(), format!("{}\n", manager.address), "the command has the socket as well");
        assert!(manager.is_silent());
    }
}

#[test]
fn readiness_is_announced_by_the_command() {
    let env = TestEnv::new();
    let manager = Manager::new(&env, false);
    let running = manager.start(&env, &["--", "true"]);
    assert!(manager.receives(&running).starts_with("STATUS=waiting for x\n"));
    let told = manager.awaits(&running, "running");
    assert_eq!(told, "STATUS=running under x\n");
    running.finish().silently(0);
    assert!(manager.is_silent());
}

#[test]
fn unreading_or_absent_manager_delays_nothing() {
    let env = TestEnv::new();
    for address in ["/nonexistent/socket", "@nobody-listens-here", "vsock:2:1", ""] {
        let mut command = env.run(["--notify-ready", "--name", "x", "--", "true"]);
        env.finish(command.env("NOTIFY_SOCKET", address)).silently(0);
    }
}

#[test]
fn a_command_sees_its_own_pid_where_the_manager_named_dlock() {
    let env = TestEnv::new();
    let named = "export LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7 LISTEN_FDS=1";
    let show = "echo $$ $LISTEN_PID $WATCHDOG_PID ${LISTEN_PIDFDID-none} $LISTEN_FDS";
    for verb in ["run", "elect"] {
        let script =
            format!("{named}; exec \"$dlock\" {verb} --endpoint \"$locks\" --name x -- sh -c '{show}'");
        let told = env.finish(env.command("sh").args(["-c", &script])).silently(0).text();
        let words: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(words, [words[0], words[0], words[0], "none", "1"], "{verb}");
    }
    // The variables name another process.
    let mut other = env.run(["--name", "x", "--", "sh", "-c", show]);
    let told = env.finish(other.env("LISTEN_PID", "1").env("LISTEN_PIDFDID", "7")).silently(0).text();
    assert!(told.trim().ends_with(" 1 7"), "{told}");
}
