//! Words of MySQL and MariaDB that several parts say.

/// A literal that means the same whatever `sql_mode` and the character sets say.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(2 * text.len() + 3);
    literal.push_str("x'");
    literal.extend(digits(text.as_bytes()));
    literal.push('\'');
    literal
}

/// The hexadecimal digits of `bytes`.
pub(super) fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
}

/// Fails where no writes are taken, also for a user whom `read_only` does not bind.
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
