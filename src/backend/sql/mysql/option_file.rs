//! Parsing `my.cnf`: the option files of the databases' own clients, in the same way.
//!
//! Source: the manuals' pages on option files, and the output of `my_print_defaults`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::net::credentials::Secret;

/// The groups of a file that apply: those for all clients, and those of the `mysql` client, for which users usually
/// make their settings.
const GROUPS: [&str; 6] = ["client", "client-server", "client-mariadb", "mysql", "mariadb", "mariadb-client"];
/// The deepest inclusion of files.
const DEEPEST: u32 = 10;
/// The longest option file, in bytes.
const LONGEST: u64 = 1 << 20;
/// The system's files.
const SYSTEM: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];

/// Options and their values; the last value counts. Names have dashes, not underscores.
#[derive(Default, Debug)]
pub(super) struct Said {
    options: BTreeMap<String, String>,
    /// The files that are read again for the password.
    files: Vec<PathBuf>,
}

impl Said {
    /// Reads the system's files and those of the user with this home. Missing files are skipped.
    ///
    /// Errors: text that cannot be parsed, with its file but without the text.
    pub(super) fn of_user(home: Option<&Path>) -> Result<Self, String> {
        let mut files: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        files.extend(home.map(|home| home.join(".my.cnf")));
        Self::of_files(&files)
    }

    /// Reads these files, one after the other.
    pub(super) fn of_files(files: &[PathBuf]) -> Result<Self, String> {
        let mut said = Self { files: files.to_vec(), ..Self::default() };
        for file in files {
            said.read(file, 0)?;
        }
        Ok(said)
    }

    /// Returns the value of `option`; empty for an option without a value.
    pub(super) fn get(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    /// Returns the password, which is read again for each use.
    pub(super) fn password(&self) -> Secret {
        let files = self.files.clone();
        Secret::read_by(move || {
            let said = Self::of_files(&files)?;
            let password = said.get("password").filter(|password| !password.is_empty());
            password.map(str::to_owned).ok_or_else(|| "the option files have no password any more".to_owned())
        })
    }

    fn read(&mut self, path: &Path, depth: u32) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("{}: option files that name each other", path.display()));
        }
        let Some(text) = text_of(path) else { return Ok(()) };
        let mut group: Option<bool> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let wrong = |what: &str| Err(format!("{}, line {number}: {what}", path.display()));
            match line.chars().next() {
                None | Some('#' | ';') => {}
                Some('!') => self.follow(&line[1..], depth)?,
                Some('[') => match line[1..].split_once(']') {
                    Some((name, _)) => group = Some(GROUPS.contains(&name.trim_end())),
                    None => return wrong("a group's name ends with ]"),
                },
                Some(_) => match group {
                    None => return wrong("an option before the first group"),
                    Some(true) => self.take(line),
                    Some(false) => {}
                },
            }
        }
        Ok(())
    }

    /// Executes `!include FILE` and `!includedir DIR`.
    fn follow(&mut self, directive: &str, depth: u32) -> Result<(), String> {
        let (word, target) = directive
            .split_once(char::is_whitespace)
            .map_or((directive, ""), |(word, rest)| (word, rest.trim()));
        // Like the clients, relative to the working directory.
        let target = Path::new(target);
        match word {
            "include" => self.read(target, depth + 1),
            "includedir" => {
                let mut files: Vec<PathBuf> = fs::read_dir(target)
                    .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                    .unwrap_or_default();
                files.retain(|file| file.extension().is_some_and(|end| end == "cnf"));
                files.sort();
                files.iter().try_for_each(|file| self.read(file, depth + 1))
            }
            // The clients ignore other directives, too.
            _ => Ok(()),
        }
    }

    fn take(&mut self, line: &str) {
        let line = without_comment(line);
        let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value)));
        let name = name.trim_end().replace('_', "-");
        let name = name.strip_prefix("loose-").unwrap_or(&name);
        self.options.insert(name.to_owned(), value.map(value_of).unwrap_or_default());
    }
}

/// Returns a file's text; `None` if the file cannot be read or is writable by all users. The clients skip such files,
/// too.
fn text_of(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let facts = file.metadata().ok()?;
    if facts.is_file() && facts.mode() & 0o002 != 0 {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the line up to a `#` outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (at, letter) in line.char_indices() {
        match letter {
            '\'' | '"' if !escaped => match quote {
                None => quote = Some(letter),
                Some(open) if open == letter => quote = None,
                Some(_) => {}
            },
            '#' if quote.is_none() => return line[..at].trim_end(),
            _ => {}
        }
        escaped = quote.is_some() && letter == '\\' && !escaped;
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
        if letter != '\\' {
            value.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('r') => value.push('\r'),
            Some('b') => value.push('\u{8}'),
            Some('s') => value.push(' '),
            Some(same @ ('"' | '\'' | '\\')) => value.push(same),
            Some(other) => value.extend(['\\', other]),
            None => value.push('\\'),
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
        let said = Said::of_files(&[folder.file("a.cnf", text)]).expect("valid");
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
            assert_eq!(said.get(option), Some(value), "{option}");
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
        let said = Said::of_files(&files).expect("valid");
        let got = ["user", "host", "port", "database"].map(|option| said.get(option));
        assert_eq!(got, [Some("two"), Some("z"), Some("7"), Some("d")]);
    }

    #[test]
    fn world_writable_option_file_is_ignored() {
        let folder = Folder::new("open");
        let file = folder.file("a.cnf", "[client]\nuser=mallory\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("changes");
        assert_eq!(Said::of_files(&[file]).expect("valid").get("user"), None);
    }

    #[test]
    fn option_file_error_omits_the_malformed_text() {
        let folder = Folder::new("wrong");
        let round = folder.0.join("round").display().to_string();
        for (text, part) in [
            ("password=secret\n", "line 1: an option before the first group"),
            ("[client\npassword=secret\n", "line 1: a group's name ends with ]"),
            (&format!("!include {round}\n"), "name each other"),
        ] {
            let error = Said::of_files(&[folder.file("round", text)]).expect_err(text);
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
    }
}
