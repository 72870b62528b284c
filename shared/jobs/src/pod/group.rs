//! Which pods of a group count, which are surplus, and which have been replaced. *Source*: `spec/jobs.md 12.5 to 12.7`.
//!
//! Invariant: the work is linear in the number of pods, except for the sorting of one role.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use roadstead_api::constants::{annotations, gates};
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_core::note::Note;

use super::{
    condition, has_gate, has_left_node, is_held, is_killed, is_over, is_ready, is_released, may_run, phase,
    release, role, template,
};
use crate::json;
use crate::kind::{AsksForMore, Error, Look, Member, Members, Pods, Stand, Tending, Told, Write};
use crate::labels::{annotation, queue};
use crate::podset::JobPodSet;

/// The largest number of roles of a group. *Source*: `spec/jobs.md 2.3`.
const ROLES_MAX: usize = 18;
/// The default grace period of a pod, in seconds. *Source*: the Pod API.
const GRACE_SECS: i64 = 30;

/// The value of an annotation that enables something.
const TRUE: &str = "true";

fn says(pod: Member<'_>, key: &str) -> bool {
    annotation(pod.meta, key) == Some(TRUE)
}

fn total(pod: Member<'_>) -> Option<u32> {
    let text = annotation(pod.meta, annotations::POD_GROUP_TOTAL_COUNT)?;
    text.parse().ok().filter(|total| *total > 0)
}

fn is_unretriable(members: Members<'_>) -> bool {
    { members.all() }
        .iter()
        .any(|pod| annotation(pod.meta, annotations::RETRIABLE_IN_GROUP) == Some("false"))
}

/// Whether the pod runs, will run, or has succeeded; otherwise another pod must take its place.
fn is_runnable(pod: Member<'_>) -> bool {
    let is_bound = json::text(pod.data, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    phase(pod) != "Failed" && (pod.meta.deletion_timestamp.is_none() || is_bound)
}

fn name(pod: Member<'_>) -> &str {
    pod.meta.name.as_deref().unwrap_or_default()
}

/// The pod sets of the Workload to create for a group.
///
/// *Errors*: the group is not complete, or its members do not fit together.
pub(super) fn pod_sets(group: &str, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
    let unfit = |message: String| Err(Error::Unfit { message });
    let runnable = runnable(members);
    let Some(first) = runnable.first() else {
        return unfit(format!("'{group}' group has fewer runnable pods than expected"));
    };
    let key = annotations::POD_GROUP_TOTAL_COUNT;
    let Some(total) = total(*first) else {
        let pod = name(*first);
        return unfit(format!(
            "pod '{pod}' has no annotation '{key}' with a number from 1 up"
        ));
    };
    for pod in &runnable {
        let (one, other) = (name(*first), name(*pod));
        let (left, right) = (queue(first.meta), queue(pod.meta));
        if left != right {
            let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
            return unfit(format!(
                "pods '{one}' and '{other}' has different queue names: {left}!={right}"
            ));
        }
        let (left, right) = (annotation(first.meta, key), annotation(pod.meta, key));
        if left != right {
            let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
            return unfit(format!(
                "pods '{one}' and '{other}' has different '{key}' values: {left}!={right}"
            ));
        }
    }
    let set = |name: String, count: u32, pod: Member<'_>| JobPodSet {
        name,
        count,
        min_count: None,
        template: template(pod),
    };
    if says(members.first(), annotations::POD_GROUP_FAST_ADMISSION) {
        return Ok(vec![set(role::of(*first), total, *first)]);
    }
    let wanted = usize::try_from(total).unwrap_or(usize::MAX);
    if runnable.len() < wanted {
        return unfit(format!("'{group}' group has fewer runnable pods than expected"));
    }
    let mut sets: BTreeMap<String, JobPodSet> = BTreeMap::new();
    for pod in runnable.iter().take(wanted) {
        let role = role::of(*pod);
        let entry = sets.entry(role.clone()).or_insert_with(|| set(role, 0, *pod));
        entry.count = entry.count.saturating_add(1);
    }
    if sets.len() > ROLES_MAX {
        return unfit(format!("pod group can't include more than {ROLES_MAX} roles"));
    }
    Ok(sets.into_values().collect())
}

/// The pod sets that an object of another kind describes for its group. The templates are those of existing pods, because fields that the
/// cluster has filled in there count too.
pub(super) fn pod_sets_within(members: Members<'_>, of_parent: Vec<JobPodSet>) -> Vec<JobPodSet> {
    let all = runnable(members);
    let filled_in = |set: JobPodSet| {
        let pod = all.iter().find(|pod| role::of(**pod) == set.name);
        let template = pod.map_or(set.template, |pod| template(*pod));
        JobPodSet { template, ..set }
    };
    of_parent.into_iter().map(filled_in).collect()
}

/// Whether an object of another kind makes the members, and replaces lost ones.
fn has_parent(members: Members<'_>) -> bool {
    annotation(members.first().meta, annotations::POD_SUSPENDING_PARENT)
        .is_some_and(|parent| !parent.is_empty())
}

/// The members that count; those that are to stay come first.
fn runnable<'a>(members: Members<'a>) -> Vec<Member<'a>> {
    let all = members.all().iter().copied();
    let mut runnable: Vec<Member<'a>> = all.filter(|pod| is_runnable(*pod)).collect();
    runnable.sort_by_key(|pod| precedence(*pod));
    runnable
}

/// The order of the pods of a role. Surplus pods are removed from its end. *Source*: `spec/jobs.md 12.6`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Precedence<'a> {
    released: bool,
    gated: bool,
    created: Option<Timestamp>,
    name: &'a str,
}

fn precedence(pod: Member<'_>) -> Precedence<'_> {
    Precedence {
        released: is_released(pod),
        gated: has_gate(pod, gates::ADMISSION),
        created: pod.meta.creation_timestamp.as_ref().map(|time| time.0),
        name: name(pod),
    }
}

/// Since when a pod does not count any more.
fn inactive_since(pod: Member<'_>) -> Option<Timestamp> {
    let failed = condition(pod, "ContainersReady").filter(|ready| {
        json::text(ready, &["status"]) == Some("False") && json::text(ready, &["reason"]) == Some("PodFailed")
    });
    let failed = failed.and_then(|ready| json::text(ready, &["lastTransitionTime"])?.parse().ok());
    let deleted = pod.meta.deletion_timestamp.as_ref().map(|time| time.0);
    failed.into_iter().chain(deleted).min()
}

/// What to do about the members, given the pod sets of the group's Workload if it exists.
pub(super) fn tend(
    members: Members<'_>,
    workload: Option<&[JobPodSet]>,
    asks_for_more: AsksForMore,
) -> Tending {
    match workload {
        None => before_workload(members),
        Some(sets) => with_workload(members, sets, asks_for_more),
    }
}

/// The state of the members. Of the held members only those that are `counted` wait for their start.
fn stand(members: Members<'_>, counted: impl Fn(Member<'_>) -> bool) -> Stand {
    let all = members.all();
    let is_bound = |pod: Member<'_>| json::text(pod.data, &["spec", "nodeName"]).is_some();
    // Why also a pod that has left its node: a virtual node shows no end of a pod whose copy was deleted.
    let is_off = |pod: Member<'_>| !is_bound(pod) || (has_left_node(pod) && !is_over(pod));
    let gone = |pod: &Member<'_>| pod.meta.deletion_timestamp.is_some() && is_off(*pod);
    if all.iter().all(gone) {
        return Stand::Gone;
    }
    let held = all.iter().any(|pod| waits(*pod) && counted(*pod));
    let any_held = all.iter().any(|pod| waits(*pod));
    let runs = { all.iter() }.any(|pod| !is_held(*pod) && pod.meta.deletion_timestamp.is_none());
    match (held, runs) {
        (true, true) => Stand::Partly,
        (true, false) => Stand::Held,
        (false, true) => Stand::Running,
        (false, false) if any_held => Stand::Held,
        (false, false) => Stand::Over,
    }
}

/// Whether the pod is held and has not ended.
fn waits(pod: Member<'_>) -> bool {
    has_gate(pod, gates::ADMISSION) && !is_over(pod)
}

fn before_workload(members: Members<'_>) -> Tending {
    let mut tending = Tending {
        stand: stand(members, |_| true),
        ..Tending::default()
    };
    // Why also a member that has ended and is being deleted: no Workload will count it, so only our finalizer keeps it.
    let is_going = |pod: Member<'_>| is_over(pod) && pod.meta.deletion_timestamp.is_some();
    let inactive = { members.all().iter() }.filter(|pod| !is_runnable(**pod) || is_going(**pod));
    tending.writes.extend(inactive.filter_map(|pod| release(*pod)));
    let runnable = runnable(members);
    let wanted = { runnable.first() }.and_then(|pod| usize::try_from(total(*pod)?).ok());
    let owners = runnable.iter().take(wanted.unwrap_or_default());
    tending.kept.extend(owners.map(Member::id));
    let totals = || runnable.iter().map(|pod| total(*pod));
    let Some(total) = totals()
        .next()
        .flatten()
        .filter(|one| totals().all(|other| other == Some(*one)))
    else {
        return tending;
    };
    let wanted = usize::try_from(total).unwrap_or(usize::MAX);
    for pod in runnable.into_iter().skip(wanted) {
        take_out(&mut tending, pod);
    }
    tending
}

fn take_out(tending: &mut Tending, pod: Member<'_>) {
    tending.writes.extend(release(pod));
    tending.writes.push(Write::Delete { of: pod.id() });
    tending.told.push(Told {
        of: pod.id(),
        note: Note::normal("ExcessPodDeleted", "Excess pod deleted"),
    });
}

#[derive(Default)]
struct Role<'a> {
    runnable: Vec<Member<'a>>,
    inactive: Vec<Member<'a>>,
}

fn with_workload(members: Members<'_>, sets: &[JobPodSet], asks_for_more: AsksForMore) -> Tending {
    let is_fast = says(members.first(), annotations::POD_GROUP_FAST_ADMISSION);
    let by_name: BTreeMap<&str, &JobPodSet> = sets.iter().map(|set| (set.name.as_str(), set)).collect();
    let mut by_role: BTreeMap<String, Role<'_>> = BTreeMap::new();
    let mut tending = Tending::default();
    for pod in members.all() {
        let role = role::of(*pod);
        let set = by_name.get(role.as_str());
        if set.is_some_and(|set| waits(*pod) && asks_for_more(pod.data, &set.template)) {
            refuse(&mut tending, *pod, &role);
            continue;
        }
        let role = by_role.entry(role).or_default();
        if is_runnable(*pod) {
            role.runnable.push(*pod);
        } else {
            role.inactive.push(*pod);
        }
    }
    let (mut missing, mut replaced) = (0_u32, Vec::new());
    let (mut wanted_by_all, mut any_runs) = (0_u32, false);
    for set in sets {
        wanted_by_all = wanted_by_all.saturating_add(set.count);
        let Role {
            mut runnable,
            mut inactive,
        } = by_role.remove(&set.name).unwrap_or_default();
        let wanted = usize::try_from(set.count).unwrap_or(usize::MAX);
        let absent = wanted.saturating_sub(runnable.len());
        any_runs |= !runnable.is_empty();
        missing = missing.saturating_add(if is_fast {
            u32::from(set.count > 0 && runnable.is_empty())
        } else {
            u32::try_from(absent).unwrap_or(u32::MAX)
        });
        runnable.sort_by_key(|pod| precedence(*pod));
        for pod in runnable.iter().skip(wanted) {
            take_out(&mut tending, *pod);
        }
        let spare = { runnable.len() }
            .saturating_add(inactive.len())
            .saturating_sub(wanted);
        inactive.sort_by_key(|pod| {
            let since = inactive_since(*pod).unwrap_or(Timestamp::MAX);
            (Reverse(is_released(*pod)), since)
        });
        let (gone, kept) = inactive.split_at(spare.min(inactive.len()));
        replaced.extend(gone.iter().filter_map(|pod| release(*pod)));
        let kept = runnable.iter().take(wanted).chain(kept);
        tending.kept.extend(kept.map(Member::id));
    }
    tending.writes.extend(replaced);
    let counted: BTreeSet<&str> = tending.kept.iter().map(|id| id.uid.as_str()).collect();
    tending.stand = stand(members, |pod| {
        counted.contains(pod.meta.uid.as_deref().unwrap_or_default())
    });
    let has_parent = has_parent(members);
    // Why: the Workload of an object whose size was changed still has the old size.
    let is_of_size = !has_parent || total(members.first()) == Some(wanted_by_all);
    tending.fits = !tending.kept.is_empty() && is_of_size;
    // Why at most one is reported missing: the parent may make some pods only when others are ready.
    tending.missing = Some(if has_parent { u32::from(!any_runs) } else { missing });
    tending
}

/// Leaves a member held because it requests more than its role was given.
///
/// Unlike the anchor: there the annotation alone decides the role of a pod, so it may run on quota that was never counted.
fn refuse(tending: &mut Tending, pod: Member<'_>, role: &str) {
    let text = format!(
        "Pod '{}' asks for more than pod set '{role}' of its group's Workload counts, so it stays held: delete it, and create it \
         with the requests of that pod set or without annotation '{}'",
        name(pod),
        annotations::ROLE_HASH
    );
    tending.told.push(Told {
        of: pod.id(),
        note: Note::warning("PodExceedsPodSet", text),
    });
}

pub(super) fn look(members: Members<'_>) -> Look {
    let all = members.all();
    let first = members.first();
    let total = total(first).unwrap_or(1);
    let count = |is: fn(Member<'_>) -> bool| -> u32 {
        u32::try_from(all.iter().filter(|pod| is(**pod)).count()).unwrap_or(u32::MAX)
    };
    let succeeded = count(|pod| phase(pod) == "Succeeded");
    let serves = says(first, annotations::POD_GROUP_SERVING);
    let is_done = succeeded >= total || (is_unretriable(members) && all.iter().all(|pod| is_over(*pod)));
    let running = || all.iter().filter(|pod| phase(**pod) == "Running");
    let pods = if running().any(|pod| pod.meta.deletion_timestamp.is_none()) {
        Pods::Alive
    } else {
        match running().filter_map(|pod| ends_by(*pod)).max() {
            Some(at) => Pods::AliveUntil(at),
            None if all.iter().any(|pod| may_run(*pod)) => Pods::Ending,
            None => Pods::None,
        }
    };
    let mut reclaimable: BTreeMap<PodSetName, u32> = BTreeMap::new();
    for pod in all.iter().filter(|pod| !serves && phase(**pod) == "Succeeded") {
        let entry = reclaimable
            .entry(PodSetName::from(role::of(*pod).as_str()))
            .or_default();
        *entry = entry.saturating_add(1);
    }
    Look {
        suspended: all.iter().any(|pod| !may_run(*pod)),
        pods,
        ready: count(|_| true) >= total && all.iter().all(|pod| is_ready(*pod)),
        ended: (is_done && !serves).then(|| Outcome {
            // Unlike the anchor: a group without any succeeded pod has failed.
            success: succeeded > 0,
            message: format!("Pods succeeded: {succeeded}/{total}."),
        }),
        killed: succeeded < total && all.iter().any(|pod| is_killed(*pod)),
        reclaimable,
    }
}

/// The latest end of a terminating pod, because its node may never report it.
fn ends_by(pod: Member<'_>) -> Option<Timestamp> {
    let deleted = pod.meta.deletion_timestamp.as_ref()?.0;
    let grace = pod.meta.deletion_grace_period_seconds.unwrap_or(GRACE_SECS);
    deleted.checked_add(SignedDuration::from_secs(grace)).ok()
}
