//! Tests of the rules, on sources that break and keep them.

use super::*;

#[test]
fn checker_rejects_each_violation() {
    let long = format!("//! Doc.\n{}", "// line\n".repeat(LONGEST_FILE));
    let function = format!("//! Doc.\nfn long() {{\n{}}}\n", "    step();\n".repeat(LONGEST_FUNCTION));
    for (path, text, wanted) in [
        ("lock/queue.rs", "//! Doc.\nuse crate::clock::Clock;\n", "lock may not name clock"),
        ("clock.rs", "//! Doc.\nuse crate::backend::Backend;\n", "clock may not name backend"),
        ("supervise/tree.rs", "//! Doc.\nuse super::super::lease::Keeper;\n", "supervise may not name lease"),
        (
            "backend/mod.rs",
            "//! Doc.\nuse crate::backend::file::Line;\n",
            "backend may not name backend/file",
        ),
        (
            "backend/file/mod.rs",
            "//! Doc.\nuse super::redis::Fault;\n",
            "backend/file may not name backend/redis",
        ),
        ("backend/file/a.rs", "//! Doc.\nfn f(x: crate::hold::Hold) {}\n", "backend/file may not name hold"),
        (
            "lease.rs",
            "//! Doc.\nuse crate::{lock as l, backend::{Claim, file::{A, B}}};\n",
            "lease may not name backend/file",
        ),
        ("hold.rs", "//! Doc.\nuse crate::output::Message;\n", "hold may not name output"),
        (
            "output/json.rs",
            "//! Doc.\nuse crate::supervise::front::Front;\n",
            "output may not name supervise",
        ),
        ("main.rs", "fn main() { dlock::hold::run(); }\n", "main may not name hold"),
        ("novel.rs", "//! Doc.\n", "novel has no import rule"),
        ("hold.rs", "use std::fmt;\n", "does not begin with //!"),
        ("supervise/front.rs", "//! Doc.\nfn f() { unsafe { g() } }\n", "unsafe outside"),
        ("output/a.rs", "//! Doc.\nuse clap::Parser;\n", "clap outside"),
        ("supervise/front.rs", "//! Doc.\nfn f() { eprintln!(\"x\"); }\n", "writes to a stream"),
        ("cli/run.rs", "//! Doc.\nfn f() { eprint!(\"x\"); }\n", "standard error outside its writer"),
        (
            "output/live.rs",
            "//! Doc.\nfn f() { std::io::stderr().lock(); }\n",
            "standard error outside its writer",
        ),
        ("cli/progress.rs", "//! Doc.\nuse std::io::{self, stderr};\n", "standard error outside its writer"),
        (
            "supervise/sys.rs",
            "//! Doc.\nfn f() { g(libc::STDERR_FILENO); }\n",
            "standard error outside its writer",
        ),
        ("clock.rs", "//! Doc.\nuse std::io::{Write, stderr};\n", "writes to a stream"),
        ("lease.rs", "//! Doc.\nfn f() { let out = std::io::stdout(); }\n", "writes to a stream"),
        ("lease.rs", "//! Doc.\nuse rustix::fs::Mode;\n", "rustix outside"),
        ("cli/run.rs", "//! Doc.\nuse libc::c_int;\n", "libc outside"),
        ("cli/run.rs", "//! Doc.\nuse crate::backend::file::FileConfig;\n", "cli may not name backend/file"),
        ("cli/run.rs", "//! Doc.\nfn f(x: backend::etcd::X) {}\n", "names the service etcd"),
        ("backend/mod.rs", "//! Doc.\npub use etcd::EtcdBackend;\n", "names the service etcd"),
        ("cli/run.rs", "//! Doc.\nfn f(b: &str) -> bool { b == \"zk\" }\n", "names the service zk"),
        ("hold.rs", &long, "lines, at most 400"),
        ("hold.rs", &function, "long has 72 lines, at most 70"),
    ] {
        let found = complaints(path, text);
        assert!(found.iter().any(|complaint| complaint.contains(wanted)), "{wanted:?} is in {found:?}");
    }
}

#[test]
fn checker_accepts_valid_sources() {
    let comment =
        "//! Doc of crate::hold.\n// unsafe, crate::cli\nconst A: &str = \"unsafe \\\" crate::cli\";\n";
    for (path, text) in [
        ("lock/queue.rs", "//! Doc.\nuse super::mode::Mode;\nuse crate::lock::Moment;\n"),
        ("lock/name.rs", comment),
        (
            "lock/raw.rs",
            "//! Doc.\nconst A: &str = r#\"unsafe \" crate::cli\"#;\nfn f<'a>(c: &'a char) -> bool { *c == '\"' }\n",
        ),
        (
            "backend/etcd/claim.rs",
            "//! Doc.\nuse super::Fault;\nuse crate::backend::{Backend, TokenStrength};\n",
        ),
        ("backend/locator.rs", "//! Doc.\nuse super::file::FileBackend;\n"),
        ("output/json.rs", "//! Doc.\nuse crate::supervise::exit_status::Outcome;\n"),
        ("hold/machine.rs", "//! Doc.\nuse crate::supervise::{front::Front, exit_status::ExitStatus};\n"),
        ("supervise/exit_status.rs", "//! Doc.\nuse super::signals::Signal;\n"),
        ("cli/args_tests.rs", "//! Doc.\nuse libc::c_int;\n"),
        ("supervise/front.rs", "//! Doc.\npub(crate) fn f(c: &mut Command) { c.stdout(Stdio::null()); }\n"),
        ("supervise/sys.rs", "//! Doc.\nfn f() { unsafe { libc::fork() } }\n"),
        ("output/writer.rs", "//! Doc.\nfn f() { rustix::stdio::stderr(); }\n"),
        ("main.rs", "fn main() -> ExitCode { dlock::cli::main() }\n"),
        (
            "lease.rs",
            "//! Doc.\nuse crate::lock::Moment;\n#[cfg(test)]\nmod tests {\n    use crate::backend::etcd::Fault;\n}\n",
        ),
    ] {
        assert_eq!(complaints(path, text), Vec::<String>::new(), "{path}");
    }
}
