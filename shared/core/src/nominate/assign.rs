//! The search for flavors for all pod sets of a workload, flavor by flavor and group by group.
//!
//! Invariant: usage of earlier pod sets counts for later ones; the search stops at the first pod set that has a resource without a possible
//! flavor. *Source*: `spec/admission-engine.md 2.5`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::compiled::{CompiledFlavor, CompiledGroup};
use super::{Head, Mode, Nomination, Progress, Refusal};
use crate::amount::Amount;
use crate::flavor::{Category, Placement, Remedy, UNPLACED, suits};
use crate::ground::{Footprint, Ground};
use crate::hierarchy::{Counting, Exact, FlavorResource};
use crate::holders::Holders;
use crate::name::{FlavorName, ResourceName, Uid};
use crate::preempt::{Candidates, Found, Search, Target};
use crate::quantity;
use crate::queue::{BorrowWithinCohort, Flavor, FlavorPreference, Fungibility, Reclaim};
use crate::rules::{PreemptionRules, Rules, Switch, Undeclared};
use crate::status::Assignment;
use crate::workload::PodSet;

/// The search for one nomination.
pub(crate) struct Assigner<'a> {
    pub(crate) ground: &'a mut Ground,
    pub(crate) holders: &'a Holders,
    pub(crate) flavors: &'a BTreeMap<FlavorName, Flavor>,
    pub(crate) rules: &'a Rules,
    pub(crate) head: &'a Head<'a>,
    /// If set, only the flavors of this nomination are tried.
    pub(crate) pinned: Option<&'a Nomination>,
    /// Holders that are never victims.
    pub(crate) gone: &'a BTreeSet<Uid>,
    /// Answers of the oracle; the ground does not change during a nomination.
    pub(crate) memo: Vec<(FlavorResource, Exact, Oracle)>,
}

/// Whether preemption could help with one flavor and resource alone. *Source*: `spec/admission-engine.md 2.5.3`.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    mode: Mode,
    level: u32,
    pub(crate) found: Found,
}

#[derive(Debug)]
pub(crate) struct Assigned {
    pub(crate) pod_sets: Vec<Assignment>,
    /// Sorted by flavor and resource.
    pub(crate) usage: Vec<(FlavorResource, Exact)>,
    pub(crate) mode: Mode,
    pub(crate) level: u32,
    pub(crate) progress: Progress,
    pub(crate) considered: String,
    category: Option<Category>,
    remedy: Remedy,
    /// One sentence per refused pod set.
    texts: Vec<String>,
    lacks: Vec<(FlavorResource, Exact)>,
    /// Any release may help, whatever `lacks` says.
    any_release: bool,
}

impl Assigned {
    /// Why it does not fit as it is.
    pub(crate) fn refusal(&self) -> Refusal {
        let category = self.category.unwrap_or(Category::WaitingForQuota);
        Refusal {
            category,
            message: self.texts.join("; "),
            remedy: if category == Category::WaitingForQuota {
                Remedy::Capacity
            } else {
                self.remedy
            },
            lacks: if self.any_release {
                Vec::new()
            } else {
                self.lacks.clone()
            },
        }
    }

    fn taken(&self, pair: FlavorResource) -> Exact {
        let at = self.usage.binary_search_by_key(&pair, |(at, _)| *at);
        at.ok().and_then(|at| self.usage.get(at)).map_or(0, |(_, v)| *v)
    }

    fn take(&mut self, pair: FlavorResource, value: Exact) {
        match self.usage.binary_search_by_key(&pair, |(at, _)| *at) {
            Ok(at) => {
                if let Some((_, sum)) = self.usage.get_mut(at) {
                    *sum += value;
                }
            }
            Err(at) => self.usage.insert(at, (pair, value)),
        }
    }

    fn lack(&mut self, pair: FlavorResource, value: Exact) {
        match self.lacks.iter_mut().find(|(at, _)| *at == pair) {
            Some((_, least)) => *least = value.min(*least),
            None => self.lacks.push((pair, value)),
        }
    }
}

/// A resource that the pod sets request.
struct Wanted<'a> {
    resource: &'a ResourceName,
    amount: Amount,
    /// Group and column in the queue; `None` when no group covers the resource.
    place: Option<(usize, usize)>,
    /// Whether its group was searched.
    done: bool,
}

/// The result of the search in one group.
struct Choice {
    flavor: Option<usize>,
    mode: Mode,
    level: u32,
    /// Why no flavor fits; empty when one fits.
    reasons: Vec<String>,
    /// The category of the mildest flavor; `None` when a flavor fits.
    category: Option<Category>,
    /// The flavor tried last, if flavors are left to try.
    tried: Option<usize>,
    /// What was found for each flavor, if there are several.
    seen: Vec<(usize, Mode, u32)>,
}

/// What one flavor offers.
struct Offer {
    mode: Mode,
    level: u32,
    /// The most severe category over the resources; `None` when all fit.
    category: Option<Category>,
}

impl<'a> Assigner<'a> {
    /// Assigns flavors to pod sets of these sizes.
    pub(crate) fn assign(&mut self, counts: &[u32]) -> Assigned {
        let head = self.head;
        let pod_sets = &head.workload.pod_sets;
        let resumes = head.progress.is_some_and(Progress::is_pending);
        let mut assigned = Assigned {
            pod_sets: Vec::with_capacity(pod_sets.len()),
            usage: Vec::with_capacity(4),
            mode: Mode::Fit,
            level: 0,
            progress: Progress {
                generation: self.ground.quotas().generation(head.node),
                tried: Vec::new(),
            },
            considered: String::new(),
            category: None,
            // Why: a search that resumes passes over earlier flavors, and those may have room later.
            remedy: if resumes {
                Remedy::Capacity
            } else {
                Remedy::Configuration
            },
            texts: Vec::new(),
            lacks: Vec::new(),
            any_release: pod_sets.len() > 1 || resumes,
        };
        let mut made: Vec<Option<Assignment>> = vec![None; pod_sets.len()];
        for (index, pod_set) in pod_sets.iter().enumerate() {
            if made.get(index).is_some_and(Option::is_some) {
                continue;
            }
            let members: Vec<usize> = match &pod_set.group {
                None => vec![index],
                group @ Some(_) => (index..pod_sets.len())
                    .filter(|at| pod_sets.get(*at).is_some_and(|other| other.group == *group))
                    .collect(),
            };
            let flavors = self.assign_together(&members, counts, &mut assigned);
            for at in members {
                let Some(pod_set) = pod_sets.get(at) else { continue };
                let assignment = assignment(head, pod_set, count_of(counts, at), &flavors);
                if let Some(slot) = made.get_mut(at) {
                    *slot = Some(assignment);
                }
            }
            if assigned.mode == Mode::NoFit {
                break;
            }
        }
        assigned.pod_sets = made.into_iter().flatten().collect();
        assigned
    }

    /// One flavor per resource for pod sets that share theirs (or for a single one).
    fn assign_together(
        &mut self,
        members: &[usize],
        counts: &[u32],
        assigned: &mut Assigned,
    ) -> Vec<(&'a ResourceName, &'a FlavorName)> {
        let queue = self.head.queue;
        let mut wanted = self.wanted(members, counts);
        let mut flavors = Vec::with_capacity(wanted.len());
        let mut reasons = Vec::new();
        let mut category = None;
        for at in 0..wanted.len() {
            let Some(Wanted {
                resource,
                amount,
                place,
                done: false,
            }) = wanted.get(at)
            else {
                continue;
            };
            let Some((group, _)) = *place else {
                if *amount == Amount::ZERO || self.rules.undeclared == Undeclared::Ignore {
                    continue;
                }
                reasons.push(format!("resource {resource} unavailable in ClusterQueue"));
                category = Some(Category::NoMatchingFlavor);
                assigned.mode = Mode::NoFit;
                break;
            };
            let choice = self.search(members, group, &wanted, assigned);
            assigned.mode = assigned.mode.min(choice.mode);
            assigned.level = assigned.level.max(choice.level);
            if let (Some(tried), Some(first)) = (choice.tried, members.first()) {
                assigned.progress.tried.push((*first, group, tried));
            }
            self.note_considered(members, group, &choice, &mut assigned.considered);
            if choice.category.is_some() {
                reasons.extend(choice.reasons);
                category = category.max(choice.category);
            }
            let flavor = choice
                .flavor
                .and_then(|flavor| queue.groups.get(group)?.flavors.get(flavor));
            let Some(flavor) = flavor else { break };
            for want in &mut wanted {
                if let Some((of, column)) = want.place
                    && of == group
                    && let Some(pair) = flavor.pairs.get(column)
                {
                    want.done = true;
                    assigned.take(*pair, Exact::from(want.amount.get()));
                    flavors.push((want.resource, &flavor.name));
                }
            }
        }
        // Why: pods that request nothing get no flavor, so no flavor has refused them.
        if category.is_none() && flavors.is_empty() && self.asks_for_a_place(members) {
            reasons.push(format!("no support for {UNPLACED}"));
            category = Some(Category::NoMatchingFlavor);
            assigned.mode = Mode::NoFit;
        }
        if let Some(category) = category {
            self.refuse(members, category, reasons, assigned);
        }
        flavors
    }

    fn refuse(
        &self,
        members: &[usize],
        category: Category,
        mut reasons: Vec<String>,
        assigned: &mut Assigned,
    ) {
        // Wire: the reasons of one pod set are sorted.
        reasons.sort();
        let reasons = reasons.join(", ");
        for at in members {
            if let Some(pod_set) = self.head.workload.pod_sets.get(*at) {
                let name = &pod_set.name;
                assigned
                    .texts
                    .push(format!("couldn't assign flavors to pod set {name}: {reasons}"));
            }
        }
        assigned.category = assigned.category.max(Some(category));
        // Why: the flavors left for a later pod set depend on what earlier ones took, and so on usage.
        if members.first().is_some_and(|first| *first > 0) {
            assigned.remedy = Remedy::Capacity;
        }
    }

    /// What these pod sets request in total, by name; `pods` included when the queue covers it.
    fn wanted(&self, members: &[usize], counts: &[u32]) -> Vec<Wanted<'a>> {
        let queue = self.head.queue;
        let mut wanted: Vec<Wanted<'a>> = Vec::with_capacity(4);
        let mut want = |resource: &'a ResourceName, amount: Amount| {
            if let Some(known) = wanted.iter_mut().find(|w| w.resource == resource) {
                known.amount = known.amount.plus(amount);
                return;
            }
            wanted.push(Wanted {
                resource,
                amount,
                place: queue.column(resource),
                done: false,
            });
        };
        for at in members {
            let Some(pod_set) = self.head.workload.pod_sets.get(*at) else {
                continue;
            };
            let count = i64::from(count_of(counts, *at));
            let requests = pod_set.requests.iter();
            for (resource, amount) in requests.filter(|(name, _)| queue.pods.as_ref() != Some(*name)) {
                want(resource, amount.times(count));
            }
            if let Some(pods) = &queue.pods {
                want(pods, Amount::new(count));
            }
        }
        wanted.sort_by(|a, b| a.resource.cmp(b.resource));
        wanted
    }

    /// The flavor of one group for everything that it covers. *Source*: `spec/admission-engine.md 2.5.2, 2.5.4, 2.5.5`.
    fn search(
        &mut self,
        members: &[usize],
        at: usize,
        wanted: &[Wanted<'a>],
        assigned: &mut Assigned,
    ) -> Choice {
        let mut choice = Choice {
            flavor: None,
            mode: Mode::NoFit,
            level: 0,
            reasons: Vec::new(),
            category: None,
            tried: None,
            seen: Vec::new(),
        };
        let queue = self.head.queue;
        let group = queue.groups.get(at);
        let flavors: &'a [CompiledFlavor] = group.map_or(&[], |group: &'a CompiledGroup| &group.flavors);
        let mut last = None;
        for (index, flavor) in flavors
            .iter()
            .enumerate()
            .skip(self.start(members, at, flavors.len()))
        {
            if self.pinned_elsewhere(members, at, wanted, &flavor.name) {
                continue;
            }
            last = Some(index);
            let offer = match self.suits(members, flavor) {
                Ok(()) => self.offer(flavor, at, wanted, assigned, &mut choice.reasons),
                Err(reason) => {
                    choice.reasons.push(reason);
                    Offer {
                        mode: Mode::NoFit,
                        level: 0,
                        category: Some(Category::NoMatchingFlavor),
                    }
                }
            };
            if let Some(category) = offer.category {
                choice.category = Some(choice.category.map_or(category, |least| least.min(category)));
            }
            if self.is_better(&offer, &choice) {
                choice.flavor = Some(index);
                choice.mode = offer.mode;
                choice.level = offer.level;
            }
            let goes_on = self.goes_on(&offer);
            if goes_on || !choice.seen.is_empty() {
                choice.seen.push((index, offer.mode, offer.level));
            }
            if !goes_on {
                break;
            }
        }
        if choice.mode == Mode::Fit {
            choice.reasons.clear();
            choice.category = None;
        } else {
            // Limit: the schema demands at least one flavor per group; a group without flavors suits no pod set.
            choice.category.get_or_insert(Category::NoMatchingFlavor);
        }
        if self.remembers() {
            choice.tried = last.filter(|last| last + 1 < flavors.len());
        }
        choice
    }

    /// Whether progress is kept from one attempt to the next.
    fn remembers(&self) -> bool {
        self.rules.flavor_fungibility == Switch::On && self.pinned.is_none()
    }

    fn start(&self, members: &[usize], group: usize, len: usize) -> usize {
        match (self.head.progress, members.first()) {
            (Some(progress), Some(first)) if self.remembers() => {
                let start = progress.start(*first, group);
                if start < len { start } else { 0 }
            }
            (_, Some(_) | None) => 0,
        }
    }

    /// Whether the nomination that this one is restricted to uses another flavor here.
    fn pinned_elsewhere(
        &self,
        members: &[usize],
        group: usize,
        wanted: &[Wanted<'_>],
        name: &FlavorName,
    ) -> bool {
        let pod_set = members
            .first()
            .and_then(|at| self.head.workload.pod_sets.get(*at));
        let (Some(pinned), Some(pod_set)) = (self.pinned, pod_set) else {
            return false;
        };
        pinned
            .pod_sets
            .iter()
            .filter(|assignment| assignment.name == pod_set.name)
            .any(|assignment| {
                wanted
                    .iter()
                    .filter(|want| want.place.is_some_and(|(of, _)| of == group))
                    .filter_map(|want| assignment.flavors.get(want.resource))
                    .any(|flavor| flavor != name)
            })
    }

    /// Whether one of the pod sets asks this cluster for places by topology.
    fn asks_for_a_place(&self, members: &[usize]) -> bool {
        let mut sets = members
            .iter()
            .filter_map(|at| self.head.workload.pod_sets.get(*at));
        self.head.placement == Placement::Here && sets.any(|set| set.asks_topology)
    }

    fn suits(&self, members: &[usize], flavor: &CompiledFlavor) -> Result<(), String> {
        members
            .iter()
            .filter_map(|at| self.head.workload.pod_sets.get(*at))
            .try_for_each(|pod_set| suits(self.flavors, &flavor.name, pod_set, self.head.placement))
    }

    /// What one flavor offers for everything its group covers. *Source*: `spec/admission-engine.md 2.5.3`.
    fn offer(
        &mut self,
        flavor: &CompiledFlavor,
        group: usize,
        wanted: &[Wanted<'_>],
        assigned: &mut Assigned,
        reasons: &mut Vec<String>,
    ) -> Offer {
        let node = self.head.node;
        let mut offer = Offer {
            mode: Mode::Fit,
            level: 0,
            category: None,
        };
        for want in wanted {
            let Some((of, column)) = want.place else { continue };
            let Some(pair) = flavor.pairs.get(column).copied().filter(|_| of == group) else {
                continue;
            };
            let (earlier, current) = (assigned.taken(pair), Exact::from(want.amount.get()));
            let value = earlier + current;
            if value == 0 {
                continue;
            }
            if self.ground.fits(Footprint::of(node, &[(pair, value)])) {
                let quotas = self.ground.quotas();
                let fitting = quotas.smallest_fit(node, pair, value, Counting::Usage);
                offer.level = offer.level.max(fitting.height);
                continue;
            }
            let (resource, name) = (want.resource, &flavor.name);
            let most = self.ground.most(node, pair);
            if value > most {
                // Wire: byte-exact with the anchor.
                reasons.push(format!(
                    "insufficient quota for {resource} in flavor {name}, previously considered podsets requests ({}) + \
                     current podset request ({}) > maximum capacity ({})",
                    quantity::print(resource, shown(earlier)),
                    quantity::print(resource, want.amount),
                    quantity::print(resource, shown(most)),
                ));
                offer.category = offer.category.max(Some(Category::ExceedsMaxQuota));
                offer.mode = Mode::NoFit;
                continue;
            }
            let free = self.ground.free(node, pair);
            // Wire: byte-exact with the anchor.
            reasons.push(format!(
                "insufficient unused quota for {resource} in flavor {name}, {} more needed",
                quantity::print(resource, shown(value - free.max(0))),
            ));
            offer.category = offer.category.max(Some(Category::WaitingForQuota));
            if offer.mode == Mode::NoFit || !self.may_preempt_for(pair, value) {
                assigned.lack(pair, value - free);
                offer.mode = Mode::NoFit;
                continue;
            }
            let oracle = self.ask(pair, value);
            match oracle.found.candidates {
                // Why: with the help of victims any release may be the missing one, and shares depend on all releases.
                Candidates::Some => assigned.any_release = true,
                Candidates::Nobody => assigned.lack(pair, value - free),
            }
            offer.mode = offer.mode.min(oracle.mode);
            offer.level = offer.level.max(oracle.level);
        }
        offer
    }

    fn may_preempt_for(&self, pair: FlavorResource, value: Exact) -> bool {
        let node = self.head.node;
        let policy = self.head.queue.preemption;
        let quotas = self.ground.quotas();
        value <= Exact::from(quotas.nominal(node, pair).get())
            || quotas
                .smallest_fit(node, pair, value, Counting::QuotaOnly)
                .below_root
            || match self.rules.preemption {
                PreemptionRules::Classical => policy.borrow_within_cohort != BorrowWithinCohort::Never,
                PreemptionRules::FairSharing { .. } => policy.reclaim_within_cohort != Reclaim::Never,
            }
    }

    /// The oracle: would preemption help with this flavor and resource alone?
    fn ask(&mut self, pair: FlavorResource, value: Exact) -> Oracle {
        let known = self.memo.iter().find(|(p, v, _)| (*p, *v) == (pair, value));
        if let Some((_, _, oracle)) = known {
            return oracle.clone();
        }
        let found = self.targets(&[(pair, value)]);
        let node = self.head.node;
        let victims = { found.targets.iter() }.filter_map(|target| target.holder.footprint().only(pair));
        let level = self.ground.without(victims, |ground| {
            let quotas = ground.quotas();
            quotas.smallest_fit(node, pair, value, Counting::Usage).height
        });
        let oracle = Oracle {
            mode: mode_of(&found.targets, self.head),
            level,
            found,
        };
        self.memo.push((pair, value, oracle.clone()));
        oracle
    }

    /// Victims for a complete assignment.
    pub(crate) fn targets(&mut self, usage: &[(FlavorResource, Exact)]) -> Found {
        if let [(pair, value)] = usage
            && let Some((_, _, oracle)) = self.memo.iter().find(|(p, v, _)| (p, v) == (pair, value))
        {
            return oracle.found.clone();
        }
        let mut search = Search {
            uid: &self.head.workload.uid,
            ground: self.ground,
            holders: self.holders,
            rules: self.rules,
            policy: self.head.queue.preemption,
            node: self.head.node,
            priority: self.head.priority,
            queue_time: self.head.queue_time,
            gone: self.gone,
        };
        search.targets(usage)
    }

    /// Whether the next flavor is tried as well. *Source*: `spec/admission-engine.md 2.5.4`.
    fn goes_on(&self, offer: &Offer) -> bool {
        if self.rules.flavor_fungibility == Switch::Off {
            return offer.mode != Mode::Fit;
        }
        let policy = self.head.queue.fungibility;
        let unhappy = match offer.mode {
            Mode::NoFit | Mode::NoCandidates => true,
            Mode::Preempt | Mode::Reclaim => policy.when_can_preempt == Fungibility::TryNextFlavor,
            Mode::Fit => false,
        };
        unhappy || (offer.level > 0 && policy.when_can_borrow == Fungibility::TryNextFlavor)
    }

    /// Whether a flavor is better than the best flavor so far.
    fn is_better(&self, offer: &Offer, best: &Choice) -> bool {
        if offer.mode == Mode::NoFit {
            return false;
        }
        let viable = |mode: Mode| mode > Mode::NoCandidates;
        if best.flavor.is_none() || viable(offer.mode) != viable(best.mode) {
            return best.flavor.is_none() || viable(offer.mode);
        }
        if self.rules.flavor_fungibility == Switch::Off {
            return offer.mode > best.mode;
        }
        let by_mode = best.mode.cmp(&offer.mode);
        let by_level = offer.level.cmp(&best.level);
        let order = match self.head.queue.fungibility.preference {
            FlavorPreference::BorrowingOverPreemption => by_mode.then(by_level),
            FlavorPreference::PreemptionOverBorrowing => by_level.then(by_mode),
        };
        order.is_lt()
    }

    fn note_considered(&self, members: &[usize], group: usize, choice: &Choice, text: &mut String) {
        let pod_set = members
            .first()
            .and_then(|at| self.head.workload.pod_sets.get(*at));
        let flavors = self.head.queue.groups.get(group).map(|group| &group.flavors);
        let (Some(pod_set), Some(flavors)) = (pod_set, flavors.filter(|_| choice.seen.len() > 1)) else {
            return;
        };
        let mut between = if text.is_empty() { "" } else { "; " }.to_owned();
        let _ = write!(between, "{}: ", pod_set.name);
        for (index, mode, level) in &choice.seen {
            let Some(flavor) = flavors.get(*index) else {
                continue;
            };
            let _ = write!(text, "{between}{}({}", flavor.name, mode.as_str());
            if *level > 0 {
                let _ = write!(text, ";borrow={level}");
            }
            text.push(')');
            ", ".clone_into(&mut between);
        }
    }
}

/// The mode that victims mean: no candidates, some in the own queue, or all in other queues.
pub(crate) fn mode_of(targets: &[Target], head: &Head<'_>) -> Mode {
    if targets.is_empty() {
        Mode::NoCandidates
    } else if targets.iter().any(|target| target.holder.node == head.node) {
        Mode::Preempt
    } else {
        Mode::Reclaim
    }
}

fn assignment(
    head: &Head<'_>,
    pod_set: &PodSet,
    count: u32,
    flavors: &[(&ResourceName, &FlavorName)],
) -> Assignment {
    let mut assignment = Assignment {
        name: pod_set.name.clone(),
        flavors: BTreeMap::new(),
        usage: BTreeMap::new(),
        count,
    };
    for (resource, flavor) in flavors {
        let amount = if head.queue.pods.as_ref() == Some(*resource) {
            Some(Amount::new(i64::from(count)))
        } else {
            let request = pod_set.requests.get(*resource);
            request.map(|amount| amount.times(i64::from(count)))
        };
        if let Some(amount) = amount {
            assignment.flavors.insert((*resource).clone(), (*flavor).clone());
            assignment.usage.insert((*resource).clone(), amount);
        }
    }
    assignment
}

fn count_of(counts: &[u32], pod_set: usize) -> u32 {
    counts.get(pod_set).copied().unwrap_or(0)
}

fn shown(value: Exact) -> Amount {
    Amount::new(i64::try_from(value).unwrap_or(i64::MAX))
}
