//! How dlock is built.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("read")
}

/// The key of an override names the version; one of another version would override nothing, in silence.
#[test]
fn overridden_build_script_has_the_version_of_the_lock_file() {
    let (config, lock) = (read(".cargo/config.toml"), read("Cargo.lock"));
    let (_, found) = lock.split_once("name = \"aws-lc-sys\"\nversion = \"").expect("a dependency");
    let (version, _) = found.split_once('"').expect("a version");
    let key = format!(".aws_lc_{}]", version.replace('.', "_"));
    let overrides: Vec<&str> = config.lines().filter(|line| line.contains(".aws_lc_")).collect();
    assert!(
        !overrides.is_empty() && overrides.iter().all(|line| line.ends_with(&key)),
        "{key}: {overrides:?}"
    );
}
