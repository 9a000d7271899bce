//! `dlock man`: shows a page, or writes all of them.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
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

/// Writes all pages into `directory`, and creates it. If its name has a section (`man1`), pages of another section go into the
/// directory beside it.
pub fn write_all(directory: &Path) -> anyhow::Result<()> {
    for page in Page::all() {
        let folder = folder_of(directory, page.section);
        let cannot = |error: &std::io::Error| {
            let reason = format!("cannot write into {}: {error}", folder.display());
            ExitCode::CannotCreate.error(reason)
        };
        std::fs::create_dir_all(&folder).map_err(|error| cannot(&error))?;
        std::fs::write(folder.join(page.file_name()), page.roff).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

/// Returns the directory for pages of `section`.
fn folder_of(directory: &Path, section: &str) -> std::path::PathBuf {
    let name = directory.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let of_one_section =
        name.strip_prefix("man").is_some_and(|n| n.len() == 1 && n.bytes().all(|b| b.is_ascii_digit()));
    if of_one_section { directory.with_file_name(format!("man{section}")) } else { directory.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_section_goes_beside() {
        for (directory, section, folder) in [
            ("a/man1", "1", "a/man1"),
            ("a/man1", "7", "a/man7"),
            ("a/pages", "7", "a/pages"),
            ("manual", "7", "manual"),
        ] {
            assert_eq!(folder_of(Path::new(directory), section), Path::new(folder), "{directory} {section}");
        }
    }

    #[test]
    fn pages_have_names_of_their_own() {
        for page in Page::all() {
            assert_eq!(Page::named(page.name).map(Page::file_name), Some(page.file_name()));
        }
    }
}
