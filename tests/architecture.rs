//! The import rules, the homes of unsafe code and output, and the size budget, enforced.
//!
//! The rules read text, not syntax trees: comments and literals are blanked first, and a file's trailing test module is
//! not checked.

#[path = "architecture/build.rs"]
mod build;
#[path = "architecture/checker_tests.rs"]
mod checker_tests;
#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/language.rs"]
mod language;
#[path = "architecture/naming.rs"]
mod naming;
#[path = "architecture/records.rs"]
mod records;
#[path = "architecture/source.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use dlock::backend::locator::SERVICES;
use source::{blank, has_word, tree, words};

/// The parts that each part may name; `backend/*` is any one backend. A new part must be added here.
const IMPORTS: &[(&str, &[&str])] = &[
    ("lock", &[]),
    ("docs", &[]),
    ("fd", &[]),
    ("sync", &[]),
    ("clock", &["lock", "fd"]),
    ("supervise", &["clock", "lock", "fd", "sync"]),
    ("net", &["lock", "clock", "sync"]),
    ("backend", &["net", "lock", "clock"]),
    ("queue", &["backend", "net", "lock", "clock", "sync"]),
    ("backend/*", &["backend", "queue", "net", "lock", "clock", "fd", "sync"]),
    ("backend/locator", &["backend", "backend/*", "net", "lock", "clock"]),
    ("lease", &["backend", "lock", "clock"]),
    ("hold", &["lease", "supervise", "backend", "net", "lock", "clock"]),
    ("election", &["hold", "lease", "backend", "lock", "clock"]),
    ("output", &["lock", "supervise/exit_status", "clock", "sync"]),
    (
        "cli",
        &[
            "lock",
            "clock",
            "supervise",
            "supervise/exit_status",
            "backend",
            "backend/locator",
            "net",
            "lease",
            "hold",
            "election",
            "output",
        ],
    ),
    ("main", &["cli"]),
];

/// The files of `backend/` that are part of the contract, not backends.
const CONTRACT: &[&str] =
    &["claim_state", "context", "deadlock", "facts", "observe", "record", "service", "success", "trial"];

/// The one file that names services. All others use the exports of a service. So a new one is a directory and a line
/// there.
const LOCATOR: &str = "backend/locator.rs";

/// The homes of unsafe code. Each states its reason.
const UNSAFE: &[&str] = &["supervise/sys.rs", "supervise/launch.rs", "fd.rs", SOCKET, "main.rs"];

/// The file that sets the options of connections.
const SOCKET: &str = "net/socket.rs";

/// The one file that touches standard error: any other code that did could block on its reader.
const WRITER: &str = "output/writer.rs";

const LONGEST_FILE: usize = 400;

#[test]
fn sources_keep_the_rules() {
    let found = complaints_in("src", complaints);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_of_a_directory_form_no_cycle() {
    let found = circles::circles(&texts_in("src"));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn tests_keep_the_size_budget() {
    let found = complaints_in("tests", size);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn lists_contain_existing_parts_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_there = |part: &str| {
        let part = root.join("src").join(part.trim_end_matches("/*"));
        part.is_dir() || part.with_extension("rs").is_file()
    };
    let parts = IMPORTS.iter().flat_map(|(part, to)| [part].into_iter().chain(to.iter())).copied();
    let contract: Vec<String> = CONTRACT.iter().map(|file| format!("backend/{file}")).collect();
    let files = UNSAFE.iter().chain([&WRITER, &LOCATOR]).map(|file| file.trim_end_matches(".rs"));
    let stale: Vec<_> = parts
        .chain(contract.iter().map(String::as_str))
        .chain(files)
        .filter(|part| !is_there(part))
        .collect();
    assert!(stale.is_empty(), "{stale:?}");
}

fn complaints_in(directory: &str, check: fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts_in(directory) {
        found.extend(
            check(&path, &text).into_iter().map(|complaint| format!("{directory}/{path}: {complaint}")),
        );
    }
    found
}

/// Returns the paths of all sources in `directory`, relative to it, with their texts.
fn texts_in(directory: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(!files.is_empty(), "{directory} has sources");
    let read = |file: PathBuf| {
        let path = file.strip_prefix(&root).expect("inside").to_str().expect("UTF-8").to_owned();
        (path, fs::read_to_string(&file).expect("readable"))
    };
    files.into_iter().map(read).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Returns all complaints about the file at `path`, relative to `src`.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let code = blank(without_tests(text));
    let part = part_of_file(path);
    let mut found = size(path, text);
    // The compiler demands the documentation of crate roots.
    let root = ["main.rs", "lib.rs"].contains(&path);
    if !text.starts_with("//!") && !root {
        found.push("does not begin with //!".to_owned());
    }
    if is_tests(path) {
        return found;
    }
    if path != "lib.rs" {
        found.extend(bad_imports(path, &part, &code));
    }
    if path != LOCATOR && !part.starts_with("backend/") {
        found.extend(named_services(without_tests(text), &code, part == "backend"));
    }
    if !UNSAFE.contains(&path) && has_word(&code, "unsafe") {
        found.push("unsafe outside its homes".to_owned());
    }
    if part != "cli" && ["clap", "clap_complete"].iter().any(|name| has_word(&code, name)) {
        found.push("clap outside cli".to_owned());
    }
    if !["cli", "output"].contains(&part.as_str()) && writes_to_a_stream(&code) {
        found.push("writes to a stream outside cli and output".to_owned());
    }
    if path != WRITER && touches_standard_error(&code) {
        found.push("standard error outside its writer".to_owned());
    }
    let system = part.starts_with("supervise") || part == "backend/file" || part == "clock";
    if has_word(&code, "libc") && !system {
        found.push("libc outside supervise, backend/file and clock".to_owned());
    }
    let asks = ["cli", "output"].contains(&part.as_str()) || path == SOCKET;
    if has_word(&code, "rustix") && !system && !asks {
        found.push("rustix outside supervise, backend/file, clock, cli, output and net/socket".to_owned());
    }
    found
}

/// Returns the services that `text` names: as a module, or by a literal that is a name for `--backend`. `code` is the
/// same text without comments and literals. A file of `backend/` can name modules without `backend::` before them, and
/// states the feature of each.
fn named_services(text: &str, code: &str, beside_them: bool) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend");
    let folders = fs::read_dir(directory).expect("readable").flatten().filter(|entry| entry.path().is_dir());
    let modules = folders.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let is_named = |module: &String| {
        words(code, module).iter().any(|at| {
            let is_path = code[at + module.len()..].starts_with("::");
            is_path && (beside_them || code[..*at].ends_with("backend::"))
        })
    };
    let modules = modules.filter(|module| !CONTRACT.contains(&module.as_str()) && is_named(module));
    let is_feature = |line: &&str| beside_them && line.starts_with("#[cfg(feature = ");
    let said: String = text.lines().filter(|line| !is_feature(line)).collect();
    let names = SERVICES.iter().map(|service| service.name);
    let names = names.filter(|name| said.contains(&format!("\"{name}\""))).map(str::to_owned);
    modules.chain(names).map(|service| format!("names the service {service} outside its directory")).collect()
}

/// Returns a complaint if the file is too long. clippy counts the lines of functions. Test modules may be long, since they
/// are mostly tables.
fn size(path: &str, text: &str) -> Vec<String> {
    let lines = without_tests(text).lines().count();
    let is_long = lines > LONGEST_FILE && path != "cli/args.rs" && !is_tests(path);
    is_long.then(|| format!("{lines} lines, at most {LONGEST_FILE}")).into_iter().collect()
}

/// Returns whether the file is a test module. Test modules are mostly tables, so their length does not matter.
fn is_tests(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.ends_with("tests.rs") || name.ends_with("testing.rs") || name.starts_with("tests_")
}

fn without_tests(text: &str) -> &str {
    let begins = ["", "pub(super) ", "pub(crate) "].map(|to| format!("\n#[cfg(test)]\n{to}mod tests {{"));
    begins.iter().find_map(|begin| text.find(begin)).map_or(text, |at| &text[..=at])
}

/// Returns the part of the program that a file of `src` belongs to.
fn part_of_file(path: &str) -> String {
    part(&module(path))
}

/// Returns the module that a file of `src` is.
fn module(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// Returns the part that a path below the crate belongs to.
fn part(path: &[String]) -> String {
    let second = path.get(1).map_or("", String::as_str);
    match path[0].as_str() {
        "backend" if is_module_of("backend", second) && !CONTRACT.contains(&second) => {
            format!("backend/{second}")
        }
        "supervise" if second == "exit_status" => "supervise/exit_status".to_owned(),
        first => first.to_owned(),
    }
}

/// Returns whether the directory `of` in `src` has a module of that name.
fn is_module_of(of: &str, name: &str) -> bool {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(of);
    !name.is_empty() && (directory.join(name).is_dir() || directory.join(format!("{name}.rs")).is_file())
}

fn bad_imports(path: &str, from: &str, code: &str) -> Vec<String> {
    let rule = |part: &str| IMPORTS.iter().find(|(name, _)| *name == part).map(|(_, to)| *to);
    let own = if from == "supervise/exit_status" { "supervise" } else { from };
    let backend = from.strip_prefix("backend/").map(|_| "backend/*");
    let Some(allowed) = rule(own).or_else(|| backend.and_then(rule)) else {
        return vec![format!("{from} has no import rule")];
    };
    let may = |to: &String| {
        let one_backend = to.starts_with("backend/") && rule(to).is_none();
        to == from
            || (to == "supervise/exit_status" && (own == "supervise" || allowed.contains(&"supervise")))
            || (from == "supervise/exit_status" && to == own)
            || allowed.contains(&to.as_str())
            || (one_backend && allowed.contains(&"backend/*"))
    };
    let mut bad: Vec<String> =
        paths(path, code).into_iter().map(|to| part(&to)).filter(|to| !may(to)).collect();
    bad.sort();
    bad.dedup();
    bad.into_iter().map(|to| format!("{from} may not name {to}")).collect()
}

/// Returns every path below the crate that the code names, by `crate::`, `dlock::` or `super::`.
fn paths(file: &str, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for root in ["crate", "dlock", "super"] {
        for at in words(code, root) {
            // The later ones of `super::super` are part of the first.
            if code[..at].ends_with("super::") {
                continue;
            }
            let mut base = Vec::new();
            let mut rest = &code[at..];
            if root == "super" {
                base = module(file);
                while let Some(after) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = after;
                }
            } else {
                let Some(after) = rest.strip_prefix(root).and_then(|r| r.strip_prefix("::")) else {
                    continue;
                };
                rest = after;
            }
            tree(rest, &base, &mut found);
        }
    }
    found
        .retain(|path| path.first().is_some_and(|first| first.starts_with(|c: char| c.is_ascii_lowercase())));
    found
}

fn writes_to_a_stream(code: &str) -> bool {
    writes_to(code, &["print", "println", "eprint", "eprintln"], &["stdout", "stderr"])
}

fn writes_to(code: &str, macros: &[&str], streams: &[&str]) -> bool {
    let after = |name: &str, at: usize| &code[at + name.len()..];
    let prints = macros.iter().any(|m| words(code, m).iter().any(|at| after(m, *at).starts_with('!')));
    let streams = streams.iter().any(|name| {
        words(code, name).iter().any(|at| {
            let called = after(name, *at).starts_with("()") && !code[..*at].ends_with('.');
            called || code[..*at].ends_with("io::") || imported(&code[..*at])
        })
    });
    prints || streams
}

/// Returns whether the code writes to standard error, or asks the system for it. The standard error of a child does not
/// count.
fn touches_standard_error(code: &str) -> bool {
    writes_to(code, &["eprint", "eprintln", "dbg"], &["stderr", "raw_stderr"])
        || ["STDERR_FILENO", "take_stderr"].iter().any(|name| has_word(code, name))
}

/// Returns whether the code breaks off inside a `use` of `std::io` or `rustix::stdio`.
fn imported(before: &str) -> bool {
    let statement = before.rsplit(';').next().unwrap_or("");
    words(statement, "use").last().is_some_and(|at| statement[*at..].contains("io::{"))
}
