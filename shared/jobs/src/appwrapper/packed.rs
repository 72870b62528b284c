//! The small form in which an `AppWrapper` is cached: its long lists are kept as their text.
//!
//! Why: a JSON object takes more than 600 bytes of memory, however few fields it has, and these lists contain most of the objects of
//! an `AppWrapper`. As text they take a tenth of that.

use std::borrow::Cow;

use serde_json::Value;

use super::{COMPONENT_STATUS, COMPONENTS};
use crate::json;

const LISTS: [[&str; 2]; 2] = [COMPONENTS, COMPONENT_STATUS];

/// Replaces the lists by their text.
pub(super) fn pack(data: &mut Value) {
    for path in LISTS {
        let text = json::at(data, &path)
            .filter(|list| list.is_array())
            .map(Value::to_string);
        if let Some(text) = text {
            // Why a copy: the printed text has spare room.
            json::set(data, &path, Value::from(text.as_str()));
        }
    }
}

/// The data of an `AppWrapper` with its lists, whether it comes from a cache or not.
pub fn unpacked(data: &Value) -> Cow<'_, Value> {
    let mut whole = Cow::Borrowed(data);
    for path in LISTS {
        let packed = json::text(data, &path);
        if let Some(list) = packed.and_then(|text| serde_json::from_str(text).ok()) {
            json::set(whole.to_mut(), &path, list);
        }
    }
    whole
}

/// Whether the status of a component may contain this text. It need not be unpacked when the answer is no.
pub(super) fn mentions(data: &Value, text: &str) -> bool {
    json::text(data, &COMPONENT_STATUS).is_none_or(|packed| packed.contains(text))
}
