//! Which flavor each resource of each pod set gets.
//!
//! A queue without cohort and without preemption knows two outcomes per workload: it fits now, or it is refused with a
//! category and a message. Invariant: all pod sets or none; usage of earlier pod sets counts for later ones.
//! *Source*: `spec/admission-engine.md 2.5`.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::name::{FlavorName, PodSetName, ResourceName};
use crate::quantity;
use crate::queue::{ClusterQueue, Flavor, FlavorQuota, ResourceGroup};
use crate::quota::{Ledger, nominal};
use crate::status::Assignment;
use crate::workload::{AffinityTerm, Effect, PodSet, Taint, Toleration};

/// The resource that stands for the number of pods.
const PODS: &str = "pods";

/// What to do with a requested resource that no group of the queue covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// Refuse the workload (`BlockUndeclared`).
    #[default]
    Refuse,
    /// Act as if it was not requested (`IgnoreUndeclared`).
    Ignore,
}

/// Why a workload was refused, from least to most severe. *Source*: `spec/admission-engine.md 2.5.6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// It would fit if others released quota.
    WaitingForQuota,
    /// It asks for more than the queue could ever give.
    ExceedsMaxQuota,
    /// No flavor suits it.
    NoMatchingFlavor,
}

/// What could turn a refusal into a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Released quota (or other configuration).
    Capacity,
    /// Only other configuration.
    Configuration,
}

/// The queue and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The queue asked.
    pub queue: &'a ClusterQueue,
    /// All flavors that exist.
    pub flavors: &'a BTreeMap<FlavorName, Flavor>,
    /// What is held in the queue already.
    pub ledger: &'a Ledger,
    /// What to do with resources that the queue does not cover.
    pub undeclared: Undeclared,
}

/// Why nothing was assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The category shown as the condition's reason.
    pub category: Category,
    /// A sentence for people.
    pub message: String,
    /// What could help.
    pub remedy: Remedy,
}

/// Assigns flavors to all pod sets, or says why not.
pub fn assign(
    offer: &Offer<'_>,
    pod_sets: &[PodSet],
    reclaimable: &BTreeMap<PodSetName, u32>,
) -> Result<Vec<Assignment>, Refusal> {
    let mut taken = BTreeMap::new();
    let mut assignments = Vec::with_capacity(pod_sets.len());
    let mut texts = Vec::new();
    let mut worst = None;
    let mut remedy = Remedy::Configuration;
    for (index, pod_set) in pod_sets.iter().enumerate() {
        let gone = reclaimable.get(&pod_set.name).copied().unwrap_or(0);
        let count = pod_set.count.saturating_sub(gone);
        let mut found = find_pod_set(offer, pod_set, count, &taken);
        if let Some(category) = found.category {
            // Wire: the reasons of one pod set are sorted.
            found.reasons.sort();
            texts.push(format!(
                "couldn't assign flavors to pod set {}: {}",
                pod_set.name,
                found.reasons.join(", ")
            ));
            worst = worst.max(Some(category));
            // Why: what a later pod set may take depends on what earlier ones were given, that is on usage.
            if index > 0 {
                remedy = Remedy::Capacity;
            }
        }
        for (resource, flavor) in &found.assignment.flavors {
            let amount = found
                .assignment
                .usage
                .get(resource)
                .copied()
                .unwrap_or(Amount::ZERO);
            let sum: &mut Amount = taken.entry((flavor.clone(), resource.clone())).or_default();
            *sum = sum.plus(amount);
        }
        assignments.push(found.assignment);
        match found.search {
            Search::GoOn => {}
            Search::Stop => break,
        }
    }
    match worst {
        None => Ok(assignments),
        Some(category) => Err(Refusal {
            category,
            message: texts.join("; "),
            remedy: if category == Category::WaitingForQuota {
                Remedy::Capacity
            } else {
                remedy
            },
        }),
    }
}

type Taken = BTreeMap<(FlavorName, ResourceName), Amount>;

/// Whether the search goes on after something did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Everything so far has a flavor, be it one that is full now.
    GoOn,
    /// Something can have no flavor at all.
    Stop,
}

struct Found {
    assignment: Assignment,
    reasons: Vec<String>,
    category: Option<Category>,
    search: Search,
}

fn find_pod_set(offer: &Offer<'_>, pod_set: &PodSet, count: u32, taken: &Taken) -> Found {
    let requests = requests(offer.queue, pod_set, count);
    let mut found = Found {
        assignment: Assignment {
            name: pod_set.name.clone(),
            flavors: BTreeMap::new(),
            usage: BTreeMap::new(),
            count,
        },
        reasons: Vec::new(),
        category: None,
        search: Search::GoOn,
    };
    for (resource, amount) in &requests {
        if found.assignment.flavors.contains_key(resource) {
            continue;
        }
        let Some(group) = offer.queue.groups.iter().find(|g| g.covered.contains(resource)) else {
            if *amount == Amount::ZERO || offer.undeclared == Undeclared::Ignore {
                continue;
            }
            found
                .reasons
                .push(format!("resource {resource} unavailable in ClusterQueue"));
            found.category = Some(Category::NoMatchingFlavor);
            found.search = Search::Stop;
            return found;
        };
        let wanted: BTreeMap<_, _> = requests
            .iter()
            .filter(|(name, _)| group.covered.contains(name))
            .collect();
        let choice = find_group(offer, group, pod_set, &wanted, taken);
        if let Some(category) = choice.category {
            found.reasons.extend(choice.reasons);
            found.category = found.category.max(Some(category));
        }
        let Some(flavor) = choice.flavor else {
            found.search = Search::Stop;
            return found;
        };
        for (name, amount) in wanted {
            found.assignment.flavors.insert(name.clone(), flavor.clone());
            found.assignment.usage.insert(name.clone(), *amount);
        }
    }
    found
}

/// What the pod set asks for in total, `pods` included when the queue covers it.
fn requests(queue: &ClusterQueue, pod_set: &PodSet, count: u32) -> BTreeMap<ResourceName, Amount> {
    let mut requests: BTreeMap<_, _> = pod_set
        .requests
        .iter()
        .map(|(name, amount)| (name.clone(), amount.times(i64::from(count))))
        .collect();
    let pods = ResourceName::from(PODS);
    if queue.groups.iter().any(|g| g.covered.contains(&pods)) {
        requests.insert(pods, Amount::new(i64::from(count)));
    }
    requests
}

struct Choice<'a> {
    /// The flavor that fits, or else the first that would fit if it was empty.
    flavor: Option<&'a FlavorName>,
    reasons: Vec<String>,
    /// `None` when the flavor fits now.
    category: Option<Category>,
}

fn find_group<'a>(
    offer: &Offer<'a>,
    group: &'a ResourceGroup,
    pod_set: &PodSet,
    wanted: &BTreeMap<&ResourceName, &Amount>,
    taken: &Taken,
) -> Choice<'a> {
    let keys = label_keys(offer, group);
    let mut choice = Choice {
        flavor: None,
        reasons: Vec::new(),
        category: None,
    };
    for quota in &group.flavors {
        let category = match suits(offer, quota, pod_set, &keys) {
            Err(reason) => {
                choice.reasons.push(reason);
                Category::NoMatchingFlavor
            }
            Ok(()) => match fits(offer, quota, wanted, taken, &mut choice.reasons) {
                None => {
                    return Choice {
                        flavor: Some(&quota.name),
                        reasons: Vec::new(),
                        category: None,
                    };
                }
                Some(category) => category,
            },
        };
        if category == Category::WaitingForQuota {
            choice.flavor.get_or_insert(&quota.name);
        }
        choice.category = Some(choice.category.map_or(category, |least| least.min(category)));
    }
    // Limit: the schema wants at least one flavor per group; a group without any suits nobody.
    choice.category.get_or_insert(Category::NoMatchingFlavor);
    choice
}

/// The worst category over all resources of one flavor; `None` when everything fits.
fn fits(
    offer: &Offer<'_>,
    quota: &FlavorQuota,
    wanted: &BTreeMap<&ResourceName, &Amount>,
    taken: &Taken,
    reasons: &mut Vec<String>,
) -> Option<Category> {
    let mut worst = None;
    for (resource, amount) in wanted {
        let earlier = taken
            .get(&(quota.name.clone(), (*resource).clone()))
            .copied()
            .unwrap_or(Amount::ZERO);
        let (value, most) = (earlier.plus(**amount), nominal(quota, resource));
        let free = offer.ledger.available(quota, resource);
        if value > most {
            reasons.push(format!(
                "insufficient quota for {resource} in flavor {}, previously considered podsets requests ({}) + current \
                 podset request ({}) > maximum capacity ({})",
                quota.name,
                quantity::print(resource, earlier),
                quantity::print(resource, **amount),
                quantity::print(resource, most),
            ));
            worst = worst.max(Some(Category::ExceedsMaxQuota));
        } else if value > free {
            reasons.push(format!(
                "insufficient unused quota for {resource} in flavor {}, {} more needed",
                quota.name,
                quantity::print(resource, value.minus(free)),
            ));
            worst = worst.max(Some(Category::WaitingForQuota));
        }
    }
    worst
}

/// The label keys that the flavors of this group define.
fn label_keys<'a>(offer: &Offer<'a>, group: &ResourceGroup) -> BTreeSet<&'a str> {
    group
        .flavors
        .iter()
        .filter_map(|quota| offer.flavors.get(&quota.name))
        .flat_map(|flavor| flavor.node_labels.keys().map(String::as_str))
        .collect()
}

fn suits(
    offer: &Offer<'_>,
    quota: &FlavorQuota,
    pod_set: &PodSet,
    keys: &BTreeSet<&str>,
) -> Result<(), String> {
    let name = &quota.name;
    let Some(flavor) = offer.flavors.get(name) else {
        return Err(format!("flavor {name} not found"));
    };
    if let Some(taint) = flavor
        .taints
        .iter()
        .find(|taint| !tolerated(taint, &pod_set.tolerations) && !tolerated(taint, &flavor.tolerations))
    {
        return Err(format!(
            "untolerated taint {{{} {} {} {}}} in flavor {name}",
            taint.key,
            taint.value,
            effect(taint.effect),
            taint.time_added.as_deref().unwrap_or("<nil>")
        ));
    }
    if selected(flavor, pod_set, keys) {
        Ok(())
    } else {
        Err(format!("flavor {name} doesn't match node affinity"))
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    }
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == Effect::PreferNoSchedule || tolerations.iter().any(|t| tolerates(t, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration {
        key,
        operator,
        value,
        effect: on,
        // Why: how long a NoExecute taint is tolerated matters once the pod runs, not for the choice.
        seconds: _,
    } = toleration;
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let exists = operator.as_deref() == Some("Exists");
    let on_fits = given(on).is_none_or(|on| on == effect(taint.effect));
    let key_fits = given(key).map_or(exists, |key| key == taint.key);
    on_fits && key_fits && (exists || value.as_deref().unwrap_or("") == taint.value)
}

/// Node selector and required affinity, restricted to the keys that flavors of the group define.
fn selected(flavor: &Flavor, pod_set: &PodSet, keys: &BTreeSet<&str>) -> bool {
    let labels = &flavor.node_labels;
    let by_selector = pod_set
        .node_selector
        .iter()
        .filter(|(key, _)| keys.contains(key.as_str()))
        .all(|(key, value)| labels.get(key) == Some(value));
    let term_fits = |term: &AffinityTerm| {
        term.expressions
            .iter()
            .filter(|e| keys.contains(e.key.as_str()))
            .all(|e| e.matches(labels))
    };
    by_selector && (pod_set.affinity.is_empty() || pod_set.affinity.iter().any(term_fits))
}

#[cfg(test)]
mod tests;
