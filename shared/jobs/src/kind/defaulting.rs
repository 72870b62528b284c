//! The facts about the cluster with which a kind fills in its new objects.

use super::{Mark, MemberMut};

/// The facts that defaulting a new job needs.
#[derive(Clone, Copy)]
pub struct DefaultFacts<'a> {
    /// Whether the namespace has a `LocalQueue` named `default`.
    pub default_queue: Presence,
    /// Whether there is a `WorkloadPriorityClass` named `default`.
    pub default_priority_class: Presence,
    /// The owner of the job.
    pub owner: Owner,
    /// Whether jobs without a queue are held in its namespace.
    pub namespace: Namespace,
    /// Whether a queue of the namespace leads to a `ClusterQueue` with a check of the `MultiKueue` controller.
    pub uses_multikueue: &'a dyn Fn(&str) -> bool,
    /// The group of the pod, if an object of another kind made the pod.
    pub mark: Option<&'a Mark>,
}

/// A kind's own function to fill in new objects.
#[derive(Clone, Copy)]
pub struct Defaulting(pub(crate) fn(&mut MemberMut<'_>, &DefaultFacts<'_>));

/// Whether something exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
}

/// The owner of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It has no owner of a managed kind.
    Unmanaged,
    /// Its direct owner is of a managed kind, but no queue holds an ancestor.
    ManagedKind,
    /// An ancestor is managed: the job follows it.
    ManagedAncestor,
}

/// Whether jobs of a namespace are managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// It does not match `managedJobsNamespaceSelector`.
    Outside,
    /// It matches, and jobs without a queue are left alone.
    Inside,
    /// It matches, and jobs without a queue are held too (`manageJobsWithoutQueueName`).
    InsideAll,
}
