//! The processes of this PID namespace, as a proved /proc shows them.
//!
//! The table takes everything beforehand: the directory, room for the processes, and spare descriptors. So a search
//! needs neither memory nor a descriptor that the system could refuse at the wrong moment.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::proc_dir::Directory;
pub use super::proc_files::Process;
use super::proc_files::number;
use super::proof::{Hidden, proved};
use super::sys;
use super::tree_state::Pids;

/// How long one search waits in total for processes that are exiting, or just executing a program.
const PATIENCE: Duration = Duration::from_millis(20);
/// How many processes one search can hold. The kernel provides the memory only once it is written to.
const ROOM: usize = 32_768;

/// Properties that a descendant of an adopted process keeps after its parent has died.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// The claim in the environment.
    pub claim: u128,
    /// The session of the adopted process.
    pub session: Option<i32>,
    /// The process that adopts orphans of the adopted one, if known.
    pub reaper: Option<i32>,
}

/// A view of the processes of this PID namespace.
#[derive(Debug)]
pub struct ProcessTable {
    directory: Directory,
    /// The processes of the last search, by pid, with room for more.
    found: Vec<Process>,
    /// Positions in `found`, by the pid of the parent.
    by_parent: Vec<usize>,
    /// Which of `found` are members.
    is_member: Vec<bool>,
    /// Positions in `found` of the members, parents before their children.
    pub(super) members: Vec<usize>,
    /// The members of the search before, by pid.
    before: Vec<Process>,
    /// Processes that the last [`ProcessTable::find_adopted`] found and that may be members.
    pub(super) suspects: Pids,
    /// The last search met processes that this one may not inspect (`hidepid`).
    denied: bool,
}

impl ProcessTable {
    /// Opens the table of this process's PID namespace, or returns why it cannot be seen.
    ///
    /// Errors: the system has no descriptors or memory left for the directory (`EMFILE`, `ENFILE`, `ENOMEM`).
    pub fn open() -> io::Result<Result<Self, Hidden>> {
        let directory = match open_directory()? {
            Ok(directory) => directory,
            Err(hidden) => return Ok(Err(hidden)),
        };
        Ok(Ok(Self {
            directory,
            found: Vec::with_capacity(ROOM),
            by_parent: Vec::with_capacity(ROOM),
            is_member: Vec::with_capacity(ROOM),
            members: Vec::with_capacity(ROOM),
            before: Vec::with_capacity(ROOM),
            suspects: Pids::default(),
            denied: false,
        }))
    }

    /// Opens the directory again for this process, which was just forked: processes that share an open directory share
    /// its position too.
    ///
    /// Errors: as for [`ProcessTable::open`].
    pub fn reopen(self) -> io::Result<Result<Self, Hidden>> {
        Ok(open_directory()?.map(|directory| Self { directory, ..self }))
    }

    /// Returns whether the last search found a member that the search before had not.
    pub fn has_found_more(&self) -> bool {
        self.members().any(|member| !is_among(&self.before, member))
    }

    /// Returns the state of `pid`, or `None` if there is no such process.
    ///
    /// Errors: the state is unknown.
    pub fn look(&self, pid: i32) -> Result<Option<Process>, Errno> {
        self.directory.stat(pid)
    }

    /// Calls `act` with a pidfd of `expected`, if that is still the process that started at that time. Without pidfds
    /// (before Linux 5.3, or denied by a container profile) calls it with `None`. Returns `None` if the process is
    /// gone.
    ///
    /// Opens the pidfd first, then checks. If the pid were reused in between, the pidfd would be that of an ended
    /// process, and a signal would have no effect.
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

    /// Searches for all living descendants of this process, without `outside` and their descendants. Returns whether
    /// the search saw all processes.
    pub fn find_members(&mut self, outside: &[i32]) -> bool {
        let own = sys::own_pid();
        self.find(&[], |_, process, _| Ok(process.parent == own && !outside.contains(&process.pid)))
            && !self.denied
    }

    /// Searches for `root` and all its living descendants, without `except` and their descendants. Returns whether the
    /// search saw all processes.
    ///
    /// Reads nothing of another process that could block.
    pub fn find_descendants(&mut self, root: Option<i32>, except: &[i32]) -> bool {
        self.find(except, |_, process, _| Ok(root == Some(process.pid))) && !self.denied
    }

    /// Searches for `root`, the processes that carry the claim of `descent` and are younger than this one, and all
    /// living descendants of those, without `except` and their descendants. Returns whether the search saw all
    /// processes.
    ///
    /// Reading an environment may take as long as the other process keeps its memory locked. Processes from before the
    /// claim are not inspected.
    ///
    /// An exiting process loses its environment before it closes its files, which may take long (NFS). A process that
    /// executes a program has none until the kernel has laid it out. After the death of its parent nothing may show
    /// such a process to be a member. Therefore members of the last search, which may be stopped, stay members until
    /// they end. For others the search waits a moment; if one still cannot be read, it may be a member, so the search
    /// is incomplete.
    ///
    /// A process that may not be inspected, such as one that has executed a set-uid program, is not a member, since
    /// unrelated processes would be killed. If it may be an orphan of `root` it is a suspect, also once it may be
    /// inspected again: `sudo` executes programs without the claim. Processes that /proc hides altogether are not found
    /// here.
    pub fn find_adopted(&mut self, root: Option<i32>, descent: &Descent, except: &[i32]) -> bool {
        let patience = Cell::new(PATIENCE);
        let since = self.look(sys::own_pid()).and_then(|own| own.ok_or(Errno::SRCH)).map(|own| own.born);
        let (former, suspects) = (self.suspects, RefCell::new(Pids::default()));
        let complete = self.find(except, |directory, process, before| {
            if root == Some(process.pid) || is_among(before, process) {
                return Ok(true);
            }
            if process.born < since? {
                return Ok(false);
            }
            let carries = loop {
                match directory.carries(process, descent.claim) {
                    Ok(None) => directory.await_end(process, &patience)?,
                    carries => break carries,
                }
            };
            let is_suspect = match carries {
                Ok(carries) => carries != Some(true) && former.named().contains(&process.pid),
                Err(errno) => matches!(errno, Errno::ACCESS | Errno::PERM),
            };
            if is_suspect && may_be_orphan(process, descent) {
                suspects.borrow_mut().add(process.pid);
            }
            match carries {
                Err(Errno::ACCESS | Errno::PERM) => Ok(false),
                carries => carries.map(|carries| carries == Some(true)),
            }
        });
        let is_member = |pid: i32| self.members().any(|member| member.pid == pid);
        self.suspects = suspects.borrow().named().iter().copied().filter(|pid| !is_member(*pid)).collect();
        complete
    }

    /// Searches for the members of the last search and their living descendants, without `except` and their
    /// descendants. Returns whether the search saw all processes.
    pub fn find_again(&mut self, except: &[i32]) -> bool {
        self.find(except, |_, process, before| Ok(is_among(before, process)))
    }

    /// Searches for the processes that `is_first` accepts, given the members of the last search, and all their living
    /// descendants, without `except` and their descendants. If the search is incomplete, members of the last one that
    /// it does not see stay members.
    fn find(
        &mut self,
        except: &[i32],
        is_first: impl Fn(&Directory, Process, &[Process]) -> Result<bool, Errno>,
    ) -> bool {
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before.extend(self.members().take(before.capacity()));
        before.sort_unstable_by_key(|p| p.pid);
        self.found.clear();
        self.members.clear();
        let read = self.read_all();
        self.found.sort_unstable_by_key(|p| p.pid);
        self.is_member.clear();
        self.is_member.resize(self.found.len(), false);
        // A table that does not show this process shows nothing.
        let own = sys::own_pid();
        let mut complete = read && self.position(own).is_some();
        for at in 0..self.found.len() {
            match is_first(&self.directory, self.found[at], &before) {
                Ok(true) => self.add(at, except),
                Ok(false) => {}
                Err(_) => complete = false,
            }
        }
        self.by_parent.clear();
        self.by_parent.extend(0..self.found.len());
        self.by_parent.sort_unstable_by_key(|at| self.found[*at].parent);
        let mut next = 0;
        while let Some(member) = self.members.get(next) {
            let parent = self.found[*member].pid;
            let first = self.by_parent.partition_point(|at| self.found[*at].parent < parent);
            for position in first..self.by_parent.len() {
                let child = self.by_parent[position];
                if self.found[child].parent != parent {
                    break;
                }
                self.add(child, except);
            }
            next += 1;
        }
        if !complete {
            self.keep(&before, except);
        }
        self.before = before;
        complete
    }

    /// Returns the position of `pid` among the found ones.
    fn position(&self, pid: i32) -> Option<usize> {
        self.found.binary_search_by_key(&pid, |p| p.pid).ok()
    }

    /// Makes the process at that position a member, unless it is one already or among `except`. There is room: every member
    /// is among the found ones, and is listed once.
    fn add(&mut self, at: usize, except: &[i32]) {
        if !self.is_member[at] && !except.contains(&self.found[at].pid) {
            self.is_member[at] = true;
            self.members.push(at);
        }
    }

    /// Keeps those of `before` that are not members now, unless their number belongs to another process.
    fn keep(&mut self, before: &[Process], except: &[i32]) {
        let seen = self.found.len();
        for member in before.iter().filter(|member| !except.contains(&member.pid)) {
            let at = self.found[..seen].binary_search_by_key(&member.pid, |p| p.pid);
            let is_other = at.is_ok_and(|at| !self.found[at].is(member));
            let is_member = at.is_ok_and(|at| self.is_member[at]);
            if !is_other && !is_member && self.found.len() < self.found.capacity() {
                self.members.push(self.found.len());
                self.found.push(*member);
            }
        }
    }

    /// Returns the members of the last search, parents before their children.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = Process> {
        self.members.iter().filter_map(|at| self.found.get(*at)).copied()
    }

    /// Reads every living process. Returns whether it could read all that this process may inspect.
    fn read_all(&mut self) -> bool {
        self.denied = false;
        let Self { directory, found, denied, .. } = self;
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
                Err(Errno::ACCESS | Errno::PERM) => *denied = true,
                Ok(Some(_)) | Err(_) => complete = false,
            }
        }
        complete
    }
}

/// Returns whether `process` is in `sorted`, which is ordered by pid.
fn is_among(sorted: &[Process], process: Process) -> bool {
    sorted.binary_search_by_key(&process.pid, |p| p.pid).is_ok_and(|at| sorted[at].is(&process))
}

/// Returns whether `process`, which this process may not inspect, may be an orphan of the adopted one: it is in the
/// same session, and its parent is the process that adopts such orphans, if known.
fn may_be_orphan(process: Process, descent: &Descent) -> bool {
    let Descent { session, reaper, .. } = *descent;
    session == Some(process.session) && reaper.is_none_or(|reaper| reaper == process.parent)
}

fn open_directory() -> io::Result<Result<Directory, Hidden>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match proved(|| openat(CWD, c"/proc", flags, Mode::empty()))? {
        Ok(proc) => Directory::new(proc).map(Ok),
        Err(hidden) => Ok(Err(hidden)),
    }
}

#[cfg(test)]
#[path = "process_table_tests.rs"]
mod tests;
