//! Whether a worker's queue could ever hold a Workload, whatever is in use now: from its limits alone.
//!
//! Invariant: a shortage is certain, because everything unknown counts as room: a resource that the queue does not cover (the worker may
//! count it by another name), a cohort without a borrowing limit, and pods that partial admission can leave out.
//!
//! *Source*: `spec/multikueue.md 4.3`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::capacity::{Amounts, PODS, add};
use crate::amount::Amount;
use crate::name::{ClusterName, ResourceName};
use crate::quantity::print;
use crate::queue::{ClusterQueue, Quota};
use crate::workload::{PodSet, Workload};

/// *Limit*: how many clusters a sentence names.
const NAMED_MAX: usize = 8;

/// A request above what a queue could ever give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource that is short.
    pub resource: ResourceName,
    /// What is asked for, by one pod set or by all together.
    pub asked: Amount,
    /// The most that the queue could give.
    pub most: Amount,
}

/// Why a queue can never hold this Workload; `None` if it may, as far as is known.
pub fn shortage(queue: &ClusterQueue, workload: &Workload) -> Option<Shortage> {
    let sets: Vec<Amounts> = { workload.pod_sets.iter() }
        .map(|set| least(set, workload))
        .collect();
    let mut all = Amounts::new();
    for set in &sets {
        add(&mut all, set);
    }
    queue.groups.iter().find_map(|group| {
        group.covered.iter().find_map(|resource| {
            let quotas = { group.flavors.iter() }.map(|flavor| flavor.quotas.get(resource).copied());
            let ceilings = quotas.map(|quota| ceiling(queue, quota.unwrap_or_default()));
            let together = ceilings.clone().fold(Amount::ZERO, Amount::plus);
            // Why the largest pod set against one flavor: a pod set gets a single flavor of each group.
            let largest = sets.iter().filter_map(|set| set.get(resource)).max();
            let pairs = [
                (largest.copied(), ceilings.max().unwrap_or_default()),
                (all.get(resource).copied(), together),
            ];
            pairs.into_iter().find_map(|(asked, most)| {
                let asked = asked.filter(|asked| *asked > most)?;
                Some(Shortage {
                    resource: resource.clone(),
                    asked,
                    most,
                })
            })
        })
    })
}

/// What one pod set needs at least to start.
fn least(set: &PodSet, workload: &Workload) -> Amounts {
    let finished = workload.status.reclaimable.get(&set.name).copied();
    let count = set.min_count.unwrap_or(set.count);
    let count = count.min(set.count.saturating_sub(finished.unwrap_or_default()));
    let mut amounts = set.total(count);
    amounts.insert(ResourceName::from(PODS), Amount::new(i64::from(count)));
    amounts
}

/// The most that a flavor could ever give.
fn ceiling(queue: &ClusterQueue, quota: Quota) -> Amount {
    match (&queue.cohort, quota.borrowing_limit) {
        (None, _) => quota.nominal,
        (Some(_), Some(limit)) => quota.nominal.plus(limit),
        (Some(_), None) => Amount::UNLIMITED,
    }
}

/// The sentence for a Workload that is larger than every worker: how much each worker could give. `short` must not be empty.
pub fn exceeds_every(short: &BTreeMap<ClusterName, Shortage>) -> String {
    let mut sentence = "No worker cluster can ever hold the workload: ".to_owned();
    let mut all = short.iter();
    let largest = all.next().map(|first| {
        all.fold(
            first,
            |best, next| {
                if next.1.most > best.1.most { next } else { best }
            },
        )
    });
    let amount = |one: &Shortage, amount: Amount| print(&one.resource, amount);
    let alike = |best: &Shortage| {
        { short.values() }.all(|one| one.resource == best.resource && one.asked == best.asked)
    };
    if let Some((cluster, best)) = largest.filter(|(_, best)| alike(best)) {
        let (asked, most) = (amount(best, best.asked), amount(best, best.most));
        // Writing to a String cannot fail.
        let _ = write!(
            sentence,
            "it asks for {asked} of {}, and the most that one of them could give is {most}, on \"{cluster}\"",
            best.resource
        );
        return sentence;
    }
    for (index, (cluster, one)) in short.iter().take(NAMED_MAX).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let (asked, most) = (amount(one, one.asked), amount(one, one.most));
        let _ = write!(
            sentence,
            "{comma}\"{cluster}\" could give at most {most} of {}, and it asks for {asked}",
            one.resource
        );
    }
    if short.len() > NAMED_MAX {
        let _ = write!(sentence, ", and {} more", short.len() - NAMED_MAX);
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::{asks, cluster_queue, cores, group, pod_set, workload};

    fn short(queue: &ClusterQueue, workload: &Workload) -> Option<(String, i64, i64)> {
        let one = shortage(queue, workload)?;
        Some((one.resource.to_string(), one.asked.get(), one.most.get()))
    }

    /// Spec: multikueue 4.3
    #[test]
    fn a_shortage_follows_from_limits_alone_and_is_certain() {
        assert_eq!(short(&cores(4), &asks("a", 1, 4)), None);
        let cpu = |asked, most| Some(("cpu".to_owned(), asked, most));
        assert_eq!(short(&cores(4), &asks("a", 1, 5)), cpu(5_000, 4_000));

        let two = || {
            cluster_queue(
                "cq",
                vec![group(&[("a", &[("cpu", 4_000)]), ("b", &[("cpu", 2_000)])])],
            )
        };
        assert_eq!(
            short(&two(), &asks("a", 1, 5)),
            cpu(5_000, 4_000),
            "a pod set has one flavor"
        );
        let sets = |counts: &[u32]| {
            let sets = counts.iter().enumerate();
            workload(
                "w",
                1,
                sets.map(|(i, n)| pod_set(&format!("s{i}"), *n, &[("cpu", 1_000)]))
                    .collect(),
            )
        };
        assert_eq!(short(&two(), &sets(&[4, 2])), None);
        assert_eq!(short(&two(), &sets(&[4, 3])), cpu(7_000, 6_000));
        let mut partial = sets(&[9]);
        partial.pod_sets[0].min_count = Some(3);
        assert_eq!(short(&cores(4), &partial), None);
        let mut nearly_done = sets(&[9]);
        nearly_done.status.reclaimable = BTreeMap::from([("s0".into(), 6)]);
        assert_eq!(short(&cores(4), &nearly_done), None);

        let gpu = workload("w", 1, vec![pod_set("main", 1, &[("gpu", 1)])]);
        assert_eq!(
            short(&cores(4), &gpu),
            None,
            "that worker may count it by another name"
        );
        let mut lent = cores(4);
        lent.cohort = Some("c".into());
        assert_eq!(
            short(&lent, &asks("a", 1, 99)),
            None,
            "who lends how much is not known"
        );
        for quota in lent.groups[0].flavors[0].quotas.values_mut() {
            quota.borrowing_limit = Some(Amount::new(1_000));
        }
        assert_eq!(short(&lent, &asks("a", 1, 5)), None);
        assert_eq!(short(&lent, &asks("a", 1, 6)), cpu(6_000, 5_000));
        let pods = cluster_queue("cq", vec![group(&[("a", &[("pods", 2)])])]);
        assert_eq!(short(&pods, &sets(&[3])), Some(("pods".to_owned(), 3, 2)));
    }

    /// Spec: multikueue 4.3, experience P4
    #[test]
    fn the_sentence_names_the_largest_that_would_fit_and_where() {
        let one = |resource: &str, asked, most| Shortage {
            resource: resource.into(),
            asked: Amount::new(asked),
            most: Amount::new(most),
        };
        let said = |short: &[(&str, Shortage)]| {
            let short = short.iter().map(|(name, one)| ((*name).into(), one.clone()));
            exceeds_every(&short.collect())
        };
        assert_eq!(
            said(&[
                ("east", one("cpu", 12_000, 4_000)),
                ("west", one("cpu", 12_000, 8_000))
            ]),
            "No worker cluster can ever hold the workload: it asks for 12 of cpu, and the most that one of them could give is 8, on \
             \"west\""
        );
        assert_eq!(
            said(&[("east", one("cpu", 12_000, 4_000)), ("west", one("gpu", 4, 2))]),
            "No worker cluster can ever hold the workload: \"east\" could give at most 4 of cpu, and it asks for 12, \"west\" could give \
             at most 2 of gpu, and it asks for 4"
        );
        let names: Vec<String> = (0..12).map(|index| format!("c{index:02}")).collect();
        let kinds = ["cpu", "gpu"];
        let many: Vec<(&str, Shortage)> = { names.iter().enumerate() }
            .map(|(index, name)| (name.as_str(), one(kinds[index % 2], 9, 1)))
            .collect();
        assert!(said(&many).ends_with(", and 4 more"), "{}", said(&many));
    }
}
