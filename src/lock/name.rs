//! Lock names.

use std::fmt;
use std::str::FromStr;

/// A validated lock name: UTF-8 text of 1 to 200 bytes without control characters and without whitespace at its ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

/// Why a text is not a lock name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text has this many bytes, more than [`LockName::MAX_BYTES`].
    TooLong(usize),
    /// The text contains a control character.
    Control(char),
    /// The text begins or ends with whitespace.
    Blank,
}

impl LockName {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 200;

    /// Validates `text`.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(NameError::TooLong(text.len()));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => Err(NameError::Control(c)),
            // Whitespace at an end is invisible, and would make another lock.
            None if text.trim().len() < text.len() => Err(NameError::Blank),
            None => Ok(Self(text)),
        }
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
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
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

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a lock name cannot be empty"),
            Self::TooLong(bytes) => {
                write!(f, "a lock name has at most {} bytes, this one has {bytes}", LockName::MAX_BYTES)
            }
            Self::Control(c) => {
                write!(f, "a lock name cannot contain the control character {}", c.escape_default())
            }
            Self::Blank => f.write_str("a lock name cannot begin or end with white space"),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_name_is_refused() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert_eq!(LockName::new("x".repeat(201)), Err(NameError::TooLong(201)));
        assert_eq!(LockName::new("a\nb"), Err(NameError::Control('\n')));
        assert!(LockName::new("x".repeat(200)).is_ok());
        assert!(LockName::new("日本 / deploy").is_ok());
        for name in [" ", " a", "a ", "a\u{a0}", "\u{3000}a"] {
            assert_eq!(LockName::new(name), Err(NameError::Blank), "{name:?}");
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
