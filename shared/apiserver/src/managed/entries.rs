//! The list `metadata.managedFields`.

use serde_json::{Value, json};

use super::compare::Difference;
use super::set::Set;
use crate::json;
use crate::schema::Node;

/// Updaters that are remembered one by one; older ones are merged.
const UPDATERS_MAX: usize = 10;
/// Who stands for merged ones.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One manager and its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
    pub(crate) fields: Set,
}

impl Manager {
    fn parse(entry: &Value) -> Self {
        Self {
            name: json::text(entry, &["manager"]).to_owned(),
            operation: if entry["operation"] == "Apply" {
                Operation::Apply
            } else {
                Operation::Update
            },
            api_version: json::text(entry, &["apiVersion"]).to_owned(),
            subresource: json::text(entry, &["subresource"]).to_owned(),
            time: json::text(entry, &["time"]).to_owned(),
            fields: Set::from_json(&entry["fieldsV1"]),
        }
    }

    fn to_json(&self) -> Value {
        let mut entry = json!({
            "manager": self.name,
            "operation": match self.operation { Operation::Apply => "Apply", Operation::Update => "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if !self.time.is_empty() {
            entry["time"] = self.time.as_str().into();
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }

    /// Whether it is the same manager, doing the same in the same place.
    pub(super) fn is(&self, change: &Change<'_>, operation: Operation) -> bool {
        self.name == change.manager
            && self.operation == operation
            && self.subresource == change.subresource
            && (self.api_version == change.api_version)
    }
}

/// Who changes what, where and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    /// Fields that a request to this place cannot set.
    pub(crate) reset: &'a Set,
    pub(crate) node: &'a Node,
}

/// Fields that nobody owns.
pub(super) fn unowned() -> Set {
    Set::from_json(&json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
        },
    }))
}

/// Takes the list out of an object.
pub(crate) fn take(object: &mut Value) -> Vec<Manager> {
    let list = json::remove(object, &["metadata", "managedFields"]).unwrap_or_default();
    list.as_array()
        .map(|list| list.iter().map(Manager::parse).collect())
        .unwrap_or_default()
}

/// Puts the list into an object, in the order of a real server.
pub(super) fn put(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    let order = |manager: &Manager| {
        (
            manager.operation,
            manager.time.clone(),
            manager.name.clone(),
            manager.api_version.clone(),
            manager.subresource.clone(),
        )
    };
    managers.sort_by_key(order);
    cap(&mut managers);
    if managers.is_empty() {
        json::remove(object, &["metadata", "managedFields"]);
    } else {
        let list: Vec<Value> = managers.iter().map(Manager::to_json).collect();
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
                    merged.fields.union(&manager.fields);
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

/// What others lose when fields change; entries that lose something keep their time.
pub(super) fn rob(managers: &mut [Manager], difference: &Difference, except: impl Fn(&Manager) -> bool) {
    for manager in managers {
        if !except(manager) {
            manager.fields = manager
                .fields
                .without(&difference.changed)
                .without(&difference.removed);
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

/// Accounts for a change that is no apply. `old` is what is stored, or null; `new` gets the list. A list that the client
/// sent empty resets ownership.
pub(crate) fn update(old: &Value, new: &mut Value, change: &Change<'_>) {
    let sent = new["metadata"].get("managedFields").cloned();
    let mut before = old.clone();
    let stored = take(&mut before);
    drop(take(new));
    if old.is_object() && resets(sent.as_ref()) {
        return;
    }
    // Why: who never had its owners counted, a real server does not begin to count by an ordinary change.
    if old.is_object() && stored.is_empty() && sent.is_none() {
        return;
    }
    let mut managers = match sent {
        Some(Value::Array(list)) if !list.is_empty() => list.iter().map(Manager::parse).collect(),
        _ if old.is_null() => Vec::new(),
        _ => stored,
    };
    if old.is_null() {
        // Why: a built-in object has its zeros before anybody sets anything.
        before = crate::decode::empty(change.node);
    }
    let mut difference = Difference::between(&before, new, change.node);
    // Why: what a request to this place cannot set, it neither gains nor takes from anybody.
    difference.changed = difference.changed.without_below(change.reset);
    difference.removed = difference.removed.without_below(change.reset);
    rob(&mut managers, &difference, |manager| {
        manager.is(change, Operation::Update)
    });
    let gained = difference.changed.without(&unowned());
    // Why: a real server does not say when somebody scaled.
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
            let mut fields = own.fields.without(&difference.removed);
            fields.union(&gained);
            if fields != own.fields {
                now.clone_into(&mut own.time);
                own.fields = fields;
            }
        }
        None => managers.push(Manager {
            name: change.manager.to_owned(),
            operation: Operation::Update,
            api_version: change.api_version.to_owned(),
            subresource: change.subresource.to_owned(),
            time: now.to_owned(),
            fields: gained,
        }),
    }
    put(new, managers);
}
