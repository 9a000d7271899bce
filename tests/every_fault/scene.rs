//! One run with one fault, from its start until every process has ended or should have.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::call::Call;
use crate::enumeration::{Normal, command, process};
use crate::point::{Enemy, Fault, Hit, Point};
use crate::shape::{Event, Shape, Verb};
use crate::site::{self, Site};
use crate::sys;
use crate::tracer::{End, Followed, Injection, Own, Role, Tracer};
use crate::user::User;

/// Every process has ended by then: the shortest time that certainly means a hang.
// The longest lease, 8 s, an unanswered release of 5.5 s, and 2 s to clean up after its keeper.
const LONGEST: Duration = Duration::from_secs(25);
/// A run without activity for this long waits for an event.
pub(crate) const QUIET: Duration = Duration::from_millis(20);
/// Every waiter is in its place by then, whatever the fault.
pub(crate) const EVENT_AT: Duration = Duration::from_millis(800);
/// The length of a pause: much shorter than any lease.
const PAUSE: Duration = Duration::from_millis(50);
/// A stopped front is continued by then, even if others still wait.
const CONTINUE_AT: Duration = Duration::from_millis(2_500);

/// The observations of a run.
pub(crate) struct Seen {
    pub(crate) hit: Option<Hit>,
    /// The end of the process that was started first.
    pub(crate) first: Option<End>,
    pub(crate) front: Option<End>,
    pub(crate) keeper: Option<End>,
    /// Whether another process of dlock existed when the front had ended.
    pub(crate) keeper_outlived: bool,
    /// When front, keepers and launch were all gone.
    pub(crate) all_gone: Option<Instant>,
    /// Members of the tree that lived at that moment or later.
    pub(crate) unguarded: Vec<String>,
    /// When the command of the next run began.
    pub(crate) next_began: Option<Instant>,
    pub(crate) next_ended: Option<End>,
    /// The processes that did not end.
    pub(crate) stuck: Vec<String>,
    /// Whether the command was executed, as far as is known.
    pub(crate) executed: bool,
}

/// A run in progress.
pub(crate) struct Scene<'a> {
    shape: &'static Shape,
    site: &'a Site,
    fault: Option<Fault>,
    ttl: Duration,
    begun: Instant,
    holder: Option<i32>,
    /// The script that takes the lock.
    script: Option<i32>,
    /// The shell of the job.
    shell: Option<i32>,
    user: Option<User<'a>>,
    next: Option<i32>,
    event_over: bool,
    /// When the other waiter came.
    joined: Option<Instant>,
    holder_released: bool,
    continued: bool,
    script_gone: Option<Instant>,
    all_gone: Option<Instant>,
    unguarded: BTreeSet<String>,
    next_began: Option<Instant>,
}

/// Calls `watch` at each call of a run without faults.
pub(crate) fn count(site: &Site, shape: &'static Shape, mut watch: impl FnMut(&Followed, &Call)) -> Seen {
    let (mut scene, mut tracer) = Scene::begin(site, shape, None);
    loop {
        tracer.take(&mut |process, call| {
            watch(process, call);
            Injection::Nothing
        });
        if scene.advance(&tracer, None) {
            return scene.end(&tracer, None);
        }
        sys::await_change(Duration::from_millis(3));
    }
}

/// Plays a run with the fault at `point`.
pub(crate) fn play(site: &Site, shape: &'static Shape, point: &Point) -> Seen {
    let (mut scene, mut tracer) = Scene::begin(site, shape, Some(point.fault));
    let mut enemy = Enemy::new(point);
    loop {
        // Before the event, a time without activity matters.
        let (command, is_calm) = (tracer.command, scene.event_over);
        tracer.take(&mut |process, call| {
            let unhurt = is_calm && !enemy.is_after(process.role);
            if unhurt { Injection::NothingMore } else { enemy.at(process, call, command) }
        });
        if scene.is_delay_over(enemy.hit.as_ref()) {
            tracer.release();
        }
        if scene.advance(&tracer, enemy.hit.as_ref()) {
            return scene.end(&tracer, enemy.hit);
        }
        sys::await_change(Duration::from_millis(3));
    }
}

impl<'a> Scene<'a> {
    fn begin(site: &'a Site, shape: &'static Shape, fault: Option<Fault>) -> (Self, Tracer) {
        let holder = shape.held.then(|| site.other("holder", "gate"));
        let begun = Instant::now();
        let mut idle = Tracer::idle();
        while shape.held && !site.has_noted("start holder") && begun.elapsed() < LONGEST {
            idle.take(&mut |_, _| Injection::Nothing);
            sys::await_change(Duration::from_millis(2));
        }
        // A stopped waiter is replaced when its lease expires. This waits for that. With a lease, a tracer needs more
        // than the shortest kill budget.
        let ttl = match fault {
            Some(Fault::Stop | Fault::Delay(_)) if !shape.on_redis => "1s",
            _ => shape.ttl,
        };
        let script = shape.is_for_script().then(|| site.script());
        // Earlier it is still a fork of this process.
        while script.is_some() && !site.has_noted("member run") && begun.elapsed() < LONGEST {
            sys::await_change(Duration::from_millis(1));
        }
        let role = if shape.is_for_script() { Role::Caller } else { Role::Front };
        let own = script.map(|_| Own::by(site::mark()));
        let first = site.run(ttl, script);
        let tracer = if shape.is_job() { Tracer::of_job(first) } else { Tracer::of(first, role, own) };
        let seconds = ttl.trim_end_matches('s').parse().expect("seconds");
        let scene = Self {
            shape,
            site,
            fault,
            ttl: Duration::from_secs(seconds),
            begun: Instant::now(),
            holder,
            script,
            shell: shape.is_job().then_some(first),
            user: shape.is_job().then(|| User::of(site)),
            next: None,
            event_over: shape.event == Event::None,
            joined: None,
            holder_released: false,
            continued: false,
            script_gone: None,
            all_gone: None,
            unguarded: BTreeSet::new(),
            next_began: None,
        };
        (scene, tracer)
    }

    /// Does what is due. Returns whether the run is over.
    fn advance(&mut self, tracer: &Tracer, hit: Option<&Hit>) -> bool {
        if tracer.all_ended() {
            self.all_gone.get_or_insert_with(Instant::now);
            let members = command::members(&self.site.folder).into_iter();
            // A script that has ended has released the lock, or had none any more.
            let is_over = self.site.has_noted("end run") || !self.site.has_noted("start run");
            let script = self.script.filter(|_| is_over);
            let living =
                members.filter(|one| one.who == "run" && Some(one.pid) != script && process::lives(one.pid));
            self.unguarded.extend(living.map(|one| process::describe(one.pid)));
        }
        self.tell_script(tracer);
        self.happen(tracer);
        self.continue_stopped(tracer, hit);
        self.care_for_next(hit);
        self.release_holder(tracer, hit);
        let ended = |pid: Option<i32>| pid.is_none_or(|pid| tracer.others.contains_key(&pid));
        let others = [self.next, self.holder, self.script, self.shell];
        let over = self.all_gone.is_some() && self.next.is_some() && others.into_iter().all(ended);
        over || self.is_kept(tracer, hit) || self.begun.elapsed() > LONGEST
    }

    /// Returns whether the lock has been held so long after the script's end that it is held for ever.
    fn is_kept(&mut self, tracer: &Tracer, hit: Option<&Hit>) -> bool {
        let may_keep = hit.is_some() && self.fault.is_some_and(|fault| self.shape.may_keep(fault));
        if !may_keep || !self.script.is_some_and(|script| tracer.others.contains_key(&script)) {
            return false;
        }
        self.script_gone.get_or_insert_with(Instant::now).elapsed() > self.shape.kept_after()
    }

    /// Reports the status of `acquire` to the script, as a shell does.
    fn tell_script(&self, tracer: &Tracer) {
        if let Some(end) = tracer.first().end.filter(|_| self.script.is_some()) {
            self.site.tell_script(end.change == sys::Change::Exited(0));
        }
    }

    /// Causes the event from outside.
    fn happen(&mut self, tracer: &Tracer) {
        if let Some(user) = &mut self.user {
            user.advance(tracer, self.fault.is_some());
            self.event_over = user.is_done();
            return;
        }
        if self.event_over {
            return;
        }
        let there = if self.shape.held {
            // A run on a busy machine is also quiet before it waits. And a fault can suppress the message about the
            // wait.
            let waits = self.site.read("run.err").contains("waiting for ");
            let faulty = self.fault.is_some();
            (waits && tracer.last_event.elapsed() > QUIET) || (faulty && self.begun.elapsed() > EVENT_AT)
        } else {
            let terms = if self.shape.stands_again() { 2 } else { 1 };
            self.site.times_noted("start run") >= terms && tracer.last_event.elapsed() > QUIET
        };
        let over = if self.script.is_some() { tracer.all_ended() } else { tracer.first().end.is_some() };
        if !there && !over {
            return;
        }
        match self.shape.event {
            Event::None | Event::Suspend => {}
            Event::Terminate | Event::EndSecondTerm => process::signal(tracer.first().pid, Signal::TERM),
            Event::KillScript => self.script.iter().for_each(|pid| process::signal(*pid, Signal::KILL)),
            Event::Remove => self.site.remove_lock(),
            Event::Delete => self.site.delete_key(),
            Event::Silence => self.site.silence(),
            Event::Release => self.release(),
            Event::HandOver => {
                self.next.get_or_insert_with(|| self.site.other("next", "10"));
                // Again after the other waiter has found its place.
                if self.joined.get_or_insert_with(Instant::now).elapsed() < QUIET * 2 {
                    return;
                }
                self.site.open_gate("run");
            }
        }
        self.event_over = true;
    }

    fn release(&mut self) {
        if !self.holder_released {
            self.holder_released = true;
            self.site.open_gate("holder");
        }
    }

    /// Returns whether a call has taken as long as it should.
    fn is_delay_over(&self, hit: Option<&Hit>) -> bool {
        matches!((self.fault, hit), (Some(Fault::Delay(tenths)), Some(hit)) if hit.at.elapsed() > self.ttl * tenths / 10)
    }

    /// Ends a pause. Continues a stopped process when the others have done what they can; a stopped keeper with a lease
    /// stays stopped.
    fn continue_stopped(&mut self, tracer: &Tracer, hit: Option<&Hit>) {
        let Some(hit) = hit.filter(|_| !self.continued) else { return };
        let since = hit.at.elapsed();
        // A command that is stopped just at its execution stops its front, and a shell continues both.
        let front = tracer.front().map(|front| front.pid);
        let resumable = !self.shape.on_redis
            || [Some(tracer.first().pid), front, tracer.command].contains(&Some(hit.pid));
        let next_over = self.next.is_some_and(|next| tracer.others.contains_key(&next));
        let due = match self.fault {
            Some(Fault::Pause) => since > PAUSE,
            Some(Fault::Stop) => resumable && (since > CONTINUE_AT || (next_over && since > PAUSE)),
            _ => false,
        };
        if due {
            self.continued = true;
            for pid in [hit.pid, tracer.first().pid].into_iter().chain(front) {
                process::signal(pid, Signal::CONT);
            }
        }
    }

    /// Starts the next run right after the fault, or after the end of the run.
    fn care_for_next(&mut self, hit: Option<&Hit>) {
        let at_once = hit.is_some() && !self.shape.frees_the_lock();
        if self.next.is_none() && (at_once || self.all_gone.is_some()) {
            self.next = Some(self.site.other("next", "10"));
        }
        if self.next_began.is_none() && self.next.is_some() && self.site.has_noted("start next") {
            self.next_began = Some(Instant::now());
        }
    }

    /// Releases the holder when the run ends, if nothing else does.
    fn release_holder(&mut self, tracer: &Tracer, hit: Option<&Hit>) {
        let front_over = tracer.first().end.is_some();
        let stopped =
            self.fault == Some(Fault::Stop) && hit.is_some_and(|hit| hit.at.elapsed() > CONTINUE_AT / 2);
        let late = self.begun.elapsed() > LONGEST / 2;
        if self.shape.held && self.shape.event != Event::Release && (front_over || stopped || late) {
            self.release();
        }
    }

    fn end(self, tracer: &Tracer, hit: Option<Hit>) -> Seen {
        let followed = tracer.processes.iter().filter(|p| p.end.is_none());
        let mut stuck: Vec<String> =
            followed.map(|p| format!("{} {}", p.role, process::describe(p.pid))).collect();
        for (who, pid) in
            [("next", self.next), ("holder", self.holder), ("script", self.script), ("shell", self.shell)]
        {
            stuck.extend(
                pid.filter(|pid| !tracer.others.contains_key(pid))
                    .map(|pid| format!("{who} {}", process::describe(pid))),
            );
        }
        let front = tracer.front().and_then(|front| front.end);
        let after = |end: End| front.is_some_and(|front| end.order > front.order);
        let mut others = tracer.processes.iter().filter(|p| !matches!(p.role, Role::Caller | Role::Front));
        let keeper_outlived = others.any(|p| p.end.is_none_or(after)) && front.is_some();
        let keeper = tracer.processes.iter().find(|p| p.role == Role::Keeper).and_then(|p| p.end);
        Seen {
            hit,
            first: tracer.first().end,
            front,
            keeper,
            keeper_outlived,
            all_gone: self.all_gone,
            unguarded: self.unguarded.into_iter().collect(),
            next_began: self.next_began,
            next_ended: self.next.and_then(|next| tracer.others.get(&next).copied()),
            stuck,
            executed: tracer.command.is_some()
                || tracer.executing
                // A script runs before it has the lock.
                || self.shape.verb == Verb::Acquire,
        }
    }
}

/// Returns whether a run of the shape without faults ends so.
pub(crate) fn is_normal(shape: &Shape, end: End) -> bool {
    let normal = match shape.ends {
        Normal::Exit(code) => sys::Change::Exited(code),
        Normal::Signal(signal) => sys::Change::Killed(signal),
    };
    end.change == normal
}
