//! A terminal with an interactive bash on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::process;
use super::test_env::{ENV, TestEnv};
use super::wait::{until, until_or_else, until_true};

/// The prompt of bash. No command under test prints it.
const PROMPT: &str = "@prompt@ ";

/// The user's side of a terminal.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    /// The length of the output that a test has checked.
    seen: usize,
    leader: Child,
}

impl Terminal {
    /// Starts a terminal on which `program` leads the session.
    pub(crate) fn start(env: &TestEnv, program: &str, arguments: &[&str]) -> Self {
        let (ours, theirs) = sides();
        resize(&ours, 24, 80);
        let mut command = Command::new(ENV);
        command.args(["--default-signal", "setsid", "--ctty", program]).args(arguments);
        env.dress(&mut command);
        command.env("TERM", "vt100").env("LESS", "").env("PAGER", "less");
        command.stdin(theirs.try_clone().expect("a descriptor"));
        command.stdout(theirs.try_clone().expect("a descriptor"));
        command.stderr(theirs);
        let leader = command.spawn().expect("a session on the terminal");
        let keyboard = ours;
        let screen = Arc::new(Mutex::new(Vec::new()));
        record(keyboard.try_clone().expect("a descriptor"), screen.clone());
        Self { keyboard, screen, seen: 0, leader }
    }

    /// Starts a terminal with an interactive bash that is ready for a command; `run` is `dlock run --endpoint LOCKS`.
    pub(crate) fn bash(env: &TestEnv) -> Self {
        let settings = format!("bind 'set enable-bracketed-paste off' 2>/dev/null\nPS1='{PROMPT}'\n");
        env.write("bashrc", &settings);
        let rc = env.path("bashrc").display().to_string();
        let mut terminal = Self::start(env, "bash", &["--noprofile", "--rcfile", &rc, "-i"]);
        terminal.expect_prompt();
        terminal.type_line(r#"alias run='"$dlock" run --endpoint "$locks"'"#);
        terminal.expect_prompt();
        terminal
    }

    pub(crate) fn leader(&self) -> i32 {
        i32::try_from(self.leader.id()).expect("a pid")
    }

    /// Types these bytes as they are.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal that takes keys");
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        // A return typed ahead of a program that is about to start would stay a return. A newline is one in every mode.
        self.press(&format!("{line}\n"));
    }

    /// Types a command and waits until it has ended and bash prompts again. Returns the output.
    #[track_caller]
    pub(crate) fn command(&mut self, line: &str) -> String {
        self.type_line(line);
        let shown = self.expect_prompt();
        shown.strip_prefix(line).unwrap_or(&shown).trim().to_owned()
    }

    /// Returns the exit status of the last command.
    #[track_caller]
    pub(crate) fn last_status(&mut self) -> i32 {
        let shown = self.command("echo \"<$?>\"");
        let number = shown.rsplit('<').next().and_then(|rest| rest.split('>').next());
        number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no status in {shown:?}"))
    }

    /// Waits for the prompt. Expects that the job before it ended with `status`.
    #[track_caller]
    pub(crate) fn await_status(&mut self, status: i32) {
        self.expect_prompt();
        assert_eq!(self.last_status(), status);
    }

    pub(crate) fn ctrl_c(&mut self) {
        self.press("\x03");
    }

    pub(crate) fn ctrl_z(&mut self) {
        self.press("\x1a");
    }

    /// Stops the job in the foreground, as a user does, and waits until the shell has reported that and prompts.
    #[track_caller]
    pub(crate) fn stop_job(&mut self) {
        self.ctrl_z();
        self.expect("Stopped");
        self.expect_prompt();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        resize(&self.keyboard, rows, columns);
    }

    /// Returns the whole output so far.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until `text` appears after the output that was expected before. Returns the output in between.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let from = self.seen;
        let (between, end) = until_or_else(
            || format!("{text:?} on the terminal:\n{}\n", self.shown()),
            || {
                let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
                let fresh = &screen[from..];
                let at = fresh.windows(text.len()).position(|window| window == text.as_bytes())?;
                Some((String::from_utf8_lossy(&fresh[..at]).into_owned(), from + at + text.len()))
            },
        );
        self.seen = end;
        between
    }

    #[track_caller]
    pub(crate) fn expect_prompt(&mut self) -> String {
        self.expect(PROMPT)
    }

    /// Sends a signal to the shell, which has prompted. If the signal arrives just before bash waits for keys, bash
    /// sees it only at the next key.
    #[track_caller]
    pub(crate) fn signal_shell(&self, signal: Signal) {
        until_true("a shell that waits for keys", || {
            process::look(self.leader()).is_some_and(|shell| shell.state == 'S')
        });
        process::signal(self.leader(), signal);
    }

    /// Waits until the foreground process group is that of `group`.
    #[track_caller]
    pub(crate) fn await_foreground(&self, group: i32) {
        until(&format!("group {group} in the foreground"), || {
            let now = rustix::termios::tcgetpgrp(&self.keyboard).ok()?;
            (now.as_raw_nonzero().get() == group).then_some(())
        });
    }
}

/// Creates a terminal: the user's side, and that of the programs.
pub(crate) fn sides() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).expect("a terminal of our own");
    unlockpt(&ours).expect("an unlocked terminal");
    let name = ptsname(&ours, Vec::new()).expect("the terminal's name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = open(&name, flags, Mode::empty()).expect("the terminal's other side");
    (File::from(ours), theirs)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        process::signal(self.leader(), Signal::KILL);
        let _ = self.leader.wait();
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal that takes a size");
}

/// Records the output of the terminal until its last process has closed it.
fn record(mut from: File, screen: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            screen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
        }
    });
}

/// Starts a bash in whose foreground dlock runs `script` under the lock x. The script writes its PID to `pid`.
pub(crate) fn running(env: &TestEnv, options: &str, script: &str) -> (Terminal, i32) {
    env.write("command.sh", &format!("echo $$ >pid\n{script}\n"));
    let mut terminal = Terminal::bash(env);
    terminal.type_line(&format!("run --name x {options} -- sh command.sh"));
    let command = env.await_line("pid").parse().expect("a pid");
    (terminal, command)
}

/// Returns the front above a command.
pub(crate) fn front_of(command: i32) -> i32 {
    let keeper = process::look(command).expect("a command").parent;
    process::look(keeper).expect("a keeper").parent
}
