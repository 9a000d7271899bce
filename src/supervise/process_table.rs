//! The processes of this PID namespace, as a proved /proc shows them.
//!
//! Everything is taken beforehand: the directory, room for the table, and descriptors to spare, so that a look
//! needs neither memory nor a descriptor that the system could refuse at the wrong moment.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, fstatfs, openat, readlinkat_raw, seek};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::descent::{Descent, Layout};
pub use super::proc_dir::Process;
use super::proc_dir::{Directory, number};

/// What statfs(2) says of a /proc.
const PROC_MAGIC: u32 = 0x9fa0;
/// How long one look waits, all in all, for processes that end just now, or are just executing a program.
const PATIENCE: Duration = Duration::from_millis(20);
/// How many processes one look takes in. The memory is the kernel's until it is written to.
const ROOM: usize = 32_768;

/// Why there is no usable /proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hidden {
    /// It is not mounted, or may not be opened.
    Unreadable(Errno),
    /// What is at /proc is no process table.
    NotProc,
    /// It is that of another PID namespace: its numbers mean other processes.
    Foreign,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(errno) => write!(f, "/proc cannot be read ({})", io::Error::from(*errno)),
            Self::NotProc => f.write_str("/proc is not the process table"),
            Self::Foreign => f.write_str("/proc shows another PID namespace"),
        }
    }
}

/// A view of the processes of this PID namespace.
#[derive(Debug)]
pub struct ProcessTable {
    directory: Directory,
    /// What the last look found, by pid, and room for more.
    found: Vec<Process>,
    /// Positions in `found` of the members, parents before their children.
    members: Vec<u32>,
    /// Pid and time of birth of those whom the look before found; see [`ProcessTable::remember`].
    before: Vec<(i32, u64)>,
}

impl ProcessTable {
    /// The table of this process's PID namespace, or why there is none to be seen.
    ///
    /// Errors: the system has no descriptors or memory to spare (`EMFILE`, `ENFILE`, `ENOMEM`).
    pub fn open() -> io::Result<Result<Self, Hidden>> {
        Self::at(|| openat(CWD, c"/proc", directory_flags(), Mode::empty()))
    }

    /// The same for a process just forked, since a directory that two share has one position for both.
    pub fn again(&self) -> io::Result<Result<Self, Hidden>> {
        Self::at(|| openat(&self.directory.proc, c".", directory_flags(), Mode::empty()))
    }

    /// What cannot be read is tried once more: without a table the whole run is worse off.
    fn at(open: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<Result<Self, Hidden>> {
        match Self::try_at(&open)? {
            Err(Hidden::Unreadable(_)) => Self::try_at(&open),
            table => Ok(table),
        }
    }

    fn try_at(open: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<Result<Self, Hidden>> {
        let proc = loop {
            match open() {
                Err(Errno::INTR) => {}
                Err(scarce @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(scarce.into()),
                Err(errno) => return Ok(Err(Hidden::Unreadable(errno))),
                Ok(directory) => break directory,
            }
        };
        if let Err(hidden) = prove(&proc) {
            return Ok(Err(hidden));
        }
        let (mut found, mut members) = (Vec::new(), Vec::new());
        let room = found.try_reserve_exact(ROOM).and_then(|()| members.try_reserve_exact(ROOM));
        room.map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Ok(Self { directory: Directory::new(proc)?, found, members, before: Vec::new() }))
    }

    /// Takes the memory for knowing members again. Errors: there is none.
    pub fn remember(&mut self) -> io::Result<()> {
        self.before.try_reserve_exact(ROOM).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Where the program of `pid` is in its memory; `None` if it has none now, as it ends or executes one, or may not be asked.
    pub fn layout(&self, pid: i32) -> Result<Option<Layout>, Errno> {
        self.directory.layout(pid)
    }

    /// Whether `pid` may be asked for its memory and environment. An error means that it cannot be told.
    pub fn may_ask(&self, pid: i32) -> Result<bool, Errno> {
        self.directory.may_ask(pid)
    }

    /// How `pid` stands; `None` if there is no such process. An error means that it cannot be told.
    pub fn look(&self, pid: i32) -> Result<Option<Process>, Errno> {
        self.directory.stat(pid)
    }

    /// Calls `act` with a handle on `expected`, if that is still the process it was, born when that was; with `None` where
    /// the kernel has no handles (before Linux 5.3, or a container profile that denies them). Returns `None` if it is gone.
    ///
    /// The handle first, then the look: were the pid reused in between, the handle would be that of a process
    /// that has ended, and a signal would go nowhere.
    pub fn with_handle<T>(
        &self,
        expected: Process,
        act: impl FnOnce(Option<&OwnedFd>) -> T,
    ) -> Result<Option<T>, Errno> {
        let pid = Pid::from_raw(expected.pid).ok_or(Errno::SRCH)?;
        let handle = match self.directory.open(|| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(handle) => Some(handle),
            Err(Errno::SRCH) => return Ok(None),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(errno) => return Err(errno),
        };
        let now = self.look(expected.pid);
        let is_still = now.map(|now| now.is_some_and(|p| !p.has_ended() && p.born == expected.born));
        let done = is_still.map(|is| is.then(|| act(handle.as_ref())));
        drop(handle);
        self.directory.restore();
        done
    }

    /// Looks for all living descendants of this process, without `outside` and theirs. Whether all was seen.
    pub fn find_members(&mut self, outside: &[i32]) -> bool {
        let own = own_pid();
        self.find(&[], |_, process| Ok(process.parent == own && !outside.contains(&process.pid)))
    }

    /// Looks for `root` and all its living descendants, but for `except` and theirs. Whether all was seen.
    ///
    /// Nothing of another process is read that could keep the reader waiting.
    pub fn find_descendants(&mut self, root: Option<i32>, except: &[i32]) -> bool {
        self.find(except, |_, process| Ok(root == Some(process.pid)))
    }

    /// Looks for `root`, all that descend from it as `descent` says and are younger than this process, and all living
    /// descendants of those, but for `except` and theirs. Whether all was seen.
    ///
    /// Reading an environment may take as long as the other process keeps its memory locked. Those that were there before
    /// the claim are not asked.
    ///
    /// A process on its way out loses its environment before it closes its files, which may take long (NFS), and one that
    /// executes a program has none before the kernel has laid it out. Whom the last look found is a member until it has
    /// ended. For others this waits a moment; one that still cannot be read may be a member, so not all was seen.
    pub fn find_adopted(&mut self, root: Option<i32>, descent: &Descent, except: &[i32]) -> bool {
        let before = self.take_members();
        let patience = Cell::new(PATIENCE);
        let since = self.look(own_pid()).and_then(|own| own.ok_or(Errno::SRCH)).map(|own| own.born);
        let complete = self.find(except, |directory, process| {
            if root == Some(process.pid) {
                return Ok(true);
            }
            if process.born < since? {
                return Ok(false);
            }
            loop {
                match directory.descends(process, descent)? {
                    Some(descends) => return Ok(descends),
                    None if before.contains(&(process.pid, process.born)) => return Ok(true),
                    None => directory.await_end(process, &patience)?,
                }
            }
        });
        self.before = before;
        complete
    }

    /// Looks for those whom the last look found and their living descendants, but for `except` and theirs. Whether all was
    /// seen.
    pub fn find_again(&mut self, except: &[i32]) -> bool {
        let before = self.take_members();
        let complete = self.find(except, |_, process| Ok(before.contains(&(process.pid, process.born))));
        self.before = before;
        complete
    }

    /// Who the last look found, in memory that goes back to its place.
    fn take_members(&mut self) -> Vec<(i32, u64)> {
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before.extend(self.members().map(|member| (member.pid, member.born)).take(before.capacity()));
        before
    }

    /// Looks for those that `is_first` picks, and all living descendants of those, but for `except` and theirs.
    fn find(
        &mut self,
        except: &[i32],
        is_first: impl Fn(&Directory, Process) -> Result<bool, Errno>,
    ) -> bool {
        self.found.clear();
        self.members.clear();
        let read = self.read_all();
        self.found.sort_unstable_by_key(|p| p.pid);
        // A table that does not show this process shows nothing.
        let mut complete = read && self.found.binary_search_by_key(&own_pid(), |p| p.pid).is_ok();
        for (at, process) in (0..).zip(&self.found) {
            match is_first(&self.directory, *process) {
                Ok(true) if !except.contains(&process.pid) => self.members.push(at),
                Ok(_) => {}
                Err(_) => complete = false,
            }
        }
        // Generation by generation: whose parent is in the last one. There is room: members are among the found, and
        // each is there once.
        let mut last = 0..self.members.len();
        while !last.is_empty() {
            for (at, process) in (0..).zip(&self.found) {
                let parent = self.found.binary_search_by_key(&process.parent, |p| p.pid);
                let Some(parent) = parent.ok().and_then(|at| u32::try_from(at).ok()) else { continue };
                let is_next = self.members[last.clone()].contains(&parent);
                if is_next && !except.contains(&process.pid) && !self.members.contains(&at) {
                    self.members.push(at);
                }
            }
            last = last.end..self.members.len();
        }
        complete
    }

    /// The members that the last look found, parents before their children.
    pub fn members(&self) -> impl Iterator<Item = Process> {
        self.members.iter().filter_map(|at| self.found.get(usize::try_from(*at).ok()?)).copied()
    }

    /// Reads every living process; whether all could be read.
    fn read_all(&mut self) -> bool {
        let Self { directory, found, .. } = self;
        let mut complete = seek(&directory.proc, SeekFrom::Start(0)).is_ok();
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut entries = RawDir::new(&directory.proc, &mut buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                complete = false;
                break;
            };
            let Some(pid) = number(entry.file_name().to_bytes()) else { continue };
            match directory.stat(pid) {
                Ok(Some(process)) if process.has_ended() => {}
                Ok(Some(process)) if found.len() < found.capacity() => found.push(process),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => complete = false,
            }
        }
        complete
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Whether `directory` is a /proc in which this process is what it is to itself.
fn prove(directory: &OwnedFd) -> Result<(), Hidden> {
    let kind = fstatfs(directory).map_err(Hidden::Unreadable)?.f_type;
    if u32::try_from(kind) != Ok(PROC_MAGIC) {
        return Err(Hidden::NotProc);
    }
    let mut name = [MaybeUninit::<u8>::uninit(); 24];
    let own = match readlinkat_raw(directory, c"self", &mut name) {
        // A process of another namespace has no number there.
        Err(Errno::NOENT) => return Err(Hidden::Foreign),
        Err(errno) => return Err(Hidden::Unreadable(errno)),
        Ok((own, _)) => number(own),
    };
    if own == Some(own_pid()) { Ok(()) } else { Err(Hidden::Foreign) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ProcessTable {
        ProcessTable::open().expect("descriptors").expect("a /proc of this namespace")
    }

    #[test]
    fn this_process_is_found_in_its_own_table() {
        let me = table().look(own_pid()).expect("a readable table").expect("this process");
        assert_eq!(me.pid, own_pid());
        assert!(!me.is_stopped() && !me.has_ended());
        assert_eq!(table().look(i32::MAX), Ok(None));
    }

    #[test]
    fn a_directory_that_is_no_process_table_is_not_believed() {
        let root = openat(CWD, c"/", directory_flags(), Mode::empty()).expect("a directory");
        assert_eq!(prove(&root), Err(Hidden::NotProc));
    }

    #[test]
    fn children_and_theirs_are_members_unless_they_are_outside() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a pid");
        let (parent, grandchild) =
            (i32::try_from(child.id()).expect("a pid"), line.trim().parse().expect("a pid"));
        let mut table = table();
        assert!(table.find_members(&[]));
        let pids: Vec<i32> = table.members().map(|p| p.pid).collect();
        let at = |pid| pids.iter().position(|p| *p == pid).expect("a member");
        assert!(at(parent) < at(grandchild));
        table.find_members(&[parent]);
        assert!(table.members().all(|p| p.pid != parent && p.pid != grandchild));
        let member = table.look(grandchild).expect("readable").expect("alive");
        let killed = table.with_handle(member, |handle| {
            rustix::process::pidfd_send_signal(handle.expect("a handle"), rustix::process::Signal::KILL)
        });
        assert_eq!(killed, Ok(Some(Ok(()))));
        child.wait().expect("a status");
    }

    #[test]
    fn who_carries_a_claim_is_found_by_that_and_the_others_by_their_parents() {
        const DESCENT: &Descent = &Descent { claim: *b"0123456789abcdef0123456789abcdef", layout: None };
        let claim = std::str::from_utf8(&DESCENT.claim).expect("digits");
        let start = |claim: &str| {
            std::process::Command::new("sleep")
                .arg("100")
                .env("DLOCK_CLAIM", claim)
                .spawn()
                .expect("a command")
        };
        let (mut carrier, mut stranger) = (start(claim), start(&claim.replace('0', "1")));
        let [carrier_pid, stranger_pid] =
            [&carrier, &stranger].map(|child| i32::try_from(child.id()).expect("a pid"));
        let mut table = table();
        table.remember().expect("memory");
        let found = |table: &ProcessTable| table.members().map(|p| p.pid).collect::<Vec<_>>();
        // Other tests have processes that come and go, so a look may be incomplete.
        while !table.find_adopted(None, DESCENT, &[]) {}
        assert_eq!(found(&table), [carrier_pid]);
        while !table.find_adopted(Some(stranger_pid), DESCENT, &[carrier_pid]) {}
        assert_eq!(found(&table), [stranger_pid]);
        assert!(table.find_descendants(Some(stranger_pid), &[]));
        assert_eq!(found(&table), [stranger_pid]);
        assert!(table.find_descendants(None, &[]));
        assert_eq!(found(&table), [0; 0]);
        for child in [&mut carrier, &mut stranger] {
            child.kill().expect("a child");
            child.wait().expect("a status");
        }
    }
    #[test]
    fn who_is_just_executing_a_program_is_not_overlooked_because_it_has_no_environment_yet() {
        const DESCENT: &Descent = &Descent { claim: *b"0e0e0e0e0e0e0e0eabababababababab", layout: None };
        let claim = std::str::from_utf8(&DESCENT.claim).expect("digits");
        let mut table = table();
        table.remember().expect("memory");
        for _ in 0..5 {
            // The kernel takes its time with so many words, and tells the parent before; and it does that twice.
            let mut carrier = std::process::Command::new("sh")
                .args(["-c", "exec sh -c 'exec sleep 100' \"$@\"", "sh"])
                .args(vec![""; 200_000])
                .env("DLOCK_CLAIM", claim)
                .spawn()
                .expect("a command");
            let id = carrier.id();
            let overlooked = (0..40).find(|_| {
                table.find_adopted(None, DESCENT, &[])
                    && table.members().all(|p| u32::try_from(p.pid) != Ok(id))
            });
            carrier.kill().expect("a child");
            carrier.wait().expect("a status");
            assert_eq!(overlooked, None);
        }
    }
}
