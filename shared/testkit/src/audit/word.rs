//! An administrator's word that what runs on a lost cluster is lost: annotation `roadstead.dev/given-up`, with the time at which
//! condition `Active` became False. It answers that loss and no other; nothing else that is done to a cluster gives it.
//!
//! With the word a job may run elsewhere although the old run may go on (I1, I11), under every policy, and the old run must be
//! given up soon. Without it the policy decides.
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

/// Which clusters are given up, and which runs were let go because of that.
#[derive(Default)]
pub(super) struct Words {
    /// Clusters that were shown as lost when they were last seen.
    lost: BTreeSet<Arc<str>>,
    /// Since when the word about a cluster stands.
    given: BTreeMap<Arc<str>, Timestamp>,
    /// Since when a Workload names its cluster.
    placed: BTreeMap<Name, (Arc<str>, Timestamp)>,
    /// Runs that the manager gave up on such a word.
    released: BTreeSet<(Name, Arc<str>)>,
    /// The number of the last dispatch that was given up so, of each cluster: the Workload may be sent there again.
    given_up: BTreeMap<(Name, Arc<str>), u64>,
    /// Clusters whose MultiKueueCluster went while they were lost: the manager cannot take back what is there.
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

    /// Whether the manager gave up a run on a cluster because an administrator said that it is lost.
    pub(super) fn released(&self, case: &Name, cluster: &Arc<str>) -> bool {
        self.released.contains(&(case.clone(), cluster.clone()))
    }

    /// Whether that was so of the run of this dispatch.
    pub(super) fn was_given_up(&self, case: &Name, cluster: &Arc<str>, epoch: Option<u64>) -> bool {
        let last = self.given_up.get(&(case.clone(), cluster.clone()));
        last.zip(epoch).is_some_and(|(last, epoch)| epoch <= *last)
    }

    /// Whether a cluster went while it was lost and has not come back.
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

    /// Judges when the word about a cluster ends, or the run does: Workloads that were there when it was given must have been
    /// released in time.
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

/// Whether the word on this MultiKueueCluster is about the loss that it shows.
fn is_given_up(cluster: &Value) -> bool {
    let word = text(cluster, &["metadata", "annotations", GIVEN_UP]);
    let shown = condition(cluster, "Active").filter(|active| text(active, &["status"]) == "False");
    !word.is_empty() && shown.is_some_and(|active| text(active, &["lastTransitionTime"]) == word)
}
