//! Condition `Active`, by which our configuration objects say whether they can be used.
//!
//! Invariant: `lastTransitionTime` moves only with the truth value; an unchanged condition is not written again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use roadstead_core::condition::Active;
use serde_json::{Value, json};

/// A merge patch for the status that sets condition `Active` and keeps the others; `None` when it already says so.
///
/// `old` are the stored conditions; `generation` is that of the object from which the condition was computed.
pub fn condition_patch(
    old: &[Condition],
    active: &Active,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Value> {
    let new = roadstead_convert::with_active(old, active, generation, now);
    // Why as sets: the stored list may have another order.
    let same = old.len() == new.len() && new.iter().all(|condition| old.contains(condition));
    (!same).then(|| json!({ "status": { "conditions": new } }))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_core::condition::{Active, Truth};
    use serde_json::json;

    use super::condition_patch;

    fn active(truth: Truth, message: &'static str) -> Active {
        Active {
            truth,
            reason: "Because",
            message: message.into(),
        }
    }

    #[test]
    fn the_condition_is_written_once_and_its_time_moves_only_with_the_truth_value() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let other = json!({
            "type": "Other", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:01Z",
        });
        let stored = |patch: &serde_json::Value| {
            serde_json::from_value::<Vec<_>>(patch["status"]["conditions"].clone()).unwrap()
        };
        let old = vec![serde_json::from_value(other.clone()).unwrap()];
        let first = condition_patch(&old, &active(Truth::False, "a"), Some(1), at(10)).unwrap();
        assert_eq!(first["status"]["conditions"][0], other, "others are kept");
        let old = stored(&first);
        assert_eq!(
            condition_patch(&old, &active(Truth::False, "a"), Some(1), at(20)),
            None
        );
        let second = condition_patch(&old, &active(Truth::False, "b"), Some(1), at(20)).unwrap();
        assert_eq!(
            second["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:10Z"
        );
        let third = condition_patch(&stored(&second), &active(Truth::True, "b"), Some(2), at(30)).unwrap();
        assert_eq!(
            third["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }
}
