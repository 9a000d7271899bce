//! The settings of libpq that dlock takes although they change nothing for it, and what in them it must refuse.
//!
//! Source: PostgreSQL's documentation, "Parameter Key Words" and "Environment Variables" of libpq. Those that dlock obeys are in
//! [`super::config`].

use super::environment::Environment;

/// Whatever it says.
const ANY: &[&str] = &["*"];

/// The name, the variable if there is one, and the values that ask for nothing beyond what dlock does anyway.
const TAKEN: [(&str, &str, &[&str]); 31] = [
    ("application_name", "PGAPPNAME", ANY),
    ("fallback_application_name", "", ANY),
    ("client_encoding", "PGCLIENTENCODING", ANY),
    // Every request of dlock's has a deadline of its own.
    ("connect_timeout", "PGCONNECT_TIMEOUT", ANY),
    ("keepalives", "", ANY),
    ("keepalives_idle", "", ANY),
    ("keepalives_interval", "", ANY),
    ("keepalives_count", "", ANY),
    ("tcp_user_timeout", "", ANY),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", ANY),
    ("krbsrvname", "PGKRBSRVNAME", ANY),
    ("gsslib", "PGGSSLIB", ANY),
    ("gssdelegation", "PGGSSDELEGATION", &["0"]),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", &["any", "read-write", "primary", "prefer-standby"]),
    ("replication", "", &["false", "off", "no", "0"]),
    ("sslcompression", "PGSSLCOMPRESSION", ANY),
    ("sslnegotiation", "PGSSLNEGOTIATION", &["postgres"]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("sslsni", "PGSSLSNI", &["1"]),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", &["TLSv1.3"]),
    ("min_protocol_version", "PGMINPROTOCOLVERSION", &["3.0"]),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION", ANY),
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    ("sslcrl", "PGSSLCRL", &[]),
    ("sslcrldir", "PGSSLCRLDIR", &[]),
    ("sslpassword", "", &[]),
    ("service", "", &[]),
    ("servicefile", "", &[]),
];

/// The name of libpq's setting `name`, if dlock takes that with `value`; `None` if libpq has no such setting.
///
/// Errors: the setting asks for something that dlock does not do.
pub(super) fn taken(name: &str, value: &str) -> Result<Option<&'static str>, String> {
    let Some((name, _, values)) = TAKEN.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
    if value.is_empty() { Ok(Some(*name)) } else { check(name, value, values).map(|()| Some(*name)) }
}

/// Checks the variables whose setting no address has.
pub(super) fn check_variables(around: &Environment, said: &[&str]) -> Result<(), String> {
    for (name, variable, values) in TAKEN.iter().filter(|(name, ..)| !said.contains(name)) {
        if let Some(value) = Some(*variable).filter(|name| !name.is_empty()).and_then(|name| around.get(name))
        {
            check(variable, &value, values).map_err(|why| format!("{why} (the setting {name})"))?;
        }
    }
    Ok(())
}

fn check(whose: &str, value: &str, values: &[&str]) -> Result<(), String> {
    if values == ANY || values.contains(&value) {
        return Ok(());
    }
    let or =
        if values.is_empty() { String::new() } else { format!(", or set it to {}", values.join(" or ")) };
    Err(format!("{whose} asks for something that dlock does not do with postgres; leave it out{or}"))
}
