//! The ender of a process that dlock did not start.
//!
//! The tree is that process, its descendants, and every process that has the claim in the environment that it was
//! started with. The last part finds orphans: the kernel shows those only to their new parent. The tree is *gone* when
//! the process has ended and two searches of all processes find no member. It is empty before the lock is held for the
//! process, and after the release.

use rustix::fd::OwnedFd;

use super::adopted::Adopted;
use super::ender::Ender;
use super::process_table::{Descent, ProcessTable};
use super::signals::Signal;
use super::sys;
use super::tree_state::{Pids, Reached};
use super::unlisted::{self, Unlisted};

/// How often to stop the found members before killing them. Stopped processes do not fork, so the second search finds
/// those that started during the first.
const STOPS: u32 = 8;

/// The rest of a tree whose root has ended.
#[derive(Debug)]
pub enum Left {
    /// No process is left.
    Nobody,
    /// A process is left; its pidfd becomes readable when it ends. It may be known earlier to be none of the tree.
    Somebody(OwnedFd),
    /// Unknown at present.
    Unknown,
}

impl Ender {
    /// Returns the adopted process if the lock is held for it at present.
    pub(super) fn protected(&self) -> Option<&Adopted> {
        self.adopted.as_ref().filter(|_| self.shared.gate.command().is_some())
    }

    /// Searches for the members. Returns whether the search saw all processes. Front and keeper are not members, even
    /// if the caller is one.
    pub(super) fn find_adopted(&mut self) -> bool {
        let Some(claim) = self.shared.number() else { return false };
        let session = self.adopted.as_ref().and_then(|adopted| adopted.session);
        let descent = Descent { claim, session, reaper: self.reaper() };
        self.look_with_root(|table, root, own| table.find_adopted(root, &descent, own))
    }

    /// Returns the process that adopts orphans of the adopted one: the present parent of the front, itself an orphan of
    /// the caller.
    fn reaper(&self) -> Option<i32> {
        Some(self.table.as_ref().ok()?.look(self.front).ok().flatten()?.parent)
    }

    /// Returns processes that may be members: /proc does not let this process inspect them.
    fn suspects(&self) -> Pids {
        let listed = self.table.as_ref().map(|table| table.suspects).unwrap_or_default();
        let unlisted = self.adopted.as_ref().and_then(|adopted| adopted.unlisted.as_ref());
        let unlisted = unlisted.map(Unlisted::found).unwrap_or_default();
        listed.named().iter().chain(unlisted.named()).copied().collect()
    }

    /// Searches for the adopted process and its descendants. Returns whether the search saw all processes.
    fn find_descendants(&mut self) -> bool {
        self.look_with_root(ProcessTable::find_descendants)
    }

    /// Calls `look` with the number of the adopted process, as long as it is safe, and the numbers of front and keeper.
    fn look_with_root(&mut self, look: impl Fn(&mut ProcessTable, Option<i32>, &[i32]) -> bool) -> bool {
        let own = self.own();
        loop {
            let root = self.protected().map(|adopted| (!adopted.has_ended()).then_some(adopted.pid));
            let (Some(root), Ok(table)) = (root, &mut self.table) else { return false };
            let complete = look(table, root, &own);
            // If it has ended, the number may mean another process by now.
            if root.is_none() || self.protected().is_some_and(|adopted| !adopted.has_ended()) {
                return complete;
            }
        }
    }

    /// Does one round as [`Ender::kill_round`] does: stops all, so that none forks meanwhile, then kills all. The
    /// adopted process and its descendants come first: to find the others, environments have to be read, which may take
    /// long.
    pub(super) fn kill_adopted_round(&mut self) -> Reached {
        if self.protected().is_none() {
            return Reached::default();
        }
        if self.table.is_err() {
            self.signal_known(Signal::KILL);
            return Reached { incomplete: true, ..Reached::default() };
        }
        if self.protected().is_some_and(|adopted| !adopted.has_ended()) {
            self.find_descendants();
            self.stop_found();
            // The pidfd cannot miss it.
            self.signal_known(Signal::KILL);
            self.signal_found(Signal::KILL, |_| true);
        }
        let complete = self.find_members() & self.stop_found();
        let mut reached = self.signal_found(Signal::KILL, |_| true);
        // Others could be killed with suspects, so those are only reported.
        self.suspects().named().iter().for_each(|pid| reached.denied.add(*pid));
        Reached { incomplete: reached.incomplete || !complete, ..reached }
    }

    /// Stops the members that were found until a search among them and their descendants finds no more. Returns whether
    /// the searches saw all processes. Does not wait until they have stopped: the next round finds children of a
    /// process that is just forking.
    fn stop_found(&mut self) -> bool {
        let own = self.own();
        let mut complete = true;
        for _ in 0..STOPS {
            let runs = self.table.as_ref().is_ok_and(|table| table.members().any(|p| !p.is_stopped()));
            if !runs {
                break;
            }
            self.signal_found(Signal::STOP, |member| !member.is_stopped());
            complete &= self.table.as_mut().is_ok_and(|table| table.find_again(&own));
            if !self.table.as_ref().is_ok_and(ProcessTable::has_found_more) {
                break;
            }
        }
        complete
    }

    /// Returns the pids of front and keeper, which are not members even if a member started them.
    fn own(&self) -> [i32; 2] {
        [sys::own_pid(), self.front]
    }

    /// Returns whether nothing is left of the tree.
    pub(super) fn adopted_is_gone(&mut self) -> bool {
        let Some(adopted) = self.protected() else { return true };
        adopted.has_ended() && matches!(self.left(), Left::Nobody)
    }

    /// Returns what is left besides the adopted process, which has ended. Searches twice, since a process may start
    /// behind the first search's back, or be about to execute a program. A process that may be a member is not known to
    /// be gone.
    pub fn left(&mut self) -> Left {
        for _ in 0..2 {
            if !self.find_members() {
                return Left::Unknown;
            }
            let Ok(table) = &self.table else { return Left::Unknown };
            let Some(first) = table.members().next() else { continue };
            let handle = table.with_handle(first, |handle| handle.and_then(|handle| handle.try_clone().ok()));
            return handle.ok().flatten().flatten().map_or(Left::Unknown, Left::Somebody);
        }
        let reaper = self.reaper();
        if let (Ok(table), Some(Adopted { unlisted: Some(unlisted), .. })) = (&self.table, &mut self.adopted)
        {
            unlisted.find(table, reaper);
        }
        match self.suspects().named().first() {
            Some(suspect) => unlisted::handle(*suspect).map_or(Left::Unknown, Left::Somebody),
            None => Left::Nobody,
        }
    }
}
