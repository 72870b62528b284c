//! The status of an `AppWrapper`.
//!
//! *Source*: `spec/appwrapper.md 1.3`.

use std::collections::BTreeMap;

use crate::condition::Conditions;

/// Condition: quota is held; the engine may release it only when this is not True.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Condition: children may exist. Also the condition of each component.
pub const RESOURCES_DEPLOYED: &str = "ResourcesDeployed";
/// Condition: enough pods run or have succeeded.
pub const PODS_READY: &str = "PodsReady";
/// Condition: a fault was found.
pub const UNHEALTHY: &str = "Unhealthy";
/// Condition: children are being deleted.
pub const DELETING: &str = "DeletingResources";
/// Condition of a component: it has done its work, whatever happens to its objects.
///
/// Why a condition of our own: before the other components are done, a child may be removed by its own time to live, or its pods by its
/// controller.
pub const FINISHED: &str = "roadstead.dev/Finished";
/// Reason of [`FINISHED`] while pods of the component live on.
pub const SUCCEEDED: &str = "Succeeded";
/// Reason of [`FINISHED`] once no pod of the component lives, so that its quota can be released.
pub const PODS_ENDED: &str = "SucceededAndPodsEnded";

/// The finalizer that keeps an `AppWrapper` until nothing of it remains.
pub const FINALIZER: &str = "workload.codeflare.dev/finalizer";
/// Label of every child and every pod: the name of the `AppWrapper`.
pub const LABEL: &str = "workload.codeflare.dev/appwrapper";

/// The phase of an `AppWrapper`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The controller has not looked at it yet; written as the empty text.
    #[default]
    Empty,
    /// No child exists; the `AppWrapper` waits for admission.
    Suspended,
    /// Children are being created.
    Resuming,
    /// All children were created.
    Running,
    /// Children are being deleted, or the pause before their next creation runs. Quota is kept.
    Resetting,
    /// Children are being deleted because it was suspended.
    Suspending,
    /// Its work is done.
    Succeeded,
    /// Its work has failed and is not retried.
    Failed,
    /// It is being deleted.
    Terminating,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 9] = [
        Self::Empty,
        Self::Suspended,
        Self::Resuming,
        Self::Running,
        Self::Resetting,
        Self::Suspending,
        Self::Succeeded,
        Self::Failed,
        Self::Terminating,
    ];

    /// The text that `status.phase` shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Suspended => "Suspended",
            Self::Resuming => "Resuming",
            Self::Running => "Running",
            Self::Resetting => "Resetting",
            Self::Suspending => "Suspending",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
        }
    }

    /// Parses the text of `status.phase`; `None` for an unknown text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }
}

/// The status of an `AppWrapper`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its phase.
    pub phase: Phase,
    /// `resettingCount`: how often it was retried.
    pub retries: i32,
    /// Its conditions.
    pub conditions: Conditions,
    /// Its components, in the order of the spec.
    pub components: Vec<ComponentStatus>,
}

/// The status of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentStatus {
    /// Its child's identity; empty before the first try to create it.
    pub identity: Identity,
    /// The source of its pods.
    pub pod_sets: Vec<PodSet>,
    /// Its conditions.
    pub conditions: Conditions,
}

/// The identity of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A group of equal pods of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSet {
    /// The path of their pod template in the component.
    pub path: String,
    /// The number of pods; `None` counts as 1.
    pub replicas: Option<i32>,
    /// Hints for their placement in a topology.
    pub annotations: BTreeMap<String, String>,
}

impl PodSet {
    /// The number of pods; a negative number counts as 0.
    pub fn count(&self) -> u32 {
        u32::try_from(self.replicas.unwrap_or(1)).unwrap_or(0)
    }
}

impl ComponentStatus {
    /// How many pods it should have.
    pub fn expected(&self) -> u32 {
        self.pod_sets
            .iter()
            .fold(0, |sum, set| sum.saturating_add(set.count()))
    }

    /// Whether its work is done.
    pub fn is_finished(&self) -> bool {
        self.conditions.is_true(FINISHED)
    }
}
