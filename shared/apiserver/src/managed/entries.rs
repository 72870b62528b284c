//! The list `metadata.managedFields`.

use std::cell::OnceCell;
use std::mem;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::compare::Difference;
use super::set::Set;
use crate::json;
use crate::schema::Node;

/// Update entries that are kept one by one; older ones are merged.
const UPDATERS_MAX: usize = 10;
/// The manager's name on merged entries.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// The fields of a manager. Fields of a stored list are parsed only when needed: most writes change the fields of at most
/// one of many managers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    set: OnceCell<Set>,
    /// The unchanged `fieldsV1`, if the fields come from a stored list.
    written: Option<Value>,
}

impl From<Set> for Fields {
    fn from(set: Set) -> Self {
        Self {
            set: set.into(),
            written: None,
        }
    }
}

impl Fields {
    pub(crate) fn set(&self) -> &Set {
        self.set
            .get_or_init(|| self.written.as_ref().map(Set::from_json).unwrap_or_default())
    }

    fn is_empty(&self) -> bool {
        match &self.written {
            Some(written) => written.as_object().is_none_or(Map::is_empty),
            None => self.set().is_empty(),
        }
    }

    fn to_json(&self) -> Value {
        match &self.written {
            Some(written) => written.clone(),
            None => self.set().to_json(),
        }
    }

    /// Whether removing `set` may change anything.
    fn may_lose(&self, set: &Set) -> bool {
        self.written.as_ref().is_none_or(|written| set.meets(written))
    }

    /// Whether adding `set` certainly changes nothing.
    fn has_all(&self, set: &Set) -> bool {
        self.written.as_ref().is_some_and(|written| set.is_in(written))
    }
}

/// Where a list comes from, and so whether it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// This server wrote it.
    Stored,
    /// A client made it.
    Sent,
}

#[derive(Debug, Clone)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
    pub(crate) fields: Fields,
}

impl Manager {
    fn parse(mut entry: Value, source: Source) -> Self {
        let mut text = |field: &str| match entry.get_mut(field) {
            Some(Value::String(text)) => mem::take(text),
            _ => String::new(),
        };
        Self {
            name: text("manager"),
            operation: if text("operation") == "Apply" {
                Operation::Apply
            } else {
                Operation::Update
            },
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: {
                let written = entry.get_mut("fieldsV1").map(Value::take).unwrap_or_default();
                match source {
                    Source::Stored => Fields {
                        set: OnceCell::new(),
                        written: Some(written),
                    },
                    Source::Sent => Set::from_json(&written).into(),
                }
            },
        }
    }

    fn into_json(self) -> Value {
        let text = |text: &str| Value::from(text);
        let mut entry = Map::new();
        entry.insert("manager".to_owned(), self.name.into());
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        entry.insert("operation".to_owned(), text(operation));
        entry.insert("apiVersion".to_owned(), self.api_version.into());
        entry.insert("fieldsType".to_owned(), text("FieldsV1"));
        let fields = match self.fields.written {
            Some(written) => written,
            None => self.fields.to_json(),
        };
        entry.insert("fieldsV1".to_owned(), fields);
        if !self.time.is_empty() {
            entry.insert("time".to_owned(), self.time.into());
        }
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), self.subresource.into());
        }
        Value::Object(entry)
    }

    /// Whether this entry has the change's manager, operation, subresource and API version.
    pub(super) fn is(&self, change: &Change<'_>, operation: Operation) -> bool {
        self.name == change.manager
            && self.operation == operation
            && self.subresource == change.subresource
            && (self.api_version == change.api_version)
    }
}

/// The manager of a change, its API version, its subresource and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    /// Fields that a request to this subresource cannot set.
    pub(crate) reset: &'a Set,
    pub(crate) node: &'a Node,
}

/// Fields that no manager can own.
pub(super) static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::from_json(&json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
        },
    }))
});

/// Takes the list out of an object that was stored.
pub(crate) fn take(object: &mut Value) -> Vec<Manager> {
    match json::remove(object, &["metadata", "managedFields"]) {
        Some(Value::Array(list)) => parse(list, Source::Stored),
        _ => Vec::new(),
    }
}

fn parse(list: Vec<Value>, source: Source) -> Vec<Manager> {
    list.into_iter()
        .map(|entry| Manager::parse(entry, source))
        .collect()
}

/// The sort key of a real server.
fn order(manager: &Manager) -> impl Ord {
    (
        manager.operation,
        &manager.time,
        &manager.name,
        &manager.api_version,
        &manager.subresource,
    )
}

/// Puts the list into an object, in the order of a real server.
pub(super) fn put(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(|one, other| order(one).cmp(&order(other)));
    cap(&mut managers);
    if managers.is_empty() {
        json::remove(object, &["metadata", "managedFields"]);
    } else {
        let list: Vec<Value> = managers.into_iter().map(Manager::into_json).collect();
        json::set(object, &["metadata", "managedFields"], list);
    }
}

fn cap(managers: &mut Vec<Manager>) {
    let updaters = managers
        .iter()
        .filter(|manager| manager.operation == Operation::Update)
        .count();
    if updaters <= UPDATERS_MAX {
        return;
    }
    let mut excess = updaters + 1 - UPDATERS_MAX;
    let mut merged: Option<Manager> = None;
    let mut kept = Vec::new();
    for manager in managers.drain(..) {
        if manager.operation == Operation::Update && excess > 0 {
            excess -= 1;
            match &mut merged {
                Some(merged) => {
                    let mut fields = merged.fields.set().clone();
                    fields.union(manager.fields.set());
                    merged.fields = fields.into();
                    merged.time = manager.time;
                }
                None => merged = Some(manager),
            }
        } else {
            kept.push(manager);
        }
    }
    if let Some(mut merged) = merged {
        ANCIENT.clone_into(&mut merged.name);
        merged.subresource = String::new();
        let at = kept
            .iter()
            .position(|manager| manager.operation == Operation::Update)
            .unwrap_or(kept.len());
        kept.insert(at, merged);
    }
    *managers = kept;
}

/// Removes changed and removed fields from the entries of other managers. The times of these entries stay.
pub(super) fn rob(managers: &mut [Manager], difference: &Difference, except: impl Fn(&Manager) -> bool) {
    for manager in managers {
        let touched =
            manager.fields.may_lose(&difference.changed) || manager.fields.may_lose(&difference.removed);
        if touched && !except(manager) {
            let fields = manager.fields.set().without(&difference.changed);
            manager.fields = fields.without(&difference.removed).into();
        }
    }
}

/// Whether a client asks to forget all owners: by an empty list, or a list of one empty entry.
fn resets(sent: Option<&Value>) -> bool {
    sent.and_then(Value::as_array).is_some_and(|list| {
        let empty = |entry: &Value| json::text(entry, &["manager"]).is_empty();
        list.len() <= 1 && list.iter().all(empty)
    })
}

/// Updates ownership for a change that is no apply. `old` is the stored object, or null; `new` gets the list. An empty list
/// from the client resets ownership.
pub(crate) fn update(old: &Value, new: &mut Value, change: &Change<'_>) {
    let sent = json::remove(new, &["metadata", "managedFields"]);
    let stored = json::items(old, &["metadata", "managedFields"]);
    if old.is_object() && resets(sent.as_ref()) {
        return;
    }
    // Why: a real server starts no list on an object without one, unless it is applied.
    if old.is_object() && stored.is_empty() && sent.is_none() {
        return;
    }
    let mut managers = match sent {
        // Why: a client that patches, or sends back the object that it read, sends the stored list.
        Some(Value::Array(list)) if !list.is_empty() && list == stored => parse(list, Source::Stored),
        Some(Value::Array(list)) if !list.is_empty() => parse(list, Source::Sent),
        _ if old.is_null() => Vec::new(),
        _ => parse(stored.to_vec(), Source::Stored),
    };
    let mut difference = if old.is_null() {
        // Why: the zeros of a built-in object belong to no manager.
        Difference::between(&crate::decode::empty(change.node), new, change.node)
    } else {
        Difference::between(old, new, change.node)
    };
    // Why: only one of the two objects still had the list.
    difference.removed.forget(&["f:metadata", "f:managedFields"]);
    // Why: a request neither gains fields that it cannot set, nor takes them from another manager.
    difference.changed = difference.changed.without_below(change.reset);
    difference.removed = difference.removed.without_below(change.reset);
    rob(&mut managers, &difference, |manager| {
        manager.is(change, Operation::Update)
    });
    let gained = difference.changed.without(&UNOWNED);
    // Wire: a real server writes no time on the entry of a scale request.
    let now = if change.subresource == "scale" {
        ""
    } else {
        change.now
    };
    let at = managers
        .iter()
        .position(|manager| manager.is(change, Operation::Update));
    match at {
        Some(at) => {
            let own = &mut managers[at];
            if own.fields.may_lose(&difference.removed) || !own.fields.has_all(&gained) {
                let mut fields = own.fields.set().without(&difference.removed);
                fields.union(&gained);
                if fields != *own.fields.set() {
                    now.clone_into(&mut own.time);
                    own.fields = fields.into();
                }
            }
        }
        None => managers.push(Manager {
            name: change.manager.to_owned(),
            operation: Operation::Update,
            api_version: change.api_version.to_owned(),
            subresource: change.subresource.to_owned(),
            time: now.to_owned(),
            fields: gained.into(),
        }),
    }
    put(new, managers);
}
