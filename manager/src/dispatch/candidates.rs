//! What is known of each cluster for one Workload besides its objects: the room in its queues, and the settings of its
//! administrator.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::bug;
use roadstead_core::cluster::link::Link;
use roadstead_core::dispatch::capacity::{self, Closed, Room};
use roadstead_core::dispatch::{Cordon, Dispatcher, Plan, Site};
use roadstead_core::kind::KindState;
use roadstead_core::lease::Tenure;
use roadstead_core::name::{ClusterName, Key};
use roadstead_core::workload::Workload;

use super::Dispatch;
use crate::capacity::Kin;
use crate::sites::{cordon, is_given_up};

/// The dispatcher for these clusters.
///
/// Unlike the anchor: when the administrator has chosen none and every connected worker runs Roadstead, it is the dispatcher by
/// capacity.
pub(super) fn dispatcher(d: &Dispatch, clusters: &[ClusterName]) -> Dispatcher {
    if !d.may_choose {
        return d.policy.dispatcher;
    }
    let connected = clusters.iter().filter_map(|name| d.registry.get(name));
    let mut kin = connected
        .filter(|remote| remote.lost_since().is_none())
        .map(|remote| remote.queues.kin())
        .peekable();
    if kin.peek().is_some() && kin.all(|kin| kin == Kin::Roadstead) {
        Dispatcher::Capacity
    } else {
        d.policy.dispatcher
    }
}

/// What is known of these clusters for one Workload.
pub(super) fn sites(
    d: &Dispatch,
    workload: &Workload,
    clusters: impl IntoIterator<Item = ClusterName>,
    dispatcher: Dispatcher,
    now: Timestamp,
) -> BTreeMap<ClusterName, Site> {
    let seeks = workload.has_quota() && workload.status.cluster.is_none();
    let asked = (seeks && dispatcher == Dispatcher::Capacity).then(|| capacity::asked(workload));
    let queue = local_queue(workload);
    let site = |name: ClusterName| {
        let remote = d.registry.get(&name);
        let cluster = d.federation.clusters.named(name.as_str());
        let room = match (&asked, &remote) {
            // Why the breaker counts only if room is asked for: another dispatcher asks this worker together with others, so it
            // delays no Workload.
            (Some(asked), Some(remote)) => match remote.link(|link| link.unusable().map(str::to_owned)) {
                Some(words) => Room::Closed(Closed::NotAnswering { words }),
                None => remote.queues.room(&queue, asked, |queue| {
                    d.ledger.coming((&name, queue), &workload.key, now)
                }),
            },
            (None, Some(remote)) if seeks => remote.queues.closed(&queue).map_or(Room::Unknown, Room::Closed),
            (None, _) | (_, None) => Room::Unknown,
        };
        let is_given_up = { remote.as_ref().zip(cluster.as_ref()) }
            .is_some_and(|(remote, cluster)| is_given_up(remote, cluster));
        let is_leaving = { remote.as_ref() }.is_some_and(|remote| remote.link(Link::is_leaving));
        let cordon = match cluster.map_or(Cordon::Open, |cluster| cordon(&cluster)) {
            Cordon::Open if is_leaving && !bug!(d.policy, InactiveStillUsed) => Cordon::Closed,
            cordon @ (Cordon::Open | Cordon::Closed | Cordon::Drained | Cordon::Leaving) => cordon,
        };
        let site = Site {
            room,
            cordon,
            given_up: is_given_up,
            late: { remote.as_ref() }.is_some_and(|remote| remote.link(Link::is_slow)),
            lease: remote.map_or(Tenure::Held, |remote| d.lessor.tenure(&remote)),
            kind: KindState::Serving,
        };
        (name, site)
    };
    clusters.into_iter().map(site).collect()
}

/// Whether a cluster is free: its objects were read and none of ours is left, and no unfinished Workload is placed there. A
/// cluster that is given up, or was lost for the whole timeout, counts as free although objects may be left; they are found if it
/// comes back.
pub(crate) fn is_free(d: &Dispatch, name: &ClusterName, now: Timestamp) -> bool {
    let is_placed =
        |w: &Arc<api::Workload>| w.cluster_name() == Some(name.as_str()) && !w.is_true("Finished");
    if !d.knows_everything() || d.caches.workloads.all().iter().any(is_placed) {
        return false;
    }
    let Some(remote) = d.registry.get(name) else {
        return true;
    };
    match remote.lost_since() {
        None => remote.knows_all_kinds() && remote.held.all().is_empty(),
        Some(since) => {
            let known_empty = remote.was_read() && remote.held.all().is_empty();
            let cluster = d.federation.clusters.named(name.as_str());
            known_empty
                || cluster.is_some_and(|cluster| is_given_up(&remote, &cluster))
                || now.duration_since(since) >= d.policy.worker_lost_timeout
        }
    }
}

/// Records where a Workload is newly sent, so that the next one sees less room there.
pub(super) fn note_sent(d: &Dispatch, workload: &Workload, plan: &Plan, now: Timestamp) {
    let before = &workload.status.nominated;
    for cluster in plan.status.nominated.iter().filter(|name| !before.contains(name)) {
        let remote = d.registry.get(cluster);
        let Some(queue) = remote.and_then(|remote| remote.queues.cluster_queue_of(&local_queue(workload)))
        else {
            continue;
        };
        let place = (cluster.clone(), queue);
        d.ledger
            .sent(place, &workload.key, capacity::asked(workload), now);
    }
}

/// The LocalQueue of a Workload; it has the same name on every cluster.
fn local_queue(workload: &Workload) -> Key {
    Key::new(workload.key.namespace.clone(), workload.queue.as_str())
}
