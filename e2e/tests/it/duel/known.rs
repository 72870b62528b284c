//! What may differ: each has a row in `shared/spec/deviations.md`, and nothing else is let pass.

use super::side::View;

const BYPASSED: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";

/// Whether a row of the deviations says why `name` is shown otherwise by ours than by theirs.
pub(super) fn is_known(name: &str, theirs: &View, ours: &View) -> bool {
    if [
        "metric kueue_unadmitted_workloads ",
        "metric kueue_local_queue_unadmitted_workloads ",
    ]
    .iter()
    .any(|family| name.starts_with(family))
    {
        // They count reasons.
        return ours.keys().any(|name| {
            name.ends_with(" QuotaReserved")
                && theirs.get(name) != ours.get(name)
                && is_known(name, theirs, ours)
        });
    }
    if let Some(queue) = name
        .strip_prefix("local ")
        .and_then(|name| name.strip_suffix(" pendingWorkloads"))
    {
        // A head that is looked at is not counted there, and stays so. Each ClusterQueue has one LocalQueue, of its name.
        let all = format!("queue {queue} pendingWorkloads");
        return ours.get(name) == ours.get(&all) && ours.get(&all) == theirs.get(&all);
    }
    let Some((job, what)) = job_and_what(name) else {
        return false;
    };
    let quota = |view: &View| view.get(&format!("job {job} QuotaReserved")).cloned();
    let (their_quota, our_quota) = (quota(theirs), quota(ours));
    let (said, says) = (theirs.get(name), ours.get(name));
    match what {
        // No status is written before something was decided.
        "PodsReady" => {
            said.is_some_and(|said| said.starts_with("False WaitForStart:"))
                && says.is_none()
                && our_quota.is_none()
        }
        "QuotaReserved" => {
            let Some(ours) = says else { return false };
            if said.is_some_and(|said| said.starts_with("True")) {
                return false;
            }
            let word = |quota: &str| quota.split(':').next().map(str::to_owned);
            let bypassed = |quota: &str| quota.ends_with(BYPASSED);
            match said {
                None => is_inactive(ours) || bypassed(ours),
                Some(theirs) => {
                    is_inactive(ours)
                        || (word(theirs) == word(ours) && (bypassed(theirs) || bypassed(ours)))
                        || without_amounts(theirs) == without_amounts(ours)
                }
            }
        }
        // It comes with the condition that the other side does not show.
        "Admitted" => {
            said.is_none()
                && says.is_some_and(|says| says.starts_with("False NoReservation:"))
                && their_quota.is_none()
                && our_quota.is_some_and(|ours| ours.ends_with(BYPASSED) || is_inactive(&ours))
        }
        _ => false,
    }
}

fn job_and_what(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("job ")?.split_once(' ')
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
    fn who_is_bypassed_at_once_says_so_only_in_ours() {
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
    fn pods_ready_may_be_missing_only_before_anything_was_decided() {
        let (ready, quota) = ("job j0 PodsReady", "job j0 QuotaReserved");
        let theirs = [(ready, "False WaitForStart: Not all pods are ready or succeeded")];
        assert!(check(ready, &theirs, &[]));
        assert!(!check(ready, &theirs, &[(quota, WAITS)]));
    }

    #[test]
    fn who_waits_in_a_held_queue_may_say_so_only_in_ours() {
        let quota = "job j0 QuotaReserved";
        let ours = [(quota, "False Suspended: ClusterQueue q1 is inactive")];
        assert!(check(quota, &[(quota, WAITS)], &ours) && check(quota, &[], &ours));
        assert!(!check(quota, &ours, &[(quota, WAITS)]));
        assert!(!check("job j0 runs", &[("job j0 runs", "true")], &[]));
    }
}
