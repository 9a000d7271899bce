//! Every cause for which a service cannot be used, on every service: the message, the exit status and the time.
//!
//! Each test walks lines of the table over all services against real servers, and prints it (`--nocapture`).
//! Services that fail alike print the same words and exit with the same status. A cell that cannot be prints the
//! reason.

mod exchanged;
mod login;
pub(crate) mod ports;
mod reach;
mod room;
pub(crate) mod scene;
pub(crate) mod secure;
mod table;

use scene::{Kind, Staged};
use table::{Cause, walk};

use crate::support::{Service, TestEnv};

/// Brings a service into trouble.
type Stage = fn(Kind) -> Staged;

/// Walks several lines of the table.
fn all(rows: &[(Cause, Stage)]) {
    for (cause, stage) in rows {
        walk(cause, stage);
    }
}

const NOTHING_TO_REACH: Staged = Staged::Never("a directory: there is no server to reach");

#[test]
fn refused() {
    walk(
        &Cause::passing("refused", 69, &["cannot", "connection refused", "is it running there?"]),
        reach::refused,
    );
}

#[test]
fn no_answer() {
    walk(&Cause::passing("no answer", 69, &["accepts connections but does not answer"]), reach::silent);
}

#[test]
fn packets_dropped() {
    walk(
        &Cause::passing("packets dropped", 69, &["does not answer", "is it running there?"]),
        reach::dropped,
    );
}

#[test]
fn another_protocol() {
    let words = ["accepts connections but does not answer as", "is this the right port?"];
    walk(&Cause::passing("another protocol", 69, &words), reach::web);
}

#[test]
fn another_service() {
    let words = ["accepts connections but does not answer as", "?"];
    walk(&Cause::passing("another service", 69, &words), reach::other_service);
}

#[test]
fn encryption_wanted_by_one_side() {
    let (wrong, refused) =
        ("accepts connections but does not answer as", "does not accept this user or password");
    all(&[
        (Cause::passing("TLS spoken, not wanted", 69, &[wrong, "does it want"]), secure::unwanted),
        (Cause::lasting("TLS required", 77, &[refused]), secure::required),
        (
            Cause::lasting("TLS wanted, not spoken", 77, &["does not speak TLS on this port"]),
            secure::unspoken,
        ),
    ]);
}

/// Each row has the certificate of the server, and the authority that dlock trusts.
#[test]
fn certificate_of_the_server() {
    let rows: [(_, _, _, &[&str]); 6] = [
        (
            "expired",
            "expired",
            "ca.pem",
            &["its certificate expired on 2021-01-01; renew it, or check this host's clock"],
        ),
        (
            "unknown authority",
            "server",
            "other.pem",
            &["its certificate is signed by an unknown authority; name that with --cacert"],
        ),
        ("for another name", "misnamed", "ca.pem", &["its certificate is for other.example, not 127.0.0.1"]),
        // The name is only in its CN.
        (
            "no subjectAltName",
            "unnamed",
            "ca.pem",
            &["its certificate has no subjectAltName", "sign it again with subjectAltName=IP:127.0.0.1"],
        ),
        (
            "version 1",
            "first",
            "ca.pem",
            &["its certificate is of X.509 version 1; sign it again as version 3"],
        ),
        (
            "an authority's",
            "authority",
            "authority.pem",
            &["its certificate is that of an authority (CA:TRUE)", "basicConstraints=CA:FALSE"],
        ),
    ];
    for (name, certificate, authority, words) in rows {
        walk(&Cause::lasting(name, 77, words), |kind| secure::shown(kind, certificate, authority));
    }
}

#[test]
fn certificate_of_the_client() {
    let foreign = [("DLOCK_CERT", "by-other.pem"), ("DLOCK_KEY", "server.key")];
    for (name, own) in [("client certificate wanted", &[][..]), ("foreign client certificate", &foreign)] {
        // The server gives the reason in its last message. The end of the connection may overtake that message.
        let cause = Cause::lasting(name, 77, &[]).or_overtaken();
        walk(&cause, |kind| secure::unadmitted(kind, own));
    }
}

/// The name that the user gives counts, not that of the address. The clients of MySQL and ZooKeeper take none.
#[test]
fn certificate_is_compared_with_the_server_name_of_the_user() {
    for kind in [Kind::Etcd, Kind::Redis, Kind::Postgres, Kind::Memcached] {
        for (certificate, code) in [("misnamed", 0), ("server", 77)] {
            let scene = secure::serve(kind, certificate, false).believing(secure::folder(), "ca.pem");
            let scene = scene.with("DLOCK_TLS_SERVER_NAME", "other.example");
            let endpoint = scene.endpoint.clone();
            let env = TestEnv::on(Service { backend: kind.backend(), endpoint, prefix: None });
            let ended = env.finish(&mut scene.dress(env.run(["--name", "x", "--wait", "15s", "--", "true"])));
            let what = format!("{} with {certificate}.pem: {}", kind.name(), ended.err);
            assert_eq!(ended.code(), Some(code), "{what}");
            assert!(code == 0 || ended.err.contains("not other.example"), "{what}");
        }
    }
}

#[test]
fn users_and_passwords() {
    let see = "see --user, --password-file";
    all(&[
        (Cause::lasting("password wanted", 77, &["it requires a user and a password", see]), login::unnamed),
        (
            Cause::lasting("wrong password", 77, &["it does not accept this user or password", see]),
            login::mistaken,
        ),
        (
            Cause::lasting(
                "needless password",
                77,
                &["it wants no password, and one was given; leave out the user and the password"],
            ),
            login::needless,
        ),
        (Cause::lasting("no right", 77, &["it does not let this user do that ("]), login::powerless),
    ]);
}

#[test]
fn places_without_room() {
    all(&[
        (Cause::lasting("not there", 69, &["it has no such database (", "name another"]), room::missing),
        (Cause::passing("full", 69, &["it has no ", " left for another claim"]), room::full),
        (Cause::passing("read-only", 69, &["it is read-only ("]), room::read_only),
    ]);
}
