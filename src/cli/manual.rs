//! `dlock man`: shows a page.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use super::exit_code::ExitCode;
use super::out::{Out as _, Stdout};
use super::page::Page;

/// Shows `page`: on a terminal with man(1), elsewhere or without man(1) as its source.
pub fn show(page: Page, out: &mut Stdout) -> anyhow::Result<()> {
    if out.is_terminal && by_man(page.roff)? {
        return Ok(());
    }
    out.write(page.roff)
}

/// Shows the page with man(1). Returns whether there is a man(1).
fn by_man(source: &str) -> anyhow::Result<bool> {
    let failed =
        |error: &std::io::Error| ExitCode::System.error(format!("man(1) could not show the page: {error}"));
    let mut man = match Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn() {
        Ok(man) => man,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(&error)),
    };
    let written = man.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(source.as_bytes()));
    let status = man.wait().map_err(|error| failed(&error))?;
    match written {
        // The user left it before the end.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(status.success()),
    }
}
