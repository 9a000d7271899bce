//! A network namespace that reaches a service over a link. A test can cut the link.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::servers::Site;
use crate::servers::proxy::Proxy;
use crate::support::program::dlock;
use crate::support::{Service, TestEnv};

/// A network namespace whose only link leads to this host.
pub(crate) struct Link {
    namespace: String,
    host: Ipv4Addr,
    /// Relays from the host's end of the link to the servers, which listen on the loopback interface of the host.
    relays: Vec<Proxy>,
}

fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}

impl Link {
    /// Creates one.
    ///
    /// Errors: this process lacks the rights, or a program is missing.
    pub(crate) fn new() -> Result<Self, String> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let [.., high, low] = (process << 2).to_be_bytes();
        let host = Ipv4Addr::new(10, 64 + n, high, low | 1);
        let link = Self { namespace: format!("dl{process:x}n{n}"), host, relays: Vec::new() };
        let (inside, outside) = (format!("{}i", link.namespace), format!("{}o", link.namespace));
        ip(&["netns", "add", &link.namespace])?;
        ip(&["link", "add", &outside, "type", "veth", "peer", "name", &inside, "netns", &link.namespace])?;
        ip(&["addr", "add", &format!("{host}/30"), "dev", &outside])?;
        ip(&["link", "set", &outside, "up"])?;
        let peer = Ipv4Addr::new(10, 64 + n, high, low | 2);
        ip(&["-n", &link.namespace, "addr", "add", &format!("{peer}/30"), "dev", &inside])?;
        ip(&["-n", &link.namespace, "link", "set", &inside, "up"])?;
        Ok(link)
    }

    /// Cuts the link: it drops all packets in both directions and notifies neither side.
    pub(crate) fn cut(&self) {
        ip(&["link", "set", &format!("{}o", self.namespace), "down"]).expect("it could be made");
    }

    pub(crate) fn mend(&self) {
        ip(&["link", "set", &format!("{}o", self.namespace), "up"]).expect("it could be made");
    }

    /// Returns `part` of the service with the address that the far side uses.
    pub(crate) fn leads_to(&mut self, site: &dyn Site, part: &Service) -> Service {
        let mut endpoint = part.endpoint.clone();
        for server in site.servers() {
            let relay = Proxy::at(IpAddr::V4(self.host), server.port());
            let near = format!("{}:{}", self.host, relay.port());
            endpoint = endpoint.replace(&format!("127.0.0.1:{}", server.port()), &near);
            self.relays.push(relay);
        }
        assert!(!endpoint.contains("127.0.0.1"), "{endpoint} is not over the link");
        Service { endpoint, ..part.clone() }
    }

    /// Returns `dlock VERB --endpoint ENDPOINT` on the far side.
    pub(crate) fn verb(&self, env: &TestEnv, verb: &str) -> Command {
        let mut command = env.command("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        command.args([dlock(), verb, "--endpoint", &env.service().endpoint]);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The other end goes with it. If the link could not be created, no other end exists.
        let _ = ip(&["link", "del", &format!("{}o", self.namespace)]);
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}
