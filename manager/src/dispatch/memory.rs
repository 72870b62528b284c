//! What the manager remembers of a Workload between passes: which workers failed, when the present round began, which deletions
//! were requested, and which of them were refused.
//!
//! Invariant: a failure removes one candidate for a while, never the Workload. The memory is lost at a restart, which costs one
//! more try. At most [`MAX`] Workloads are remembered, apart from rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use roadstead_core::dispatch::{Cause, Failure, Waiting};
use roadstead_core::moment::later;
use roadstead_core::name::{ClusterName, Key};
use roadstead_kubeio::cache::Change;

/// How long a worker is excluded after its first failure, and the longest exclusion. The time doubles with each failure.
const PAUSE: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(10), SignedDuration::from_mins(10));
/// A worker that was a candidate for so long without a failure, for example because the job ran there, begins with the first pause again.
/// Why not after each run: a job that a worker preempts soon after every start would return to it each time after ten seconds.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// Longest exclusion of a worker that lacks an object that the job names: looking again is cheap, and the user waits for it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// Workloads remembered at most.
const MAX: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    failures: Mutex<BTreeMap<Key, Failures>>,
    /// When the round under way began; one entry per Workload that is being offered.
    rounds: Mutex<BTreeMap<Key, Timestamp>>,
    /// The highest dispatch number that was seen on a copy, for each Workload whose present number is lower.
    highest: Mutex<BTreeMap<Key, u64>>,
    /// The texts with which clusters refused to stop or delete an object.
    refusals: Mutex<BTreeMap<Key, BTreeMap<ClusterName, String>>>,
    /// UIDs of the objects whose deletion was requested: jobs that are deleted after their pods, and Workloads until the request
    /// is answered.
    going: Mutex<BTreeMap<Key, BTreeSet<String>>>,
}

/// What each cluster failed in for one Workload.
type Failures = BTreeMap<ClusterName, Failed>;

#[derive(Debug)]
struct Failed {
    /// How often the cluster failed the Workload.
    times: u32,
    last: Failure,
    /// Whether that failure is over before its time. Its number is kept: the next failure pauses longer.
    is_mended: bool,
}

/// What is remembered of a Workload; another one is forgotten if there are too many.
fn entry<'a, T: Default>(all: &'a mut BTreeMap<Key, T>, key: &Key) -> &'a mut T {
    if all.len() >= MAX && !all.contains_key(key) {
        all.pop_first();
    }
    all.entry(key.clone()).or_default()
}

fn forget<T>(all: &Mutex<BTreeMap<Key, T>>, key: &Key) {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.remove(key);
}

impl Memory {
    /// Remembers a failure, unless that cluster is excluded for the same cause already. Returns whether it was remembered.
    pub(crate) fn failed(
        &self,
        key: &Key,
        cluster: &ClusterName,
        cause: Cause,
        detail: String,
        now: Timestamp,
    ) -> bool {
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let by_cluster = entry(&mut all, key);
        let times = match by_cluster.get(cluster) {
            Some(Failed { last, .. }) if last.until > now && last.cause == cause => return false,
            Some(Failed { times, last, .. }) if now < later(last.until, FORGIVEN_AFTER) => {
                times.saturating_add(1)
            }
            Some(_) | None => 1,
        };
        let longest = if cause == Cause::DependencyMissing {
            LOOK_AGAIN
        } else {
            PAUSE.1
        };
        let pause = PAUSE.0.saturating_mul(1 << (times - 1).min(10)).min(longest);
        let until = later(now, pause);
        let last = Failure { until, cause, detail };
        tracing::info!(workload = %key, %cluster, reason = cause.as_str(), next_try = %until, "no candidate for now: {}", told(cluster, &last));
        let is_mended = false;
        by_cluster.insert(
            cluster.clone(),
            Failed {
                times,
                last,
                is_mended,
            },
        );
        true
    }

    /// Remembers that a cluster has by now what it lacked for a Workload, so that it is a candidate again.
    pub(crate) fn found(&self, key: &Key, cluster: &ClusterName) {
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = all.get_mut(key).and_then(|by| by.get_mut(cluster));
        if let Some(failed) = failed.filter(|failed| failed.last.cause == Cause::DependencyMissing) {
            failed.is_mended = true;
        }
    }

    /// When the round under way began for a Workload.
    pub(crate) fn round(&self, key: &Key) -> Option<Timestamp> {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.get(key).copied()
    }

    /// Remembers when the present round began; `None` when the Workload is not being offered.
    pub(crate) fn remember_round(&self, key: &Key, begun: Option<Timestamp>) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        match begun {
            Some(begun) => rounds.insert(key.clone(), begun),
            None => rounds.remove(key),
        };
    }

    /// The highest dispatch number that was seen on a copy of a Workload, if it was above the Workload's own; else 0.
    pub(crate) fn highest(&self, key: &Key) -> u64 {
        let highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        highest.get(key).copied().unwrap_or_default()
    }

    pub(crate) fn remember_highest(&self, key: &Key, seen: u64) {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entry(&mut highest, key);
        *known = seen.max(*known);
    }

    /// Remembers the text with which a cluster refused to stop or delete an object. Returns whether it is the first refusal. Why
    /// a new text does not count: a cluster that refuses with another text each time would make the Workload due without end.
    pub(crate) fn refused(&self, key: &Key, cluster: &ClusterName, words: &str) -> bool {
        let mut all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let by_cluster = entry(&mut all, key);
        by_cluster.insert(cluster.clone(), words.to_owned()).is_none()
    }

    /// Forgets the refusals of a cluster, because it has accepted a stop or a deletion.
    pub(crate) fn granted(&self, key: &Key, cluster: &ClusterName) {
        self.forget_refusals(key, |one| one == cluster);
    }

    /// Forgets the refusals of the clusters for which `is_over` holds.
    pub(crate) fn forget_refusals(&self, key: &Key, is_over: impl Fn(&ClusterName) -> bool) {
        let mut all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(by_cluster) = all.get_mut(key) {
            by_cluster.retain(|cluster, _| !is_over(cluster));
            if by_cluster.is_empty() {
                all.remove(key);
            }
        }
    }

    /// The texts with which clusters refused to stop or delete an object of a Workload, if they have not accepted it since.
    pub(crate) fn refusals(&self, key: &Key) -> BTreeMap<ClusterName, String> {
        let all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned().unwrap_or_default()
    }

    /// Remembers that the deletion of an object was requested; of a job, its deletion after its pods.
    pub(crate) fn asked_to_go(&self, key: &Key, uid: &str) {
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        entry(&mut going, key).insert(uid.to_owned());
    }

    /// Forgets a requested deletion: the object is gone, or the cache shows its deletion.
    pub(crate) fn goes(&self, key: &Key, uid: &str) {
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uids) = going.get_mut(key) {
            uids.remove(uid);
            if uids.is_empty() {
                going.remove(key);
            }
        }
    }

    /// Forgets a requested deletion if this change shows that the object is gone. Why: the pass that lets an object go does not
    /// always see its end, and the Workload may have been forgotten before.
    pub(crate) fn note_gone<K: Resource>(&self, key: Option<&Key>, change: &Change<'_, K>) {
        let uid = |object: &Arc<K>| object.meta().uid.clone();
        let before = change.old.and_then(uid);
        if let Some((key, before)) = key.zip(before)
            && change.new.and_then(uid).as_ref() != Some(&before)
        {
            self.goes(key, &before);
        }
    }

    /// Whether the deletion of an object was requested.
    pub(crate) fn was_asked_to_go(&self, key: &Key, uid: &str) -> bool {
        let going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        going.get(key).is_some_and(|uids| uids.contains(uid))
    }

    pub(crate) fn of(&self, key: &Key) -> BTreeMap<ClusterName, Failure> {
        let all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        { all.get(key).into_iter().flatten() }
            .filter(|(_, failed)| !failed.is_mended)
            .map(|(cluster, failed)| (cluster.clone(), failed.last.clone()))
            .collect()
    }

    pub(crate) fn forget(&self, key: &Key) {
        forget(&self.failures, key);
        forget(&self.rounds, key);
        forget(&self.highest, key);
        forget(&self.refusals, key);
        forget(&self.going, key);
    }
}

/// What happened and what to do: the same text that a Workload shows when it waits for this reason.
fn told(cluster: &ClusterName, failure: &Failure) -> String {
    let waiting = Waiting::ClusterFailed {
        cluster: cluster.clone(),
        cause: failure.cause,
        detail: failure.detail.clone(),
    };
    format!("{waiting}; {}", waiting.next_step())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::{SignedDuration, Timestamp};
    use roadstead_api::kueue::v1beta2::Workload;
    use roadstead_core::dispatch::{Cause, Failure};
    use roadstead_core::name::{ClusterName, Key};
    use roadstead_kubeio::cache::Change;

    use super::{Memory, told};

    #[test]
    fn a_failure_without_words_of_the_other_side_says_what_happened_and_what_to_do() {
        let failure = Failure {
            until: Timestamp::UNIX_EPOCH,
            cause: Cause::Outdated,
            detail: String::new(),
        };
        let told = told(&"east".into(), &failure);
        assert!(
            told.starts_with("cluster \"east\" shows a copy from an earlier dispatch"),
            "{told}"
        );
        assert!(told.contains("restored from a backup"), "{told}");
    }

    #[test]
    fn a_refusal_is_told_until_the_deletion_is_granted_or_the_workload_is_gone() {
        let (memory, key, east) = (Memory::default(), Key::new("ns", "w"), ClusterName::from("east"));
        assert!(memory.refused(&key, &east, "no"));
        assert!(!memory.refused(&key, &east, "never"), "that it refuses is known");
        assert_eq!(memory.refusals(&key)[&east], "never");
        memory.granted(&key, &east);
        assert!(memory.refusals(&key).is_empty());
        memory.refused(&key, &east, "no");
        memory.forget_refusals(&key, |cluster| *cluster != east);
        assert_eq!(memory.refusals(&key)[&east], "no");
        memory.forget_refusals(&key, |cluster| *cluster == east);
        assert!(memory.refusals(&key).is_empty());
        memory.refused(&key, &east, "no");
        memory.forget(&key);
        assert!(memory.refusals(&key).is_empty());
    }

    #[test]
    fn what_was_asked_to_go_is_remembered_until_it_goes() {
        let (memory, key) = (Memory::default(), Key::new("ns", "w"));
        for uid in ["copy", "job"] {
            memory.asked_to_go(&key, uid);
        }
        memory.goes(&key, "copy");
        assert!(!memory.was_asked_to_go(&key, "copy") && memory.was_asked_to_go(&key, "job"));
        memory.goes(&key, "job");
        assert!(!memory.was_asked_to_go(&key, "job"));
    }

    /// This holds even if the Workload was forgotten before its job was gone.
    #[test]
    fn what_is_seen_gone_or_replaced_is_no_longer_remembered() {
        let (memory, key) = (Memory::default(), Key::new("ns", "w"));
        let workload = |uid: &str| {
            let mut workload = Workload::default();
            workload.metadata.uid = Some(uid.to_owned());
            Arc::new(workload)
        };
        let (old, next) = (workload("old"), workload("next"));
        let told = |new| {
            let old = Some(&old);
            memory.note_gone(Some(&key), &Change { key: &key, old, new });
            memory.was_asked_to_go(&key, "old")
        };
        memory.forget(&key);
        memory.asked_to_go(&key, "old");
        assert!(told(Some(&old)), "it has only changed");
        assert!(!told(None));
        memory.asked_to_go(&key, "old");
        assert!(!told(Some(&next)));
        assert!(memory.going.into_inner().unwrap().is_empty());
    }

    /// Spec: multikueue 11.51
    #[test]
    fn the_begin_of_a_round_is_forgotten_with_the_offer_and_with_the_workload() {
        let (memory, key, begun) = (Memory::default(), Key::new("ns", "w"), Timestamp::UNIX_EPOCH);
        memory.remember_round(&key, Some(begun));
        assert_eq!(memory.round(&key), Some(begun));
        memory.remember_round(&key, None);
        assert_eq!(memory.round(&key), None);
        memory.remember_round(&key, Some(begun));
        memory.forget(&key);
        assert_eq!(memory.round(&key), None);
    }

    /// Spec: safety F15
    #[test]
    fn the_highest_number_that_was_seen_is_remembered_until_the_workload_is_gone() {
        let (memory, key) = (Memory::default(), Key::new("ns", "w"));
        assert_eq!(memory.highest(&key), 0);
        memory.remember_highest(&key, 9);
        memory.remember_highest(&key, 4);
        assert_eq!(memory.highest(&key), 9);
        memory.forget(&key);
        assert_eq!(memory.highest(&key), 0);
    }

    #[test]
    fn the_pause_grows_with_each_failure_and_only_for_that_cluster() {
        let (memory, key, east) = (Memory::default(), Key::new("ns", "w"), ClusterName::from("east"));
        let start = Timestamp::UNIX_EPOCH;
        memory.failed(&key, &east, Cause::NameConflict, String::new(), start);
        let first = memory.of(&key)[&east].until;
        assert_eq!(first, start + SignedDuration::from_secs(10));
        memory.failed(&key, &east, Cause::NameConflict, String::new(), start);
        assert_eq!(
            memory.of(&key)[&east].until,
            first,
            "the same failure again changes nothing"
        );
        memory.failed(&key, &east, Cause::NameConflict, String::new(), first);
        assert_eq!(
            memory.of(&key)[&east].until,
            first + SignedDuration::from_secs(20)
        );
        assert_eq!(memory.of(&key).len(), 1);
        memory.forget(&key);
        assert!(memory.of(&key).is_empty());
    }

    /// Spec: experience 5
    #[test]
    fn a_cluster_that_has_what_it_lacked_is_a_candidate_and_its_next_failure_pauses_longer() {
        let (memory, key, east) = (Memory::default(), Key::new("ns", "w"), ClusterName::from("east"));
        let start = Timestamp::UNIX_EPOCH;
        let lacks = |now| memory.failed(&key, &east, Cause::DependencyMissing, "Secret".to_owned(), now);
        lacks(start);
        memory.found(&key, &east);
        assert!(memory.of(&key).is_empty());
        let again = start + SignedDuration::from_secs(10);
        assert!(lacks(again));
        let next = memory.of(&key)[&east].until;
        assert_eq!(next, again + SignedDuration::from_secs(20));
        memory.failed(&key, &east, Cause::NameConflict, String::new(), next);
        memory.found(&key, &east);
        assert_eq!(memory.of(&key).len(), 1, "another failure stays");
    }

    /// Spec: multikueue 3.7
    #[test]
    fn the_pause_begins_anew_after_an_hour_as_a_candidate_without_a_failure() {
        let (memory, key, east) = (Memory::default(), Key::new("ns", "w"), ClusterName::from("east"));
        let fails_at = |now: Timestamp| {
            memory.failed(&key, &east, Cause::Evicted, String::new(), now);
            let until = memory.of(&key)[&east].until;
            (until, until.duration_since(now).as_secs())
        };
        let (until, pause) = fails_at(Timestamp::UNIX_EPOCH);
        assert_eq!(pause, 10);
        let (until, pause) = fails_at(until + SignedDuration::from_mins(59));
        assert_eq!(pause, 20);
        let (until, pause) = fails_at(until + SignedDuration::from_mins(60));
        assert_eq!(pause, 10);
        assert_eq!(fails_at(until).1, 20);
    }
}
