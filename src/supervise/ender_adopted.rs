//! The ender of a process that is no child of dlock's.
//!
//! The tree is that process, its descendants, and whatever carries the claim in the environment that it was started with: the
//! kernel tells nobody but their parents of orphans, so those are found by what they inherited. It is *gone* when the process has ended and two looks at all processes have found nobody else. Before the lock is held
//! for it, and when it has been released, nothing belongs to it.

use rustix::fd::OwnedFd;

use super::adopted::Adopted;
use super::descent::Descent;
use super::ender::Ender;
use super::process_table::ProcessTable;
use super::signals::Signal;
use super::sys;
use super::tree_state::{Pids, Reached};
use super::unlisted::{self, Unlisted};

/// How often those that a look has found are stopped before they are killed. What is stopped does not fork, so the second
/// look finds who was born during the first.
const STOPS: u32 = 8;

/// Who is left of a tree whose root has ended.
#[derive(Debug)]
pub enum Left {
    /// Nobody.
    Nobody,
    /// Somebody, and what can be read from once that one has ended.
    Somebody(OwnedFd),
    /// It cannot be told now.
    Unknown,
}

impl Ender {
    /// Has `process` stand in the place of the command.
    pub fn adopt(&mut self, process: Adopted) {
        self.adopted = Some(process);
    }

    /// What stands in the place of the command, if something does.
    pub fn adopted(&self) -> Option<&Adopted> {
        self.adopted.as_ref()
    }

    /// The same, if the lock is held for it now.
    pub(super) fn protected(&self) -> Option<&Adopted> {
        self.adopted.as_ref().filter(|_| self.shared.gate.command().is_some())
    }

    /// Looks for the members; whether all were seen. This pair is none of them, though the caller may be.
    pub(super) fn find_adopted(&mut self) -> bool {
        let Some(claim) = self.shared.number().map(format_digits) else { return false };
        let session = self.adopted.as_ref().and_then(Adopted::session);
        let descent = Descent { claim, session, reaper: self.reaper() };
        self.look_with_root(|table, root, own| table.find_adopted(root, &descent, own))
    }

    /// The process that orphans of the adopted one come to: the caller has ended, and the front was its orphan.
    fn reaper(&self) -> Option<i32> {
        Some(self.table.as_ref().ok()?.look(self.front).ok().flatten()?.parent)
    }

    /// Those that may belong to the tree, and cannot be told from others: /proc does not let this process look at them.
    fn suspects(&self) -> Pids {
        let listed = self.table.as_ref().map(ProcessTable::suspects).unwrap_or_default();
        let unlisted = self.adopted.as_ref().and_then(|adopted| adopted.unlisted.as_ref());
        let unlisted = unlisted.map(Unlisted::found).unwrap_or_default();
        listed.named().iter().chain(unlisted.named()).copied().collect()
    }

    /// Looks for the process itself and its descendants; whether all were seen.
    fn find_descendants(&mut self) -> bool {
        self.look_with_root(ProcessTable::find_descendants)
    }

    /// Has `look` done with the number of the process, if that is still its own, and with those of this pair.
    fn look_with_root(&mut self, look: impl Fn(&mut ProcessTable, Option<i32>, &[i32]) -> bool) -> bool {
        let own = self.own();
        loop {
            let root = self.protected().map(|adopted| (!adopted.has_ended()).then(|| adopted.pid()));
            let (Some(root), Ok(table)) = (root, &mut self.table) else { return false };
            let complete = look(table, root, &own);
            // Had it ended, the number could be somebody else's by now.
            if root.is_none() || self.protected().is_some_and(|adopted| !adopted.has_ended()) {
                return complete;
            }
        }
    }

    /// As [`Ender::kill_round`]: stops all, so that nobody is born meanwhile, then kills all. The process itself and its
    /// descendants come first: to find the others environments have to be read, and that may take long.
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
            // By its handle as well, which cannot fail to find it.
            self.signal_known(Signal::KILL);
            self.signal_found(Signal::KILL, |_| true);
        }
        let complete = self.find_members() & self.stop_found();
        let mut reached = self.signal_found(Signal::KILL, |_| true);
        // Others could be killed with them.
        self.suspects().named().iter().for_each(|pid| reached.denied.add(*pid));
        Reached { incomplete: reached.incomplete || !complete, ..reached }
    }

    /// Stops those that were found until a look at them and their descendants finds nobody else; whether the looks saw all.
    /// It does not wait until they have stopped: whoever forks just then is found by the next round.
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

    /// Front and keeper, which are nobody's tree, though whoever started them may be.
    fn own(&self) -> [i32; 2] {
        [sys::own_pid(), self.front]
    }

    /// Whether nothing is left of it.
    pub(super) fn adopted_is_gone(&mut self) -> bool {
        let Some(adopted) = self.protected() else { return true };
        adopted.has_ended() && matches!(self.left(), Left::Nobody)
    }

    /// Who is left besides the process itself, which has ended. Looked at twice, since a process may be born behind the
    /// first look's back, or be about to execute. A process that cannot be told from a member is not known to be gone.
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

/// As claims are written, without memory of its own.
fn format_digits(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (at, digit) in (0_u32..).zip(digits.iter_mut().rev()) {
        let nibble = (number >> (4 * at)) & 15;
        *digit = u8::try_from(nibble)
            .ok()
            .and_then(|n| b"0123456789abcdef".get(usize::from(n)).copied())
            .unwrap_or(0);
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::ClaimId;

    #[test]
    fn digits_are_those_of_the_claim() {
        for number in [0, 1, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, u128::MAX] {
            let text = ClaimId::from_number(number).to_string();
            assert_eq!(format_digits(number), text.as_bytes());
        }
    }
}
