//! I1: a job runs on one cluster at a time. I11: it ends once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_api::constants::finalizers;
use roadstead_apiserver::RESTORER;
use serde_json::Value;

use super::Findings;
use super::book::{Actor, Book, Name, Place, Run, Seen};
use super::guard::Guards;
use super::object::{
    End, controller, epoch, group, is_deleting, is_let_go, is_live_pod, is_true, job_end, list, uid,
    workload_end,
};
use super::word::Words;

/// A time in which one job was on several clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Namespace and name of the manager's Workload.
    pub subject: String,
    /// When the job began to run on a second cluster.
    pub from: Timestamp,
    /// When the job ran on one cluster only again.
    pub until: Timestamp,
}

/// A job that is on several clusters at once.
#[derive(Clone, Copy, Debug)]
struct Double {
    from: Timestamp,
    /// Whether the policy or an excuse (a backup, a given-up run) allows this overlap.
    accepted: bool,
    /// Whether an administrator gave up all but one of the runs.
    given_up: bool,
}

/// The auditor of I1: the pods, and the jobs that may have pods, by Workload and cluster. Why not by UID too: a Workload that is
/// deleted and created again belongs to the same job, and the job must not run twice.
#[derive(Default)]
pub(super) struct Single {
    live: BTreeMap<Name, BTreeMap<Arc<str>, BTreeSet<Place>>>,
    double: BTreeMap<Name, Double>,
    /// UIDs of objects that a restore brought back or removed. No process is at fault for them: a controller that has not seen the
    /// restore yet may create pods for a removed job.
    revived: BTreeSet<Arc<str>>,
    /// Objects whose UID, or whose controller's UID, is in `revived`.
    ghosts: BTreeSet<Place>,
    overlaps: Vec<Overlap>,
}

impl Single {
    pub(super) fn saw(
        &mut self,
        book: &Book,
        (guards, words): (&Guards, &Words),
        seen: &Seen<'_>,
        findings: &mut Findings,
    ) {
        let Some(case) = seen.case().filter(|_| !seen.is_workload()) else {
            return;
        };
        let live = match seen.after() {
            None => false,
            Some(pod) if seen.is_pod() => is_live_pod(pod),
            // Why not on the manager: its job only mirrors the job that runs on a worker, and has no pods.
            Some(job) => !seen.on_manager && is_let_go(job),
        };
        if *seen.change.user == *RESTORER {
            let both = [seen.before(), seen.after()];
            self.revived
                .extend(both.into_iter().flatten().map(|object| Arc::from(uid(object))));
        }
        if let Some(object) = seen.after() {
            if self.revived.contains(uid(object)) || self.revived.contains(controller(object)) {
                self.ghosts.insert(seen.place.clone());
            } else {
                self.ghosts.remove(&seen.place);
            }
        }
        let clusters = self.live.entry(case.clone()).or_default();
        let there = clusters.entry(seen.place.cluster.clone()).or_default();
        if live {
            there.insert(seen.place.clone());
        } else {
            there.remove(&seen.place);
            if there.is_empty() {
                clusters.remove(&seen.place.cluster);
            }
        }
        if clusters.len() < 2 {
            if let Some(double) = self.double.remove(case) {
                self.overlaps.push(Overlap {
                    subject: case.to_string(),
                    from: double.from,
                    until: seen.now,
                });
            }
            return;
        }
        let counted = clusters.keys().filter(|cluster| !words.released(case, cluster));
        let given_up = counted.count() < 2;
        let judge = || {
            let mut others = clusters.keys().filter(|cluster| **cluster != seen.place.cluster);
            let haunted = clusters
                .values()
                .flatten()
                .any(|place| self.ghosts.contains(place));
            let accepted = match book.policy(case) {
                _ if haunted || given_up => true,
                WorkerLostPolicy::Wait => false,
                WorkerLostPolicy::RetryAnyway => true,
                WorkerLostPolicy::Fence => {
                    others.any(|cluster| guards.was_hindered(cluster, book.rules.lease, seen.now))
                }
            };
            Double {
                from: seen.now,
                accepted,
                given_up,
            }
        };
        let double = self.double.entry(case.clone()).or_insert_with(judge);
        // Why judge again: beside the given-up run a further run may begin that was not given up.
        if double.given_up && !given_up {
            *double = Double {
                from: double.from,
                ..judge()
            };
        }
        if !double.accepted {
            findings.about("I1", case, said(clusters));
        }
    }

    /// An overlap that does not end breaks I1 under every policy.
    pub(super) fn at_rest(&self, findings: &mut Findings) {
        for case in self.double.keys() {
            findings.about("I1", case, format!("still {}", said(&self.live[case])));
        }
    }

    pub(super) fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }
}

/// Whether a job belongs to an earlier dispatch than the present one. If a backup brings such a job back, its end does not count:
/// the manager ignores it.
fn is_of_the_past(book: &Book, run: &Run, job: &Value) -> bool {
    let now = book.local(&run.case).and_then(|workload| epoch(workload));
    matches!((epoch(job), now), (Some(then), Some(now)) if then < now)
}

fn said(clusters: &BTreeMap<Arc<str>, BTreeSet<Place>>) -> String {
    let all: Vec<String> = clusters.values().flatten().map(ToString::to_string).collect();
    format!("live on {} clusters at once: {}", clusters.len(), all.join(", "))
}

/// Where and when a job ended, and in which dispatch.
struct Ended {
    on: Arc<str>,
    at: Timestamp,
    epoch: Option<u64>,
}

impl Ended {
    /// Whether an administrator gave up this run. Why also by dispatch: the job may be sent to the same cluster again later.
    fn was_given_up(&self, run: &Run, words: &Words) -> bool {
        words.released(&run.case, &self.on) || words.was_given_up(&run.case, &self.on, self.epoch)
    }
}

/// Whether an administrator removed the manager's finalizer. It would have kept the job until the manager had read its end.
fn is_torn_off(seen: &Seen<'_>) -> bool {
    let holds = |job: &Value| {
        let held = list(job, &["metadata", "finalizers"]);
        held.iter().any(|one| one == finalizers::OUTCOME)
    };
    let off = seen.both().is_some_and(|(old, new)| holds(old) && !holds(new));
    off && matches!(seen.by, Actor::Other)
}

/// The auditor of I11: how often the Workload ended, and where its job ended.
#[derive(Default)]
pub(super) struct Outcomes {
    endings: BTreeMap<Run, u32>,
    ended: BTreeMap<Run, Ended>,
    /// UIDs of jobs that a backup brought back. Their new start breaks no rule.
    revived: BTreeSet<Arc<str>>,
    /// UIDs of jobs that failed because they were being deleted.
    killed: BTreeSet<Arc<str>>,
    /// UIDs of jobs whose finalizer of the manager an administrator removed.
    torn: BTreeSet<Arc<str>>,
}

impl Outcomes {
    pub(super) fn saw(&mut self, book: &Book, words: &Words, seen: &Seen<'_>, findings: &mut Findings) {
        let Some(run) = &seen.run else {
            return;
        };
        let restored = *seen.change.user == *RESTORER;
        let torn = is_torn_off(seen);
        if (restored || torn) && !seen.on_manager && seen.is_job() {
            self.forget_end(book, seen, run);
        }
        let Some(new) = seen.after() else {
            return;
        };
        if restored {
            self.revived.insert(uid(new).into());
        }
        if torn {
            self.torn.insert(uid(new).into());
        }
        if seen.on_manager && seen.is_workload() {
            let ended_before = seen.both().is_some_and(|(old, _)| is_true(old, "Finished"));
            if is_true(new, "Finished") && !ended_before {
                let endings = self.endings.entry(run.clone()).or_default();
                *endings += 1;
                if *endings > 1 {
                    findings.about("I11", &run.case, format!("it became Finished {endings} times"));
                }
            }
        } else if !seen.on_manager && seen.is_job() {
            let before = seen.both().map(|(old, _)| old);
            if let Some(end) = job_end(new) {
                let was_sent_here = book.cases[&run.case].named.contains(&seen.place.cluster);
                // Why: a foreground deletion ends the pods first, and the job counts them as failed until it is gone. That is not
                // the outcome of the job.
                if before.is_some_and(|old| is_deleting(old) && job_end(old).is_none()) {
                    self.killed.insert(uid(new).into());
                }
                let is_killed = self.killed.contains(uid(new));
                let is_past = self.revived.contains(uid(new)) && is_of_the_past(book, run, new);
                let is_past = is_past || self.torn.contains(uid(new));
                if was_sent_here && !is_past && !(end == End::Failed && is_killed) {
                    if { self.ended.get(run) }.is_some_and(|ended| ended.was_given_up(run, words)) {
                        self.ended.remove(run);
                    }
                    let ended = || Ended {
                        on: seen.place.cluster.clone(),
                        at: seen.now,
                        epoch: epoch(new),
                    };
                    self.ended.entry(run.clone()).or_insert_with(ended);
                }
            } else if is_let_go(new)
                && !before.is_some_and(is_let_go)
                // Why: a job that is being deleted gets no pods, even if a worker that has not seen the deletion yet unsuspends
                // it.
                && !is_deleting(new)
                && !self.revived.contains(uid(new))
            {
                self.judge_start((book, words), seen, run, findings);
            }
        }
    }

    /// Forgets the end of a job after a restore or a forced deletion, unless the manager shows that end: it is stored nowhere else.
    fn forget_end(&mut self, book: &Book, seen: &Seen<'_>, run: &Run) {
        let ended_here = self
            .ended
            .get(run)
            .is_some_and(|ended| ended.on == seen.place.cluster);
        let shown = || {
            let mut jobs = book
                .local_jobs()
                .filter(|(place, job)| book.run_at(place, job) == Some(run));
            jobs.any(|(_, job)| job_end(job).is_some())
        };
        if ended_here && seen.before().is_some_and(|old| job_end(old).is_some()) && !shown() {
            self.ended.remove(run);
        }
    }

    /// Judges a job that is let go: it must not have ended before.
    fn judge_start(
        &self,
        (book, words): (&Book, &Words),
        seen: &Seen<'_>,
        run: &Run,
        findings: &mut Findings,
    ) {
        let cluster = &seen.place.cluster;
        // Why only with an outcome: the Workload of a deleted job is Finished without one. A copy of the job that starts at the
        // same moment contradicts nothing.
        if { book.local(&run.case) }.is_some_and(|w| workload_end(w).is_some()) {
            let what = format!("its job is let go on {cluster} after the Workload is Finished");
            findings.about("I11", &run.case, what);
        }
        // Why Wait only: under the other policies the manager may start the job again before it has read the end.
        let Some(ended) = self
            .ended
            .get(run)
            .filter(|_| book.policy(&run.case) == WorkerLostPolicy::Wait)
        else {
            return;
        };
        if !ended.was_given_up(run, words) {
            let Ended { on, at, .. } = ended;
            let what = format!("its job ended on {on} at {at} and runs again on {cluster}");
            findings.about("I11", &run.case, what);
        }
    }

    /// At rest the job and its Workload on the manager show the same end.
    pub(super) fn at_rest(book: &Book, findings: &mut Findings) {
        for (place, job) in book.local_jobs() {
            let Some((case, workload)) = book.workload_of(place, job) else {
                continue;
            };
            // Why not pods of a group: the group succeeds if one of its pods does, so another pod may have failed.
            if let (Some(shown), Some(told)) = (job_end(job), workload_end(workload))
                && shown != told
                && group(job).is_empty()
            {
                let what = format!("the job says {shown:?} and its Workload {told:?}");
                findings.about("I11", case, what);
            }
        }
    }
}
