//! An object of the store, with its JSON text.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::json;

/// An object as it is stored: it does not change any more.
///
/// Its JSON text is written when a client first asks for it, and kept. Why: every watch of the resource sends the same text.
///
/// Limit: the text stays in memory as long as the object, also in the history of changes.
pub struct Stored {
    object: Value,
    text: OnceLock<Bytes>,
}

impl Stored {
    /// Wraps an object.
    #[must_use]
    pub fn of(object: Value) -> Arc<Self> {
        let text = OnceLock::new();
        Arc::new(Self { object, text })
    }

    /// The object as JSON, without a line break.
    pub(crate) fn text(&self) -> Bytes {
        self.text.get_or_init(|| json::bytes(&self.object).into()).clone()
    }
}

impl Deref for Stored {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.object
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_written_once() {
        let stored = Stored::of(json!({"b": [1, "x"], "a": null}));
        let text = stored.text();
        assert_eq!(text, r#"{"a":null,"b":[1,"x"]}"#);
        assert_eq!(stored.text().as_ptr(), text.as_ptr());
    }
}
