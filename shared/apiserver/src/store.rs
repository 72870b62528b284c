//! The objects, their versions, and the latest changes.
//!
//! Invariant: each change gets the next version, an object's version is that of its last change, and `history` holds every
//! change after `compacted`. So any state after `compacted` can be rebuilt, and old pages of a list can be served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::json;
use crate::stored::Stored;

/// Where an object lives. Ordered by resource, namespace, name, which is the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Plural and group, such as `pods` or `jobs.batch`.
    pub(crate) resource: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    Add,
    Modify,
    Delete,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) did: Did,
    /// The object after it; for a deletion the last state, with the deletion's version.
    pub(crate) object: Arc<Stored>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Stored>>,
}

/// Called for every change.
pub(crate) type Observer = Box<dyn Fn(&Change) + Send + Sync>;

/// One stored change, as [`Server::observe`](crate::Server::observe) reports it.
#[derive(Debug, Clone)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// Plural and group, such as `workloads.kueue.x-k8s.io`; for the core group the plural alone, such as `pods`.
    pub resource: Arc<str>,
    /// The object's namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The object's name.
    pub name: Arc<str>,
    /// The object before the change, in the storage version; `None` if it did not exist.
    pub old: Option<Arc<Stored>>,
    /// The object after the change, in the storage version; `None` if it was deleted.
    pub new: Option<Arc<Stored>>,
    /// The name of the user who sent the request, or [`COLLECTOR`](crate::COLLECTOR) for garbage collection.
    pub user: Arc<str>,
}

/// Why the state at a version is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The version is older than the history.
    Compacted,
    /// The version does not exist yet.
    Future,
}

/// All objects and the latest changes.
#[derive(Default)]
pub(crate) struct Store {
    version: u64,
    compacted: u64,
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Past>,
    history_max: usize,
    /// By resource: the version of its newest change that was dropped from the history.
    forgotten: BTreeMap<Arc<str>, u64>,
    /// Resources that changed since the last [`Store::take_touched`].
    touched: BTreeSet<Arc<str>>,
    /// The version of the last change of owners, finalizers or deletion marks.
    bonds: u64,
    observers: Vec<Observer>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects at version {}", self.objects.len(), self.version)
    }
}

impl Store {
    /// An empty store that keeps at most `history_max` changes.
    pub(crate) fn new(history_max: usize) -> Self {
        Self {
            // Why not 0: to ask for version 0 means any.
            version: 1,
            history_max: history_max.max(1),
            ..Self::default()
        }
    }

    /// Calls `observer` for every change from now on.
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.observers.push(observer);
    }

    /// Another store with the same objects and versions, without history.
    pub(crate) fn fork(&self, history_max: usize) -> Self {
        Self {
            version: self.version,
            compacted: self.version,
            bonds: self.version,
            objects: self.objects.clone(),
            ..Self::new(history_max)
        }
    }

    /// Takes over the objects of another store, and reports each difference as a change. Clears the history.
    pub(crate) fn restore(&mut self, other: &Self, user: &str) {
        let objects = std::mem::replace(&mut self.objects, other.objects.clone());
        let keys: BTreeSet<&Key> = objects.keys().chain(other.objects.keys()).collect();
        for key in keys {
            let (old, new) = (objects.get(key), other.objects.get(key));
            if old == new {
                continue;
            }
            self.touched.insert(Arc::clone(&key.resource));
            let observed = Change {
                version: other.version,
                resource: Arc::clone(&key.resource),
                namespace: (!key.namespace.is_empty()).then(|| key.namespace.as_str().into()),
                name: key.name.as_str().into(),
                old: old.cloned(),
                new: new.cloned(),
                user: user.into(),
            };
            for observer in &self.observers {
                observer(&observed);
            }
        }
        self.history.clear();
        self.forgotten.clear();
        (self.version, self.compacted, self.bonds) = (other.version, other.version, other.version);
    }

    /// The resources that changed since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.touched)
    }

    /// The version of the last change after which there may be garbage: an object was deleted or marked, or its owners or
    /// finalizers changed.
    pub(crate) fn bonds(&self) -> u64 {
        self.bonds
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The version after which every change is kept.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    /// All objects of a resource in the order of lists, in one namespace or, if it is empty, everywhere.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a Arc<str>,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let first = Key {
            resource: Arc::clone(resource),
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        self.objects.range(first..).take_while(move |(key, _)| {
            key.resource == *resource && (namespace.is_empty() || key.namespace == namespace)
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.objects.iter()
    }

    /// The objects of a resource as they were at a version.
    pub(crate) fn list_at(
        &self,
        resource: &Arc<str>,
        namespace: &str,
        version: u64,
    ) -> Result<BTreeMap<Key, Arc<Stored>>, Gone> {
        if version > self.version {
            return Err(Gone::Future);
        }
        if version < self.compacted {
            return Err(Gone::Compacted);
        }
        let mut then: BTreeMap<Key, Arc<Stored>> = self
            .list(resource, namespace)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let later = self
            .history
            .iter()
            .rev()
            .take_while(|change| change.version > version);
        for change in later {
            let ours = change.key.resource == *resource
                && (namespace.is_empty() || change.key.namespace == namespace);
            if !ours {
                continue;
            }
            match &change.previous {
                Some(previous) => then.insert(change.key.clone(), Arc::clone(previous)),
                None => then.remove(&change.key),
            };
        }
        Ok(then)
    }

    /// The changes of a resource after a version, oldest first, at most `max`.
    pub(crate) fn changes_after(
        &self,
        resource: &Arc<str>,
        namespace: &str,
        version: u64,
        max: usize,
    ) -> Result<Vec<Past>, Gone> {
        // Why not by `compacted`: a watch of a resource that did not change has missed nothing.
        if self.forgotten.get(resource).is_some_and(|last| *last > version) {
            return Err(Gone::Compacted);
        }
        let start = self.history.partition_point(|change| change.version <= version);
        Ok(self
            .history
            .range(start..)
            .filter(|change| {
                change.key.resource == *resource
                    && (namespace.is_empty() || change.key.namespace == namespace)
            })
            .take(max)
            .cloned()
            .collect())
    }

    /// Writes an object and gives it the next version.
    pub(crate) fn put(&mut self, key: Key, mut object: Value, user: &str) -> Arc<Stored> {
        self.version += 1;
        json::set(
            &mut object,
            &["metadata", "resourceVersion"],
            self.version.to_string(),
        );
        let object = Stored::of(object);
        let previous = self.objects.insert(key.clone(), Arc::clone(&object));
        let did = if previous.is_some() { Did::Modify } else { Did::Add };
        self.remember(
            Past {
                version: self.version,
                key,
                did,
                object: Arc::clone(&object),
                previous,
            },
            user,
        );
        object
    }

    /// Removes an object. Returns its last state, with the version of the deletion.
    pub(crate) fn delete(&mut self, key: &Key, user: &str) -> Option<Arc<Stored>> {
        let previous = self.objects.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&previous);
        json::set(
            &mut last,
            &["metadata", "resourceVersion"],
            self.version.to_string(),
        );
        let last = Stored::of(last);
        self.remember(
            Past {
                version: self.version,
                key: key.clone(),
                did: Did::Delete,
                object: Arc::clone(&last),
                previous: Some(previous),
            },
            user,
        );
        Some(last)
    }

    /// Clears the history, so that older versions answer 410.
    pub(crate) fn compact(&mut self) {
        for change in self.history.drain(..) {
            self.forgotten.insert(change.key.resource, change.version);
        }
        self.compacted = self.version;
    }

    fn remember(&mut self, change: Past, user: &str) {
        if changes_bonds(&change) {
            self.bonds = change.version;
        }
        if !self.observers.is_empty() {
            let key = &change.key;
            let observed = Change {
                version: change.version,
                resource: Arc::clone(&key.resource),
                namespace: (!key.namespace.is_empty()).then(|| key.namespace.as_str().into()),
                name: key.name.as_str().into(),
                old: change.previous.clone(),
                new: (change.did != Did::Delete).then(|| Arc::clone(&change.object)),
                user: user.into(),
            };
            for observer in &self.observers {
                observer(&observed);
            }
        }
        if !self.touched.contains(&change.key.resource) {
            self.touched.insert(Arc::clone(&change.key.resource));
        }
        self.history.push_back(change);
        while self.history.len() > self.history_max {
            if let Some(forgotten) = self.history.pop_front() {
                self.compacted = forgotten.version;
                self.forgotten.insert(forgotten.key.resource, forgotten.version);
            }
        }
    }
}

/// Whether a change may produce garbage. A new object does so only if it has owners, finalizers or a deletion mark.
fn changes_bonds(change: &Past) -> bool {
    const BONDS: [&str; 5] = [
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
    ];
    let now = &change.object["metadata"];
    match &change.previous {
        _ if change.did == Did::Delete => true,
        Some(previous) => {
            let before = &previous["metadata"];
            BONDS.iter().any(|field| before.get(field) != now.get(field))
        }
        None => BONDS[..4].iter().any(|field| now.get(field).is_some()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            resource: "pods".into(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_past_state_is_rebuilt_from_the_changes() {
        let mut store = Store::new(10);
        store.put(key("a"), json!({"n": 1}), "");
        let then = store.version();
        store.put(key("a"), json!({"n": 2}), "");
        store.put(key("b"), json!({"n": 3}), "");
        store.delete(&key("a"), "");
        let past = store.list_at(&"pods".into(), "default", then).unwrap();
        assert_eq!(past.len(), 1);
        assert_eq!(past[&key("a")]["n"], 1);
    }

    #[test]
    fn what_was_forgotten_is_gone_and_what_is_to_come_is_future() {
        let mut store = Store::new(2);
        for n in 0..4 {
            store.put(key("a"), json!({"n": n}), "");
        }
        let resource = "pods".into();
        assert_eq!(store.list_at(&resource, "", 2), Err(Gone::Compacted));
        assert_eq!(store.list_at(&resource, "", 99), Err(Gone::Future));
        assert!(store.changes_after(&resource, "", store.compacted(), 9).is_ok());
        store.compact();
        assert_eq!(store.list_at(&resource, "", 4), Err(Gone::Compacted));
    }
}
