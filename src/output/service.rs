//! Which service, in a sentence.

use super::sanitise;

/// The service whose locks a sentence is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePlace {
    /// The backend's name.
    pub backend: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    /// A remark on that place, in words that follow it; empty if there is none.
    pub remark: String,
}

impl ServicePlace {
    /// `file /var/lib/dlock`, `redis://h:6379/0`: sanitised.
    pub fn name(&self) -> String {
        let place = sanitise::text(&self.place);
        // Most addresses say it themselves.
        if place.starts_with(self.backend) { place } else { format!("{} {place}", self.backend) }
    }

    /// The name with the remark: where a status was read.
    pub fn looked(&self) -> String {
        format!("{}{}", self.name(), sanitise::text(&self.remark))
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
        assert_eq!(service("file", "/var/l\u{202e}k", "").name(), "file /var/l\\u{202e}k");
        assert_eq!(service("redis", "redis://h:6379/0", "").name(), "redis://h:6379/0");
        assert_eq!(service("etcd", "http://h:2379", "").looked(), "etcd http://h:2379");
        assert_eq!(service("file", "/l", ", not used yet").looked(), "file /l, not used yet");
    }
}
