//! The service, as a message names it.

use std::fmt;

use super::sanitise;

/// The service that a message is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePlace {
    /// The backend's name.
    pub backend: &'static str,
    /// The address, without secrets.
    pub place: String,
    /// A remark that follows the address, or nothing.
    pub remark: String,
}

impl ServicePlace {
    /// Returns the name with the remark, for messages about a status.
    pub fn looked(&self) -> String {
        format!("{self}{}", sanitise::text(&self.remark))
    }
}

impl fmt::Display for ServicePlace {
    /// Writes the sanitised name: `file /var/lib/dlock`, `redis://h:6379/0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = sanitise::text(&self.place);
        // Most addresses begin with the backend's name.
        if place.starts_with(self.backend) {
            f.write_str(&place)
        } else {
            write!(f, "{} {place}", self.backend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_is_named_once() {
        let service = |backend, place: &str, remark: &str| ServicePlace {
            backend,
            place: place.into(),
            remark: remark.into(),
        };
        assert_eq!(service("file", "/var/l\u{202e}k", "").to_string(), "file /var/l\\u{202e}k");
        assert_eq!(service("redis", "redis://h:6379/0", "").to_string(), "redis://h:6379/0");
        assert_eq!(service("etcd", "http://h:2379", "").looked(), "etcd http://h:2379");
        assert_eq!(service("file", "/l", ", not used yet").looked(), "file /l, not used yet");
    }
}
