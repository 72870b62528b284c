//! What may differ: each has a row in `shared/spec/deviations.md`, and nothing else is let pass.

use super::side::View;

const BYPASSED: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";

const COUNTS_OF_REASONS: [&str; 2] = [
    "kueue_unadmitted_workloads",
    "kueue_local_queue_unadmitted_workloads",
];

const COUNTS_OF_PENDING: [&str; 2] = ["kueue_pending_workloads", "kueue_local_queue_pending_workloads"];

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
                ("QuotaReserved", theirs, Some(ours)) => is_known_quota(theirs.as_deref(), &ours),
                // It comes with the condition that the other side does not show.
                ("Admitted", None, Some(says)) => {
                    says.starts_with("False NoReservation:")
                        && their_quota.is_none()
                        && our_quota.is_some_and(|ours| is_known_quota(None, &ours))
                }
                _ => false,
            }
        }
        _ => false,
    }
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

/// The same of condition `QuotaReserved`.
fn is_known_quota(theirs: Option<&str>, ours: &str) -> bool {
    let Some(theirs) = theirs else {
        return is_inactive(ours) || ours.ends_with(BYPASSED);
    };
    let word = |quota: &str| quota.split(':').next().map(str::to_owned);
    let is_bypassed = theirs.ends_with(BYPASSED) || ours.ends_with(BYPASSED);
    theirs.starts_with("False ")
        && (is_inactive(ours)
            || (is_bypassed && word(theirs) == word(ours))
            || without_amounts(theirs) == without_amounts(ours))
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
