//! One run with one fault, from its start until everybody has ended or should have.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::call::Call;
use crate::command;
use crate::point::{Enemy, Fault, Hit, Point};
use crate::process;
use crate::shape::{Event, Normal, Shape};
use crate::site::Site;
use crate::sys;
use crate::tracer::{Blow, End, Followed, Role, Tracer};

/// Everybody has ended by then, the shortest time that is certainly a hang.
// The longest lease, 8 s, a release of 5.5 s that nobody answers, and 2 s to clean up after its keeper.
const LONGEST: Duration = Duration::from_secs(25);
/// So long nothing happens in a run that waits for an event.
const QUIET: Duration = Duration::from_millis(20);
/// Who waits is where it should be by then, whatever it does.
const EVENT_AT: Duration = Duration::from_millis(800);
/// How long a pause is: much shorter than any lease.
const PAUSE: Duration = Duration::from_millis(50);
/// A stopped front is continued by then, whoever still waits.
const CONTINUE_AT: Duration = Duration::from_millis(2_500);

/// What was seen of a run.
pub(crate) struct Seen {
    pub(crate) hit: Option<Hit>,
    pub(crate) front: Option<End>,
    pub(crate) keeper: Option<End>,
    /// Whether another process of dlock's was there when the front had ended.
    pub(crate) keeper_outlived: bool,
    /// When front, keepers and launch were all gone.
    pub(crate) all_gone: Option<Instant>,
    /// Members of the tree that lived at that moment or later.
    pub(crate) unguarded: Vec<String>,
    /// When the next one's command began.
    pub(crate) next_began: Option<Instant>,
    pub(crate) next_ended: Option<End>,
    /// Who had not ended in the end.
    pub(crate) stuck: Vec<String>,
    /// Whether the command was executed, as far as can be told.
    pub(crate) executed: bool,
}

/// A run that goes on.
pub(crate) struct Scene<'a> {
    shape: &'static Shape,
    site: &'a Site,
    fault: Option<Fault>,
    begun: Instant,
    holder: Option<i32>,
    next: Option<i32>,
    event_over: bool,
    /// When somebody else came to wait.
    joined: Option<Instant>,
    holder_released: bool,
    continued: bool,
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
            Blow::Nothing
        });
        if scene.advance(&tracer, None) {
            return scene.end(&tracer, None);
        }
        sys::await_change(Duration::from_millis(3));
    }
}

/// A run with the fault at `point`.
pub(crate) fn play(site: &Site, shape: &'static Shape, point: &Point) -> Seen {
    let (mut scene, mut tracer) = Scene::begin(site, shape, Some(point.fault));
    let mut enemy = Enemy::new(point);
    loop {
        // Before the event it matters when nothing happens any more.
        let (command, is_calm) = (tracer.command, scene.event_over);
        tracer.take(&mut |process, call| {
            let unhurt = is_calm && !enemy.is_after(process.role);
            if unhurt { Blow::NothingMore } else { enemy.at(process, call, command) }
        });
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
        let mut nobody = Tracer::idle();
        while shape.held && !site.has_noted("start holder") && begun.elapsed() < LONGEST {
            nobody.take(&mut |_, _| Blow::Nothing);
            sys::await_change(Duration::from_millis(2));
        }
        // What is stopped for good is ended when the lease is over.
        // Waited out; with a lease a tracer needs more than the shortest kill budget.
        let ttl = match fault {
            Some(Fault::Stop) if !shape.on_redis => "1s",
            _ => shape.ttl,
        };
        let tracer = Tracer::of(site.run(ttl));
        let scene = Self {
            shape,
            site,
            fault,
            begun: Instant::now(),
            holder,
            next: None,
            event_over: shape.event == Event::None,
            joined: None,
            holder_released: false,
            continued: false,
            all_gone: None,
            unguarded: BTreeSet::new(),
            next_began: None,
        };
        (scene, tracer)
    }

    /// Does what is due; whether the run is over.
    fn advance(&mut self, tracer: &Tracer, hit: Option<&Hit>) -> bool {
        if tracer.all_ended() {
            self.all_gone.get_or_insert_with(Instant::now);
            let members = command::members(&self.site.folder).into_iter();
            let living = members.filter(|(who, pid)| who == "run" && process::lives(*pid));
            self.unguarded.extend(living.map(|(_, pid)| process::describe(pid)));
        }
        self.happen(tracer);
        self.continue_stopped(tracer, hit);
        self.care_for_next(hit);
        self.release_holder(tracer, hit);
        let ended = |pid: Option<i32>| pid.is_none_or(|pid| tracer.others.contains_key(&pid));
        let over = self.all_gone.is_some() && self.next.is_some() && ended(self.next) && ended(self.holder);
        over || self.begun.elapsed() > LONGEST
    }

    /// The event from outside.
    fn happen(&mut self, tracer: &Tracer) {
        if self.event_over {
            return;
        }
        let there = if self.shape.held {
            tracer.last_event.elapsed() > QUIET || self.begun.elapsed() > EVENT_AT
        } else {
            self.site.has_noted("start run") && tracer.last_event.elapsed() > QUIET
        };
        if !there && tracer.front().end.is_none() {
            return;
        }
        match self.shape.event {
            Event::None => {}
            Event::Terminate => process::signal(tracer.front().pid, Signal::TERM),
            Event::Remove => self.site.remove_lock(),
            Event::Delete => self.site.delete_key(),
            Event::Silence => self.site.silence(),
            Event::Release => self.release(),
            Event::HandOver => {
                self.next.get_or_insert_with(|| self.site.other("next", "next"));
                // Once more when that one has found its place.
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

    /// A pause ends, and a stopped front goes on when the others have done what they can.
    fn continue_stopped(&mut self, tracer: &Tracer, hit: Option<&Hit>) {
        let Some(hit) = hit.filter(|_| !self.continued) else { return };
        let since = hit.at.elapsed();
        // A command that is stopped just when it is executed stops its front, and a shell continues both.
        let resumable = [Some(tracer.front().pid), tracer.command].contains(&Some(hit.pid));
        let next_over = self.next.is_some_and(|next| tracer.others.contains_key(&next));
        let due = match self.fault {
            Some(Fault::Pause) => since > PAUSE,
            Some(Fault::Stop) => resumable && (since > CONTINUE_AT || (next_over && since > PAUSE)),
            _ => false,
        };
        if due {
            self.continued = true;
            process::signal(hit.pid, Signal::CONT);
            process::signal(tracer.front().pid, Signal::CONT);
        }
    }

    /// The next one comes right when the fault has struck, or when all is over.
    fn care_for_next(&mut self, hit: Option<&Hit>) {
        let at_once = hit.is_some() && !self.shape.frees_the_lock();
        if self.next.is_none() && (at_once || self.all_gone.is_some()) {
            self.next = Some(self.site.other("next", "next"));
        }
        if self.next_began.is_none() && self.next.is_some() && self.site.has_noted("start next") {
            self.next_began = Some(Instant::now());
        }
    }

    /// Where nothing else does, the end of the run lets the holder go.
    fn release_holder(&mut self, tracer: &Tracer, hit: Option<&Hit>) {
        let front_over = tracer.front().end.is_some();
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
        for (who, pid) in [("next", self.next), ("holder", self.holder)] {
            stuck.extend(
                pid.filter(|pid| !tracer.others.contains_key(pid))
                    .map(|pid| format!("{who} {}", process::describe(pid))),
            );
        }
        let after = |end: End| tracer.front().end.is_some_and(|front| end.order > front.order);
        let mut others = tracer.processes.iter().skip(1);
        let keeper_outlived = others.any(|p| p.end.is_none_or(after)) && tracer.front().end.is_some();
        let keeper = tracer.processes.iter().find(|p| p.role == Role::Keeper).and_then(|p| p.end);
        Seen {
            hit,
            front: tracer.front().end,
            keeper,
            keeper_outlived,
            all_gone: self.all_gone,
            unguarded: self.unguarded.into_iter().collect(),
            next_began: self.next_began,
            next_ended: self.next.and_then(|next| tracer.others.get(&next).copied()),
            stuck,
            executed: tracer.command.is_some() || tracer.executing,
        }
    }
}

/// Whether that is how a run of the shape without faults ends.
pub(crate) fn is_normal(shape: &Shape, end: End) -> bool {
    let normal = match shape.ends {
        Normal::Exit(code) => sys::Change::Exited(code),
        Normal::Signal(signal) => sys::Change::Killed(signal),
    };
    end.change == normal
}
