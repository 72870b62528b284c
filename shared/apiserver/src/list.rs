//! A list that writes its objects as they are stored, without copying them.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use crate::kinds::Kind;
use crate::stored::Stored;

/// Stored objects with the metadata of their list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) kind: Arc<Kind>,
    pub(crate) meta: Value,
    pub(crate) objects: Vec<Arc<Stored>>,
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_map(Some(4))?;
        list.serialize_entry("apiVersion", &self.kind.api_version())?;
        let items: Vec<Item<'_>> = { self.objects.iter() }
            .map(|object| Item {
                object,
                is_custom: self.kind.is_custom(),
            })
            .collect();
        list.serialize_entry("items", &items)?;
        list.serialize_entry("kind", &self.kind.list_kind)?;
        list.serialize_entry("metadata", &self.meta)?;
        list.end()
    }
}

/// One object of a list. Wire: objects of built-in kinds have no `apiVersion` and `kind` there.
struct Item<'a> {
    object: &'a Value,
    is_custom: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.object.as_object().filter(|_| !self.is_custom) else {
            return self.object.serialize(to);
        };
        let said = |(name, _): &(&String, &Value)| !["apiVersion", "kind"].contains(&name.as_str());
        to.collect_map(fields.iter().filter(said))
    }
}
