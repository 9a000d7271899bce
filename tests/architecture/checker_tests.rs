//! Tests of the rules, on sources that break and keep them.

use super::*;

#[test]
fn checker_rejects_each_violation() {
    let long = format!("//! Doc.\n{}", "// line\n".repeat(LONGEST_FILE));
    for (path, text, wanted) in [
        ("lock/queue.rs", "//! Doc.\nuse crate::clock::Clock;\n", "lock may not name clock"),
        ("supervise/tree.rs", "//! Doc.\nuse super::super::lease::Keeper;\n", "supervise may not name lease"),
        (
            "backend/file/mod.rs",
            "//! Doc.\nuse super::redis::A;\n",
            "backend/file may not name backend/redis",
        ),
        ("backend/file/a.rs", "//! Doc.\nfn f(x: crate::hold::Hold) {}\n", "backend/file may not name hold"),
        ("lease.rs", "//! Doc.\nuse crate::{lock as l, backend::{A, file::{B, C}}};\n", "name backend/file"),
        ("output/json.rs", "//! Doc.\nuse crate::supervise::front::Front;\n", "may not name supervise"),
        ("main.rs", "fn main() { dlock::hold::run(); }\n", "main may not name hold"),
        ("novel.rs", "//! Doc.\n", "novel has no import rule"),
        ("hold.rs", "use std::fmt;\n", "does not begin with //!"),
        ("supervise/front.rs", "//! Doc.\nfn f() { unsafe { g() } }\n", "unsafe outside"),
        ("output/a.rs", "//! Doc.\nuse clap::Parser;\n", "clap outside"),
        ("supervise/front.rs", "//! Doc.\nfn f() { eprintln!(\"x\"); }\n", "writes to a stream"),
        ("cli/progress.rs", "//! Doc.\nuse std::io::{self, stderr};\n", "standard error outside its writer"),
        ("supervise/sys.rs", "//! Doc.\nfn f() { g(libc::STDERR_FILENO); }\n", "standard error outside"),
        ("lease.rs", "//! Doc.\nfn f() { let out = std::io::stdout(); }\n", "writes to a stream"),
        ("lease.rs", "//! Doc.\nuse rustix::fs::Mode;\n", "rustix outside"),
        ("cli/run.rs", "//! Doc.\nuse libc::c_int;\n", "libc outside"),
        ("backend/mod.rs", "//! Doc.\npub use etcd::EtcdBackend;\n", "names the service etcd"),
        ("cli/run.rs", "//! Doc.\nfn f(b: &str) -> bool { b == \"zk\" }\n", "names the service zk"),
        ("hold.rs", &long, "lines, at most 400"),
    ] {
        let found = complaints(path, text);
        assert!(found.iter().any(|complaint| complaint.contains(wanted)), "{wanted:?} is in {found:?}");
    }
}
