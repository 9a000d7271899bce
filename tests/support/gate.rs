//! A gate at which commands wait until the test lets them through.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A FIFO that the test keeps open, so that neither side blocks when it opens the FIFO. A command waits at it with
/// `read _ <GATE`.
pub(crate) struct Gate {
    path: PathBuf,
    pipe: File,
}

impl Gate {
    pub(crate) fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a fresh FIFO");
        let pipe = OpenOptions::new().read(true).write(true).open(&path).expect("opens a FIFO both ways");
        Self { path, pipe }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line for one command to read.
    pub(crate) fn write(&self, line: &str) {
        (&self.pipe).write_all(format!("{line}\n").as_bytes()).expect("room in a FIFO");
    }

    /// Lets one command through, even if it arrives later.
    pub(crate) fn open(&self) {
        (&self.pipe).write_all(b"\n").expect("room in a FIFO");
    }
}
