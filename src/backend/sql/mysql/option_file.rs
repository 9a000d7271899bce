//! Parsing `my.cnf`: the option files of the databases' own clients, in the same way.
//!
//! Source: the manuals' pages on option files, and the output of `my_print_defaults`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The groups of a file that apply: those for all clients, and those of the `mysql` client, for which users usually
/// make their settings.
const GROUPS: [&str; 6] = ["client", "client-server", "client-mariadb", "mysql", "mariadb", "mariadb-client"];
/// The deepest inclusion of files.
const DEEPEST: u32 = 10;

/// Options and their values, empty for an option without one; the last value counts. Names have dashes, not
/// underscores.
pub(super) type Said = BTreeMap<String, String>;

/// Reads these files, one after the other. Missing files are skipped, and so are lines that cannot be parsed.
pub(super) fn options_in(files: &[PathBuf]) -> Said {
    let mut said = Said::new();
    for file in files {
        read(file, &mut said, 0);
    }
    said
}

fn read(path: &Path, said: &mut Said, depth: u32) {
    let Some(text) = text_of(path).filter(|_| depth <= DEEPEST) else { return };
    let mut applies = false;
    for line in text.lines().map(str::trim) {
        match line.chars().next() {
            None | Some('#' | ';') => {}
            Some('!') => follow(&line[1..], said, depth + 1),
            Some('[') => {
                let name = line[1..].split(']').next().unwrap_or_default();
                applies = GROUPS.contains(&name.trim_end());
            }
            Some(_) if applies => take(line, said),
            Some(_) => {}
        }
    }
}

/// Executes `!include FILE` and `!includedir DIR`. The clients ignore other directives, too.
fn follow(directive: &str, said: &mut Said, depth: u32) {
    let (word, target) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
    // Like the clients, relative to the working directory.
    let target = Path::new(target.trim());
    let mut files = match word {
        "include" => vec![target.to_owned()],
        "includedir" => {
            let entries = fs::read_dir(target).into_iter().flatten().flatten();
            let files = entries.map(|entry| entry.path());
            files.filter(|file| file.extension().is_some_and(|end| end == "cnf")).collect()
        }
        _ => Vec::new(),
    };
    files.sort();
    for file in files {
        read(&file, said, depth);
    }
}

fn take(line: &str, said: &mut Said) {
    let line = without_comment(line);
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let name = name.trim_end().replace('_', "-");
    said.insert(name.strip_prefix("loose-").unwrap_or(&name).to_owned(), value_of(value));
}

/// Returns a file's text; `None` if the file cannot be read or is writable by all users. The clients skip such files,
/// too.
fn text_of(path: &Path) -> Option<String> {
    let facts = fs::metadata(path).ok()?;
    let is_open = facts.is_file() && facts.mode() & 0o002 != 0;
    let text = fs::read(path).ok().filter(|_| !is_open)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the line up to a `#` outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut letters = line.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (letter, quote) {
            ('#', None) => return line[..at].trim_end(),
            ('\'' | '"', None) => quote = Some(letter),
            // It escapes the next letter.
            ('\\', Some(_)) => _ = letters.next(),
            (_, Some(open)) if open == letter => quote = None,
            _ => {}
        }
    }
    line
}

/// Returns a value without its quotes, with escapes replaced.
fn value_of(text: &str) -> String {
    let text = text.trim();
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let text = quoted('"').or_else(|| quoted('\'')).unwrap_or(text);
    let mut value = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match escaped {
            None => value.push(letter),
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('r') => value.push('\r'),
            Some('b') => value.push('\u{8}'),
            Some('s') => value.push(' '),
            Some(same @ ('"' | '\'' | '\\')) => value.push(same),
            Some(other) => value.extend(['\\', other]),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A directory that the test removes.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dlock-cnf-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a new directory");
            Self(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).expect("writes");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changes");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A directory left behind does no harm.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn values_are_read_as_the_clients_read_them() {
        let folder = Folder::new("values");
        // The expected values are those that my_print_defaults of MariaDB 10.11 printed for the same text.
        let text = "[client]\npassword = \"a\\sb#c\" # comment\nuser=joe  \n\n; no\n#no\n[mysql]\n\
                    socket ='/tmp/x y'\nssl-ca=a\\tb\\\\c\\zd\nskip-foo\nloose-host=h\nssl_key = l\n\
                    pass = 3 # c\nname=\"q\\\"uo\" #d\nport=\nempty=''\n!inclusion x\n[ client]\nuser=no\n[client ] x\nUser=no\n\
                    z = \"x\" y # c\ne=\\\"#\n[mysqld]\nuser=mysql\n";
        let said = options_in(&[folder.file("a.cnf", text)]);
        for (option, value) in [
            ("password", "a b#c"),
            ("user", "joe"),
            ("socket", "/tmp/x y"),
            ("ssl-ca", "a\tb\\c\\zd"),
            ("skip-foo", ""),
            ("host", "h"),
            ("ssl-key", "l"),
            ("pass", "3"),
            ("name", "q\"uo"),
            ("port", ""),
            ("empty", ""),
            ("z", "\"x\" y"),
            ("e", "\"#"),
        ] {
            assert_eq!(said[option], value, "{option}");
        }
    }

    #[test]
    fn later_files_win_and_files_name_files() {
        let folder = Folder::new("files");
        fs::create_dir_all(folder.0.join("d")).expect("a new directory");
        folder.file("d/2.cnf", "[client]\nuser=two\n");
        folder.file("d/1.cnf", "[client]\nuser=one\nhost=one\n");
        folder.file("d/3.txt", "[client]\nuser=three\n");
        let other = folder.file("other", "[client]\nport=7\n");
        let (folder_path, other) = (folder.0.join("d"), other.display());
        let first = format!(
            "[client]\nuser=a\n!includedir {}\ndatabase=d\n!include {other}\n",
            folder_path.display()
        );
        let files =
            [folder.file("first", &first), folder.0.join("none"), folder.file("last", "[mysql]\nhost=z\n")];
        let said = options_in(&files);
        let got = ["user", "host", "port", "database"].map(|option| said[option].as_str());
        assert_eq!(got, ["two", "z", "7", "d"]);
    }

    #[test]
    fn world_writable_option_file_is_ignored() {
        let folder = Folder::new("open");
        let file = folder.file("a.cnf", "[client]\nuser=mallory\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("changes");
        assert!(options_in(&[file]).is_empty());
    }

    #[test]
    fn malformed_option_file_is_read_as_far_as_possible() {
        let folder = Folder::new("wrong");
        let round = folder.0.join("round").display().to_string();
        let text = format!("user=no\n[client\nhost=h\n!include {round}\n[other]\nhost=no\n");
        let said = options_in(&[folder.file("round", &text)]);
        assert_eq!(said.into_iter().collect::<Vec<_>>(), [("host".to_owned(), "h".to_owned())]);
    }
}
