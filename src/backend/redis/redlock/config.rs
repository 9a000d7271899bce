//! Parsing the addresses of several independent servers.

use std::time::Duration;

use crate::backend::Options;
use crate::backend::redis::config::RedisConfig;
use crate::net::address::{after, in_any_order};

/// The least number of nodes of which one may fail.
const LEAST: usize = 3;
/// How long a restarted node does not vote, by default.
const MAX_TTL: Duration = Duration::from_secs(60);

/// Independent masters, of which a majority decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedlockConfig {
    /// The addresses of the nodes.
    pub nodes: Vec<RedisConfig>,
    /// The longest ttl, which is also how long a restarted node does not vote.
    pub max_ttl: Duration,
}

impl RedlockConfig {
    /// Parses the connection options if they name more than one server; `None` if they do not. An error is one line
    /// without secrets.
    pub fn parse(options: &Options) -> Result<Option<Self>, String> {
        let endpoints: Vec<String> = options.endpoints.iter().flat_map(|given| taken_apart(given)).collect();
        let count = endpoints.len();
        if count < 2 {
            return Ok(None);
        }
        let node = |endpoint| {
            let node = RedisConfig::parse(&Options { endpoints: vec![endpoint], ..options.clone() })?;
            if node.fails_over() {
                return Err(format!(
                    "{} is not one server: several endpoints are the independent masters of a Redlock; give this one \
                     alone, or single servers",
                    node.identity()
                ));
            }
            Ok(node)
        };
        let nodes = endpoints.into_iter().map(node).collect::<Result<Vec<_>, _>>()?;
        if count < LEAST || count.is_multiple_of(2) {
            return Err(format!(
                "{count} independent Redis servers are named, and Redlock takes an odd number of them, three or more: \
                 {count} survive no more failures than {}",
                count - 1
            ));
        }
        Ok(Some(Self { nodes, max_ttl: options.max_ttl.unwrap_or(MAX_TTL) }))
    }

    /// Returns the nodes as text without secrets, equal for equal sets of nodes.
    pub fn identity(&self) -> String {
        in_any_order(self.nodes.iter().map(RedisConfig::identity))
    }
}

/// Splits a comma list of addresses. The commas in an address of sentinels or of a cluster do not separate addresses. A
/// part without a scheme is encrypted like its predecessor.
fn taken_apart(endpoint: &str) -> Vec<String> {
    if after(endpoint, "redis+").is_some() {
        return vec![endpoint.to_owned()];
    }
    let mut is_encrypted = false;
    let whole = |part: &str| {
        let has_scheme = part.contains("://") || after(part, "unix:").is_some();
        is_encrypted = after(part, "rediss://").is_some() || !has_scheme && is_encrypted;
        if is_encrypted && !has_scheme { format!("rediss://{part}") } else { part.to_owned() }
    };
    endpoint.split(',').map(str::trim).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;

    fn parse(endpoints: &[&str]) -> Result<Option<RedlockConfig>, String> {
        RedlockConfig::parse(&Options::at(endpoints))
    }

    #[test]
    fn several_addresses_are_nodes_however_they_are_written() {
        for endpoints in [
            &["redis://a", "redis://b", "redis://c"] as &[&str],
            &["redis://a,redis://b,redis://c"],
            &["redis://c,b", "a:6379"],
        ] {
            let config = parse(endpoints).expect("valid").expect("several");
            assert_eq!(config.identity(), "redis://a:6379/0,redis://b:6379/0,redis://c:6379/0");
            assert_eq!(config.max_ttl, MAX_TTL);
        }
        let mixed = parse(&["rediss://a,b/1", "unix:/s"]).expect("valid").expect("several");
        assert_eq!(mixed.identity(), "rediss://a:6379/0,rediss://b:6379/1,unix:/s?db=0");
    }

    #[test]
    fn one_service_is_no_redlock() {
        for endpoint in ["redis://a", "redis+sentinel://a,b,c/m", "redis+cluster://a,b:2,c"] {
            assert_eq!(parse(&[endpoint]), Ok(None), "{endpoint}");
        }
        assert_eq!(parse(&[]), Ok(None));
    }

    #[test]
    fn invalid_redlock_is_refused_with_reason() {
        for (endpoints, part) in [
            (&["redis://a,b"] as &[&str], "an odd number"),
            (&["redis://:secret@a,b,c,d"], "an odd number"),
            (&["redis://a,b", "redis+cluster://c"], "not one server"),
            (&["redis://a,b,c:x"], "not HOST:PORT"),
        ] {
            assert_refused(parse(endpoints), part);
        }
    }
}
