//! Work that controllers do on a real cluster: collect dependents, finish the deletion of namespaces and definitions.
//! The caller drives each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{DEFINITIONS, EXTENSIONS};
use crate::server::{Server, State};
use crate::store::Key;
use crate::stored::Stored;
use crate::{clock, json};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The user name on changes that [`Server::collect_garbage`] makes.
pub const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// Rounds of [`Server::settle`]; each goes one generation of dependents deeper.
const ROUNDS_MAX: usize = 1_000;

/// How much a step changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that were removed or marked for removal.
    pub deleted: usize,
    /// Objects that lost a finalizer or an owner.
    pub released: usize,
}

impl Collected {
    /// Whether the step changed nothing.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

fn marked(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    json::texts(object, &["metadata", "finalizers"]).contains(&name)
}

fn uid(object: &Value) -> &str {
    json::text(object, &["metadata", "uid"])
}

impl Server {
    /// One pass of garbage collection over everything: dependents of owners that are gone or being deleted, pods whose
    /// grace is over, namespaces and definitions that are being deleted. Deterministic; takes no time.
    pub fn collect_garbage(&self) -> Collected {
        let mut done = Collected::default();
        {
            let mut state = self.state();
            let bonds = state.store.bonds();
            // Why: a full pass is expensive, and callers that play a cluster ask for one every few seconds.
            if state.collected == Some(bonds) {
                return done;
            }
            self.collect_owned(&mut state, &mut done);
            self.end_namespaces(&mut state, &mut done);
            self.end_definitions(&mut state, &mut done);
            let waits = state.store.all().any(|(_, object)| marked(object));
            state.collected = (done.is_idle() && !waits).then_some(bonds);
        }
        self.publish();
        done
    }

    /// Repeats [`Server::collect_garbage`] until nothing is left to collect. Returns how much was done.
    pub fn settle(&self) -> Collected {
        let mut all = Collected::default();
        for _ in 0..ROUNDS_MAX {
            let done = self.collect_garbage();
            if done.is_idle() {
                break;
            }
            all.deleted += done.deleted;
            all.released += done.released;
        }
        all
    }

    fn keep(&self, state: &mut State, key: &Key, object: Value) {
        let written = self.put_or_finish(state, key.clone(), object, COLLECTOR);
        drop(written);
    }

    fn drop_finalizer(&self, state: &mut State, key: &Key, object: &Value, name: &str, done: &mut Collected) {
        let kept: Vec<&str> = json::texts(object, &["metadata", "finalizers"])
            .into_iter()
            .filter(|finalizer| *finalizer != name)
            .collect();
        let mut next = object.clone();
        if kept.is_empty() {
            json::remove(&mut next, &["metadata", "finalizers"]);
        } else {
            json::set(&mut next, &["metadata", "finalizers"], kept);
        }
        self.keep(state, key, next);
        done.released += 1;
    }

    /// Deletes with background propagation.
    fn remove(&self, state: &mut State, key: &Key, object: &Arc<Stored>, done: &mut Collected) {
        if marked(object) {
            return;
        }
        done.deleted += 1;
        let finalizers = json::items(object, &["metadata", "finalizers"]);
        if finalizers.is_empty() {
            Self::erase(state, key, COLLECTOR);
            return;
        }
        let mut next = Value::clone(object);
        self.mark(&mut next);
        self.keep(state, key, next);
    }

    fn mark(&self, object: &mut Value) {
        json::set(
            object,
            &["metadata", "deletionTimestamp"],
            clock::seconds(self.now()),
        );
        json::set(object, &["metadata", "deletionGracePeriodSeconds"], 0);
        if let Some(generation) = object["metadata"]["generation"].as_u64() {
            json::set(object, &["metadata", "generation"], generation + 1);
        }
    }

    fn collect_owned(&self, state: &mut State, done: &mut Collected) {
        let now = self.now();
        let all: Vec<(Key, Arc<Stored>)> = state
            .store
            .all()
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let by_uid: BTreeMap<&str, &Arc<Stored>> =
            all.iter().map(|(_, object)| (uid(object), object)).collect();
        for (key, object) in &all {
            if marked(object) && has_finalizer(object, ORPHAN) {
                self.orphan(state, &all, uid(object), done);
                self.drop_finalizer(state, key, object, ORPHAN, done);
                return;
            }
            if marked(object) && has_finalizer(object, FOREGROUND) {
                let blocked = all.iter().any(|(_, other)| {
                    owners(other)
                        .any(|owner| owner["uid"] == uid(object) && owner["blockOwnerDeletion"] == true)
                });
                if !blocked {
                    self.drop_finalizer(state, key, object, FOREGROUND, done);
                    return;
                }
            }
            if &*key.resource == "pods" && marked(object) && grace_over(object, now) {
                let mut next = Value::clone(object);
                json::set(&mut next, &["metadata", "deletionGracePeriodSeconds"], 0);
                self.keep(state, key, next);
                done.deleted += 1;
                return;
            }
            let (mut solid, mut waiting, mut absent) = (0, 0, 0);
            for owner in owners(object) {
                match by_uid.get(json::text(owner, &["uid"])) {
                    None => absent += 1,
                    Some(owner) if marked(owner) && has_finalizer(owner, FOREGROUND) => waiting += 1,
                    Some(_) => solid += 1,
                }
            }
            if absent + waiting > 0 && solid == 0 && !marked(object) {
                if waiting > 0
                    && all
                        .iter()
                        .any(|(_, other)| owners(other).any(|owner| owner["uid"] == uid(object)))
                {
                    let mut next = Value::clone(object);
                    let mut finalizers: Vec<&str> = json::texts(object, &["metadata", "finalizers"]);
                    finalizers.push(FOREGROUND);
                    json::set(&mut next, &["metadata", "finalizers"], finalizers);
                    self.mark(&mut next);
                    self.keep(state, key, next);
                    done.deleted += 1;
                } else {
                    self.remove(state, key, object, done);
                }
                return;
            }
            if absent + waiting > 0 && solid > 0 {
                let kept: Vec<Value> = owners(object)
                    .filter(|owner| {
                        by_uid
                            .get(json::text(owner, &["uid"]))
                            .is_some_and(|owner| !(marked(owner) && has_finalizer(owner, FOREGROUND)))
                    })
                    .cloned()
                    .collect();
                let mut next = Value::clone(object);
                json::set(&mut next, &["metadata", "ownerReferences"], kept);
                self.keep(state, key, next);
                done.released += 1;
                return;
            }
        }
    }

    /// Removes an owner from the `ownerReferences` of all its dependents.
    fn orphan(&self, state: &mut State, all: &[(Key, Arc<Stored>)], owner: &str, done: &mut Collected) {
        for (key, object) in all {
            if !owners(object).any(|reference| reference["uid"] == owner) {
                continue;
            }
            let kept: Vec<Value> = owners(object)
                .filter(|reference| reference["uid"] != owner)
                .cloned()
                .collect();
            let mut next = Value::clone(object);
            if kept.is_empty() {
                json::remove(&mut next, &["metadata", "ownerReferences"]);
            } else {
                json::set(&mut next, &["metadata", "ownerReferences"], kept);
            }
            self.keep(state, key, next);
            done.released += 1;
        }
    }

    fn end_namespaces(&self, state: &mut State, done: &mut Collected) {
        let resource = "namespaces".into();
        let ending: Vec<(Key, Arc<Stored>)> = state
            .store
            .list(&resource, "")
            .filter(|(_, object)| marked(object) && !json::items(object, &["spec", "finalizers"]).is_empty())
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for (key, namespace) in ending {
            let content: Vec<(Key, Arc<Stored>)> = state
                .store
                .all()
                .filter(|(inner, _)| inner.namespace == key.name)
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect();
            for (inner, object) in &content {
                self.remove(state, inner, object, done);
            }
            let left = state.store.all().any(|(inner, _)| inner.namespace == key.name);
            if !left {
                let mut next = Value::clone(&namespace);
                json::remove(&mut next, &["spec", "finalizers"]);
                self.keep(state, &key, next);
                done.deleted += 1;
            }
        }
    }

    fn end_definitions(&self, state: &mut State, done: &mut Collected) {
        let resource = format!("{DEFINITIONS}.{EXTENSIONS}").into();
        let ending: Vec<(Key, Arc<Stored>)> = state
            .store
            .list(&resource, "")
            .filter(|(_, object)| marked(object) && has_finalizer(object, CLEANUP))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for (key, definition) in ending {
            let resource: Arc<str> = key.name.as_str().into();
            let content: Vec<(Key, Arc<Stored>)> = state
                .store
                .list(&resource, "")
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect();
            for (inner, object) in &content {
                self.remove(state, inner, object, done);
            }
            if state.store.list(&resource, "").next().is_none() {
                self.drop_finalizer(state, &key, &definition, CLEANUP, done);
            }
        }
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    json::items(object, &["metadata", "ownerReferences"]).iter()
}

/// Whether a pod's grace period is over. On a real cluster the kubelet decides this.
fn grace_over(pod: &Value, now: Timestamp) -> bool {
    let grace = pod["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(0);
    let until: Option<Timestamp> = json::text(pod, &["metadata", "deletionTimestamp"]).parse().ok();
    grace > 0 && until.is_some_and(|until| until <= now) && json!(null) != pod["metadata"]
}

#[cfg(test)]
mod tests;
