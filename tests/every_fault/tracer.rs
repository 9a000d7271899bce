//! Follows a dlock through its system calls: the front, its keepers with their threads, and the command until it is
//! executed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use rustix::process::Signal;

use crate::call::Call;
use crate::enumeration::process;
use crate::sys::{self, Change};

/// The role of a process of dlock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// The caller of `acquire`, which leaves front and keeper behind.
    Caller,
    Front,
    Keeper,
    /// The command before it is executed.
    Launch,
    /// Another process that the front creates when the keeper is gone.
    Later,
}

impl Role {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Caller, "caller"),
        (Self::Front, "front"),
        (Self::Keeper, "keeper"),
        (Self::Launch, "launch"),
        (Self::Later, "later"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, its)| *its == name).map(|(role, _)| role)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(role, _)| role == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// An injection at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injection {
    Nothing,
    /// No injection now or at a later call. So the tracer need not stop at them, which takes time.
    NothingMore,
    Signal(Signal),
    /// The call is not made before [`Tracer::release`].
    Hold,
    /// The call is skipped and fails.
    Fail(i32),
    /// The call is made, and fails nevertheless.
    FailAfter(i32),
}

/// A number that is no process's.
pub(crate) const NOT_YET: i32 = 0;

/// A process that is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    /// [`NOT_YET`] before its shell has created it.
    pub(crate) pid: i32,
    pub(crate) role: Role,
    /// How many system calls it has entered; a series of accesses to strangers counts as one.
    pub(crate) calls: usize,
    /// Whether the last call was an access to a stranger.
    at_stranger: bool,
    /// How it ended.
    pub(crate) end: Option<End>,
    /// Whether it has not executed dlock yet.
    is_before: bool,
    /// Whether only the loader runs, before the program's own code.
    in_loader: bool,
}

/// The end of a process, and its position in the order of ends: a parent that has reaped its child ends later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) change: Change,
    pub(crate) order: usize,
}

struct Thread {
    process: usize,
    /// The result of the call that it is in.
    fails_with: Option<i32>,
}

/// All followed processes, and the ends of other children.
pub(crate) struct Tracer {
    pub(crate) processes: Vec<Followed>,
    /// Children that are not followed, and how they ended.
    pub(crate) others: BTreeMap<i32, End>,
    /// The executed command.
    pub(crate) command: Option<i32>,
    /// Whether it was about to be executed: a command killed then may have been executed.
    pub(crate) executing: bool,
    /// When the last event happened.
    pub(crate) last_event: Instant,
    /// The number of processes that have ended.
    ended: usize,
    threads: BTreeMap<i32, Thread>,
    /// The thread that is held at a call.
    held: Option<i32>,
    /// The processes that are no strangers, where accesses to strangers are not worth more than one fault.
    own: Option<Own>,
    /// The threads that began before the event of their parent.
    unknown: Vec<i32>,
}

impl Tracer {
    /// Follows the process `first`, which is about to execute dlock.
    pub(crate) fn of(first: i32, role: Role, own: Option<Own>) -> Self {
        let mut tracer = Self {
            processes: Vec::new(),
            others: BTreeMap::new(),
            command: None,
            executing: false,
            last_event: Instant::now(),
            ended: 0,
            threads: BTreeMap::new(),
            held: None,
            own,
            unknown: Vec::new(),
        };
        tracer.add(first, role, true);
        tracer
    }

    /// Follows the first process that `shell` creates, which is about to execute dlock.
    pub(crate) fn of_job(shell: i32) -> Self {
        let mut tracer = Self::of(shell, Role::Front, None);
        tracer.processes[0].pid = NOT_YET;
        tracer
    }

    /// Follows no process.
    pub(crate) fn idle() -> Self {
        let mut tracer = Self::of(0, Role::Front, None);
        tracer.processes.clear();
        tracer.threads.clear();
        tracer
    }

    fn add(&mut self, pid: i32, role: Role, in_loader: bool) {
        self.threads.insert(pid, Thread { process: self.processes.len(), fails_with: None });
        self.processes.push(Followed {
            pid,
            role,
            calls: 0,
            at_stranger: false,
            end: None,
            is_before: in_loader,
            in_loader,
        });
    }

    /// Returns the process that was started first, whose status counts.
    pub(crate) fn first(&self) -> &Followed {
        &self.processes[0]
    }

    /// Returns the front, once there is one.
    pub(crate) fn front(&self) -> Option<&Followed> {
        self.processes.iter().find(|process| process.role == Role::Front)
    }

    /// Returns whether front, keepers and launched command are all gone.
    pub(crate) fn all_ended(&self) -> bool {
        self.processes.iter().all(|p| p.end.is_some())
    }

    /// Takes all events; `injection` decides at each call of the program.
    pub(crate) fn take(&mut self, injection: &mut impl FnMut(&Followed, &Call) -> Injection) {
        while let Some((tid, change)) = sys::next_change() {
            self.last_event = Instant::now();
            match change {
                Change::Exited(_) | Change::Killed(_) => self.ended(tid, change),
                _ if !self.threads.contains_key(&tid) => self.unknown.push(tid),
                Change::Call => self.at_call(tid, injection),
                Change::Forked => self.forked(tid),
                Change::Executed => self.executed(tid),
                Change::Begins => sys::go_on(tid, 0),
                Change::Stopped => sys::leave_stopped(tid),
                Change::Signal(signal) => sys::go_on(tid, signal),
            }
        }
    }

    /// Lets a held thread make its call.
    pub(crate) fn release(&mut self) {
        if let Some(tid) = self.held.take() {
            sys::go_on(tid, 0);
        }
    }

    fn ended(&mut self, tid: i32, change: Change) {
        self.ended += 1;
        let end = End { change, order: self.ended };
        let Some(thread) = self.threads.remove(&tid) else {
            self.others.insert(tid, end);
            return;
        };
        let process = &mut self.processes[thread.process];
        if process.pid == tid {
            process.end = Some(end);
        }
    }

    fn forked(&mut self, tid: i32) {
        let parent = self.threads[&tid].process;
        if let Some(new) = sys::forked(tid) {
            if self.processes[parent].pid == NOT_YET {
                self.processes[parent].pid = new;
                let job = self.threads.remove(&tid).expect("the shell is followed");
                self.threads.insert(new, job);
            } else if process::is_thread(new) {
                self.threads.insert(new, Thread { process: parent, fails_with: None });
            } else {
                let has_keeper = self.processes.iter().any(|process| process.role == Role::Keeper);
                let role = match self.processes[parent].role {
                    Role::Caller => Role::Front,
                    Role::Front if !has_keeper => Role::Keeper,
                    Role::Front => Role::Later,
                    _ => Role::Launch,
                };
                self.add(new, role, false);
            }
            if let Some(at) = self.unknown.iter().position(|tid| *tid == new) {
                self.unknown.swap_remove(at);
                sys::go_on(new, 0);
            }
        }
        if self.threads.contains_key(&tid) { sys::go_on(tid, 0) } else { sys::let_go(tid) }
    }

    fn executed(&mut self, tid: i32) {
        let process = self.threads[&tid].process;
        if process == 0 {
            self.processes[0].is_before = self.processes[0].pid != tid;
            return sys::go_on(tid, 0);
        }
        // From here on the command runs without the tracer.
        self.threads.remove(&tid);
        self.command = Some(tid);
        self.processes.remove(process);
        for thread in self.threads.values_mut() {
            thread.process -= usize::from(thread.process > process);
        }
        sys::let_go(tid);
    }

    fn at_call(&mut self, tid: i32, injection: &mut impl FnMut(&Followed, &Call) -> Injection) {
        if let Some(info) = sys::call_info(tid) {
            let thread = self.threads.get_mut(&tid).expect("it is followed");
            let process = &mut self.processes[thread.process];
            if info.op == 2 {
                if let Some(errno) = thread.fails_with.take() {
                    sys::fail_call(tid, errno);
                }
            } else if !in_loader(process, &info) {
                let call = Call::of(tid, &info);
                let whose = self.own.as_mut().zip(call.about());
                let at_stranger = whose.is_some_and(|(own, pid)| !own.has(pid));
                process.calls += usize::from(!(at_stranger && process.at_stranger));
                process.at_stranger = at_stranger;
                self.executing |= process.role == Role::Launch && call.name == "execve";
                match injection(process, &call) {
                    Injection::Nothing => {}
                    Injection::NothingMore => return sys::run_on(tid),
                    Injection::Hold => {
                        self.held = Some(tid);
                        return;
                    }
                    Injection::Signal(signal) => process::signal(process.pid, signal),
                    Injection::Fail(errno) => {
                        sys::skip_call(tid);
                        thread.fails_with = Some(errno);
                    }
                    Injection::FailAfter(errno) => thread.fails_with = Some(errno),
                }
            }
        }
        sys::go_on(tid, 0);
    }
}

/// The processes of one point, known by a variable in their environment.
pub(crate) struct Own {
    variable: String,
    known: BTreeSet<i32>,
    /// Strangers that existed before. To read the environment of each at each access would take most of a point's time.
    strangers: BTreeSet<i32>,
}

impl Own {
    pub(crate) fn by(variable: String) -> Self {
        let others = process::all_pids().filter(|pid| !process::has_variable(*pid, &variable));
        let strangers = others.filter(|pid| !process::is_own_child(*pid)).collect();
        Self { variable, known: BTreeSet::new(), strangers }
    }

    fn has(&mut self, pid: i32) -> bool {
        if self.strangers.contains(&pid) {
            return false;
        }
        // A dead process has no variables any more.
        let is_own = || process::has_variable(pid, &self.variable) || process::is_own_child(pid);
        self.known.contains(&pid) || (is_own() && self.known.insert(pid))
    }
}

/// Returns whether the call is the dynamic loader's, or precedes the execution of the program.
fn in_loader(process: &mut Followed, info: &sys::CallInfo) -> bool {
    if process.in_loader {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
        process.in_loader = process.is_before
            || maps.lines().any(|line| {
                let mut words = line.split_ascii_whitespace();
                let range = words.next().and_then(|range| range.split_once('-'));
                let hex = |text| u64::from_str_radix(text, 16).ok();
                let inside = range.is_some_and(|(from, to)| {
                    hex(from).is_some_and(|from| from <= info.instruction)
                        && hex(to).is_some_and(|to| info.instruction < to)
                });
                inside && line.contains("/ld-")
            });
    }
    process.in_loader
}
