//! Why an existing file cannot be executed.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Returns the error of executing `word` with its true reason if the file exists, or if a lookup in `path` finds one:
/// the errno then looks like that of a missing or forbidden file. Returns other errors unchanged.
pub(super) fn explain(error: io::Error, word: &[u8], path: &OsStr) -> io::Error {
    // A lookup passes over directories.
    let found = || files(word, path).min_by_key(|(_, what)| what.is_dir());
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => found().and_then(|(file, _)| what_is_missing(&file)),
        Some(Errno::ACCESS) => found().and_then(|(file, what)| why_forbidden(&file, &what)),
        _ => None,
    };
    reason.map_or(error, io::Error::other)
}

/// Returns the existing files that `word` may name: as a path, or in the directories of `path`.
pub(super) fn files(word: &[u8], path: &OsStr) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let is_path = word.contains(&b'/');
    let folders = if is_path { vec![PathBuf::new()] } else { std::env::split_paths(path).collect() };
    let files = folders.into_iter().map(move |folder| folder.join(OsStr::from_bytes(word)));
    files.filter_map(|file| file.metadata().ok().map(|what| (file, what)))
}

/// Returns what an existing file lacks that the kernel does not start.
fn what_is_missing(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(256).read_to_end(&mut start).ok()?;
    let Some(line) = start.strip_prefix(b"#!") else {
        return Some("the loader that it was linked for is missing on this system".to_owned());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    if text.ends_with('\r') {
        return Some("its lines end as on Windows; convert it with dos2unix".to_owned());
    }
    let interpreter = text.split_whitespace().next().unwrap_or_default();
    Some(format!("its interpreter {interpreter} is missing"))
}

fn why_forbidden(file: &Path, what: &Metadata) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    if what.is_dir() {
        return Some("it is a directory".to_owned());
    }
    let executable = what.permissions().mode() & 0o111 != 0;
    (what.is_file() && !executable).then(|| format!("it is not executable; chmod +x {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_unexplained_file_keeps_its_error() {
        for (errno, word) in [
            (Errno::NOENT, "/no/such/file"),
            (Errno::NOENT, "no-such-command"),
            (Errno::NOENT, ""),
            (Errno::ACCESS, "/bin/sh"),
            (Errno::NOMEM, "/bin/sh"),
        ] {
            let error = explain(io::Error::from(errno), word.as_bytes(), OsStr::new("/usr/bin:/bin"));
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{word}");
        }
    }

    #[test]
    fn directories_in_the_path_are_not_explained() {
        let root = std::env::temp_dir().join(format!("dlock-diagnosis-{}", std::process::id()));
        std::fs::create_dir_all(root.join("first/twice")).expect("a directory");
        std::fs::create_dir_all(root.join("second")).expect("a directory");
        std::fs::write(root.join("second/twice"), "#!/no/such/interpreter\n").expect("a file");
        let path = std::env::join_paths([root.join("first"), root.join("second")]).expect("no colon");
        let error = explain(io::Error::from(Errno::NOENT), b"twice", &path);
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!(error.to_string(), "its interpreter /no/such/interpreter is missing");
    }
}
