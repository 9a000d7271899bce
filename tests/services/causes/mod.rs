//! Every cause for which a service cannot be used, on every service: the message, the exit status and the time.
//!
//! Each test walks one line of the table over all services against real servers, and prints it (`--nocapture`).
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
fn tls_spoken_but_not_wanted() {
    let words = ["accepts connections but does not answer as", "does it want"];
    walk(&Cause::passing("TLS spoken, not wanted", 69, &words), secure::unwanted);
}

#[test]
fn tls_required_in_the_protocol() {
    walk(
        &Cause::lasting("TLS required", 77, &["it does not accept this user or password"]),
        secure::required,
    );
}

#[test]
fn tls_wanted_but_not_spoken() {
    walk(
        &Cause::lasting("TLS wanted, not spoken", 77, &["does not speak TLS on this port"]),
        secure::unspoken,
    );
}

#[test]
fn certificate_expired() {
    let words = ["its certificate expired on 2021-01-01; renew it, or check this host's clock"];
    walk(&Cause::lasting("certificate expired", 77, &words), secure::expired);
}

#[test]
fn certificate_by_an_unknown_authority() {
    let words = ["its certificate is signed by an unknown authority; name that with --cacert"];
    walk(&Cause::lasting("unknown authority", 77, &words), secure::unknown);
}

#[test]
fn certificate_for_another_name() {
    let words = ["its certificate is for other.example, not 127.0.0.1"];
    walk(&Cause::lasting("for another name", 77, &words), secure::misnamed);
}

#[test]
fn certificate_with_a_name_only_in_its_cn() {
    let words = ["its certificate has no subjectAltName", "sign it again with subjectAltName=IP:127.0.0.1"];
    walk(&Cause::lasting("no subjectAltName", 77, &words), secure::unnamed);
}

#[test]
fn certificate_of_version_one() {
    let words = ["its certificate is of X.509 version 1; sign it again as version 3"];
    walk(&Cause::lasting("version 1", 77, &words), secure::first_version);
}

#[test]
fn certificate_of_an_authority() {
    let words = ["its certificate is that of an authority (CA:TRUE)", "basicConstraints=CA:FALSE"];
    walk(&Cause::lasting("an authority's", 77, &words), secure::authority);
}

#[test]
fn client_certificate_wanted() {
    // The server gives the reason in its last message. The end of the connection may overtake that message.
    let cause = Cause::lasting("client certificate wanted", 77, &[]).or_overtaken();
    walk(&cause, secure::unidentified);
}

#[test]
fn client_certificate_by_an_unknown_authority() {
    let cause = Cause::lasting("foreign client certificate", 77, &[]).or_overtaken();
    walk(&cause, secure::foreign);
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
fn password_wanted() {
    let words = ["it requires a user and a password; see --user, --password-file"];
    walk(&Cause::lasting("password wanted", 77, &words), login::unnamed);
}

#[test]
fn wrong_password() {
    let words = ["it does not accept this user or password", "see --user, --password-file"];
    walk(&Cause::lasting("wrong password", 77, &words), login::mistaken);
}

#[test]
fn needless_password() {
    let words = ["it wants no password, and one was given; leave out the user and the password"];
    walk(&Cause::lasting("needless password", 77, &words), login::needless);
}

#[test]
fn no_right() {
    walk(&Cause::lasting("no right", 77, &["it does not let this user do that ("]), login::powerless);
}

#[test]
fn no_such_database() {
    walk(&Cause::lasting("not there", 69, &["it has no such database (", "name another"]), room::missing);
}

#[test]
fn full() {
    walk(&Cause::passing("full", 69, &["it has no ", " left for another claim"]), room::full);
}

#[test]
fn read_only() {
    walk(&Cause::passing("read-only", 69, &["it is read-only ("]), room::read_only);
}
