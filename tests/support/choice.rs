//! The points of an enumeration that are tried.

use std::fmt::Display;
use std::str::FromStr;

use super::chance::{Random, usual_seed};

#[derive(Clone, Debug)]
pub(crate) enum Choice<P> {
    /// So many points of each kind.
    Some(usize),
    All,
    /// The points with this text in their names: `~newer=`.
    Like(String),
    One(P),
}

impl<P: FromStr<Err = String> + Display> Choice<P> {
    /// Returns the choice in the environment's `variable`, or `sample` points of each kind.
    pub(crate) fn of(variable: &str, sample: usize) -> Result<Self, String> {
        let Ok(text) = std::env::var(variable) else { return Ok(Self::Some(sample)) };
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(part) = text.strip_prefix('~') {
            return Ok(Self::Like(part.to_owned()));
        }
        let point = |_| text.parse().map(Self::One).map_err(|error| format!("{variable}: {error}"));
        text.parse().map(Self::Some).or_else(point)
    }

    /// Returns those of `points`, all of one kind, that are tried.
    pub(crate) fn among(&self, mut points: Vec<P>) -> Vec<P> {
        if let Self::Some(number) = self {
            let mut random = Random(usual_seed());
            while points.len() > *number {
                let at = random.below(points.len());
                points.swap_remove(at);
            }
        }
        if let Self::Like(part) = self {
            points.retain(|point| point.to_string().contains(part));
        }
        points
    }
}
