//! The committed manual pages are the ones that the generator makes, and the shells accept the completions.
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

#[test]
fn committed_manual_pages_are_current() {
    let (folder, generated) = (folder("man"), pages::files());
    if std::env::var_os("DLOCK_REGENERATE").is_some() {
        std::fs::create_dir_all(&folder).expect("made");
        for (file, text) in &generated {
            std::fs::write(folder.join(file), text).expect("written");
        }
    }
    for (file, text) in &generated {
        let committed = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(committed == *text, "man/{file} is not what the generator makes; {REFRESH}");
    }
    let files = std::fs::read_dir(&folder).expect("readable").count();
    assert_eq!(files, generated.len(), "man/ has files that the generator does not make");
}

/// Expects that `checker` accepts the file and reports nothing. If it is not installed, the check is skipped with a message.
#[expect(clippy::print_stderr, reason = "a skipped check is to be seen")]
fn accepts(checker: &str, arguments: &[&str], file: &Path) {
    match Command::new(checker).env("LC_ALL", "C.UTF-8").args(arguments).arg(file).output() {
        Ok(output) => {
            // `man` prints the formatted page to stdout and errors to stderr. `mandoc -T lint` prints errors to stdout.
            let said = if checker == "mandoc" { output.stdout } else { output.stderr };
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success() && said.is_empty(), "{checker}, {}:\n{said}", file.display());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {checker} is not installed");
        }
        Err(error) => panic!("{checker}: {error}"),
    }
}

#[test]
fn completions_load_in_their_shells() {
    let folder = folder("completions");
    accepts("bash", &["-n"], &folder.join("dlock.bash"));
    accepts("bash", &["-c", "source \"$0\" && complete -p dlock > /dev/null"], &folder.join("dlock.bash"));
    accepts("zsh", &["-n"], &folder.join("_dlock"));
    accepts("fish", &["-n"], &folder.join("dlock.fish"));
}

#[test]
fn manual_pages_are_without_fault() {
    for page in std::fs::read_dir(folder("man")).expect("readable") {
        let page = page.expect("readable").path();
        // Long source lines and the breaks that clap_mangen writes beside spaces do not matter to a formatter.
        accepts("mandoc", &["-T", "lint", "-W", "error"], &page);
        accepts("man", &["--warnings", "-Tutf8", "-l"], &page);
    }
}
