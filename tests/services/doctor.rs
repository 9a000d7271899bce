//! The findings of `dlock doctor` on each service.

use crate::servers::etcd::Etcd;
use crate::servers::{mariadb, redis};
use crate::site;
use crate::support::{Service, TestEnv};

/// The warning about a password without encryption.
const OPEN: &str = "the password may be sent without encryption";

fn looked(env: &TestEnv, user: Option<&str>) -> String {
    let mut command = env.verb("doctor", [] as [&str; 0]);
    if let Some(user) = user {
        command.env("DLOCK_USER", user).env("DLOCK_PASSWORD", "right");
    }
    env.finish(&mut command).silently(0).text()
}

#[test]
fn a_restored_backup_is_named() {
    let text = looked(&TestEnv::new(), None);
    assert!(text.contains("restore from a backup"), "{text}");
}

#[test]
fn a_lock_is_taken_at_each_server_and_forgotten() {
    let env = TestEnv::new();
    let text = looked(&env, None);
    assert!(!text.contains("no lock could be taken"), "{text}");
    let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0).text();
    assert!(!listed.contains("dlock-doctor"), "{listed}");
}

/// Returns a service that admits a user with the password `right`, the user, and the server that was started for it.
fn admit() -> (Service, &'static str, Option<Etcd>) {
    let (mut service, servers) = (site::part(), site::shared().servers());
    match site::kind().name {
        "etcd" => {
            let etcd = Etcd::start();
            etcd.guard("right", &[""]);
            service.endpoint = etcd.endpoint();
            return (service, "ci", Some(etcd));
        }
        "mysql" => {
            mariadb::ask(
                &servers[0],
                "CREATE OR REPLACE USER ci@'127.0.0.1' IDENTIFIED BY 'right'; GRANT ALL ON *.* TO ci@'127.0.0.1'",
            );
            service.endpoint = format!(
                "mysql://ci@127.0.0.1:{}/{}?ssl-mode=preferred",
                servers[0].port(),
                mariadb::DATABASE
            );
        }
        "redis" | "redlock" => {
            for server in servers {
                let all = ["ACL", "SETUSER", "ci", "on", ">right", "~*", "&*", "+@all"];
                assert_eq!(redis::raw(server.port(), &all), "+OK\r\n");
            }
        }
        _ => {}
    }
    // The server admits every client of this host as postgres. The password is set as well.
    let user = if site::kind().name == "postgres" { "postgres" } else { "ci" };
    (service, user, None)
}

#[test]
fn cleartext_password_on_a_network_is_named() {
    let (service, user, _server) = admit();
    let text = looked(&TestEnv::on(service.clone()), Some(user));
    assert!(!text.contains(OPEN), "it stays on this host: {text}");
    // An address of this host that does not look like a loopback address.
    let endpoint = service.endpoint.replace("127.0.0.1", "0.0.0.0");
    let text = looked(&TestEnv::on(Service { endpoint: endpoint.clone(), ..service.clone() }), Some(user));
    assert!(text.contains(OPEN) && text.contains("0.0.0.0"), "{text}");
    if ["redis", "redlock", "zk", "postgres"].contains(&site::kind().name) {
        let text = looked(&TestEnv::on(Service { endpoint, ..service }), None);
        assert!(!text.contains(OPEN), "no source for it: {text}");
    }
}
