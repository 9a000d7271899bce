//! The settings of libpq that dlock accepts without effect, and their values that it must refuse.
//!
//! Source: PostgreSQL's documentation, "Parameter Key Words" and "Environment Variables" of libpq. Settings with an
//! effect are in [`super::config`].

use super::environment::Environment;

/// Any value.
const ANY: &[&str] = &["*"];

/// The name, the variable if there is one, and the values that ask for nothing beyond dlock's own behaviour.
const TAKEN: [(&str, &str, &[&str]); 31] = [
    ("application_name", "PGAPPNAME", ANY),
    ("fallback_application_name", "", ANY),
    ("client_encoding", "PGCLIENTENCODING", ANY),
    // Every request of dlock has its own deadline.
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

/// Returns the name of libpq's setting `name`, if dlock accepts it with `value`; `None` if libpq has no such setting.
///
/// Errors: the setting asks for something that dlock does not do.
pub(super) fn taken(name: &str, value: &str) -> Result<Option<&'static str>, String> {
    let Some((name, _, values)) = TAKEN.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
    if value.is_empty() { Ok(Some(*name)) } else { check(name, value, values).map(|()| Some(*name)) }
}

/// Checks the variables of settings that are in no address.
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
