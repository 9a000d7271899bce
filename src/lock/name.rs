//! Lock names.

use std::fmt;
use std::str::FromStr;

/// A validated lock name: UTF-8 text of 1 to 200 bytes without control characters and without whitespace at its ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

impl LockName {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 200;

    /// Validates `text`.
    ///
    /// Errors: a sentence about the fault.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        let (bytes, most) = (text.len(), Self::MAX_BYTES);
        if bytes == 0 {
            return Err("a lock name cannot be empty".to_owned());
        }
        if bytes > most {
            return Err(format!("a lock name has at most {most} bytes, this one has {bytes}"));
        }
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return Err(format!("a lock name cannot contain the control character {}", c.escape_default()));
        }
        // Whitespace at an end is invisible, and would make another lock.
        if text.trim().len() < bytes {
            return Err("a lock name cannot begin or end with whitespace".to_owned());
        }
        Ok(Self(text))
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name with every byte outside `A-Za-z0-9._-`, and a leading dot, written as `%XX`.
    ///
    /// Different names have different encodings, and none contains `/` or starts with a dot.
    pub fn percent_encoded(&self) -> String {
        use fmt::Write as _;
        let mut out = String::with_capacity(self.0.len());
        for (i, b) in self.0.bytes().enumerate() {
            if b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || (b == b'.' && i > 0) {
                out.push(char::from(b));
            } else {
                write!(out, "%{b:02X}").expect("writing to a String cannot fail");
            }
        }
        out
    }

    /// Returns the name with `text` as its [`LockName::percent_encoded`] form, if there is one.
    pub fn from_percent_encoded(text: &str) -> Option<Self> {
        let name = Self::new(String::from_utf8(percent_decoded(text.as_bytes())?).ok()?).ok()?;
        (name.percent_encoded() == text).then_some(name)
    }
}

/// Replaces each `%XX` with the byte that it encodes; `None` if a `%` precedes other text.
pub fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

impl FromStr for LockName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_name_is_refused() {
        let why = |name: &str| LockName::new(name).expect_err("refused");
        assert_eq!(why(""), "a lock name cannot be empty");
        assert_eq!(why(&"x".repeat(201)), "a lock name has at most 200 bytes, this one has 201");
        assert_eq!(why("a\nb"), "a lock name cannot contain the control character \\n");
        assert!(LockName::new("x".repeat(200)).is_ok());
        assert!(LockName::new("日本 / deploy").is_ok());
        for name in [" ", " a", "a ", "a\u{a0}", "\u{3000}a"] {
            assert!(why(name).ends_with("begin or end with whitespace"), "{name:?}");
        }
    }

    #[test]
    fn encodes_as_documented() {
        let encoded = |s: &str| LockName::new(s).expect("valid").percent_encoded();
        assert_eq!(encoded("deploy-1_a.b"), "deploy-1_a.b");
        assert_eq!(encoded(".x"), "%2Ex");
        assert_eq!(encoded(".."), "%2E.");
        assert_eq!(encoded("a/b c%é"), "a%2Fb%20c%25%C3%A9");
    }

    proptest! {
        #[test]
        fn encoding_is_injective_and_flat(a in "[^\\p{Cc}]{1,20}", b in "[^\\p{Cc}]{1,20}") {
            let (x, y) = (LockName::new(a.clone()), LockName::new(b.clone()));
            if let (Ok(x), Ok(y)) = (x, y) {
                prop_assert_eq!(x.percent_encoded() == y.percent_encoded(), a == b);
                prop_assert!(!x.percent_encoded().contains('/') && !x.percent_encoded().starts_with('.'));
            }
        }
    }
}
