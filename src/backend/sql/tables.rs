//! The tables and their names.
//!
//! | table | row | columns |
//! |---|---|---|
//! | `dlock_lock` | a lock; permanent | `name`, `fence` (incremented by each arrival and each decision about others; the latest token), `success` |
//! | `dlock_claim` | an entry in a queue | `name`, `seq` (the fence at its arrival: place and token), `claim`, `mode`, `since`, `lease_until`, `about`, `label`, `held`, `slot`, `asked` |
//! | | or a note: a claim that must not (re)appear until then | `name` (`~`, until when, a dot, the claim: after the names of all locks), `seq` (0), `claim`, `mode` (why), `since`, `lease_until`, `about` (the client that wrote it, if any) |
//!
//! Notes are in the same table as entries, since every claim that enters has to look for both.

/// The names of the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tables {
    pub(super) lock: String,
    pub(super) claim: String,
    /// An index of `claim`, by the claims; in the same schema as the table, so the schema is not named.
    pub(super) by_claim: String,
    /// The prefix of their names, as given.
    pub(super) prefix: String,
}

/// The default prefix of table names.
const PREFIX: &str = "dlock_";

/// PostgreSQL truncates longer names, MySQL refuses them; `claim` and an index's suffix follow.
const LONGEST_PREFIX: usize = 40;

impl Tables {
    /// Returns the tables under `prefix`, which may name a schema first: `ops.dlock_`. `quote` is the database's
    /// quotation mark for identifiers.
    pub(super) fn under(prefix: Option<&str>, quote: char) -> Result<Self, String> {
        let prefix = prefix.unwrap_or(PREFIX);
        let (schema, start) =
            prefix.split_once('.').map_or((None, prefix), |(schema, start)| (Some(schema), start));
        let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let too_long = schema.map_or(0, str::len).max(start.len()) > LONGEST_PREFIX;
        if !is_word(start) || too_long || schema.is_some_and(|schema| schema.is_empty() || !is_word(schema)) {
            return Err(format!(
                "the prefix {prefix:?} cannot begin a table's name: it has at most {LONGEST_PREFIX} of A-Z, a-z, 0-9 and _, and may name a schema first (ops.dlock_)"
            ));
        }
        let table = |name: &str| match schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{start}{name}{quote}"),
            None => format!("{quote}{start}{name}{quote}"),
        };
        let by_claim = format!("{quote}{start}claim_claim{quote}");
        Ok(Self { lock: table("lock"), claim: table("claim"), by_claim, prefix: prefix.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_begins_the_names() {
        let tables = Tables::under(None, '"').expect("valid");
        assert_eq!((tables.lock.as_str(), tables.claim.as_str()), ("\"dlock_lock\"", "\"dlock_claim\""));
        let elsewhere = Tables::under(Some("ops.x_"), '`').expect("valid");
        assert_eq!(elsewhere.claim, "`ops`.`x_claim`");
        assert_eq!(Tables::under(Some(""), '"').expect("valid").lock, "\"lock\"");
    }

    #[test]
    fn invalid_table_prefix_is_refused() {
        for prefix in ["a\"b", "a;b", "a.b.c", ".a", "ä", "a b", &"x".repeat(41)] {
            assert!(Tables::under(Some(prefix), '"').is_err(), "{prefix}");
        }
    }
}
