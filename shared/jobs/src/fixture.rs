//! Objects written as JSON, for tests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::kind::{Member, MemberMut, Members};

fn parts(object: &Value) -> (ObjectMeta, Value) {
    let mut data = object.clone();
    let meta = data.as_object_mut().and_then(|fields| fields.remove("metadata"));
    let meta = serde_json::from_value(meta.unwrap_or_else(|| json!({}))).unwrap();
    (meta, data)
}

/// Looks at an object as the only member of a job.
pub(crate) fn one<T>(object: &Value, look: impl FnOnce(Members<'_>) -> T) -> T {
    let (meta, data) = parts(object);
    let (meta, data) = (&meta, &data);
    look(Members::one(&Member { meta, data }))
}

/// Looks at two objects.
pub(crate) fn both<T>(first: &Value, second: &Value, look: impl FnOnce(Members<'_>, Members<'_>) -> T) -> T {
    one(first, |first| one(second, |second| look(first, second)))
}

/// An object after a change.
pub(crate) fn changed(object: &Value, change: impl FnOnce(&mut MemberMut<'_>)) -> Value {
    let (mut meta, mut data) = parts(object);
    let has_meta = object.get("metadata").is_some();
    change(&mut MemberMut {
        meta: &mut meta,
        data: &mut data,
    });
    if has_meta || meta != ObjectMeta::default() {
        data["metadata"] = json!(meta);
    }
    data
}
