//! Two rules for an `AppWrapper` on the worker that runs it. While one of its pods lives, its quota must not be free, unless the
//! `AppWrapper` is being deleted. An attempt begins only when no pod of the attempt before lives.
//!
//! Why not during a deletion: the quota of a job goes with the job (`spec/jobs.md 15.37`, `spec/known-faults.md`).
//!
//! The auditors of all jobs also judge that an `AppWrapper` leaves no objects behind ([`super::orphan`]), and that it ends
//! ([`super::lost`]).
//!
//! *Source*: `spec/appwrapper.md 2.3` (T20, T23 to T25, T28), 2.5.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roadstead_apiserver::RESTORER;
use serde_json::Value;

use super::Findings;
use super::book::{Book, Name, Place, Seen};
use super::object::{controller, holds_quota, is_deleting, is_live_pod, list, uid};

const KIND: &str = "AppWrapper";
const NAMESPACES: &str = "namespaces";

/// A job that an `AppWrapper` created.
#[derive(Clone, Debug)]
struct Child {
    case: Name,
    name: Arc<str>,
}

#[derive(Default)]
pub(super) struct Wrappers {
    /// By cluster and UID, also children that are gone: their pods may still be there.
    children: BTreeMap<(Arc<str>, Arc<str>), Child>,
    /// The live pods, by cluster and case, with the UID of their owner.
    pods: BTreeMap<(Arc<str>, Name), BTreeMap<Place, Arc<str>>>,
    /// Clusters whose storage was restored from a backup: no process is at fault for pods that live there.
    restored: BTreeSet<Arc<str>>,
    /// The `AppWrappers` and other jobs that are being deleted or gone, by cluster and case.
    going: BTreeSet<(Arc<str>, Name)>,
    /// Namespaces that are being deleted or gone, by cluster: the Workload that holds the quota goes with the pods.
    ending: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Wrappers {
    pub(super) fn saw(&mut self, book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
        let cluster = &seen.place.cluster;
        if *seen.change.user == *RESTORER {
            self.restored.insert(cluster.clone());
        }
        if *seen.place.resource == *NAMESPACES {
            let namespace = (cluster.clone(), seen.place.name.clone());
            if seen.after().is_none_or(is_deleting) {
                self.ending.insert(namespace);
            } else {
                self.ending.remove(&namespace);
            }
        }
        let Some(case) = seen.case().filter(|_| !seen.on_manager) else {
            return;
        };
        let here = (cluster.clone(), case.clone());
        if seen.is_job() {
            if seen.after().is_none_or(is_deleting) {
                self.going.insert(here);
            } else {
                self.going.remove(&here);
            }
        } else if seen.is_child {
            if let Some(job) = seen.after().filter(|job| is_wrapped(job)) {
                let child = Child {
                    case: case.clone(),
                    name: seen.place.name.clone(),
                };
                self.children.insert((cluster.clone(), uid(job).into()), child);
            }
        } else if seen.is_pod() {
            let maker = |pod: &Value| (cluster.clone(), Arc::from(controller(pod)));
            let Some(pod) = { seen.after().or_else(|| seen.before()) }
                .filter(|pod| self.children.contains_key(&maker(pod)))
            else {
                return;
            };
            let pods = self.pods.entry(here.clone()).or_default();
            if seen.after().is_some_and(is_live_pod) {
                pods.insert(seen.place.clone(), maker(pod).1);
                self.judge_attempts(&here, findings);
                self.judge_quota(book, &here, findings);
            } else {
                pods.remove(&seen.place);
            }
        } else if seen.is_workload() {
            self.judge_quota(book, &here, findings);
        }
    }

    /// Judges whether pods of two attempts live. Called when a pod lives.
    fn judge_attempts(&self, here: &(Arc<str>, Name), findings: &mut Findings) {
        let (cluster, case) = here;
        let mut attempts: BTreeMap<&Arc<str>, &Arc<str>> = BTreeMap::new();
        for made in self.pods[here].values() {
            let Some(child) = self.children.get(&(cluster.clone(), made.clone())) else {
                continue;
            };
            let other = attempts.insert(&child.name, made).filter(|other| *other != made);
            if other.is_some() && child.case == *case && !self.restored.contains(cluster) {
                let what = format!("pods of two attempts of {} live on {cluster}", child.name);
                findings.about("appwrapper 2.3", case, what);
            }
        }
    }

    /// Judges whether the quota is free while a pod lives. Called when a pod lives or the copy of the Workload changes.
    fn judge_quota(&self, book: &Book, here: &(Arc<str>, Name), findings: &mut Findings) {
        let (cluster, case) = here;
        let Some(pod) = self.pods.get(here).and_then(|pods| pods.keys().next()) else {
            return;
        };
        let holds = book.workload(cluster, case).is_some_and(|copy| holds_quota(copy));
        let stays = !self.ending.contains(&(cluster.clone(), case.namespace.clone()));
        if !holds && stays && !self.going.contains(here) && !self.restored.contains(cluster) {
            let what = format!("its quota on {cluster} is free, and pod {} lives there", pod.name);
            findings.about("appwrapper 2.5", case, what);
        }
    }
}

fn is_wrapped(job: &Value) -> bool {
    let owners = list(job, &["metadata", "ownerReferences"]);
    owners
        .iter()
        .any(|owner| owner["controller"] == true && owner["kind"] == KIND)
}
