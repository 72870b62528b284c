//! The pending workloads of one ClusterQueue: an ordered heap, and workloads put aside.
//!
//! Invariant: a pending workload is either in the heap or put aside. Workloads put aside for lack of capacity are in classes of equal
//! requests: if the first member does not fit, the others do not fit either. So a class sleeps as a whole and is woken when something it
//! lacked becomes free. Then its first member goes to the heap, and the next member once that one was served. *Source*:
//! `spec/admission-engine.md 1.1-1.6`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::afs::Score;
use crate::class::ClassId;
use crate::flavor::Category;
use crate::hierarchy::{Exact, FlavorResource};
use crate::name::Uid;
use crate::table::{LocalId, WorkloadId};
use crate::workload::Workload;

/// The time that orders workloads that were evicted because their pods were not ready in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// The time of the eviction.
    #[default]
    Eviction,
    /// The creation of the Workload.
    Creation,
}

/// Whether a workload that was preempted by a borrowing queue keeps its age in the queue order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimedAge {
    /// Its age stays (gate `PrioritySortingWithinCohort` on).
    #[default]
    Kept,
    /// It counts as just after its preemption (gate off).
    Renewed,
}

/// How the age of a workload is determined. *Source*: `spec/admission-engine.md 1.2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgeRule {
    /// The rule for evictions because of pods that were not ready.
    pub timestamp: RequeuingTimestamp,
    /// The rule for preemption by a queue that borrows.
    pub reclaimed: ReclaimedAge,
}

impl AgeRule {
    /// The queue-order timestamp of a workload.
    pub fn queue_time(self, workload: &Workload) -> Timestamp {
        let conditions = &workload.status.conditions;
        let evicted = conditions
            .when_true("Evicted")
            .filter(|c| match c.reason.as_ref() {
                "AdmissionCheck" => true,
                "PodsReadyTimeout" => self.timestamp == RequeuingTimestamp::Eviction,
                _ => false,
            });
        let reclaimed = || match self.reclaimed {
            ReclaimedAge::Kept => None,
            ReclaimedAge::Renewed => conditions
                .when_true("Preempted")
                .filter(|c| c.reason == "InCohortReclaimWhileBorrowing")
                .map(|c| {
                    let later = c.since.checked_add(jiff::SignedDuration::from_millis(1));
                    later.unwrap_or(c.since)
                }),
        };
        evicted
            .map(|c| c.since)
            .or_else(reclaimed)
            .unwrap_or(workload.created)
    }
}

/// When a workload has its turn; smaller comes first. *Source*: `spec/admission-engine.md 1.2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: Reverse<i64>,
    since: Timestamp,
    uid: Uid,
}

impl Turn {
    /// The turn of a workload.
    pub fn of(workload: &Workload, age: AgeRule) -> Self {
        Self {
            priority: Reverse(workload.effective_priority()),
            since: age.queue_time(workload),
            uid: workload.uid.clone(),
        }
    }
}

/// The turn of a workload of a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    turn: Turn,
    id: WorkloadId,
}

impl Rank {
    /// The rank of a workload.
    pub fn of(id: WorkloadId, workload: &Workload, age: AgeRule) -> Self {
        Self {
            turn: Turn::of(workload, age),
            id,
        }
    }

    /// The workload.
    pub const fn id(&self) -> WorkloadId {
        self.id
    }

    /// Its queue-order timestamp.
    pub const fn since(&self) -> Timestamp {
        self.turn.since
    }

    /// Its effective priority.
    pub const fn priority(&self) -> i64 {
        self.turn.priority.0
    }
}

/// The line of the queue in which a workload stands: one line for all, or one per LocalQueue where past usage counts.
pub type Line = Option<LocalId>;

/// The facts that a queue needs to keep a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its place within its line.
    pub rank: Rank,
    /// Its class of equal requests.
    pub class: ClassId,
    /// Its line.
    pub line: Line,
}

/// A flavor and resource of which a class needs more than is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The flavor and resource.
    pub pair: FlavorResource,
    /// The total that must have become free in the tree before there can be enough.
    pub after: Exact,
    /// The amount that must be available.
    pub needed: Exact,
}

/// What must become available before another try of a class is worthwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any released quota in the tree may help.
    Anything,
    /// Enough of any one of these may help.
    AnyOf(Vec<Lack>),
}

/// A class that may have enough of a flavor and resource now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thirsty {
    /// The class.
    pub kind: Kind,
    /// The amount it needs.
    pub needed: Exact,
    /// The effective priority of its members.
    pub priority: i64,
}

/// The event that a workload put aside waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Released quota or another configuration; its whole class waits, for this reason.
    Capacity(Needs, Category),
    /// Another configuration, or a change of the workload itself.
    Configuration,
    /// Labels of its namespace, another selector, or a change of the workload itself; it blocks no other workload, in any queue.
    Namespace,
    /// The end of its back-off; without a time, a change of its `Requeued` condition.
    Backoff(Option<Timestamp>),
}

/// The state of a head that failed and stays head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It changes nothing for others and is not tried until something changes.
    Waits,
    /// It claims quota, so it takes part whenever others in its tree are tried.
    Claims,
}

#[derive(Clone, Debug, Default)]
struct Class {
    members: BTreeSet<Rank>,
    /// `None` while the class is awake, which means that it has a member in the heap.
    asleep: Option<(Needs, Category)>,
}

/// A class within a line.
pub type Kind = (ClassId, Line);

/// The number of members of each class in a place.
#[derive(Clone, Debug, Default)]
struct Tally(BTreeMap<ClassId, u32>);

impl Tally {
    fn add(&mut self, class: ClassId) {
        *self.0.entry(class).or_default() += 1;
    }

    fn remove(&mut self, class: ClassId) {
        if let Some(count) = self.0.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&class);
            }
        }
    }
}

/// The pending workloads of one ClusterQueue.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    heaps: BTreeMap<Line, BTreeSet<Rank>>,
    heap_count: usize,
    aside: BTreeMap<WorkloadId, (Ticket, Wait)>,
    classes: BTreeMap<Kind, Class>,
    class_count: usize,
    /// Sleeping classes by what they need.
    thirst: BTreeMap<FlavorResource, BTreeSet<(Exact, Kind)>>,
    /// Sleeping classes that any release may help.
    restless: BTreeSet<Kind>,
    /// Classes that were woken, with the lacks that were met then. Other workloads may take that quota first.
    hopes: BTreeMap<Kind, Vec<Lack>>,
    heap_classes: Tally,
    parked_classes: Tally,
    /// The workload that waits for its victims and stays first meanwhile.
    sticky: Option<Ticket>,
    /// The head that failed and blocks the heap until something changes.
    stuck: Option<(WorkloadId, Stance)>,
}

impl Pending {
    /// The number of pending workloads, those put aside included.
    pub fn len(&self) -> usize {
        self.heap_count + self.parked_count()
    }

    /// Whether no workload is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of workloads put aside.
    pub fn parked_count(&self) -> usize {
        self.aside.len() + self.class_count
    }

    /// The number of different requests in the heap, and among the workloads put aside.
    pub fn class_counts(&self) -> (usize, usize) {
        (self.heap_classes.0.len(), self.parked_classes.0.len())
    }

    /// All pending workloads, in no useful order.
    pub fn ids(&self) -> impl Iterator<Item = WorkloadId> {
        let heap = self.heaps.values().flatten().map(Rank::id);
        let sleeping = self.classes.values().flat_map(|class| &class.members);
        heap.chain(sleeping.map(Rank::id))
            .chain(self.aside.keys().copied())
    }

    /// Whether the workload is in the heap.
    pub fn in_heap(&self, ticket: &Ticket) -> bool {
        self.heaps
            .get(&ticket.line)
            .is_some_and(|heap| heap.contains(&ticket.rank))
    }

    /// The head. `score` gives the past usage of a LocalQueue; where past usage does not count there is one line, and `score` is not
    /// called.
    pub fn head(&self, score: impl Fn(LocalId) -> Score) -> Option<&Rank> {
        let best = self
            .heaps
            .iter()
            .filter_map(|(line, heap)| {
                let sticky = self
                    .sticky
                    .as_ref()
                    .map(|ticket| &ticket.rank)
                    .filter(|rank| heap.contains(rank));
                let rank = sticky.or_else(|| heap.first())?;
                Some((line.map(&score), sticky.is_none(), rank))
            })
            .min();
        best.map(|(_, _, rank)| rank)
    }

    /// The state of `head`, if it failed and stays head.
    pub fn stance(&self, head: WorkloadId) -> Option<Stance> {
        self.stuck.filter(|(id, _)| *id == head).map(|(_, stance)| stance)
    }

    /// Whether the head that failed claims quota.
    pub fn has_claim(&self) -> bool {
        matches!(self.stuck, Some((_, Stance::Claims)))
    }

    /// Whether the class of this workload sleeps because another member has failed. Then it need not be tried.
    pub fn is_hopeless(&self, ticket: &Ticket) -> bool {
        self.category(ticket).is_some()
    }

    /// Why the class of this workload sleeps, if it does.
    pub fn category(&self, ticket: &Ticket) -> Option<Category> {
        let class = self.classes.get(&(ticket.class, ticket.line))?;
        class.asleep.as_ref().map(|(_, category)| *category)
    }

    /// The lacks that were met when the class of this workload was woken.
    pub fn hopes(&self, ticket: &Ticket) -> Option<&[Lack]> {
        self.hopes.get(&(ticket.class, ticket.line)).map(Vec::as_slice)
    }

    /// Forgets the lacks that were met when the class of this workload was woken.
    pub fn forget_hopes(&mut self, ticket: &Ticket) {
        self.hopes.remove(&(ticket.class, ticket.line));
    }

    /// Whether the workload waits for its victims.
    pub fn is_sticky(&self, id: WorkloadId) -> bool {
        self.sticky.as_ref().is_some_and(|ticket| ticket.rank.id == id)
    }

    /// Puts a workload into the heap.
    pub fn push(&mut self, ticket: &Ticket) {
        self.enter_heap((ticket.class, ticket.line), ticket.rank.clone());
    }

    fn enter_heap(&mut self, (class, line): Kind, rank: Rank) {
        if self.heaps.entry(line).or_default().insert(rank) {
            self.heap_count += 1;
            self.heap_classes.add(class);
        }
    }

    /// Puts aside a workload that is not in this queue yet.
    pub fn park(&mut self, ticket: &Ticket, wait: Wait) {
        match wait {
            Wait::Capacity(needs, category) => {
                let kind = (ticket.class, ticket.line);
                self.forget_needs(kind);
                self.hopes.remove(&kind);
                let class = self.classes.entry(kind).or_default();
                if class.members.insert(ticket.rank.clone()) {
                    self.class_count += 1;
                    self.parked_classes.add(ticket.class);
                }
                match &needs {
                    Needs::Anything => {
                        self.restless.insert(kind);
                    }
                    Needs::AnyOf(lacks) => {
                        for lack in lacks {
                            self.thirst
                                .entry(lack.pair)
                                .or_default()
                                .insert((lack.after, kind));
                        }
                    }
                }
                class.asleep = Some((needs, category));
            }
            Wait::Configuration | Wait::Namespace | Wait::Backoff(_) => {
                let before = self.aside.insert(ticket.rank.id, (ticket.clone(), wait));
                if before.is_none() {
                    self.parked_classes.add(ticket.class);
                }
            }
        }
    }

    /// Puts a workload that is not in this queue yet into its sleeping class.
    pub fn join(&mut self, ticket: &Ticket) {
        let class = self.classes.entry((ticket.class, ticket.line)).or_default();
        if class.members.insert(ticket.rank.clone()) {
            self.class_count += 1;
            self.parked_classes.add(ticket.class);
        }
    }

    /// Removes a workload; returns the end of its back-off, if it was in one.
    pub fn remove(&mut self, ticket: &Ticket) -> Option<Timestamp> {
        let id = ticket.rank.id;
        if self.is_sticky(id) {
            self.sticky = None;
        }
        if self.leave_heap(ticket) {
            self.served((ticket.class, ticket.line));
            return None;
        }
        if let Some((_, wait)) = self.aside.remove(&id) {
            self.parked_classes.remove(ticket.class);
            return match wait {
                Wait::Backoff(at) => at,
                Wait::Capacity(..) | Wait::Configuration | Wait::Namespace => None,
            };
        }
        let kind = (ticket.class, ticket.line);
        if let Some(class) = self.classes.get_mut(&kind)
            && class.members.remove(&ticket.rank)
        {
            self.class_count -= 1;
            self.parked_classes.remove(ticket.class);
            if class.members.is_empty() {
                self.forget_needs(kind);
                self.hopes.remove(&kind);
                self.classes.remove(&kind);
            }
        }
        None
    }

    /// Takes a workload out of the heap, to put it aside; its class stays as it is. Returns whether it was in the heap.
    pub fn leave_heap(&mut self, ticket: &Ticket) -> bool {
        let id = ticket.rank.id;
        let Some(heap) = self.heaps.get_mut(&ticket.line) else {
            return false;
        };
        if !heap.remove(&ticket.rank) {
            return false;
        }
        self.heap_count -= 1;
        if heap.is_empty() {
            self.heaps.remove(&ticket.line);
        }
        self.heap_classes.remove(ticket.class);
        if self.stance(id).is_some() {
            self.stuck = None;
        }
        true
    }

    /// Records that a head failed and stays head.
    pub fn block(&mut self, head: WorkloadId, stance: Stance) {
        self.stuck = Some((head, stance));
    }

    /// Lets a head that failed be tried again.
    pub fn unblock(&mut self) {
        self.stuck = None;
    }

    /// Makes a workload first until it is served or [`Self::unstick`] is called.
    pub fn stick(&mut self, ticket: &Ticket) {
        self.sticky = Some(ticket.clone());
    }

    /// Ends the effect of [`Self::stick`] for this workload.
    pub fn unstick(&mut self, id: WorkloadId) {
        if self.is_sticky(id) {
            self.sticky = None;
        }
    }

    /// The sleeping classes that may have enough of `pair`, now that `freed` is the total that has become free.
    pub fn thirsty(&self, pair: FlavorResource, freed: Exact) -> Vec<Thirsty> {
        let reached = self.thirst.get(&pair).into_iter().flatten();
        let reached = reached.take_while(|(after, _)| *after <= freed);
        let thirsty = |(_, kind): &(Exact, Kind)| {
            let class = self.classes.get(kind)?;
            let (Needs::AnyOf(lacks), _) = class.asleep.as_ref()? else {
                return None;
            };
            Some(Thirsty {
                kind: *kind,
                needed: lacks.iter().find(|lack| lack.pair == pair)?.needed,
                priority: class.members.first()?.priority(),
            })
        };
        reached.filter_map(thirsty).collect()
    }

    /// A sleeping class still lacks `pair`: it is not tried before `after` in total has become free.
    pub fn postpone(&mut self, kind: Kind, pair: FlavorResource, after: Exact) {
        let class = self.classes.get_mut(&kind);
        let Some((Needs::AnyOf(lacks), _)) = class.and_then(|class| class.asleep.as_mut()) else {
            return;
        };
        if let Some(lack) = lacks.iter_mut().find(|lack| lack.pair == pair) {
            let kinds = self.thirst.entry(pair).or_default();
            kinds.remove(&(lack.after, kind));
            kinds.insert((after, kind));
            lack.after = after;
        }
    }

    /// Something became free: classes that any release may help are tried again, and so is a head that failed.
    pub fn stir(&mut self) {
        self.unblock();
        for kind in std::mem::take(&mut self.restless) {
            self.wake(kind);
        }
    }

    /// The queue, a cohort, a flavor or a check changed: all workloads but those in back-off are tried again.
    pub fn flush_all(&mut self) {
        self.stuck = None;
        self.thirst.clear();
        self.restless.clear();
        self.hopes.clear();
        self.class_count = 0;
        for (kind, class) in std::mem::take(&mut self.classes) {
            for rank in class.members {
                self.parked_classes.remove(kind.0);
                self.enter_heap(kind, rank);
            }
        }
        self.flush_aside(|_, wait| !matches!(wait, Wait::Backoff(_)));
    }

    /// A namespace matches the selector now; `member` says whether a workload is in it.
    pub fn flush_namespace(&mut self, member: impl Fn(WorkloadId) -> bool) {
        self.flush_aside(|id, wait| *wait == Wait::Namespace && member(id));
    }

    /// The workloads in back-off, each with the end of its back-off.
    pub fn backoffs(&self) -> impl Iterator<Item = (Timestamp, WorkloadId)> {
        self.aside.iter().filter_map(|(id, (_, wait))| match wait {
            Wait::Backoff(at) => at.map(|at| (at, *id)),
            Wait::Capacity(..) | Wait::Configuration | Wait::Namespace => None,
        })
    }

    /// The event that a workload put aside for another reason than capacity waits for.
    pub fn wait(&self, id: WorkloadId) -> Option<&Wait> {
        self.aside.get(&id).map(|(_, wait)| wait)
    }

    fn flush_aside(&mut self, goes: impl Fn(WorkloadId, &Wait) -> bool) {
        let going: Vec<WorkloadId> = self
            .aside
            .iter()
            .filter(|(id, (_, wait))| goes(**id, wait))
            .map(|(id, _)| *id)
            .collect();
        for id in going {
            self.flush_aside_one(id);
        }
    }

    /// Takes back into the heap a workload that was put aside, because its back-off ended or what it waits for changed.
    pub fn flush_aside_one(&mut self, id: WorkloadId) {
        if let Some((ticket, _)) = self.aside.remove(&id) {
            self.parked_classes.remove(ticket.class);
            self.push(&ticket);
        }
    }

    fn forget_needs(&mut self, kind: Kind) -> Option<Needs> {
        let (needs, _) = self.classes.get_mut(&kind)?.asleep.take()?;
        match &needs {
            Needs::Anything => {
                self.restless.remove(&kind);
            }
            Needs::AnyOf(lacks) => {
                for lack in lacks {
                    if let Some(kinds) = self.thirst.get_mut(&lack.pair) {
                        kinds.remove(&(lack.after, kind));
                        if kinds.is_empty() {
                            self.thirst.remove(&lack.pair);
                        }
                    }
                }
            }
        }
        Some(needs)
    }

    /// Wakes a sleeping class: its first member is tried again.
    pub fn wake(&mut self, kind: Kind) {
        if let Some(Needs::AnyOf(lacks)) = self.forget_needs(kind) {
            self.hopes.insert(kind, lacks);
        }
        self.served(kind);
    }

    /// A member of a class left the heap for good, or the class woke up: the next member is tried.
    fn served(&mut self, kind: Kind) {
        let Some(class) = self.classes.get_mut(&kind) else {
            // Why: no member is left whose try these lacks could save.
            self.hopes.remove(&kind);
            return;
        };
        if class.asleep.is_some() {
            return;
        }
        let next = class.members.pop_first();
        if class.members.is_empty() {
            self.classes.remove(&kind);
        }
        if let Some(rank) = next {
            self.class_count -= 1;
            self.parked_classes.remove(kind.0);
            self.enter_heap(kind, rank);
        }
    }
}

#[cfg(test)]
mod tests;
