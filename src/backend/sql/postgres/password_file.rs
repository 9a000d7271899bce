//! `~/.pgpass`: passwords for hosts, ports, databases and users.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, absolute};

use crate::net::credentials::Secret;

/// Returns the password that the file at `path` has for the host, port, database and user in `asked`. The file is read
/// again for each use.
pub(super) fn filed(path: &Path, asked: [String; 4]) -> Option<Secret> {
    find(path, &asked)?;
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(Secret::read_by(move || {
        let none = || format!("the password file {} has no password for this server now", path.display());
        find(&path, &asked).ok_or_else(none)
    }))
}

/// Returns the password in the first line that fits. Like libpq, ignores a file that other users may access.
fn find(path: &Path, asked: &[String; 4]) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let is_private = meta.is_file() && meta.mode().trailing_zeros() >= 6;
    let text = fs::read_to_string(path).ok().filter(|_| is_private)?;
    let fits = |(pattern, text): (&String, &String)| pattern == "*" || pattern == text;
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(fields);
    lines.filter(|line| line.iter().zip(asked).all(fits)).find_map(|line| line.last().cloned())
}

/// Parses `host:port:database:user:password`; a backslash makes the next character literal.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields.last_mut()?.extend(chars.next()),
            // The password may contain colons without a backslash.
            ':' if fields.len() < 5 => fields.push(String::new()),
            _ => fields.last_mut()?.push(c),
        }
    }
    fields.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_libpq_reads_them() {
        let read = |line: &str| fields(line).map(|fields| fields.join("|"));
        assert_eq!(read(r"h:5432:*:me:pa\:ss:w\\").as_deref(), Some(r"h|5432|*|me|pa:ss:w\"));
        assert_eq!(read(r"\:\:1:*:*:*:x").as_deref(), Some("::1|*|*|*|x"));
        assert_eq!(read("h:5432:x"), None);
    }
}
