//! Where a process plugs in the admission checks it is responsible for: the manager dispatches, the worker provisions.
//!
//! Invariant: a check never writes a Workload. It changes the status that is being composed, in memory, and hands back
//! what is to be done once that status is stored.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::name::{Key, PodSetName};
use roadstead_core::note::Note;
use roadstead_core::status::Status;
use roadstead_core::workload::Workload;

/// One pass over one Workload.
pub struct Pass<'a> {
    /// The Workload as it is stored.
    pub stored: &'a ApiWorkload,
    /// The same, parsed. Its `status` is the stored one.
    pub workload: &'a Workload,
}

/// Work to do after the status was stored; an error is logged and the pass is tried again.
pub type Work = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What a check wants beside the changed status.
#[derive(Default)]
pub struct Follow {
    /// Events to emit once the status is stored.
    pub notes: Vec<Note>,
    /// When to look again even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// What to do once the status is stored.
    pub work: Option<Work>,
    /// Annotations to put on the Workload before the status is stored.
    pub annotate: Vec<(&'static str, String)>,
    /// Whether the job is known to be at rest whatever its own status says.
    pub rest: Rest,
}

/// Whether a job that is to stop has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// Its own status says so, or not.
    #[default]
    AskTheJob,
    /// Nothing of it runs or can start anywhere, also if its last mirrored status still counts pods.
    Certain,
}

/// The admission checks of this process.
pub trait Checks: Send + Sync {
    /// Looks at one Workload, changes `status` where its checks have something to say, and says what follows.
    fn plan(&self, pass: &Pass<'_>, status: &mut Status, now: Timestamp) -> Follow;

    /// The Workload is gone.
    fn gone(&self, key: &Key);

    /// This replica leads now, after it has followed: what its decisions are made from beside the caches of the engine is to be
    /// listed again, and nothing decided before that. Called before anything is decided.
    fn catch_up(&self) {}

    /// Whether the job of this Workload may be started now. When that changes, whoever said no makes the job due again.
    fn may_start(&self, _workload: &ApiWorkload) -> bool {
        true
    }

    /// Whether the job may run in another cluster whatever its own status shows: that cluster may be out of sight. Then it is
    /// at rest only when [`Follow::rest`] is [`Rest::Certain`].
    fn may_run_elsewhere(&self, _workload: &ApiWorkload) -> bool {
        false
    }

    /// The pods of a job that are no longer needed, by pod set, if the job runs somewhere else; `None`: what it says itself counts.
    fn reclaimable(&self, _workload: &ApiWorkload) -> Option<BTreeMap<PodSetName, u32>> {
        None
    }

    /// The object whose status is to be shown on the local job, if the job runs somewhere else.
    fn runs_elsewhere(&self, workload: &ApiWorkload, job: &Key) -> Option<Elsewhere>;
}

/// A job that runs in another cluster.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its copy there, as last seen; `None` while there is none or the cluster cannot be reached.
    pub job: Option<Arc<DynamicObject>>,
    /// What is known of it without a copy.
    pub fate: Fate,
}

/// What is known of a job that runs elsewhere when there is no copy to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    #[default]
    Unknown,
    /// Nothing yet, because what it would follow from is being read again: ask again soon.
    NotYet,
    /// It has no pods anywhere, whatever its last mirrored status counts: the local job may be restored.
    AtRest,
    /// It ended as its Workload says, and its own last status is lost.
    Ended,
}

/// A process without admission checks of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChecks;

impl Checks for NoChecks {
    fn plan(&self, _pass: &Pass<'_>, _status: &mut Status, _now: Timestamp) -> Follow {
        Follow::default()
    }

    fn gone(&self, _key: &Key) {}

    fn runs_elsewhere(&self, _workload: &ApiWorkload, _job: &Key) -> Option<Elsewhere> {
        None
    }
}
