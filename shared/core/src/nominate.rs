//! One head against the present ground: which flavors it would get, and which workloads it would have to preempt for that.
//!
//! Invariant: the ground is left as it was found; the same input gives the same nomination.
//! *Source*: `spec/admission-engine.md 2.5 to 2.9`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::flavor::{Category, Placement, Remedy};
use crate::ground::{Footprint, Ground};
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::holders::{Holder, Holders};
use crate::name::{FlavorName, Uid};
use crate::preempt::Target;
use crate::queue::Flavor;
use crate::rules::{Rules, Switch};
use crate::status::Assignment;
use crate::workload::{PodSet, Workload};

mod assign;
mod compiled;

use assign::{Assigner, mode_of};
pub use compiled::CompiledQueue;

/// The facts around a head.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The room there is, and what of it is taken; changed during a search and left as found.
    pub ground: &'a mut Ground,
    /// The workloads that hold quota; what they hold must be taken in the ground.
    pub holders: &'a Holders,
    /// All flavors that exist.
    pub flavors: &'a BTreeMap<FlavorName, Flavor>,
    /// The configuration of admission.
    pub rules: &'a Rules,
}

/// The workload that asks.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its ClusterQueue, compiled. The owner of the queue keeps the compiled form beside the queue and makes it again when the queue
    /// changes.
    pub queue: &'a CompiledQueue,
    /// The node of its ClusterQueue.
    pub node: NodeId,
    /// The cluster that places its pods by topology.
    pub placement: Placement,
    /// Effective priority.
    pub priority: i64,
    /// Its place in queue order.
    pub queue_time: Timestamp,
    /// The progress of the previous attempt. The caller passes it only if it still counts. It does not when the class of the workload
    /// changed. It does when it is at most one cycle old. Otherwise it counts as long as
    /// [`Forest::generation`](crate::hierarchy::Forest::generation) of the node equals [`Progress::generation`]. *Source*:
    /// `spec/admission-engine.md 2.5.5`.
    pub progress: Option<&'a Progress>,
}

/// Narrows a nomination that is computed again within a cycle. *Source*: `spec/admission-engine.md 2.11`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restriction<'a> {
    /// Only the flavors and the counts of this nomination.
    pub pinned: Option<&'a Nomination>,
    /// Victims of other heads: they count as gone, and are never chosen as victims again.
    pub gone: &'a [Arc<Holder>],
}

/// What must happen for a workload to get quota, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It can not fit.
    NoFit,
    /// Preemption is allowed, but there is no candidate.
    NoCandidates,
    /// Others must be preempted, at least one of them in the own queue.
    Preempt,
    /// Others must be preempted, all in other queues.
    Reclaim,
    /// It fits.
    Fit,
}

/// Why a head does not fit as it is, and what could change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The category shown as the condition's reason.
    pub category: Category,
    /// A sentence for people.
    pub message: String,
    /// What could help.
    pub remedy: Remedy,
    /// For wake-ups: nothing can change before at least so much of one of these pairs has become free in the tree. **Empty**: any release
    /// in the tree may help.
    pub lacks: Vec<(FlavorResource, Exact)>,
}

/// How far the search went through the flavors. *Source*: `spec/admission-engine.md 2.5.5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// [`Forest::generation`](crate::hierarchy::Forest::generation) of the queue when the search was made.
    pub generation: u64,
    /// By index of pod set and of resource group: the flavor that was tried last. Only where flavors are left to try.
    pub(crate) tried: Vec<(usize, usize, usize)>,
}

impl Progress {
    /// Whether flavors are left to try, so that the workload is queued again at once.
    pub const fn is_pending(&self) -> bool {
        !self.tried.is_empty()
    }

    pub(crate) fn start(&self, pod_set: usize, group: usize) -> usize {
        self.tried
            .iter()
            .find(|(p, g, _)| (*p, *g) == (pod_set, group))
            .map_or(0, |(_, _, tried)| tried + 1)
    }
}

/// The result of a nomination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// One assignment per pod set, in the order of the spec; with [`Mode::NoFit`] some resources have no flavor, and pod
    /// sets may be missing.
    pub pod_sets: Vec<Assignment>,
    /// The total quota it would hold; sorted.
    pub usage: Vec<(FlavorResource, Exact)>,
    /// What must happen.
    pub mode: Mode,
    /// Borrowing level, after the victims are gone.
    pub level: u32,
    /// Victims, in the order in which they were chosen. Empty unless the mode is `Preempt` or `Reclaim`.
    pub targets: Vec<Target>,
    /// `None` exactly when the mode is [`Mode::Fit`]. With victims: the message to which the cycle adds
    /// `. Pending the preemption of <n> workload(s)`.
    pub refusal: Option<Refusal>,
    /// How far the search went.
    pub progress: Progress,
    /// It fits, but only because the victims of others ([`Restriction::gone`]) are treated as gone.
    pub fits_only_with_gone: bool,
    /// Per pod set with several flavors: what was found for each, for the event of a reservation (`; Flavors considered: ...`). Empty when
    /// the first flavor was taken.
    pub considered: String,
}

/// Finds out what a head would get and which workloads it would have to preempt.
pub fn nominate(facts: &mut Facts<'_>, head: &Head<'_>, restriction: Option<&Restriction<'_>>) -> Nomination {
    let Restriction { pinned, gone } = restriction.copied().unwrap_or_default();
    let excluded: BTreeSet<Uid> = gone.iter().map(|holder| holder.uid.clone()).collect();
    let footprints = gone.iter().map(|holder| holder.footprint());
    let mut nomination = facts.ground.without(footprints, |ground| {
        largest(&mut Assigner {
            ground,
            holders: facts.holders,
            flavors: facts.flavors,
            rules: facts.rules,
            head,
            pinned,
            gone: &excluded,
            memo: Vec::new(),
        })
    });
    nomination.fits_only_with_gone = nomination.mode == Mode::Fit
        && !gone.is_empty()
        && !facts.ground.fits(Footprint::of(head.node, &nomination.usage));
    nomination
}

/// The nomination for the full size, or otherwise for the largest allowed smaller size that is possible; if there is none, the one for the
/// full size. *Source*: `spec/admission-engine.md 2.9`.
fn largest(assigner: &mut Assigner<'_>) -> Nomination {
    let mut counts = counts(assigner);
    let full = at_size(assigner, &counts);
    if full.is_had() {
        return full;
    }
    let Some((index, least)) = partial(assigner, &counts) else {
        return full;
    };
    let Some(whole) = counts.get(index).copied() else {
        return full;
    };
    // Invariant: sizes below `low` are not known to fail; sizes from `high` on fail; `best` is the largest possible size so far.
    let (mut low, mut high) = (least, whole);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        if let Some(count) = counts.get_mut(index) {
            *count = middle;
        }
        let nomination = at_size(assigner, &counts);
        if nomination.is_had() {
            best = Some(nomination);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    best.unwrap_or_else(|| {
        let mut full = full;
        // Why no lacks: a smaller size may become possible with less than the full size lacks.
        if let Some(refusal) = &mut full.refusal {
            refusal.lacks.clear();
        }
        full
    })
}

/// The number of pods requested per pod set: reclaimable pods are not needed any more.
fn counts(assigner: &Assigner<'_>) -> Vec<u32> {
    let workload = assigner.head.workload;
    let size = |pod_set: &PodSet| {
        let pinned = assigner
            .pinned
            .and_then(|pinned| pinned.pod_sets.iter().find(|p| p.name == pod_set.name));
        if let Some(pinned) = pinned {
            return pinned.count;
        }
        let gone = workload.status.reclaimable.get(&pod_set.name);
        pod_set.count.saturating_sub(gone.copied().unwrap_or(0))
    };
    workload.pod_sets.iter().map(size).collect()
}

/// The only pod set that may be smaller, and its least size; `None` when several may be smaller.
fn partial(assigner: &Assigner<'_>, counts: &[u32]) -> Option<(usize, u32)> {
    if assigner.rules.partial_admission == Switch::Off || assigner.pinned.is_some() {
        return None;
    }
    let pod_sets = assigner.head.workload.pod_sets.iter().zip(counts).enumerate();
    let mut flexible = pod_sets.filter_map(|(index, (pod_set, count))| {
        let least = pod_set.min_count.filter(|least| least < count)?;
        Some((index, least))
    });
    let one = flexible.next();
    one.filter(|_| flexible.next().is_none())
}

fn at_size(assigner: &mut Assigner<'_>, counts: &[u32]) -> Nomination {
    let assigned = assigner.assign(counts);
    let targets = match assigned.mode {
        Mode::Fit | Mode::NoFit => Vec::new(),
        Mode::NoCandidates | Mode::Preempt | Mode::Reclaim => assigner.targets(&assigned.usage).targets,
    };
    let mode = match assigned.mode {
        Mode::Fit | Mode::NoFit => assigned.mode,
        Mode::NoCandidates | Mode::Preempt | Mode::Reclaim => mode_of(&targets, assigner.head),
    };
    let refusal = (mode != Mode::Fit).then(|| assigned.refusal());
    Nomination {
        pod_sets: assigned.pod_sets,
        usage: assigned.usage,
        mode,
        level: assigned.level,
        targets,
        refusal,
        // Why: a pinned nomination tries no further flavors, so its progress is the earlier one.
        progress: assigner
            .pinned
            .map_or(assigned.progress, |pinned| pinned.progress.clone()),
        fits_only_with_gone: false,
        considered: assigned.considered,
    }
}

impl Mode {
    /// The text that events show.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFit => "NoFit",
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
            Self::Fit => "Fit",
        }
    }
}

impl Nomination {
    /// Whether the workload can get this, at once or after its victims are gone.
    pub const fn is_had(&self) -> bool {
        matches!(self.mode, Mode::Fit) || !self.targets.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod scene;
#[cfg(test)]
mod tests;
