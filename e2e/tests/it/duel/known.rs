//! What may differ: each has a row in `shared/spec/deviations.md`, and nothing else is let pass.

use std::collections::BTreeSet;

use super::side::View;

const BYPASSED: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";

const COUNTS_OF_REASONS: [&str; 2] = [
    "kueue_unadmitted_workloads",
    "kueue_local_queue_unadmitted_workloads",
];

const COUNTS_OF_PENDING: [&str; 2] = ["kueue_pending_workloads", "kueue_local_queue_pending_workloads"];

const COUNT_OF_COHORT: &str = "kueue_cohort_subtree_admitted_active_workloads";
const QUOTA_OF_COHORT: &str = "metric kueue_cohort_subtree_quota ";
const COUNT_OF_QUEUE: &str = "metric kueue_admitted_active_workloads ";

/// Whether a row of the deviations says why `name` is shown otherwise by ours than by theirs.
pub(super) fn is_known(name: &str, theirs: &View, ours: &View) -> bool {
    let mut words = name.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("metric"), Some(family), _) if COUNTS_OF_REASONS.contains(&family) => {
            let mut quotas = ours.keys().filter(|name| name.ends_with(" QuotaReserved"));
            quotas.any(|name| theirs.get(name) != ours.get(name) && is_known(name, theirs, ours))
        }
        (Some("metric"), Some(family), _) if COUNTS_OF_PENDING.contains(&family) => {
            is_counted_late(name, theirs, ours)
        }
        // There the last queue that leaves a cohort leaves its series behind.
        (Some("metric"), Some(family), Some(cohort))
            if family.starts_with("kueue_cohort_")
                && !ours.contains_key(name)
                && !has_quota(ours, cohort) =>
        {
            true
        }
        // There a queue that changes its cohort leaves behind what it has counted; see that both count the same in each queue.
        (Some("metric"), Some(COUNT_OF_COHORT), _) => {
            let of_queues = |view: &View| -> View {
                let all = view.clone().into_iter();
                all.filter(|(name, _)| name.starts_with(COUNT_OF_QUEUE)).collect()
            };
            of_queues(theirs) == of_queues(ours)
        }
        (Some("local"), Some(queue), Some("pendingWorkloads")) => {
            // A head that is being looked at is not counted there. Each ClusterQueue has one LocalQueue, of its name.
            let all = format!("queue {queue} pendingWorkloads");
            ours.get(name) == ours.get(&all) && ours.get(&all) == theirs.get(&all)
        }
        (Some("job"), Some(job), Some(what)) => {
            let of = |view: &View, what: &str| view.get(&format!("job {job} {what}")).cloned();
            let (their_quota, our_quota) = (of(theirs, "QuotaReserved"), of(ours, "QuotaReserved"));
            match (what, of(theirs, what), of(ours, what)) {
                // No status is written before something was decided.
                ("PodsReady", Some(said), None) => {
                    said.starts_with("False WaitForStart:") && our_quota.is_none()
                }
                ("QuotaReserved", quota, Some(ours)) => is_known_quota(theirs, quota.as_deref(), &ours),
                // It comes with the condition that the other side does not show.
                ("Admitted", None, Some(says)) => {
                    says.starts_with("False NoReservation:")
                        && their_quota.is_none()
                        && our_quota.is_some_and(|ours| is_known_quota(theirs, None, &ours))
                }
                _ => false,
            }
        }
        _ => false,
    }
}

/// Whether any flavor of the cohort, named by its label, has a quota.
fn has_quota(view: &View, cohort: &str) -> bool {
    let series = format!("{QUOTA_OF_COHORT}{cohort} ");
    view.keys().any(|name| name.starts_with(&series))
}

/// Whether they only divide in another way what waits in a held queue. Each ClusterQueue has one LocalQueue, of its name.
fn is_counted_late(name: &str, theirs: &View, ours: &View) -> bool {
    let Some((series, _state)) = name.rsplit_once("status=") else {
        return false;
    };
    let mut labels = series.split(' ');
    let queue = labels
        .find_map(|label| { label.strip_prefix("cluster_queue=") }.or_else(|| label.strip_prefix("name=")));
    let queue = format!("queue {} Active", queue.unwrap_or_default());
    let is_held = ours
        .get(&queue)
        .is_some_and(|active| active.starts_with("False "));
    let all = |view: &View| -> u64 {
        let states = view.iter().filter(|(each, _)| each.starts_with(series));
        let counts = states.filter_map(|(_, said)| said.strip_prefix("gauge ")?.parse::<u64>().ok());
        counts.sum()
    };
    is_held && all(theirs) == all(ours)
}

/// The same of condition `QuotaReserved` of a job, which says `theirs` in their view of all jobs.
fn is_known_quota(all: &View, theirs: Option<&str>, ours: &str) -> bool {
    let Some(theirs) = theirs else {
        // What they have not looked at because an equal one of the same queue was refused may have been looked at in ours.
        let is_refused = ours.starts_with("False ") && all.values().any(|said| said == ours);
        return is_inactive(ours) || ours.ends_with(BYPASSED) || is_refused;
    };
    let word = |quota: &str| quota.split(':').next().map(str::to_owned);
    let is_bypassed = theirs.ends_with(BYPASSED) || ours.ends_with(BYPASSED);
    theirs.starts_with("False ")
        && (is_inactive(ours)
            || (is_bypassed && word(theirs) == word(ours))
            || names_fewer_flavors(theirs, ours)
            || without_amounts(theirs) == without_amounts(ours))
}

/// Whether ours went on with the flavors after the one that it had tried before, and found none.
fn names_fewer_flavors(theirs: &str, ours: &str) -> bool {
    let reasons = |quota: &str| -> Option<BTreeSet<String>> {
        let (_, reasons) = quota.split_once("couldn't assign flavors to pod set main: ")?;
        Some(
            reasons
                .split(", insufficient ")
                .map(|one| one.trim_start_matches("insufficient ").to_owned())
                .collect(),
        )
    };
    match (reasons(theirs), reasons(ours)) {
        (Some(theirs), Some(ours)) => ours.is_subset(&theirs),
        _ => false,
    }
}

fn is_inactive(quota: &str) -> bool {
    quota.starts_with("False Suspended: ClusterQueue ") && quota.ends_with(" is inactive")
}

/// Without how much was missing when it was tried last.
fn without_amounts(quota: &str) -> Vec<&str> {
    let words: Vec<&str> = quota.split(' ').collect();
    let is_amount = |at: usize| {
        words
            .get(at + 1..)
            .is_some_and(|rest| matches!(rest, ["more", needed, ..] if needed.starts_with("needed")))
    };
    (0..words.len())
        .filter(|at| !is_amount(*at))
        .map(|at| words[at])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: &str = "False WaitingForQuota: insufficient unused quota for cpu in flavor a";

    fn view(said: &[(&str, &str)]) -> View {
        said.iter()
            .map(|(name, said)| ((*name).to_owned(), (*said).to_owned()))
            .collect()
    }

    fn check(name: &str, theirs: &[(&str, &str)], ours: &[(&str, &str)]) -> bool {
        is_known(name, &view(theirs), &view(ours))
    }

    #[test]
    fn another_amount_is_known_and_another_flavor_is_not() {
        let name = "job j0 QuotaReserved";
        let amount = |text: &str| format!("{WAITS}, {text} more needed. Then b");
        let three = amount("3");
        assert!(check(name, &[(name, &three)], &[(name, &amount("12"))]));
        let other = three.replace("flavor a", "flavor b");
        assert!(!check(name, &[(name, &three)], &[(name, &other)]));
        assert!(!check(name, &[(name, "True QuotaReserved: ")], &[(name, &three)]));
    }

    #[test]
    fn ours_may_name_only_the_flavors_that_were_left_to_try() {
        let name = "job j0 QuotaReserved";
        let says = |reason: &str, flavors: &str| {
            format!("False {reason}: couldn't assign flavors to pod set main: {flavors}")
        };
        let (a, b) = (
            "insufficient unused quota for cpu in flavor a, 2 more needed",
            "insufficient quota for cpu in flavor b",
        );
        let theirs = says("WaitingForQuota", &format!("{b}, {a}"));
        assert!(check(
            name,
            &[(name, &theirs)],
            &[(name, &says("ExceedsMaxQuota", b))]
        ));
        let alone = says("ExceedsMaxQuota", b);
        assert!(!check(name, &[(name, &alone)], &[(name, &theirs)]));
    }

    #[test]
    fn an_equal_of_one_that_was_refused_there_may_say_so_only_in_ours() {
        let (first, second) = ("job j0 QuotaReserved", "job j1 QuotaReserved");
        let ours = [(first, WAITS), (second, WAITS)];
        assert!(check(second, &ours[..1], &ours));
        assert!(!check(second, &[(first, "True QuotaReserved: ")], &ours));
    }

    #[test]
    fn a_workload_that_is_bypassed_at_once_says_so_only_in_ours() {
        let (quota, admitted) = ("job j0 QuotaReserved", "job j0 Admitted");
        let ours = [
            (quota, format!("False WaitingForQuota: {BYPASSED}")),
            (admitted, "False NoReservation: none".to_owned()),
        ];
        let ours = ours.each_ref().map(|(name, said)| (*name, said.as_str()));
        assert!(check(quota, &[], &ours) && check(admitted, &[], &ours));
        assert!(check(quota, &[(quota, WAITS)], &ours), "it was looked at there");
        let for_ever = [(quota, "False ExceedsMaxQuota: too much")];
        assert!(!check(quota, &for_ever, &ours));
        assert!(!check(admitted, &[(quota, WAITS)], &ours));
    }

    #[test]
    fn a_local_queue_may_count_less_there_if_its_cluster_queue_counts_the_same() {
        let (local, all) = ("local q0 pendingWorkloads", "queue q0 pendingWorkloads");
        let ours = [(local, "1"), (all, "1")];
        assert!(check(local, &[(local, "0"), (all, "1")], &ours));
        assert!(!check(local, &[(local, "0"), (all, "0")], &ours));
        assert!(!check(local, &ours, &[(local, "0"), (all, "1")]));
    }

    #[test]
    fn what_waits_in_a_held_queue_may_count_as_active_there() {
        for labels in [
            "kueue_pending_workloads cluster_queue=q0",
            "kueue_local_queue_pending_workloads name=q0 namespace=NS",
        ] {
            let state = |state: &str| format!("metric {labels} status={state}");
            let (active, inadmissible) = (state("active"), state("inadmissible"));
            let held = (
                "queue q0 Active",
                "False Stopped: Can't admit new workloads: is stopped",
            );
            let theirs = [(active.as_str(), "gauge 2"), (inadmissible.as_str(), "gauge 1")];
            let ours = [held, (inadmissible.as_str(), "gauge 3")];
            assert!(check(&active, &theirs, &ours) && check(&inadmissible, &theirs, &ours));
            assert!(!check(&active, &theirs[..1], &ours), "another sum");
            assert!(!check(&active, &theirs, &ours[1..]), "it is not held");
        }
    }

    #[test]
    fn what_a_cohort_has_may_stay_there_when_its_last_queue_left() {
        let quota = format!("{QUOTA_OF_COHORT}cohort=c1 flavor=a resource=cpu");
        let other = format!("{QUOTA_OF_COHORT}cohort=c1 flavor=b resource=cpu");
        let share = "metric kueue_cohort_weighted_share cohort=c1";
        let theirs = [(quota.as_str(), "gauge 3"), (share, "gauge 0")];
        assert!(check(&quota, &theirs, &theirs[1..]), "its object is there");
        assert!(!check(&quota, &theirs, &[(other.as_str(), "gauge 4")]));
        assert!(!check(share, &theirs, &[(share, "gauge 1")]));
    }

    #[test]
    fn the_count_of_a_cohort_may_differ_if_those_of_its_queues_do_not() {
        let cohort = format!("metric {COUNT_OF_COHORT} cohort=c1");
        let queue = format!("{COUNT_OF_QUEUE}cluster_queue=q1");
        let says = |cohorts, queues| [(cohort.as_str(), cohorts), (queue.as_str(), queues)];
        let left = says("gauge 1", "gauge 2");
        assert!(
            check(&cohort, &left, &left[1..]),
            "no cohort of this name any more"
        );
        let theirs = says("gauge 1", "gauge 2");
        assert!(check(&cohort, &theirs, &says("gauge 2", "gauge 2")));
        assert!(!check(&cohort, &theirs, &says("gauge 2", "gauge 1")));
        assert!(!check(&queue, &theirs, &says("gauge 1", "gauge 1")));
    }

    #[test]
    fn pods_ready_may_be_missing_only_before_anything_was_decided() {
        let (ready, quota) = ("job j0 PodsReady", "job j0 QuotaReserved");
        let theirs = [(ready, "False WaitForStart: Not all pods are ready or succeeded")];
        assert!(check(ready, &theirs, &[]));
        assert!(!check(ready, &theirs, &[(quota, WAITS)]));
    }

    #[test]
    fn a_workload_in_a_held_queue_may_say_so_only_in_ours() {
        let quota = "job j0 QuotaReserved";
        let ours = [(quota, "False Suspended: ClusterQueue q1 is inactive")];
        assert!(check(quota, &[(quota, WAITS)], &ours) && check(quota, &[], &ours));
        assert!(!check(quota, &ours, &[(quota, WAITS)]));
        assert!(!check("job j0 runs", &[("job j0 runs", "true")], &[]));
    }
}
