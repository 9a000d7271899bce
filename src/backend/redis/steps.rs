//! Steps of a commit as `queue.lua` takes them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::lock::LockName;
use crate::net::socket;
use crate::queue::store::{Change, Note, Step};

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// Returns `step` as `commit` in `queue.lua` takes it. `at` is the number of a name.
pub(super) fn written(step: &Step, is_own: bool, at: &dyn Fn(&LockName) -> usize) -> Value {
    match step {
        Step::Hold { slots, .. } => {
            let slots = slots.iter().map(|slot| slot.unwrap_or(0).to_string());
            json!({ "what": "hold", "slots": slots.collect::<Vec<_>>() })
        }
        Step::Remove { id, names, note, .. } => {
            let (why, by) = match note.as_ref().and_then(Note::stored) {
                Some((why, by)) => (Some(why), by),
                // A claim that leaves by itself has had the answers to its requests.
                None => (Some("withdrawn").filter(|_| !is_own), None),
            };
            let by = by.and_then(|by| serde_json::to_string(by).ok()).unwrap_or_default();
            let (names, late) = (names.iter().map(at).collect::<Vec<_>>(), socket::LATE.as_millis());
            let (id, late) = (id.to_string(), u64::try_from(late).unwrap_or(u64::MAX));
            match why {
                Some(why) => {
                    json!({ "what": "remove", "id": id, "names": names, "why": why, "by": by, "late": late })
                }
                None => json!({ "what": "remove", "id": id, "names": names }),
            }
        }
        Step::RemoveForeign(name, _) => json!({ "what": "remove_foreign", "name": at(name) }),
        Step::Change(name, item, change) => {
            let (name, id) = (at(name), &item.key.text);
            let set = |field: &str, value: String| json!({ "what": "change", "name": name, "id": id, "field": field, "value": value });
            match change {
                Change::Asked(by) => set("asked", serde_json::to_string(by).unwrap_or_default()),
                Change::Label(label) => set("label", label.clone()),
                Change::HeldFor(length) => json!({
                    "what": "change", "name": name, "id": id, "field": "held", "held_for": micros(*length)
                }),
            }
        }
        Step::Success { held_for } => json!({ "what": "success", "held_for": micros(*held_for) }),
    }
}
