//! A host with two addresses, of which the first is silent.

use std::net::{IpAddr, Ipv4Addr};

use crate::causes::ports::Full;
use crate::servers::proxy::Proxy;
use crate::site;
use crate::support::TestEnv;

/// Runs what follows where the file `hosts` says which address a host has.
const WITH_HOSTS: &str = r#"mount --bind hosts /etc/hosts && exec "$@""#;

#[test]
fn a_silent_address_of_a_host_is_passed_over() {
    let site = site::shared();
    let mut part = site.part();
    let server = site.servers()[0].port();
    let way = Proxy::at(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), server);
    let _silent = Full::on(way.port());
    part.endpoint =
        part.endpoint.replace(&format!("127.0.0.1:{server}"), &format!("twice.example:{}", way.port()));
    let env = TestEnv::on(part);
    env.write("hosts", "127.0.0.1 localhost twice.example\n127.0.0.2 twice.example\n");
    let run = env.run(["--name", "x", "--wait", "10s", "-q", "--", "echo", "ran"]);
    let mut command = env.command("unshare");
    command.args(["--mount", "bash", "-c", WITH_HOSTS, "bash"]).args(run.get_args().skip(2));
    assert_eq!(env.finish(&mut command).silently(0).text(), "ran\n");
}
