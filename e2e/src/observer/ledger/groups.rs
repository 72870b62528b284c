//! Groups of pods: what their pods show together. A group is one job of the ledger, under the name of the group.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;

use super::facts::{Group, Outcome};
use super::{JobState, Place, Presence, Seen};

/// A group in one cluster: the cluster, the namespace and the name of the group.
type At = (Place, String, String);

/// The pods of all groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BTreeMap<At, BTreeMap<String, Member>>,
    /// Names of the pods that ran, by group and worker.
    ran: BTreeMap<(String, String), BTreeMap<usize, BTreeSet<String>>>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    state: JobState,
    presence: Presence,
}

impl Groups {
    /// Takes in a pod, and gives the state of its group. Pods that have ended count after they are gone.
    pub(super) fn seen(
        &mut self,
        place: Place,
        pod: &DynamicObject,
        group: &Group,
        (state, presence): (JobState, Presence),
    ) -> Seen {
        let namespace = pod.namespace().unwrap_or_default();
        if let (Place::Worker(worker), true) = (place, state.live) {
            let ran = self
                .ran
                .entry((namespace.clone(), group.name.clone()))
                .or_default();
            ran.entry(worker).or_default().insert(pod.name_any());
        }
        let all = self
            .members
            .entry((place, namespace, group.name.clone()))
            .or_default();
        let uid = pod.uid().unwrap_or_default();
        if presence == Presence::Gone && state.outcome.is_none() {
            all.remove(&uid);
        } else {
            all.insert(uid, Member { state, presence });
        }
        let count = |is: fn(&Member) -> bool| all.values().filter(|member| is(member)).count();
        let ended = count(|member| member.state.outcome.is_some());
        let succeeded = count(|member| member.state.outcome == Some(Outcome::Succeeded));
        let completions = succeeded / group.total.max(1);
        let outcome = if completions > 0 {
            Some(Outcome::Succeeded)
        } else {
            (ended >= group.total && ended == all.len()).then_some(Outcome::Failed)
        };
        Seen {
            name: group.name.clone(),
            uid: format!("group {}", group.name),
            state: JobState {
                live: outcome.is_none() && count(|member| member.state.live) > 0,
                outcome,
                completions,
            },
            presence: if count(|member| member.presence == Presence::There) > 0 {
                Presence::There
            } else {
                Presence::Gone
            },
        }
    }

    /// How many pods of a group ran, by worker.
    pub(super) fn ran(&self, namespace: &str, group: &str) -> impl Iterator<Item = (usize, usize)> {
        let ran = self.ran.get(&(namespace.to_owned(), group.to_owned()));
        let each = ran.into_iter().flatten();
        each.map(|(worker, pods)| (*worker, pods.len()))
    }
}
