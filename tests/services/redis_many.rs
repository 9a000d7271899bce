//! Several Redis servers: sentinels and clusters.

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, free_port, redis};
use crate::site::looked;
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

pub(crate) fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "redis", endpoint, prefix: None })
}

pub(crate) fn env_on(server: &Server) -> TestEnv {
    env_at(redis::address(server))
}

#[test]
fn sentinels_lead_to_the_master_also_after_it_changed() {
    let master = redis::start();
    let replica = redis::start_with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let replicates = || redis::raw(master.port(), &["INFO", "replication"]).contains("state=online");
    until_true("a replica", replicates);
    let sentinel = redis::start_sentinel(master.port());
    let dead = free_port();
    let env = env_at(format!("redis+sentinel://127.0.0.1:{dead},127.0.0.1:{}/main", sentinel.port()));
    let knows = || {
        redis::raw(sentinel.port(), &["SENTINEL", "replicas", "main"]).contains(&replica.port().to_string())
    };
    until_true("a sentinel that knows the replica", knows);
    let holder = env.held(&["--name", "x", "--ttl", "60s", "-q"]);
    let copied = || redis::raw(replica.port(), &["GET", "dlock:x"]).starts_with("$32");
    until_true("the replica has the lock", copied);
    // The sentinel refuses until it has learned enough of the replica.
    let agrees = || redis::raw(sentinel.port(), &["SENTINEL", "FAILOVER", "main"]) == "+OK\r\n";
    until_true("a sentinel that agrees", agrees);
    // The replica resets its connections when it changes its role.
    let promoted = || redis::try_raw(replica.port(), &["ROLE"]).is_ok_and(|role| role.contains("master"));
    until_true("another master", promoted);
    let address = || redis::raw(sentinel.port(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
    until_true("the sentinel says so", || address().contains(&replica.port().to_string()));
    // Until then there are two masters, and writes to the old one are lost.
    let demoted = || redis::try_raw(master.port(), &["ROLE"]).is_ok_and(|role| role.contains("slave"));
    until_true("the old master follows", demoted);
    env.assert_busy("x");
    assert_eq!(holder.release().code(), Some(0));
    env.finish(&mut env.run(["-q", "-n", "--name", "x", "--", "true"])).silently(0);
    let unknown = env_at(format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port()));
    unknown
        .finish(&mut unknown.run(["--try", "--name", "x", "--", "true"]))
        .failed(64, &["no master called other"]);
}

/// The client begins to connect to the silent master again before the sentinel knows another one.
#[test]
fn a_hold_outlives_a_failover_from_a_silent_master() {
    let master = redis::start();
    let way = Proxy::to(master.port());
    let replica = redis::start_with(&["--replicaof", &format!("127.0.0.1 {}", way.port())]);
    let sentinel = redis::start_sentinel(way.port());
    let asked = |words: &[&str]| redis::raw(sentinel.port(), words);
    let place = replica.port().to_string();
    let knows = || {
        let said = asked(&["SENTINEL", "replicas", "main"]);
        said.contains(&place) && said.contains("master-link-status\r\n$2\r\nok")
    };
    until_true("a sentinel that knows the replica", knows);
    let env = env_at(format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port()));
    let holder = env.held(&["--name", "x", "--ttl", "18s"]);
    let life = |server: &Server| -> i64 {
        let said = redis::raw(server.port(), &["PTTL", "dlock:x"]);
        said.trim_start_matches(':').trim_end().parse().expect("a number")
    };
    until_true("the replica has the lock", || life(&replica) > 0);
    way.set(Conduct::Hole);
    // A renewal has had no answer, and the second attempt to connect since then has none either.
    until_true("another attempt to connect", || life(&master) < 8500);
    until_true("a sentinel that agrees", || asked(&["SENTINEL", "FAILOVER", "main"]) == "+OK\r\n");
    until_true("a renewal at the new master", || life(&replica) > 15_000);
    assert!(!holder.running.err_so_far().contains("lost"), "{}", holder.running.err_so_far());
    env.assert_busy("x");
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
}

#[test]
fn several_names_of_a_cluster_need_one_slot() {
    let nodes = cluster();
    let endpoint = format!("redis+cluster://127.0.0.1:{}", nodes[0].port());
    let env = TestEnv::on(Service { backend: "redis", endpoint, prefix: Some(String::new()) });
    // In any order, free or not, and without a process.
    for verb in [&["run", "-n"][..], &["acquire", "--detach", "--format", "json"]] {
        for names in [["a", "b"], ["b", "a"]] {
            let words = ["--name", names[0], "--name", names[1]];
            let command: &[&str] = if verb[0] == "run" { &["--", "true"] } else { &[] };
            let options = [&verb[1..], &words, command].concat();
            env.finish(&mut env.verb(verb[0], options)).failed(64, &["different slots", "{tag}"]);
        }
    }
    assert!(nodes.iter().all(|node| redis::raw(node.port(), &["DBSIZE"]) == ":0\r\n"), "nothing is left");
    let tagged = ["--name", "{deploy}a", "--name", "{deploy}b"];
    let holder = env.held(&tagged);
    for name in ["{deploy}a", "{deploy}b"] {
        env.assert_busy(name);
    }
    assert_eq!(holder.release().code(), Some(0));
}

/// Starts three nodes that have agreed on the owners of all slots.
pub(crate) fn cluster() -> Vec<Server> {
    // The default bus port, 10,000 above the first, may be in use.
    let buses = [free_port(), free_port(), free_port()].map(|port| port.to_string());
    let options = |bus| redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", bus]);
    let nodes: Vec<Server> = buses.iter().map(|bus| options(bus)).collect();
    for (node, slots) in nodes.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
        assert_eq!(redis::raw(node.port(), &["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]), "+OK\r\n");
    }
    let first = nodes[0].port().to_string();
    for node in &nodes[1..] {
        redis::raw(node.port(), &["CLUSTER", "MEET", "127.0.0.1", &first, &buses[0]]);
    }
    for node in &nodes {
        until_true("a cluster", || {
            let info = redis::raw(node.port(), &["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        });
    }
    nodes
}

#[test]
fn every_slot_of_a_cluster_is_found_from_any_node() {
    let nodes = cluster();
    let env = env_at(format!("redis+cluster://127.0.0.1:{}", nodes[0].port()));
    let names: Vec<String> = (0..6).map(|n| format!("job{n}")).collect();
    let holders: Vec<_> = names.iter().map(|name| env.held(&["--name", name, "-q"])).collect();
    let elsewhere = nodes[1..].iter().filter(|node| redis::raw(node.port(), &["DBSIZE"]) != ":0\r\n").count();
    assert_eq!(elsewhere, 2, "the names lie on all nodes");
    let other = env_at(format!("redis+cluster://127.0.0.1:{}", nodes[2].port()));
    for name in &names {
        other.assert_busy(name);
    }
    let listed = other.finish(&mut other.verb("list", ["--json"])).silently(0);
    for name in &names {
        assert!(listed.text().contains(&format!("\"{name}\"")), "{}", listed.text());
    }
    let mut waiter = other.hold(&["--name", "job0", "-q"]);
    other.await_waiters("job0", 1);
    for holder in holders {
        assert_eq!(holder.release().code(), Some(0));
    }
    waiter.await_start();
    waiter.release().silently(0);
    let plain = env_at(redis::address(&nodes[0]));
    let refused: Vec<_> =
        names.iter().map(|name| plain.finish(&mut plain.run(["-n", "--name", name, "--", "true"]))).collect();
    assert!(refused.iter().any(|run| run.code() == Some(64) && run.err.contains("redis+cluster://")));
}

#[test]
fn sentinels_with_a_password_are_logged_in_to() {
    let master = redis::start_with(&["--requirepass", "right", "--maxmemory-policy", "noeviction"]);
    let login = "sentinel auth-pass main right".to_owned();
    let sentinel = |password: &str| {
        let lines = [login.clone(), format!("requirepass {password}")];
        redis::start_sentinel_with(master.port(), "port", &lines)
    };
    let (same, other) = (sentinel("right"), sentinel("other"));
    let open = redis::start_sentinel_with(master.port(), "port", std::slice::from_ref(&login));
    let run = |sentinels: &[&Server]| {
        let places: Vec<String> = sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        let env = env_at(format!("redis+sentinel://{}/main", places.join(",")));
        let mut command = env.run(["--try", "--name", "x", "--", "true"]);
        env.finish(command.env("DLOCK_PASSWORD", "right"))
    };
    for sentinels in [&[&open][..], &[&same], &[&other, &open], &[&other, &same]] {
        run(sentinels).silently(0);
    }
    let place = format!("127.0.0.1:{}", other.port());
    run(&[&other]).failed(77, &[&place, "sentinel", "ACL SETUSER"]);
}

fn listed(env: &TestEnv) -> crate::support::Finished {
    env.finish(&mut env.verb("list", ["--json"]))
}

#[test]
fn incomplete_list_of_a_cluster_is_refused() {
    let nodes = cluster();
    let at = |node: &Server| env_at(format!("redis+cluster://127.0.0.1:{}", node.port()));
    assert_eq!(redis::raw(nodes[1].port(), &["CLUSTER", "DELSLOTSRANGE", "5461", "5470"]), "+OK\r\n");
    listed(&at(&nodes[1])).failed(69, &["16374 of its 16384 slots"]);
    for node in &nodes {
        let words = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"];
        assert_eq!(redis::raw(node.port(), &words), "+OK\r\n");
    }
    let env = at(&nodes[0]);
    listed(&env).failed(69, &["cluster-announce-hostname"]);
    let told = looked(&env);
    assert!(told.contains("cluster-announce-hostname") && !told.contains("no problems found"), "{told}");
}

#[test]
fn single_node_of_a_cluster_is_reached_at_the_given_address() {
    let bus = free_port().to_string();
    let node = redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    assert_eq!(redis::raw(node.port(), &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "+OK\r\n");
    until_true("a cluster", || redis::raw(node.port(), &["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let env = env_at(format!("redis+cluster://localhost:{}", node.port()));
    let holder = env.held(&["--name", "a"]);
    assert!(listed(&env).silently(0).text().contains("\"a\""));
    holder.release().silently(0);
}

#[test]
fn refusing_or_loading_node_does_not_answer_for_the_cluster() {
    let nodes = cluster();
    let places: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let env = env_at(format!("redis+cluster://{}", places.join(",")));
    // Its slot is on the second node.
    let holder = env.held(&["--name", "a"]);
    assert_eq!(redis::raw(nodes[0].port(), &["CONFIG", "SET", "requirepass", "right"]), "+OK\r\n");
    env.assert_busy("a");
    listed(&env).failed(77, &[&places[0], "password"]);
    holder.release().silently(0);
}
