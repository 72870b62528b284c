//! An administrator gives up the runs on a lost cluster: annotation `roadstead.dev/given-up`, with the time at which condition
//! `Active` became False. It is valid for that loss only. Deleting or removing the cluster does not give up its runs.
//!
//! With the annotation the manager must give up the old run soon, and the job may run elsewhere although the old run may go on
//! (I1, I11), under every policy. Without it the policy decides.
//!
//! *Source*: `spec/safety.md 3.5`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Findings;
use super::book::{Book, CLUSTERS, Name, Seen};
use super::bulkhead::Bulkhead;
use super::object::{condition, epoch, is_true, text, winner};

/// How long an undisturbed manager may take to give a run up.
const ALLOWANCE: SignedDuration = SignedDuration::from_secs(30);

/// The annotation by which an administrator gives up the runs on a cluster: the time of its loss.
const GIVEN_UP: &str = "roadstead.dev/given-up";

/// Which clusters an administrator gave up, and which runs the manager gave up because of that.
#[derive(Default)]
pub(super) struct Words {
    /// Clusters whose condition `Active` was not True when the MultiKueueCluster last changed.
    lost: BTreeSet<Arc<str>>,
    /// Clusters that are given up, and since when.
    given: BTreeMap<Arc<str>, Timestamp>,
    /// The cluster that each Workload names, and since when.
    placed: BTreeMap<Name, (Arc<str>, Timestamp)>,
    /// Runs that the manager took back while their cluster was given up.
    released: BTreeSet<(Name, Arc<str>)>,
    /// The number of the last dispatch in `released`, kept also after the Workload was sent to that cluster again.
    given_up: BTreeMap<(Name, Arc<str>), u64>,
    /// Clusters whose MultiKueueCluster was deleted while they were lost: the manager cannot delete its objects there.
    abandoned: BTreeSet<Arc<str>>,
}

impl Words {
    /// Must be called before the auditors that ask whether a run was given up.
    pub(super) fn saw(&mut self, book: &Book, bulkhead: &Bulkhead, seen: &Seen<'_>, findings: &mut Findings) {
        if !seen.on_manager {
            return;
        }
        if seen.is_workload() {
            self.follow(seen);
        } else if *seen.place.resource == *CLUSTERS {
            for cluster in &book.rules.workers {
                self.look(book, bulkhead, cluster, seen.now, findings);
            }
        }
    }

    pub(super) fn stands(&self, cluster: &str) -> bool {
        self.given.contains_key(cluster)
    }

    /// Whether the manager gave up the last run on this cluster because an administrator gave the cluster up.
    pub(super) fn released(&self, case: &Name, cluster: &Arc<str>) -> bool {
        self.released.contains(&(case.clone(), cluster.clone()))
    }

    /// Whether the manager gave up the run of this dispatch for the same reason; false without a number.
    pub(super) fn was_given_up(&self, case: &Name, cluster: &Arc<str>, epoch: Option<u64>) -> bool {
        let last = self.given_up.get(&(case.clone(), cluster.clone()));
        last.zip(epoch).is_some_and(|(last, epoch)| epoch <= *last)
    }

    /// Whether the MultiKueueCluster was deleted while the cluster was lost, and does not exist again.
    pub(super) fn is_abandoned(&self, cluster: &str) -> bool {
        self.abandoned.contains(cluster)
    }

    fn look(
        &mut self,
        book: &Book,
        bulkhead: &Bulkhead,
        cluster: &str,
        now: Timestamp,
        findings: &mut Findings,
    ) {
        let name: Arc<str> = cluster.into();
        let Some(object) = book.object(&book.rules.manager, CLUSTERS, "", cluster) else {
            if self.lost.contains(&name) {
                self.abandoned.insert(name);
            }
            return;
        };
        self.abandoned.remove(&name);
        if is_true(object, "Active") {
            self.lost.remove(&name);
        } else {
            self.lost.insert(name.clone());
        }
        if is_given_up(object) {
            self.given.entry(name).or_insert(now);
        } else {
            self.judge(book, bulkhead, cluster, now, findings);
            self.given.remove(&name);
        }
    }

    fn follow(&mut self, seen: &Seen<'_>) {
        let Some(case) = seen.case() else { return };
        let (before, after) = (seen.before().map_or("", winner), seen.after().map_or("", winner));
        if before == after {
            return;
        }
        if !before.is_empty() && self.stands(before) {
            self.released.insert((case.clone(), before.into()));
            if let Some(number) = seen.before().and_then(epoch) {
                self.given_up.insert((case.clone(), before.into()), number);
            }
        }
        if after.is_empty() {
            self.placed.remove(case);
        } else {
            self.released.remove(&(case.clone(), Arc::from(after)));
            self.placed.insert(case.clone(), (after.into(), seen.now));
        }
    }

    /// Called at the end of a given-up state or of the simulation: the manager must have given up in time every Workload that named
    /// the cluster before.
    fn judge(
        &self,
        book: &Book,
        bulkhead: &Bulkhead,
        cluster: &str,
        now: Timestamp,
        findings: &mut Findings,
    ) {
        let Some(given) = self.given.get(cluster) else {
            return;
        };
        if now < *given + ALLOWANCE || !bulkhead.is_calm(book, &book.rules.manager, *given) {
            return;
        }
        for (case, (place, since)) in &self.placed {
            let is_held = book
                .local(case)
                .is_some_and(|w| !is_true(w, "Finished") && winner(w) == cluster);
            if **place == *cluster && since < given && is_held {
                let what = format!(
                    "an administrator said at {given} that what runs on {cluster} is lost, and it is still held there"
                );
                findings.about("safety 3.5", case, what);
            }
        }
    }

    pub(super) fn at_rest(&self, book: &Book, bulkhead: &Bulkhead, now: Timestamp, findings: &mut Findings) {
        for cluster in &book.rules.workers {
            self.judge(book, bulkhead, cluster, now, findings);
        }
    }
}

/// Whether the annotation of this MultiKueueCluster names the loss that its condition `Active` shows.
fn is_given_up(cluster: &Value) -> bool {
    let word = text(cluster, &["metadata", "annotations", GIVEN_UP]);
    let shown = condition(cluster, "Active").filter(|active| text(active, &["status"]) == "False");
    !word.is_empty() && shown.is_some_and(|active| text(active, &["lastTransitionTime"]) == word)
}
