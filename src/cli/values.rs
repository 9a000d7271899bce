//! Typed values, with the same rules for all their sources.

use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::path::{self, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, ensure};

use super::exit_code::Hinted as _;
use super::source::{Source, SourcedText};
use crate::backend::ZkLayout;
use crate::lock::validity::LeaseTimes;
use crate::lock::{LockName, duration};
use crate::output::LogFormat;
use crate::supervise::signals::Signal;

/// The longest label or value of a leader, in bytes.
const SHOWN_BYTES: usize = 200;

/// Returns the value of `option` as Unicode. It may be a secret, so an error names the source alone. Only a password may have
/// several lines.
pub fn line(option: &str, text: &OsStr, source: &Source) -> Result<String> {
    let line = text.to_str().ok_or_else(|| anyhow!("{source} is not valid UTF-8"))?;
    if line.contains(['\r', '\n']) && option != "password" {
        return Err(anyhow!("{source} has a line break in it").hint("write it in one line"));
    }
    Ok(line.to_owned())
}

/// Returns a length of time.
pub fn length(found: &SourcedText) -> Result<Duration> {
    duration::parse(&found.text).map_err(Error::msg).context(found.source.clone())
}

/// Returns a TTL.
pub fn ttl(found: &SourcedText) -> Result<Duration> {
    let ttl = length(found)?;
    let (SourcedText { text, source }, least) = (found, LeaseTimes::LEAST_TTL);
    ensure!(ttl >= least, "{source}: {text} is too short; the least is {least:?}");
    Ok(ttl)
}

/// Returns the format of messages.
pub fn log_format(found: &SourcedText) -> Result<LogFormat> {
    one_of(found, [("human", LogFormat::Human), ("json", LogFormat::Json)])
}

/// Returns the layout of ZooKeeper nodes.
pub fn zk_layout(found: &SourcedText) -> Result<ZkLayout> {
    one_of(found, [("curator", ZkLayout::Curator), ("kazoo", ZkLayout::Kazoo)])
}

fn one_of<T>(found: &SourcedText, known: [(&str, T); 2]) -> Result<T> {
    let SourcedText { text, source } = found;
    let names = known.each_ref().map(|(name, _)| *name).join(", ");
    let meant = known.into_iter().find(|(name, _)| name == text);
    meant.map(|(_, value)| value).ok_or_else(|| anyhow!("{source}: {text:?} is not one of {names}"))
}

/// Returns a prefix. Some programs keep the quotes of an environment file, and others remove them, which would be
/// another lock.
pub fn prefix(found: SourcedText) -> Result<String> {
    let is_doubtful = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
    if found.text.starts_with(is_doubtful) || found.text.ends_with(is_doubtful) {
        let SourcedText { text, source } = found;
        return Err(anyhow!("{source}: {text:?} has a quotation mark or whitespace at an end")
            .hint("leave it out, or it is another lock than without it"));
    }
    Ok(found.text)
}

/// Returns a label, or the value of a leader: a text that other users see.
pub fn shown(text: &str) -> Result<String, String> {
    if text.len() > SHOWN_BYTES {
        return Err(format!(
            "a text for others has at most {SHOWN_BYTES} bytes, this one has {}",
            text.len()
        ));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => {
            Err(format!("a text for others cannot contain the control character {}", c.escape_default()))
        }
        None => Ok(text.to_owned()),
    }
}

/// Returns the beginning of lock names. It may end in whitespace, and be empty.
pub fn beginning(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    LockName::new(text.trim_end()).map(|_| text.to_owned())
}

/// Returns the first digits of a claim, at least eight.
pub fn claim_digits(text: &str) -> Result<String, String> {
    let is_claim = (8..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_claim.then(|| text.to_ascii_lowercase()).ok_or_else(|| {
        format!("{text:?} is not a claim id; write the 8 or more digits that dlock status NAME shows")
    })
}

/// Returns a number of slots.
pub fn slots(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number of slots; write 1 or more"))
}

/// Returns a signal, by name or number.
pub fn signal(text: &str) -> Result<Signal, String> {
    let unknown = || format!("{text:?} is not a signal; write a name such as INT, or 1 to 64");
    Signal::named(text).ok_or_else(unknown)
}

/// Returns the absolute path of a file to write. The process that writes it changes its directory before.
pub fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        return Err(
            "- is not the name of a file; write /dev/stderr, /dev/stdout, or ./- for a file of that name",
        );
    }
    path::absolute(path).map_err(|_| "the working directory is gone; name the whole path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_spaces_around_a_prefix_are_refused() {
        let read = |text: &str| prefix(SourcedText { text: text.into(), source: Source::Default });
        for text in ["\"p:\"", "'p:'", "\"p:", "p:'", " p:", "p:\t", " "] {
            let refused = read(text).expect_err("refused").root_cause().to_string();
            assert!(refused.ends_with("has a quotation mark or whitespace at an end"), "{refused}");
        }
        for text in ["", "p:", "a \"b\" c/", "\u{e4}/"] {
            assert_eq!(read(text).expect("valid"), text);
        }
    }
}
