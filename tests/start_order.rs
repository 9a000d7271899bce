//! `.cargo/linker`, which puts the functions of a start side by side in the released program.
//!
//! The tests' own programs are not linked by it, so it links a small one here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "
#[inline(never)] fn alpha() { std::hint::black_box(1); }
#[inline(never)] fn beta() { std::hint::black_box(2); }
#[inline(never)] fn gamma() { std::hint::black_box(3); }
fn main() { alpha(); beta(); gamma(); }
";

fn empty(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("start-order").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("made");
    folder
}

/// Builds `PROGRAM` in `folder` with a copy of the linker that finds `order` beside it, and gives the program's functions
/// in the order of their addresses.
fn functions(folder: &Path, order: &str, lld: &str, mangling: Option<&str>) -> Vec<String> {
    let linker = folder.join("linker");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(".cargo/linker"), &linker).expect("copied");
    fs::write(folder.join("start-order"), order).expect("written");
    fs::write(folder.join("program.rs"), PROGRAM).expect("written");
    let built = Command::new("rustc")
        .current_dir(folder)
        .args(["-C", "opt-level=1", "program.rs", "-C"])
        .arg(format!("linker={}", linker.display()))
        .args(mangling.map(|kind| format!("-Csymbol-mangling-version={kind}")))
        .env("DLOCK_LLD", lld)
        .env("TMPDIR", folder)
        .output()
        .expect("rustc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert!(Command::new(folder.join("program")).status().expect("runs").success());
    let left: Vec<_> = fs::read_dir(folder).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 4, "more than linker, order, source and program is left: {left:?}");
    let nm = Command::new("nm").args(["-n", "program"]).current_dir(folder).output().expect("nm runs");
    let nm = String::from_utf8(nm.stdout).expect("text");
    let names =
        nm.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| name.contains("7program"));
    let plain = |name: &str| ["alpha", "beta", "gamma"].into_iter().find(|part| name.contains(part));
    names.filter_map(plain).map(str::to_owned).collect()
}

/// The folder of the linker that comes with the compiler.
fn lld() -> String {
    let root = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs").stdout;
    let targets = Path::new(String::from_utf8(root).expect("text").trim()).join("lib/rustlib");
    let targets = fs::read_dir(&targets).expect("read").flatten();
    let mut folders = targets.map(|target| target.path().join("bin/gcc-ld"));
    let folder = folders.find(|folder| folder.join("ld.lld").exists());
    folder.expect("this compiler comes without its own linker").display().to_string()
}

/// As compilers mangle names today, and as they will: each has hashes elsewhere.
const ORDER: &str = "\
_ZN7program5gamma
_RNvC7program5gamma
_ZN7program6absent
_ZN7program4beta
_RNvC7program4beta
_ZN7program5alpha
_RNvC7program5alpha
";

#[test]
fn the_linker_finds_functions_without_their_hashes() {
    assert_eq!(functions(&empty("found"), ORDER, &lld(), None), ["gamma", "beta", "alpha"]);
    assert_eq!(functions(&empty("newer"), ORDER, &lld(), Some("v0")), ["gamma", "beta", "alpha"]);
}

#[test]
fn without_the_compilers_own_linker_a_program_is_linked_as_ever() {
    let mut found = functions(&empty("as-ever"), ORDER, "", None);
    found.sort();
    assert_eq!(found, ["alpha", "beta", "gamma"]);
}
