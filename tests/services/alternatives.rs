//! Several servers, of which a run uses any one.

use crate::servers::free_port;
use crate::site;
use crate::support::{Service, TestEnv};

/// Returns what `doctor` prints for these endpoints.
fn said_of(service: Service, endpoints: &[&str]) -> String {
    let env = TestEnv::on(Service { endpoint: endpoints.join(","), ..service });
    env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text()
}

#[test]
fn endpoints_of_different_services_are_named() {
    let (service, second) = (site::part(), site::start());
    let other = second.part();
    let chroot = service.endpoint.find("/t").map_or("", |at| &service.endpoint[at..]);
    let other = match site::kind().name {
        "zk" => format!("{}{chroot}", other.endpoint.split("/t").next().expect("an address")),
        _ => other.endpoint,
    };
    let said = said_of(service.clone(), &[&service.endpoint, &other]);
    assert!(said.contains("they are not one service"), "{said}");
    let said = said_of(service.clone(), &[&service.endpoint, &service.endpoint]);
    assert!(!said.contains("they are not one service"), "{said}");
}

#[test]
fn unreachable_endpoint_is_named_with_the_reason() {
    let (service, port, closed) = (site::part(), site::shared().servers()[0].port(), free_port());
    let other = service.endpoint.replace(&format!(":{port}"), &format!(":{closed}"));
    let said = said_of(service.clone(), &[&service.endpoint, &other]);
    let line = said.lines().find(|line| line.contains(&closed.to_string()) && line.contains("warning: "));
    assert!(line.is_some_and(|line| line.contains("connection refused")), "{said}");
    assert!(!said.contains("they are not one service"), "{said}");
}
