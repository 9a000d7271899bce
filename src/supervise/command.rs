//! Starting the command: words, environment and descriptors.

use std::ffi::{CStr, CString, NulError, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::diagnosis;
use super::gate::Gate;
use super::launch::{self, LaunchStack, Spawned};
use super::start::Start;

/// Variables by which a service manager names the process that it started. The program that reads them
/// compares them with its own pid (`sd_listen_fds(3)`, `sd_watchdog_enabled(3)`), so they must name the command.
const PID_VARIABLES: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// A second identity of the same process. A program that finds it wrong takes the descriptors for another program's.
const PIDFD_VARIABLE: &str = "LISTEN_PIDFDID";

/// Keeps LVM from printing each inherited descriptor to standard error.
const QUIET_LVM: &str = "LVM_SUPPRESS_FD_WARNINGS";

/// A command that is ready to start: what the grant does not decide is prepared while the claim waits.
#[derive(Debug)]
pub struct Command<'a> {
    start: &'a Start,
    words: Vec<CString>,
    /// The variables of this process that the command gets.
    kept: Vec<CString>,
    /// The variables that name the command's pid.
    pid_variables: Vec<&'static str>,
    stack: LaunchStack,
}

impl<'a> Command<'a> {
    /// Prepares the command `argv`, whose first word is looked up in PATH, with the environment of this process but
    /// `without`. If the service manager named the process that dlock was started as, the variables will name the
    /// command instead.
    ///
    /// Errors: a word contains NUL, or the system has no memory left.
    pub fn prepare(argv: &[OsString], without: &[&str], start: &'a Start) -> io::Result<Self> {
        let front = start.front_pid.to_string();
        let names_front = |name: &&str| std::env::var_os(name).is_some_and(|pid| pid == *front);
        let pid_variables: Vec<_> = PID_VARIABLES.into_iter().filter(names_front).collect();
        let is_other = |name: &OsStr| {
            let foreign = name == PIDFD_VARIABLE && !pid_variables.is_empty();
            !foreign && !pid_variables.iter().chain(without).any(|left_out| name == *left_out)
        };
        let kept = std::env::vars_os().filter(|(name, _)| is_other(name));
        Ok(Self {
            start,
            words: argv.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?,
            kept: kept.map(|(name, value)| variable(&name, &value)).collect::<Result<_, _>>()?,
            pid_variables,
            stack: LaunchStack::new(argv.len())?,
        })
    }

    /// Starts the command as a child of the calling thread, with the signal dispositions, signal mask and standard
    /// streams that dlock was started with. The command dies if that thread ends first. `gate` gets its pid. Its
    /// environment has the variables `added` too. It gets `anchors`, descriptors that carry the hold, under high numbers,
    /// and with them `LVM_SUPPRESS_FD_WARNINGS`.
    ///
    /// Errors: fork or exec failed. For an existing file that cannot be executed the error has the reason, without an
    /// errno.
    pub fn spawn(&self, added: &[(&str, String)], anchors: &[OwnedFd], gate: Gate) -> io::Result<Spawned> {
        let quiet = (!anchors.is_empty() && std::env::var_os(QUIET_LVM).is_none())
            .then(|| (QUIET_LVM, "1".to_owned()));
        let added = added.iter().chain(&quiet).map(|(name, value)| variable(name, value));
        let added = added.collect::<Result<Vec<_>, _>>()?;
        let envp: Vec<&CStr> = self.kept.iter().chain(&added).map(CString::as_c_str).collect();
        let words: Vec<&CStr> = self.words.iter().map(CString::as_c_str).collect();
        let kept = anchors.iter().map(high_descriptor).collect::<io::Result<Vec<_>>>()?;
        let inherit: Vec<_> = kept.iter().map(AsFd::as_fd).collect();
        let exec = launch::Exec {
            argv: &words,
            envp: &envp,
            group: self.start.command_group(),
            mask: &self.start.mask,
            ignore: &self.start.restore_ignored,
            inherit: &inherit,
            gate,
            stack: &self.stack,
            pid_variables: &self.pid_variables,
        };
        let started = match launch::spawn(&exec) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
                let script = path_of(words[0]).ok_or(error)?;
                let argv = [&[SHELL, &script], &words[1..]].concat();
                launch::spawn(&launch::Exec { argv: &argv, ..exec })
            }
            started => started,
        };
        started.map_err(|error| diagnosis::explain(error, words[0].to_bytes(), &search_path()))
    }
}

/// Runs a script without a first line `#!`. POSIX requires that of `execvp`; glibc does it there, musl does not.
const SHELL: &CStr = c"/bin/sh";

/// Returns where to look up commands: PATH, or without it the default of musl.
fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into())
}

/// Returns the file that `execvp` finds for `word`.
fn path_of(word: &CStr) -> Option<CString> {
    let path = search_path();
    let mut files = diagnosis::files(word.to_bytes(), &path);
    let (file, _) = files.find(|(file, what)| what.is_file() && access(file, Access::EXEC_OK).is_ok())?;
    CString::new(file.into_os_string().into_encoded_bytes()).ok()
}

fn variable(name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Result<CString, NulError> {
    CString::new([name.as_ref().as_bytes(), b"=", value.as_ref().as_bytes()].concat())
}

/// Copies `descriptor` to a number that scripts do not use: shells take numbers from 10 up, and bash keeps 255 for
/// itself. The number is not higher than needed, since every process of the tree copies the table of descriptors up to
/// it.
fn high_descriptor(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(256);
    let floor = i32::try_from(limit.min(256)).unwrap_or(256) - 64;
    let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, floor.max(descriptor.as_raw_fd()).max(3));
    Ok(copy.or_else(|_| rustix::io::fcntl_dupfd_cloexec(descriptor, 3))?)
}
