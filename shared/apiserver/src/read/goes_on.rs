//! The `continue` token of a list.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::request::Call;
use crate::store::Key;

/// The position from which a list continues.
pub(super) struct Continue {
    /// The version of the first page; `None` if the rest is to show the present state.
    pub(super) version: Option<u64>,
    pub(super) start: Key,
}

impl Continue {
    /// The token for the objects after `last`. Wire: as a real server writes it, with a zero byte after the name.
    pub(super) fn after(call: &Call, version: Option<u64>, last: &Key) -> String {
        let everywhere = call.kind.is_namespaced() && call.path.namespace.is_empty();
        let start = if everywhere {
            format!("{}/{}\0", last.namespace, last.name)
        } else {
            format!("{}\0", last.name)
        };
        Self::token(version, &start)
    }

    fn token(version: Option<u64>, start: &str) -> String {
        let version = version.map_or_else(|| Value::from(-1), Value::from);
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": start}).to_string())
    }

    pub(super) fn parse(call: &Call, text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let start = token["start"].as_str()?;
        let everywhere = call.kind.is_namespaced() && call.path.namespace.is_empty();
        let (namespace, name) = if everywhere {
            start.split_once('/')?
        } else {
            (call.path.namespace.as_str(), start)
        };
        let version = token["rv"].as_i64().filter(|version| *version != 0)?;
        Some(Self {
            version: u64::try_from(version).ok(),
            start: Key {
                resource: Arc::clone(&call.kind.resource),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
        })
    }

    /// A token for the same position in the present state.
    pub(super) fn inconsistent(&self, call: &Call) -> String {
        let everywhere = call.kind.is_namespaced() && call.path.namespace.is_empty();
        let start = if everywhere {
            format!("{}/{}", self.start.namespace, self.start.name)
        } else {
            self.start.name.clone()
        };
        Self::token(None, &start)
    }
}
