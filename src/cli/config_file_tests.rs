//! Configuration files, good and bad.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::backend::locator::SERVICES;
use crate::backend::service::LOGIN;
use crate::cli::args;
use crate::cli::exit_code::Failure;
use crate::output::file::tests::Folder;

fn parse(text: &str) -> Result<ConfigFile, Failure> {
    ConfigFile::parse(Path::new("/etc/dlock/config.toml"), text.to_owned())
        .map_err(|error| Failure::from(&error))
}

#[test]
fn numbers_keep_their_text() {
    for (text, seconds) in
        [("ttl = 20", "20"), ("ttl = 1.5", "1.5"), ("ttl = inf", "inf"), ("ttl = nan", "NaN")]
    {
        assert_eq!(parse(text).expect("valid").values(None)[0].1, [seconds]);
    }
}

#[test]
fn every_mistake_is_one_line_with_its_place() {
    let place = "/etc/dlock/config.toml";
    for (text, error, hint) in [
        ("ttl = 3\n\nendpoits = \"x\"", "3: unknown key endpoits", Some("did you mean endpoint?")),
        ("[profile.ci]\ntll = 3", "2: unknown key tll", Some("did you mean ttl?")),
        ("[profil.ci]\nttl = 3", "1: unknown key profil", Some("did you mean profile?")),
        ("qqq = 1", "1: unknown key qqq", Some("the keys are listed in dlock man config")),
        ("ttl = 20s", "1: the value of ttl is not in quotes", Some("write ttl = \"VALUE\"")),
        ("ttl = \"20s", "1: this is not TOML: `\"` is missing", Some("a line is KEY = \"VALUE\"")),
        ("ttl: 20s", "1: this is not TOML: `=` is missing", Some("a line is KEY = \"VALUE\"")),
        ("quiet = \"yes\"", "1: quiet must be true or false", None),
        ("prefix = 3", "1: prefix must be a text in quotes", None),
        ("ttl = true", "1: ttl must be a duration in quotes, such as \"30s\", or a number of seconds", None),
        ("endpoint = [1]", "1: endpoint must be a text in quotes, or a list of them", None),
        ("password = 12345", "1: password must be a text in quotes", None),
        ("[profile]\nci = \"12345\"", "2: ci must be a table of options", None),
        ("[profile.a.profile.b]\nttl = 3", "1: unknown key profile", Some("did you mean profile?")),
        ("[profile]\nci = 3", "2: ci must be a table of options", None),
    ] {
        let failure = parse(text).expect_err("refused");
        assert_eq!((failure.code.number(), failure.to_string()), (64, format!("{place}:{error}")));
        assert_eq!(failure.message.hint(), hint);
    }
    let broken = parse("ttl = 3\nx = = 4").expect_err("refused").to_string();
    assert!(broken.starts_with("/etc/dlock/config.toml:2: ") && !broken.contains('\n'), "{broken}");
}

#[test]
fn file_writable_by_others_is_refused() {
    let folder = Folder::new("config-mode");
    let path = folder.0.join("config.toml");
    let uid = rustix::process::getuid().as_raw();
    let read = |text: &str, mode: u32, uid: u32| {
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        ConfigFile::read(&path, uid)
            .map_err(|error| Failure::from(&error))
            .map_err(|f| (f.to_string(), f.message.hint().map(str::to_owned)))
    };
    assert!(read("ttl=3", 0o644, uid).is_ok_and(|c| c.is_some()));
    let shown = path.display();
    let error = read("ttl=3", 0o664, uid).expect_err("refused");
    assert_eq!(
        error.0,
        format!("the configuration file {shown} can be written by others, who could change what dlock does")
    );
    assert_eq!(error.1, Some(format!("chmod go-w {shown}")));
    let folder_itself =
        Failure::from(&ConfigFile::read(&folder.0, uid).expect_err("a directory")).to_string();
    assert_eq!(folder_itself, format!("the configuration file {} is a directory", folder.0.display()));
    assert!(ConfigFile::read(&folder.0.join("none"), uid).is_ok_and(|c| c.is_none()));
    assert!(ConfigFile::read(Path::new("/dev/null"), uid).is_ok_and(|c| c.is_some()));
    if uid != 0 {
        assert!(read("ttl=3", 0o600, uid + 1).expect_err("refused").0.contains("belongs to uid"));
    }
}

#[test]
fn readable_password_is_doubted_in_a_reachable_directory() {
    let folder = Folder::new("config-doubt");
    let path = folder.0.join("config.toml");
    let uid = rustix::process::getuid().as_raw();
    for (directory, text, mode, is_doubted) in [
        (0o755, "password='x'", 0o644, true),
        (0o755, "endpoint='redis://u:p@h'", 0o604, true),
        (0o755, "password='x'", 0o600, false),
        (0o755, "ttl=3", 0o644, false),
        (0o700, "password='x'", 0o644, false),
    ] {
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(directory)).expect("set");
        let doubt = ConfigFile::read(&path, uid).expect("read").expect("there").doubt();
        assert_eq!(doubt.is_some(), is_doubted, "{directory:o} {text} {mode:o}");
        let remedy = doubt.and_then(|risk| risk.remedy).unwrap_or_default();
        assert!(!is_doubted || (remedy.starts_with("chmod ") && remedy.contains("o-r ")), "{remedy}");
    }
}

#[test]
fn non_text_file_is_an_error() {
    let folder = Folder::new("config-bytes");
    let path = folder.0.join("config.toml");
    fs::write(&path, b"ttl=\"\xff\"").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    let error = ConfigFile::read(&path, rustix::process::getuid().as_raw()).expect_err("refused");
    assert_eq!(error.to_string(), format!("the configuration file {} is not valid UTF-8", path.display()));
}

#[test]
fn every_option_of_a_service_is_an_argument_and_a_key() {
    let command = args::subcommand("status");
    for option in LOGIN.iter().chain(SERVICES.iter().flat_map(|service| service.options)) {
        assert!(KEYS.contains(option), "{option} is no key of the configuration files");
        let argument = command.get_arguments().any(|argument| argument.get_long() == Some(option));
        assert!(argument, "there is no --{option}");
    }
}
