//! The annotation in which the `v1beta1` form of an object carries the fields that only `v1beta2` has.
//!
//! Invariant: the restored fields have the right shape. Why: the API server checks only the `v1beta1` form, where the annotation is any
//! text, and stores the restored fields without another check.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CARRIED;
use super::fields::{Fields, Wrong, object, object_or_new};

const ANNOTATION: &str = "metadata.annotations[kueue.x-k8s.io/v1beta2-fields]";
const WRITTEN: &str = "as the conversion wrote it; remove the annotation to give up the fields it carries";

/// Writes the annotation, or removes it if there is nothing to carry.
pub(super) fn put(root: &mut Fields, carried: Fields) -> Result<(), Wrong> {
    if carried.is_empty() {
        return remove(root).map(drop);
    }
    let metadata = object_or_new(root, "metadata")?;
    let annotations = object_or_new(metadata, "metadata.annotations")?;
    annotations.insert(CARRIED.to_owned(), Value::Object(carried).to_string().into());
    Ok(())
}

/// Removes the annotation and returns its fields, which have the shape of `Shape`.
pub(super) fn take<Shape: DeserializeOwned>(root: &mut Fields) -> Result<Fields, Wrong> {
    let Some(text) = remove(root)? else {
        return Ok(Fields::new());
    };
    // Why both: the fields are returned as they were written; the shape is only a check.
    let wrong = |_| Wrong::new(ANNOTATION, WRITTEN);
    serde_json::from_str::<Shape>(&text).map_err(wrong)?;
    serde_json::from_str(&text).map_err(wrong)
}

fn remove(root: &mut Fields) -> Result<Option<String>, Wrong> {
    let Some(metadata) = object(root, "metadata")? else {
        return Ok(None);
    };
    let Some(annotations) = object(metadata, "metadata.annotations")? else {
        return Ok(None);
    };
    match annotations.remove(CARRIED) {
        None => Ok(None),
        Some(Value::String(text)) => {
            // Why: an object without annotations must come back without them.
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
            Ok(Some(text))
        }
        Some(_) => Err(Wrong::new(ANNOTATION, "text")),
    }
}
