//! Fragments of SQL for MySQL and MariaDB.

/// Returns a literal that does not depend on `sql_mode` and character sets.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(2 * text.len() + 3);
    literal.push_str("x'");
    literal.extend(digits(text.as_bytes()));
    literal.push('\'');
    literal
}

/// Returns the hexadecimal digits of `bytes`.
pub(super) fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
}

/// Fails on a server that does not accept writes, even for a user that `read_only` does not bind.
pub(super) const TAKES_WRITES: &str =
    "SET @dlock_writes = (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE @@global.read_only);";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_say_nothing_but_their_bytes() {
        assert_eq!(text("a'\\"), "x'61275c'");
        assert_eq!(text(""), "x''");
    }
}
