//! What the tests of kinds share.

use serde_json::{Value, json};

/// Applies a merge patch, as the API server would.
pub(crate) fn apply(job: &Value, patch: &Value) -> Value {
    let (Value::Object(fields), Value::Object(patch)) = (job, patch) else {
        return patch.clone();
    };
    let mut fields = fields.clone();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            let old = fields.get(key).cloned().filter(Value::is_object);
            let merged = if value.is_object() {
                apply(&old.unwrap_or_else(|| json!({})), value)
            } else {
                value.clone()
            };
            fields.insert(key.clone(), merged);
        }
    }
    Value::Object(fields)
}
