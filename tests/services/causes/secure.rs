//! Encryption that only one side wants, and certificates that the other side does not trust.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::NOTHING_TO_REACH;
use super::scene::{Kind, Scene, Staged};
use crate::servers::Site as _;
use crate::servers::certificates::{self, openssl};
use crate::servers::etcd::Etcd;
use crate::servers::postgres::{self, Postgres};
use crate::servers::zookeeper::Setup;
use crate::servers::{Server, free_port, mariadb, memcached, redis, shared_folder, zookeeper};
use crate::support::until;

/// Creates the server certificates of this process. `ca` signs all but `authority` and `by-other`.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = certificates::folder();
        let settings = "[ca]\ndefault_ca = own\n[own]\nnew_certs_dir = .\ndatabase = index\nserial = number\n\
             default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n";
        for (name, text) in [("settings", settings), ("index", ""), ("number", "01\n")] {
            fs::write(folder.join(name), text).expect("writes");
        }
        fs::write(folder.join("elsewhere"), "subjectAltName=DNS:other.example\n").expect("writes");
        let signed = "ca -batch -notext -config settings -cert ca.pem -keyfile ca.key -in server.csr";
        let past = "-startdate 20200101000000Z -enddate 20210101000000Z -extfile extensions -out expired.pem";
        openssl(&folder, &format!("{signed} {past}"));
        let other =
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile elsewhere -out misnamed.pem";
        openssl(&folder, other);
        fs::write(folder.join("unnamed"), "basicConstraints=CA:FALSE\n").expect("writes");
        let by_ca = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2";
        openssl(&folder, &format!("{by_ca} -extfile unnamed -out unnamed.pem"));
        openssl(&folder, &format!("{by_ca} -out first.pem"));
        let by_other = "x509 -req -in server.csr -CA other.pem -CAkey other.key -CAcreateserial -days 2";
        openssl(&folder, &format!("{by_other} -extfile extensions -out by-other.pem"));
        let own = "req -x509 -key server.key -days 2 -subj /CN=own -addext subjectAltName=IP:127.0.0.1";
        openssl(&folder, &format!("{own} -out authority.pem"));
        for name in ["server", "expired", "misnamed", "unnamed", "first", "authority"] {
            let read = |end: &str| fs::read_to_string(folder.join(end)).expect("made");
            let both = read("server.key") + &read(&format!("{name}.pem"));
            fs::write(folder.join(format!("{name}-both.pem")), both).expect("writes");
        }
        folder
    })
}

/// Returns the path of the certificate file `name`.
pub(crate) fn file(name: &str) -> String {
    folder().join(name).display().to_string()
}

/// Starts a server of `kind` that shows `certificate`, and demands a client certificate if `clients` is true. Returns
/// it with its encrypted address.
pub(crate) fn serve(kind: Kind, certificate: &str, clients: bool) -> Scene {
    let (pem, key, ca) = (file(&format!("{certificate}.pem")), file("server.key"), file("ca.pem"));
    match kind {
        Kind::File => unreachable!("a directory has no connection"),
        Kind::Etcd => {
            let server = etcd(&pem, &key, clients.then_some(&ca));
            Scene::at(format!("https://127.0.0.1:{}", server.port()), server)
        }
        Kind::Redis | Kind::Redlock => {
            let nodes: Vec<Server> = (0..kind.servers())
                .map(|_| tls_redis(&pem, &key, &ca, clients, &["--appendonly", "no"]))
                .collect();
            let all: Vec<String> =
                nodes.iter().map(|node| format!("rediss://127.0.0.1:{}", node.port())).collect();
            Scene::at(all.join(","), nodes)
        }
        Kind::Zk => {
            let server = tls_zookeeper(certificate, clients);
            Scene::at(format!("zk://127.0.0.1:{}", server.port()), server)
        }
        Kind::Mysql => {
            let options = [format!("--ssl-ca={ca}"), format!("--ssl-cert={pem}"), format!("--ssl-key={key}")];
            let server = mariadb::start_with(&options.each_ref().map(String::as_str));
            let user = if clients { "REQUIRE X509" } else { "" };
            mariadb::ask(&server, &format!("CREATE USER ci@'%' {user}; GRANT ALL ON locks.* TO ci@'%'"));
            let at = format!("mysql://ci@127.0.0.1:{}/locks?ssl-mode=verify_identity", server.port());
            Scene::at(at, server)
        }
        Kind::Postgres => {
            let server = tls_postgres(certificate);
            if clients {
                admit(&server, "hostssl all ci 127.0.0.1/32 trust clientcert=verify-ca");
            }
            Scene::at(format!("postgres://ci@127.0.0.1:{}/postgres", server.port()), server)
        }
        Kind::Memcached => {
            let option = |name: &str, value: &str| ["-o".to_owned(), format!("{name}={value}")];
            let mut words = vec!["-Z".to_owned()];
            words.extend(option("ssl_chain_cert", &pem).into_iter().chain(option("ssl_key", &key)));
            if clients {
                words.extend(option("ssl_verify_mode", "2").into_iter().chain(option("ssl_ca_cert", &ca)));
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let server = memcached::start_with(&words);
            Scene::at(format!("memcacheds://127.0.0.1:{}", server.port()), server)
        }
    }
}

/// Starts an etcd and waits only for its port.
pub(super) fn etcd(pem: &str, key: &str, clients: Option<&String>) -> Server {
    let mut words = ["--cert-file", pem, "--key-file", key].map(str::to_owned).to_vec();
    if let Some(ca) = clients {
        words.extend(["--client-cert-auth".to_owned(), "--trusted-ca-file".to_owned(), ca.clone()]);
    }
    Etcd::bare(&words, true)
}

/// Starts a Redis with these additional arguments.
fn tls_redis(pem: &str, key: &str, ca: &str, clients: bool, more: &[&str]) -> Server {
    let port = free_port();
    let number = port.to_string();
    let files = ["--tls-cert-file", pem, "--tls-key-file", key, "--tls-ca-cert-file", ca];
    let listen =
        ["--port", "0", "--tls-port", &number, "--tls-auth-clients", if clients { "yes" } else { "no" }];
    redis::start_in(shared_folder("redis"), port, &[&listen[..], &files[..]].concat(), more)
}

pub(crate) fn tls_zookeeper(certificate: &str, clients: bool) -> Server {
    let factory = "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
    zookeeper::start_with(&Setup {
        lines: vec![
            format!("ssl.keyStore.location={}", file(&format!("{certificate}-both.pem"))),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={}", file("ca.pem")),
            "ssl.trustStore.type=PEM".to_owned(),
            format!("ssl.clientAuth={}", if clients { "need" } else { "none" }),
        ],
        properties: vec![factory.to_owned()],
        secure: true,
        ..Setup::default()
    })
}

/// Starts a server that shows `certificate`.
pub(crate) fn tls_postgres(certificate: &str) -> Postgres {
    let server = postgres::start();
    let owner = fs::metadata(server.data()).expect("a directory");
    let shown = format!("{certificate}.pem");
    for (from, to) in [(shown.as_str(), "server.crt"), ("server.key", "server.key"), ("ca.pem", "root.crt")] {
        let path = server.data().join(to);
        fs::copy(file(from), &path).expect("copies");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("sets");
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("changes the owner");
    }
    server.sql("CREATE ROLE ci LOGIN SUPERUSER");
    fs::write(server.data().join("postgresql.auto.conf"), "ssl = on\nssl_ca_file = 'root.crt'\n")
        .expect("writes");
    server.sql("SELECT pg_reload_conf()");
    until("encryption", || (server.sql("SHOW ssl") == "on").then_some(()));
    server
}

/// Puts `rule` before the rules that admit every user.
pub(crate) fn admit(server: &Postgres, rule: &str) {
    let all = format!("{rule}\nhost all postgres 127.0.0.1/32 trust\nlocal all all trust\n");
    fs::write(server.data().join("pg_hba.conf"), all).expect("writes");
    server.restart_in_order();
}

pub(crate) fn unwanted(kind: Kind) -> Staged {
    match kind {
        Kind::File => NOTHING_TO_REACH,
        Kind::Mysql | Kind::Postgres => {
            Staged::Never("encryption begins inside its own protocol: see TLS required")
        }
        _ => {
            let scene = serve(kind, "server", false);
            let plain = scene.endpoint.replace("https:", "http:").replace("rediss:", "redis:");
            scene.but_at(plain.replace("memcacheds:", "memcached:")).staged()
        }
    }
}

pub(crate) fn required(kind: Kind) -> Staged {
    match kind {
        Kind::File => NOTHING_TO_REACH,
        Kind::Mysql => {
            let (pem, key) = (file("server.pem"), file("server.key"));
            let options = [format!("--ssl-cert={pem}"), format!("--ssl-key={key}")];
            let server = mariadb::start_with(&options.each_ref().map(String::as_str));
            mariadb::ask(&server, "CREATE USER ci@'%' REQUIRE SSL; GRANT ALL ON locks.* TO ci@'%'");
            let at = format!("mysql://ci@127.0.0.1:{}/locks?ssl-mode=disabled", server.port());
            Scene::at(at, server).staged()
        }
        Kind::Postgres => {
            let server = tls_postgres("server");
            admit(&server, "hostssl all ci 127.0.0.1/32 trust");
            let at = format!("postgres://ci@127.0.0.1:{}/postgres?sslmode=disable", server.port());
            Scene::at(at, server).staged()
        }
        _ => Staged::Never("encryption is a matter of the port: see TLS spoken, not wanted"),
    }
}

pub(crate) fn unspoken(kind: Kind) -> Staged {
    let scene = match kind {
        Kind::File => return NOTHING_TO_REACH,
        Kind::Etcd => {
            let etcd = Etcd::start();
            Scene::at(etcd.endpoint().replace("http:", "https:"), etcd)
        }
        Kind::Redis | Kind::Redlock => {
            let nodes: Vec<Server> =
                (0..kind.servers()).map(|_| redis::start_with(&["--appendonly", "no"])).collect();
            Scene::at(redis::addresses(&nodes).replace("redis:", "rediss:"), nodes)
        }
        Kind::Zk => {
            let server = zookeeper::start();
            Scene::at(kind.at(&[server.port()]), server)
        }
        Kind::Mysql => {
            let server = mariadb::start();
            Scene::at(mariadb::address(server.port()), server)
        }
        Kind::Postgres => {
            let server = postgres::start();
            Scene::at(server.address(), server)
        }
        Kind::Memcached => {
            let server = memcached::start();
            Scene::at(memcached::address(&server).replace("memcached:", "memcacheds:"), server)
        }
    };
    scene.believing(folder(), "ca.pem").staged()
}

pub(crate) fn shown(kind: Kind, certificate: &str, authority: &str) -> Staged {
    if kind == Kind::File {
        return NOTHING_TO_REACH;
    }
    serve(kind, certificate, false).believing(folder(), authority).staged()
}

/// Shows the server the files in `own`. It demands a client certificate.
pub(crate) fn unadmitted(kind: Kind, own: &[(&str, &str)]) -> Staged {
    if kind == Kind::File {
        return NOTHING_TO_REACH;
    }
    let scene = serve(kind, "server", true).believing(folder(), "ca.pem");
    let scene = own.iter().fold(scene, |scene, (variable, name)| scene.with(variable, &file(name)));
    // The words of the others come from their servers.
    let scene = if kind == Kind::Zk { scene.says(77, &["certificate", "--cert"]) } else { scene };
    scene.staged()
}
