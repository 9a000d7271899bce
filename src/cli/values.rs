//! Typed values, with the same rules for all their sources.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::args::NameArgs;
use super::exit_code::Hinted as _;
use super::source::{Source, SourcedText};
use crate::backend::options::ZkLayout;
use crate::lock::validity::LeaseTimes;
use crate::lock::{LockName, duration};
use crate::output::{LogFormat, sanitise};
use crate::supervise::signals::Signal;

/// The longest label, in bytes.
const LABEL_BYTES: usize = 200;

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
    duration::parse(&found.text).context(found.source.clone())
}

/// Returns a TTL.
pub fn ttl(found: &SourcedText) -> Result<Duration> {
    let ttl = length(found)?;
    LeaseTimes::new(ttl, Duration::ZERO).context(found.source.clone())?;
    Ok(ttl)
}

/// Returns a lock's name, from the option or argument `place`.
pub fn name(text: &OsStr, place: &str) -> Result<LockName> {
    LockName::new(name_text(text, place)?).with_context(|| place.to_owned())
}

/// Returns the beginning of lock names, from the argument `place`. It may end in whitespace.
pub fn beginning(text: &OsStr, place: &str) -> Result<String> {
    let text = name_text(text, place)?;
    name(OsStr::new(text.trim_end()), place).map(|_| text.to_owned())
}

fn name_text<'a>(text: &'a OsStr, place: &str) -> Result<&'a str> {
    text.to_str().ok_or_else(|| anyhow!("{place}: the name {} is not valid UTF-8", sanitise::os(text)))
}

/// Returns the name of the only lock of a command, from its argument or from `--name`.
pub fn one_name(args: &NameArgs) -> Result<LockName> {
    match (&args.name, &args.named) {
        (Some(text), None) => name(text, "NAME"),
        (None, Some(text)) => name(text, "--name"),
        (None, None) => Err(anyhow!("NAME is missing").hint("name the lock; dlock list shows those in use")),
        (Some(_), Some(_)) => Err(anyhow!("NAME and --name are both given; choose one of them")),
    }
}

/// Returns a label.
pub fn label(found: SourcedText) -> Result<String> {
    shown_text(found.text, &found.source, "a label")
}

/// Returns a text that other users see, from `place`; `what` names it.
pub fn shown_text(text: String, place: impl fmt::Display, what: &str) -> Result<String> {
    if text.len() > LABEL_BYTES {
        let bytes = text.len();
        let reason = format!("{place}: {what} has at most {LABEL_BYTES} bytes, this one has {bytes}");
        bail!(reason);
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => {
            let c = c.escape_default();
            Err(anyhow!("{place}: {what} cannot contain the control character {c}"))
        }
        None => Ok(text),
    }
}

/// Returns the format of messages.
pub fn log_format(found: &SourcedText) -> Result<LogFormat> {
    match found.text.as_str() {
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        other => Err(anyhow!("{}: {other:?} is not one of human, json", found.source)),
    }
}

/// Returns the layout of ZooKeeper nodes.
pub fn zk_layout(found: &SourcedText) -> Result<ZkLayout> {
    match found.text.as_str() {
        "curator" => Ok(ZkLayout::Curator),
        "kazoo" => Ok(ZkLayout::Kazoo),
        other => Err(anyhow!("{}: {other:?} is not one of curator, kazoo", found.source)),
    }
}

/// Returns a number of slots.
pub fn slots(text: &OsStr) -> Result<NonZeroU32> {
    text.to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| anyhow!("--slots: {:?} is not a number of slots; write 1 or more", sanitise::os(text)))
}

/// Returns an exit status.
pub fn exit_status(text: &OsStr) -> Result<u8> {
    text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        let text = sanitise::os(text);
        anyhow!("--busy-exit-code: {text:?} is not an exit status; write 0 to 255")
    })
}

/// Returns a signal, by name or number.
pub fn signal(text: &OsStr) -> Result<Signal> {
    text.to_str().and_then(Signal::named).ok_or_else(|| {
        let text = sanitise::os(text);
        anyhow!("--signal: {text:?} is not a signal; write a name such as INT, or 1 to 64")
    })
}

/// Returns the absolute path of a file to write. The process that writes it changes its directory before.
pub fn file(text: &OsStr, option: &str) -> Result<PathBuf> {
    if text.is_empty() {
        bail!("--{option}: the file's name is empty");
    }
    if text == "-" {
        let reason = format!("--{option}: - is not the name of a file");
        return Err(anyhow!(reason).hint("write /dev/stderr, /dev/stdout, or ./- for a file of that name"));
    }
    Ok(std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text)))
}
