//! Counting the pods of one Job.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{BACKOFF, BACKOFF_MAX, CREATE_MAX, is_tracked, template, uncounted};
use crate::action::Action;
use crate::play::{has_ended, is_ready};

/// The pods of one Job, by state.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    pods: &'a [&'a Arc<Pod>],
    /// Pods that have not ended and are not being deleted.
    pub(super) active: Vec<Arc<Pod>>,
    ready: i32,
    /// Pods that are being deleted and have not ended.
    terminating: i32,
    /// Pods that succeeded (indexes, if they count), old and new, counted or not.
    pub(super) succeeded: i32,
    /// Pods that failed, old and new, counted or not.
    pub(super) failed: i32,
    /// Which indexes are done; `None` if indexes do not count.
    done: Option<BTreeSet<i32>>,
    /// Pods that the status already counts: failed, succeeded.
    counted: (i32, i32),
    /// UIDs that wait to be counted, old and new: failed, succeeded.
    waiting: (BTreeSet<String>, BTreeSet<String>),
    /// Pods that the status has recorded, so they may lose their finalizer.
    known: Vec<Arc<Pod>>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(spec: &JobSpec, status: &JobStatus, pods: &'a [&'a Arc<Pod>]) -> Self {
        let only_ended = spec.pod_replacement_policy.as_deref() == Some("Failed");
        let indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let before = indexed.then(|| template::parse_indexes(status.completed_indexes.as_deref()));
        let mut tally = Self {
            pods,
            active: Vec::new(),
            ready: 0,
            terminating: 0,
            succeeded: 0,
            failed: 0,
            done: before.clone(),
            counted: (status.failed.unwrap_or(0), status.succeeded.unwrap_or(0)),
            waiting: (BTreeSet::new(), BTreeSet::new()),
            known: Vec::new(),
        };
        let (mut failed, mut succeeded) = uncounted(status);
        for pod in pods {
            let uid = pod.uid().unwrap_or_default();
            let deleting = pod.metadata.deletion_timestamp.is_some();
            let phase = phase(pod);
            if !has_ended(pod) && !deleting {
                tally.active.push(Arc::clone(pod));
                tally.ready += i32::from(is_ready(pod));
            } else if !has_ended(pod) {
                tally.terminating += 1;
            }
            if !is_tracked(pod) {
                continue;
            }
            let has_failed = phase == "Failed" || deleting && phase != "Succeeded" && !only_ended;
            if failed.remove(&uid) {
                tally.waiting.0.insert(uid);
                tally.known.push(Arc::clone(pod));
            } else if succeeded.remove(&uid) {
                tally.waiting.1.insert(uid);
                tally.known.push(Arc::clone(pod));
            } else if has_failed {
                tally.waiting.0.insert(uid);
            } else if phase == "Succeeded" {
                match (template::index(pod), &before, &mut tally.done) {
                    // Wire: an index is counted at once, because counting it twice changes nothing.
                    (Some(index), Some(before), Some(done)) => {
                        if before.contains(&index) {
                            tally.known.push(Arc::clone(pod));
                        } else {
                            done.insert(index);
                        }
                    }
                    _ => drop(tally.waiting.1.insert(uid)),
                }
            }
        }
        // The remaining UIDs belong to pods that were removed or have lost their finalizer, so the status can count them.
        tally.counted.0 += count(failed.len());
        tally.counted.1 += count(succeeded.len());
        if let Some(done) = &tally.done {
            tally.counted.1 = count(done.len());
        }
        tally.failed = tally.counted.0 + count(tally.waiting.0.len());
        tally.succeeded = tally.counted.1 + count(tally.waiting.1.len());
        tally
    }

    pub(super) fn counted(&self, status: &JobStatus) -> JobStatus {
        let some = |number: i32| (number > 0).then_some(number);
        let list = |set: &BTreeSet<String>| (!set.is_empty()).then(|| set.iter().cloned().collect());
        JobStatus {
            active: some(count(self.active.len())),
            ready: Some(self.ready),
            terminating: Some(self.terminating),
            failed: some(self.counted.0),
            succeeded: some(self.counted.1),
            completed_indexes: self.done.as_ref().and_then(template::render_indexes),
            uncounted_terminated_pods: Some(UncountedTerminatedPods {
                failed: list(&self.waiting.0),
                succeeded: list(&self.waiting.1),
            }),
            ..status.clone()
        }
    }

    /// Removes the finalizers of pods that the status has recorded.
    pub(super) fn releases(&self) -> Vec<Action> {
        self.known
            .iter()
            .map(|pod| Action::ReleasePod(Arc::clone(pod)))
            .collect()
    }

    /// Whether no pod of the Job runs and all pods are counted.
    pub(super) fn is_settled(&self) -> bool {
        self.active.is_empty()
            && self.terminating == 0
            && self.known.is_empty()
            && self.waiting.0.is_empty()
            && self.waiting.1.is_empty()
    }

    pub(super) fn is_complete(&self, spec: &JobSpec) -> bool {
        let enough = match spec.completions {
            Some(wanted) => self.succeeded >= wanted,
            // A Job without a number is done when one pod succeeded and the others have ended.
            None => self.succeeded > 0,
        };
        enough && self.active.is_empty()
    }

    /// Creates or deletes pods until the wanted number runs; or returns when it may create them.
    pub(super) fn manage(
        &self,
        job: &Job,
        spec: &JobSpec,
        now: Timestamp,
    ) -> (Vec<Action>, Option<Timestamp>) {
        let parallelism = spec.parallelism.unwrap_or(1);
        let active = count(self.active.len());
        let wanted = match spec.completions {
            Some(wanted) => (wanted - self.succeeded).clamp(0, parallelism),
            None if self.succeeded > 0 => active.min(parallelism),
            None => parallelism,
        };
        if active > wanted {
            let mut extra = self.active.clone();
            // Pods with the least progress are deleted first.
            extra.sort_by_key(|pod| {
                (
                    is_ready(pod),
                    std::cmp::Reverse(pod.creation_timestamp()),
                    pod.name_any(),
                )
            });
            let surplus = usize::try_from(active - wanted).unwrap_or(0);
            let actions = extra.into_iter().take(surplus).map(Action::DropPod).collect();
            return (actions, None);
        }
        let only_ended = spec.pod_replacement_policy.as_deref() == Some("Failed");
        let room = wanted - active - if only_ended { self.terminating } else { 0 };
        if room <= 0 {
            return (Vec::new(), None);
        }
        let ready_at = self.backoff();
        if ready_at.is_some_and(|at| at > now) {
            return (Vec::new(), ready_at);
        }
        let room = room.min(CREATE_MAX);
        let pods: Vec<Pod> = match &self.done {
            Some(done) => {
                let busy: BTreeSet<i32> = self
                    .active
                    .iter()
                    .filter_map(|pod| template::index(pod))
                    .collect();
                let free = (0..spec.completions.unwrap_or(0))
                    .filter(|index| !done.contains(index) && !busy.contains(index));
                free.take(usize::try_from(room).unwrap_or(0))
                    .map(|index| template::pod(job, spec, Some(index)))
                    .collect()
            }
            None => (0..room).map(|_| template::pod(job, spec, None)).collect(),
        };
        let actions = pods.into_iter().map(|pod| Action::CreatePod(Box::new(pod)));
        (actions.collect(), None)
    }

    /// When the next pod may be created after failures in a row; `None`: at once.
    fn backoff(&self) -> Option<Timestamp> {
        let ended = |pod: &&&Arc<Pod>, wanted: &str| phase(pod) == wanted;
        let last_success = self
            .pods
            .iter()
            .filter(|pod| ended(pod, "Succeeded"))
            .map(|pod| end(pod))
            .max();
        // Why not deleted pods: the user or another controller deleted them, so their failure is not the job's.
        let failures: Vec<Timestamp> = self
            .pods
            .iter()
            .filter(|pod| ended(pod, "Failed") && pod.metadata.deletion_timestamp.is_none())
            .map(|pod| end(pod))
            .filter(|at| last_success.is_none_or(|success| *at > success))
            .collect();
        let doublings = u32::try_from(failures.len()).unwrap_or(u32::MAX).checked_sub(1)?;
        let pause = 2_i32
            .checked_pow(doublings)
            .and_then(|times| BACKOFF.checked_mul(times))
            .map_or(BACKOFF_MAX, |pause| pause.min(BACKOFF_MAX));
        failures.into_iter().max()?.saturating_add(pause).ok()
    }
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// When a pod's last container ended.
fn end(pod: &Pod) -> Timestamp {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|each| each.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let created = || pod.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
    ends.map(|time| time.0).max().unwrap_or_else(created)
}
