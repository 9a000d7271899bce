//! A page on a terminal.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use crate::cli::exit_code::ExitCode;
use crate::cli::out::{Out as _, Stdout};
use crate::cli::page::Page;

/// Shows `page`: on a terminal by man(1), which formats it and pages it; elsewhere, and where there is no man(1), its source.
pub fn show(page: Page, out: &mut Stdout) -> anyhow::Result<()> {
    let source = page.roff();
    if out.is_terminal() && by_man(&source)? {
        return Ok(());
    }
    out.write(&source)
}

/// Whether man(1) has shown it; false if there is none.
fn by_man(source: &str) -> anyhow::Result<bool> {
    let failed =
        |error: &std::io::Error| ExitCode::System.error(format!("man(1) could not show the page: {error}"));
    let mut man = match Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn() {
        Ok(man) => man,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(&error)),
    };
    let written = match man.stdin.take() {
        Some(mut stdin) => stdin.write_all(source.as_bytes()),
        None => Ok(()),
    };
    let status = man.wait().map_err(|error| failed(&error))?;
    match written {
        // It was left before the end.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(status.success()),
    }
}
