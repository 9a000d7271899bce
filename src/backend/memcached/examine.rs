//! What can go wrong with this memcached.

use super::client::{Client, Commands};
use super::fault::nonsense;
use super::wire::Reply;
use crate::backend::{Examination, Risk};
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The first version with everything that is used.
const LEAST: (u32, u32) = (1, 5);

/// Looks at the server, on a connection of its own.
pub(super) async fn examine(client: &Client, deadline: Moment) -> FaultResult<Examination> {
    let client = client.apart();
    let ask = async |command: &str| -> FaultResult<Reply> {
        client.call(deadline, Commands::default().line(command, b"", "")).await?.next()
    };
    // The first exchange pays for the connection.
    let stats = ask("stats").await?;
    let begun = client.clock.now();
    let said = ask("version").await?.line()?;
    let round_trip = client.clock.now().since(begun);
    let version = said.strip_prefix("VERSION ").ok_or_else(|| nonsense(&said))?.to_owned();
    let settings = ask("stats settings").await?;
    let mut risks = limits();
    risks.extend(warnings(&version, &stats, &settings));
    if let Some(place) = client.config.open_password() {
        risks.push(Risk::of_open_password(&place, "use memcacheds:// and enable TLS on the server (-Z)"));
    }
    Ok(Examination {
        server: format!("memcached {version}"),
        reached: client.config.identity(),
        round_trip,
        risks,
    })
}

/// What no memcached can promise.
fn limits() -> Vec<Risk> {
    vec![
        Risk::note(
            "memcached keeps nothing over a restart, and may evict an item when its memory is full: the lock can then be \
             given to another while a command still runs, until that one's dlock looks again, within a second",
        ),
        Risk::note(
            "tokens go on from the clock of a client when memcached has forgotten their counter, so they fall if that clock \
             was set back",
        ),
        Risk::note("memcached wakes nobody: waiters and holders look every 50 ms to 1 s"),
        Risk::note(
            "whoever can write to this memcached can delete or overwrite a lock, also by an ordinary cache key of the \
             same name",
        ),
    ]
}

fn warnings(version: &str, stats: &Reply, settings: &Reply) -> Vec<Risk> {
    let mut risks = Vec::new();
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let known = numbers.next().flatten().zip(numbers.next().flatten());
    if known.is_some_and(|known| known < LEAST) {
        let what = format!(
            "memcached {version} is older than {}.{}, the oldest that dlock supports",
            LEAST.0, LEAST.1
        );
        risks.push(Risk::warning(what, "update memcached"));
    }
    let number = |name: &str| stats.stat(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let evicted = number("evictions");
    if evicted > 0 {
        risks.push(Risk::warning(
            format!(
                "this memcached has evicted {evicted} items since it was started; locks can be among them"
            ),
            "give it more memory (-m), or the locks a memcached of their own",
        ));
    }
    if settings.stat("evictions") == Some("off") {
        risks.push(Risk::warning(
            "it refuses to evict anything (-M): when its memory is full, holders cannot renew, and their commands are ended",
            "start it without -M and with memory to spare (-m)",
        ));
    }
    if settings.stat("lru_crawler") == Some("no") {
        risks.push(Risk::warning(
            "it does not list its keys, so dlock list does not work",
            "start it with -o lru_crawler",
        ));
    }
    risks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(facts: &[(&str, &str)]) -> Reply {
        Reply::Stats(facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_is_wrong_with_this_one_is_a_warning() {
        let settings = |crawls, evicts| stats(&[("lru_crawler", crawls), ("evictions", evicts)]);
        let well = warnings("1.6.18", &stats(&[("evictions", "0")]), &settings("yes", "on"));
        assert_eq!(well, []);
        let ill = warnings("1.4.15", &stats(&[("evictions", "3")]), &settings("no", "off"));
        assert_eq!(ill.len(), 4);
    }
}
