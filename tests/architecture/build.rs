//! The build of dlock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files that the build script of `etcd-client` compiles, in its order.
const PROTO_FILES: [&str; 5] = [
    "api/authpb/auth",
    "api/etcdserverpb/rpc",
    "api/mvccpb/kv",
    "server/etcdserver/api/v3election/v3electionpb/v3election",
    "server/etcdserver/api/v3lock/v3lockpb/v3lock",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("read")
}

/// The key of an override contains the version. A key with another version overrides nothing, without a warning.
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

/// Returns the directory of the sources of `etcd-client`, and its version.
fn etcd_client() -> (PathBuf, String) {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(["metadata", "--format-version=1", "--locked"]).output().expect("metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "etcd-client").expect("a dependency");
    let text = |field: &str| package[field].as_str().expect("text").to_owned();
    (Path::new(&text("manifest_path")).with_file_name(""), text("version"))
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that cannot run here prints the reason")]
fn kept_descriptor_set_of_etcd_client_matches_protoc() {
    let (sources, version) = etcd_client();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(".cargo/etcd-client-{version}.pb"));
    let made = std::env::temp_dir().join(format!("dlock-etcd-client-{}.pb", std::process::id()));
    let mut protoc = Command::new("protoc");
    protoc.current_dir(&sources).args(["--include_imports", "-I", "proto", "-o"]).arg(&made);
    for file in PROTO_FILES {
        protoc.arg(format!("proto/etcd/{file}.proto"));
    }
    let output = match protoc.output() {
        Ok(output) => output,
        Err(error) if std::env::var_os("DLOCK_TEST_REQUIRE").is_none() => {
            eprintln!("skipped: protoc: {error}");
            return;
        }
        Err(error) => panic!("protoc: {error}; tests/run installs it"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let set = fs::read(&made).expect("the file that protoc wrote");
    fs::remove_file(&made).expect("removed");
    if std::env::var_os("DLOCK_REGENERATE").is_some() {
        fs::write(&kept, &set).expect("written");
    }
    assert!(
        fs::read(&kept).is_ok_and(|kept| kept == set),
        "{} is not what protoc makes of {}; DLOCK_REGENERATE=1 writes it",
        kept.display(),
        sources.display()
    );
}
