//! Where a process plugs in the admission checks it is responsible for: the manager dispatches, the worker provisions.
//!
//! Invariant: a check never writes a Workload. It changes the status that is being composed, in memory, and returns what is to be
//! done once that status is stored.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::{Key, PodSetName};
use roadstead_core::note::Note;
use roadstead_core::status::Status;
use roadstead_core::workload::Workload;
use roadstead_kubeio::failure::Failure;

use crate::caches::{CachedJob, JobKey};

/// One pass over one Workload.
pub struct Pass<'a> {
    /// The Workload as it is stored.
    pub stored: &'a ApiWorkload,
    /// The same, parsed. Its `status` is the stored one.
    pub workload: &'a Workload,
}

/// Work to do after the status was stored; an error is logged and the pass is retried.
pub type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// What a check wants beside the changed status.
#[derive(Default)]
pub struct Follow {
    /// Events to emit once the status is stored.
    pub notes: Vec<Note>,
    /// When to run the next pass even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// What to do once the status is stored.
    pub work: Option<Work>,
    /// Annotations to put on the Workload before the status is stored.
    pub annotate: Vec<(&'static str, String)>,
    /// Whether the job is known to be at rest, whatever its own status says.
    pub rest: Rest,
}

/// Whether a job that is to stop has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// Only the job's own status shows it.
    #[default]
    AskTheJob,
    /// No pod of it runs or can start anywhere, even if its last mirrored status still counts pods.
    Certain,
}

impl Follow {
    /// Joins the wishes of two checks.
    fn and(mut self, mut other: Self) -> Self {
        self.notes.append(&mut other.notes);
        self.annotate.append(&mut other.annotate);
        self.wake_at = [self.wake_at, other.wake_at].into_iter().flatten().min();
        if other.rest == Rest::Certain {
            self.rest = Rest::Certain;
        }
        self.work = match (self.work.take(), other.work.take()) {
            (Some(first), Some(second)) => Some(Box::pin(async move {
                // Why both are run: the work of one check must not depend on the success of the other.
                let done = first.await;
                second.await.and(done)
            })),
            (first, second) => first.or(second),
        };
        self
    }
}

/// A part of a process that decides about Workloads, such as an admission check. Its defaults leave the decision to the other
/// parts.
pub trait Checks: Send + Sync {
    /// Looks at one Workload, changes `status` where its checks decide something, and returns what follows.
    fn plan(&self, _pass: &Pass<'_>, _status: &mut Status, _now: Timestamp) -> Follow {
        Follow::default()
    }

    /// The Workload is gone.
    fn gone(&self, _key: &Key) {}

    /// Called when this replica begins to lead, before anything is decided. The part must list again what its decisions read
    /// outside of the engine's caches, and decide nothing before that.
    fn catch_up(&self) {}

    /// Whether the job of this Workload may be started now. When the answer changes from no to yes, the part makes the job due
    /// again.
    fn may_start(&self, _workload: &ApiWorkload) -> bool {
        true
    }

    /// Whether the job may run in another cluster, whatever its own status shows: that cluster may be unreachable. Then the job
    /// is at rest only when [`Follow::rest`] is [`Rest::Certain`].
    fn may_run_elsewhere(&self, _workload: &ApiWorkload) -> bool {
        false
    }

    /// The state of a job that runs in another cluster; `None` when the job's own status counts.
    fn there(&self, _workload: &ApiWorkload) -> Option<There> {
        None
    }

    /// What the local job must show if the job runs in another cluster.
    fn runs_elsewhere(&self, _workload: &ApiWorkload, _job: &JobKey) -> Option<Elsewhere> {
        None
    }
}

/// All parts of this process that decide about Workloads, asked in this order. Each sees the status as the one before has left
/// it.
#[derive(Clone, Default)]
pub struct CheckList(Arc<[Arc<dyn Checks>]>);

impl CheckList {
    /// These, in this order.
    pub fn new(checks: Vec<Arc<dyn Checks>>) -> Self {
        Self(checks.into())
    }

    pub(crate) fn plan(&self, pass: &Pass<'_>, status: &mut Status, now: Timestamp) -> Follow {
        let plans = self.0.iter().map(|check| check.plan(pass, status, now));
        plans.fold(Follow::default(), Follow::and)
    }

    pub(crate) fn gone(&self, key: &Key) {
        self.0.iter().for_each(|check| check.gone(key));
    }

    pub(crate) fn catch_up(&self) {
        self.0.iter().for_each(|check| check.catch_up());
    }

    /// Whether all parts allow the job of this Workload to start.
    pub(crate) fn may_start(&self, workload: &ApiWorkload) -> bool {
        self.0.iter().all(|check| check.may_start(workload))
    }

    pub(crate) fn may_run_elsewhere(&self, workload: &ApiWorkload) -> bool {
        self.0.iter().any(|check| check.may_run_elsewhere(workload))
    }

    pub(crate) fn there(&self, workload: &ApiWorkload) -> Option<There> {
        self.0.iter().find_map(|check| check.there(workload))
    }

    pub(crate) fn runs_elsewhere(&self, workload: &ApiWorkload, job: &JobKey) -> Option<Elsewhere> {
        self.0
            .iter()
            .find_map(|check| check.runs_elsewhere(workload, job))
    }
}

/// The state of a job in another cluster, as far as the job's own status cannot show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// Its pods that are no longer needed, by pod set.
    pub reclaimable: BTreeMap<PodSetName, u32>,
    /// Whether all its pods are ready or have succeeded; `None`: its own status shows it.
    pub ready: Option<bool>,
    /// How it ended, if only its Workload says that and the local job shows everything that its copy showed; `None`: its own status shows
    /// its end.
    pub ended: Option<Outcome>,
}

/// A job that runs in another cluster.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its copy there, as last seen; `None` while there is none or the cluster cannot be reached.
    pub job: Option<CachedJob>,
    /// What is known of the job while there is no copy to read.
    pub fate: Fate,
    /// The node that stands for its cluster, if its objects are to be put on it.
    pub node: Option<String>,
}

/// What is known of a job that runs elsewhere when there is no copy to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The facts are being read again, so the answer comes soon: ask again.
    NotYet,
    /// It has no pods anywhere, whatever its last mirrored status counts, so the local job may be restored.
    AtRest,
    /// It ended as its Workload says, and its own last status is lost.
    Ended,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records what it sees, and fails afterwards if it is told to.
    struct Says {
        cluster: &'static str,
        wake_secs: i64,
        done: Arc<Mutex<Vec<&'static str>>>,
        answer: Result<(), &'static str>,
    }

    impl Checks for Says {
        fn plan(&self, _pass: &Pass<'_>, status: &mut Status, now: Timestamp) -> Follow {
            status.nominated.push(self.cluster.into());
            let (done, cluster, answer) = (self.done.clone(), self.cluster, self.answer);
            Follow {
                notes: vec![Note::normal(
                    self.cluster,
                    format!("{:?}", status.nominated.len()),
                )],
                wake_at: now
                    .checked_add(jiff::SignedDuration::from_secs(self.wake_secs))
                    .ok(),
                work: Some(Box::pin(async move {
                    done.lock().unwrap().push(cluster);
                    answer.map_err(Failure::passing)
                })),
                annotate: vec![("key", self.cluster.to_owned())],
                rest: if answer.is_err() {
                    Rest::Certain
                } else {
                    Rest::AskTheJob
                },
            }
        }

        fn may_start(&self, _workload: &ApiWorkload) -> bool {
            self.answer.is_ok()
        }
    }

    #[tokio::test]
    async fn each_check_sees_what_the_one_before_said_and_holds_up_no_other() {
        let done = Arc::<Mutex<Vec<&'static str>>>::default();
        let says = |cluster, wake_secs, answer| -> Arc<dyn Checks> {
            Arc::new(Says {
                cluster,
                wake_secs,
                done: done.clone(),
                answer,
            })
        };
        let list = CheckList::new(vec![says("first", 9, Err("no")), says("second", 3, Ok(()))]);
        let stored = ApiWorkload::default();
        let workload = roadstead_convert::workload(&stored);
        let pass = Pass {
            stored: &stored,
            workload: &workload,
        };
        let mut status = Status::default();
        let follow = list.plan(&pass, &mut status, Timestamp::UNIX_EPOCH);
        assert_eq!(status.nominated, ["first".into(), "second".into()]);
        let told: Vec<_> = follow.notes.iter().map(|note| note.message.as_str()).collect();
        assert_eq!(told, ["1", "2"]);
        assert_eq!(follow.annotate.len(), 2);
        assert_eq!(follow.wake_at, Timestamp::from_second(3).ok());
        assert_eq!(follow.rest, Rest::Certain);
        assert_eq!(follow.work.unwrap().await, Err(Failure::passing("no")));
        assert_eq!(*done.lock().unwrap(), ["first", "second"]);
        assert!(!list.may_start(&stored), "one check forbids it");
        assert!(
            list.runs_elsewhere(&stored, &JobKey::Object(Key::new("ns", "j")))
                .is_none()
        );
        assert!(CheckList::default().may_start(&stored));
    }
}
