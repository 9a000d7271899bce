//! Which service, in a sentence.

use super::sanitise;

/// The service whose locks a sentence is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePlace {
    /// The backend's name.
    pub backend: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    /// Whether nobody has locked there yet.
    pub unused: bool,
}

impl ServicePlace {
    /// `file /var/lib/dlock`, `redis://h:6379/0`: sanitised.
    pub fn name(&self) -> String {
        let place = sanitise::text(&self.place);
        // Most addresses say it themselves.
        if place.starts_with(self.backend) { place } else { format!("{} {place}", self.backend) }
    }

    /// The name, and that nobody has locked there yet if that is so: to say why a lock is free.
    pub fn looked(&self) -> String {
        if self.unused { format!("{}, where nobody has locked yet", self.name()) } else { self.name() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_is_named_once() {
        let service = |backend, place: &str, unused| ServicePlace { backend, place: place.into(), unused };
        assert_eq!(service("file", "/var/l\u{202e}k", false).name(), "file /var/l\\u{202e}k");
        assert_eq!(service("redis", "redis://h:6379/0", false).name(), "redis://h:6379/0");
        assert_eq!(service("etcd", "http://h:2379", false).looked(), "etcd http://h:2379");
        assert_eq!(service("file", "/l", true).looked(), "file /l, where nobody has locked yet");
    }
}
