//! The administrator's word that what runs on a lost cluster is lost: who takes a cluster out of the config, or deletes it, when
//! the manager says that it is lost, gives it. What is wanted back, or answers again, is no longer lost.
//!
//! With the word a job may run elsewhere although the old run may go on (I1, I11), under every policy, and after
//! `workerLostTimeout` it must be let go. Without it the policy decides.
//!
//! *Source*: `spec/safety.md 3`, "an admin's word"; `spec/multikueue.md 4.5`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Findings;
use super::book::{Book, CLUSTERS, CONFIGS, Name, Seen};
use super::bulkhead::Bulkhead;
use super::object::{epoch, is_deleting, is_true, winner};

/// How much longer than the timeout it may take: a manager's clock goes wrong by less than a tenth, and it looks at what it waits
/// for at its own pace.
const ALLOWANCE: SignedDuration = SignedDuration::from_secs(30);

/// What is wanted of a cluster, and whether it is said to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stand {
    listed: bool,
    registered: bool,
    lost: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Words {
    stands: BTreeMap<Arc<str>, Stand>,
    /// Since when the word about a cluster stands.
    given: BTreeMap<Arc<str>, Timestamp>,
    /// Since when a Workload names its cluster.
    placed: BTreeMap<Name, (Arc<str>, Timestamp)>,
    /// Runs that were let go on such a word.
    released: BTreeSet<(Name, Arc<str>)>,
    /// The number of the last dispatch that was let go so, of each cluster: it may be sent there again.
    given_up: BTreeMap<(Name, Arc<str>), u64>,
    /// Clusters whose objects went while they were lost: nobody could take back what is there.
    abandoned: BTreeSet<Arc<str>>,
}

impl Words {
    /// Call it before those who ask what is accepted.
    pub(super) fn saw(&mut self, book: &Book, bulkhead: &Bulkhead, seen: &Seen<'_>, findings: &mut Findings) {
        if !seen.on_manager {
            return;
        }
        if seen.is_workload() {
            self.follow(seen);
        } else if [CLUSTERS, CONFIGS].contains(&&*seen.place.resource) {
            for cluster in &book.rules.workers {
                self.look(book, bulkhead, cluster, seen.now, findings);
            }
        }
    }

    /// Whether the word about a cluster stands.
    pub(super) fn stands(&self, cluster: &str) -> bool {
        self.given.contains_key(cluster)
    }

    /// Whether a run on a cluster was let go because an administrator said that it is lost.
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
        let object = book.object(&book.rules.manager, CLUSTERS, "", cluster);
        let before = self.stands.get(&name).copied().unwrap_or_default();
        let stand = Stand {
            listed: book.is_in_config(cluster),
            registered: object.is_some_and(|object| !is_deleting(object)),
            // Why as before when it is gone: nothing is said of it any more.
            lost: object.map_or(before.lost, |object| !is_true(object, "Active")),
        };
        self.stands.insert(name.clone(), stand);
        if object.is_none() && before.lost {
            self.abandoned.insert(name.clone());
        } else if object.is_some() {
            self.abandoned.remove(&name);
        }
        let takes_away = (before.listed && !stand.listed) || (before.registered && !stand.registered);
        if !stand.lost || (stand.listed && stand.registered) {
            self.judge(book, bulkhead, cluster, now, findings);
            self.given.remove(&name);
        } else if before.lost && takes_away {
            self.given.entry(name).or_insert(now);
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

    /// The word about a cluster is over, or all is: who was there when it was given must have been let go in time.
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
        let lost_after = book.rules.lost_after;
        let due = *given + lost_after + lost_after / 5 + ALLOWANCE;
        if now < due || !bulkhead.is_calm(book, &book.rules.manager, *given) {
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
                findings.about("multikueue 4.5", case, what);
            }
        }
    }

    pub(super) fn at_rest(&self, book: &Book, bulkhead: &Bulkhead, now: Timestamp, findings: &mut Findings) {
        for cluster in &book.rules.workers {
            self.judge(book, bulkhead, cluster, now, findings);
        }
    }
}
