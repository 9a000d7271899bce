//! The committed completions and manual pages are the ones that the program generates.
//!
//! `DLOCK_REGENERATE=1 cargo test --test cli_generated committed` writes them anew.

mod pages;
mod roff;

use std::path::{Path, PathBuf};
use std::process::Command;

const REFRESH: &str = "run: DLOCK_REGENERATE=1 cargo test --test cli_generated committed";

/// Returns a path in the checkout.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compare(name: &str, generated: &[(String, String)]) {
    let folder = folder(name);
    if std::env::var_os("DLOCK_REGENERATE").is_some() {
        std::fs::create_dir_all(&folder).expect("made");
        for (file, text) in generated {
            std::fs::write(folder.join(file), text).expect("written");
        }
    }
    for (file, text) in generated {
        let committed = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(committed == *text, "{name}/{file} is not what the program generates; {REFRESH}");
    }
    let files = std::fs::read_dir(&folder).expect("readable").count();
    assert_eq!(files, generated.len(), "{name}/ has files that the program does not generate");
}

#[test]
fn committed_completions_are_current() {
    compare("completions", &dlock::cli::completions::files());
}

#[test]
fn committed_manual_pages_are_current() {
    compare("man", &pages::files());
}

#[expect(clippy::print_stderr, reason = "a skipped check is to be seen")]
fn skipped(shell: &str) {
    eprintln!("skipped: {shell} is not installed");
}

/// Expects that `shell` accepts the script. If the shell is not installed, the check is skipped with a message.
fn loads(shell: &str, arguments: &[&str], file: &str) {
    let path = folder("completions").join(file);
    match Command::new(shell).args(arguments).arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.is_empty(), "{shell}: {said}");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(shell);
        }
        Err(error) => panic!("{shell}: {error}"),
    }
}

#[test]
fn completions_load_in_their_shells() {
    loads("bash", &["-n"], "dlock.bash");
    loads("bash", &["-c", "source \"$0\" && complete -p dlock > /dev/null"], "dlock.bash");
    loads("zsh", &["-n"], "_dlock");
    loads("fish", &["-n"], "dlock.fish");
}

/// Expects that `checker` reports nothing for each page. If it is not installed, the check is skipped with a message.
fn accepts_pages(checker: &str, arguments: &[&str]) {
    for page in std::fs::read_dir(folder("man")).expect("readable") {
        let page = page.expect("readable").path();
        match Command::new(checker).env("LC_ALL", "C.UTF-8").args(arguments).arg(&page).output() {
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                // `man` prints the formatted page to stdout and errors to stderr. `mandoc -T lint` prints errors to
                // stdout.
                let said = if checker == "mandoc" {
                    String::from_utf8_lossy(&output.stdout).into_owned()
                } else {
                    errors
                };
                assert!(output.status.success() && said.is_empty(), "{checker}, {}:\n{said}", page.display());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return skipped(checker),
            Err(error) => panic!("{checker}: {error}"),
        }
    }
}

#[test]
fn manual_pages_are_without_fault() {
    // Long source lines and the breaks that clap_mangen writes beside spaces do not matter to a formatter.
    accepts_pages("mandoc", &["-T", "lint", "-W", "error"]);
    accepts_pages("man", &["--warnings", "-Tutf8", "-l"]);
}
