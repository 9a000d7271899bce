//! What `doctor` learns of an ensemble.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::Client;

use super::ensemble::Ensemble;
use crate::backend::{Examination, Risk};
use crate::net::fault::FaultResult;

/// The oldest version that is looked after.
const LEAST: [u32; 3] = [3, 5, 5];

/// What one server says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Said {
    version: Option<String>,
    mode: Option<String>,
}

/// Looks at the ensemble through `client`, an open session.
pub(super) async fn examine(ensemble: &Ensemble, client: &Client) -> FaultResult<Examination> {
    let begun = ensemble.clock.now();
    client.check_stat("/").await?;
    let round_trip = ensemble.clock.now().since(begun);
    let config = client.get_config().await.map(|(text, _)| String::from_utf8_lossy(&text).into_owned());
    let voters = config.as_ref().ok().map(|text| voters(text));
    let bounds = bounds(ensemble).await?;
    let said = match ensemble.config.tls {
        None => ask(ensemble).await,
        Some(_) => Said::default(),
    };
    let mut risks = Vec::new();
    of_version(&said, &mut risks);
    of_ensemble(voters, &mut risks);
    of_bounds(bounds, &mut risks);
    if ensemble.config.user.is_none() {
        let what = "without --user everybody who reaches the servers can remove or change claims";
        risks.push(Risk::note(what));
    } else if let Some(open) = ensemble.config.open_password() {
        risks.push(Risk::of_open_password(open, "use --cacert, and the servers' secureClientPort"));
    }
    risks.push(Risk::of_backup("they are its transaction ids, which nothing raises but use"));
    let server =
        said.version.map_or_else(|| "ZooKeeper".to_owned(), |version| format!("ZooKeeper {version}"));
    Ok(Examination { server, reached: ensemble.config.address(), round_trip, risks })
}

/// How many servers vote, as the configuration in the tree tells: none if one stands alone.
fn voters(config: &str) -> usize {
    config.lines().filter(|line| line.starts_with("server.") && !line.contains(":observer")).count()
}

/// The shortest and the longest session that is granted.
async fn bounds(ensemble: &Ensemble) -> FaultResult<(Duration, Duration)> {
    let shortest = ensemble.connect(Duration::from_millis(100)).await?.session_timeout();
    let longest = ensemble.connect(Duration::from_secs(86_400)).await?.session_timeout();
    Ok((shortest, longest))
}

fn of_bounds((shortest, longest): (Duration, Duration), risks: &mut Vec<Risk>) {
    risks.push(Risk::note(format!(
        "sessions last {shortest:?} to {longest:?} here; another --ttl is made one of these"
    )));
    if longest < Duration::from_secs(1) {
        risks.push(Risk::warning(
            "no session lasts a second, so no lease can be kept",
            "raise maxSessionTimeout at the servers",
        ));
    }
}

fn of_ensemble(voters: Option<usize>, risks: &mut Vec<Risk>) {
    match voters {
        None => risks.push(Risk::note("the servers do not show how many of them there are")),
        Some(0 | 1) => {
            risks.push(Risk::note("a single server: no lock can be taken or kept while it is down"));
        }
        Some(n) if n.is_multiple_of(2) => risks
            .push(Risk::note(format!("{n} voting servers survive the loss of no more than {} would", n - 1))),
        Some(_) => {}
    }
    if voters.is_none_or(|n| n > 1) {
        risks.push(Risk::note(
            "a ttl below four ticks of the servers (8s by default) may end a command early when its server loses the leader",
        ));
    }
}

fn of_version(said: &Said, risks: &mut Vec<Risk>) {
    let Some(version) = &said.version else {
        risks.push(Risk::note("the server does not report its version: it does not answer srvr"));
        return;
    };
    let parts: Vec<u32> = version.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
    if parts.len() >= 3 && parts[..3] < LEAST[..] {
        risks.push(Risk::warning(
            format!("ZooKeeper {version} is older than 3.5.5, the oldest that dlock supports"),
            "use a newer one",
        ));
    }
    if said.mode.as_deref() == Some("read-only") {
        risks.push(Risk::warning("the server is cut off and read-only", "see why it has no quorum"));
    }
}

/// Asks the first server that answers for what it is; the word is one that servers answer to by default.
async fn ask(ensemble: &Ensemble) -> Said {
    for server in &ensemble.config.servers {
        let asked = tokio::time::timeout(Duration::from_secs(1), srvr(server)).await;
        if let Ok(Ok(text)) = asked {
            return read(&text);
        }
    }
    Said::default()
}

async fn srvr(server: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"srvr").await?;
    let mut text = Vec::new();
    stream.take(65_536).read_to_end(&mut text).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn read(text: &str) -> Said {
    let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let version = after("Zookeeper version:").and_then(|v| v.split([',', '-', ' ']).next());
    Said { version: version.map(str::to_owned), mode: after("Mode:").map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Weight;

    #[test]
    fn what_servers_say_is_read() {
        let text = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2022-03-21 11:23 UTC\n\
                    Latency min/avg/max: 0/0.0/0\nMode: standalone\n";
        let said = read(text);
        assert_eq!((said.version.as_deref(), said.mode.as_deref()), (Some("3.8.0"), Some("standalone")));
        assert_eq!(read("srvr is not executed because it is not in the whitelist."), Said::default());
    }

    #[test]
    fn an_old_version_is_a_warning() {
        for (version, warns) in [("3.4.14", true), ("3.5.4", true), ("3.5.5", false), ("3.10.0", false)] {
            let mut risks = Vec::new();
            of_version(&Said { version: Some(version.to_owned()), mode: None }, &mut risks);
            assert_eq!(risks.iter().any(|r| r.weight == Weight::Warning), warns, "{version}");
        }
    }

    #[test]
    fn voters_are_counted_without_observers() {
        let config =
            "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:observer;3\nserver.3=c:1:2;3\nversion=1";
        assert_eq!((voters(config), voters("")), (2, 0));
    }
}
