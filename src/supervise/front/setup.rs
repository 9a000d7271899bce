//! What a front is told before it supervises, and between two commands.

use std::io;

use super::Front;
use crate::supervise::adopted::Adopted;
use crate::supervise::ender::Ender;
use crate::supervise::notify::Notifier;

impl Front {
    /// Keeps what dlock was started with for a command that is started later.
    pub fn keep_for_another(&mut self) {
        self.starts_again = true;
    }

    /// Has `notifier` told how it goes.
    pub fn notify(&mut self, notifier: Option<Notifier>) {
        self.notifier = notifier;
    }

    /// Makes ready for another command. What the last one left on purpose is nobody's tree any more.
    ///
    /// Errors: as for [`Front::new`].
    pub fn begin_again(&mut self) -> io::Result<()> {
        self.ender = Ender::new(self.shared, self.start.command_group() == Some(0))?;
        Ok(())
    }

    /// Has `process` stand in the place of a command: it is there already, and is ended as a command would be.
    pub fn adopt(&mut self, process: Adopted) {
        self.ender.adopt(process);
    }

    /// Has this process go on when the one that was started has ended: it keeps nothing of that one's.
    pub fn stay_behind(&mut self) {
        self.stays_behind = true;
    }
}
