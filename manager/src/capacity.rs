//! How much the queues of the workers could take: read by watches on each worker, estimated by
//! [`roadstead_core::dispatch::capacity`].
//!
//! Invariant: a decision about a Workload sends no request to a worker from here. A worker whose queues cannot be read stays a
//! candidate: its room is unknown, and it is asked as the reference asks.
//!
//! *Source*: `spec/multikueue.md 4.3`.

mod ledger;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, ClusterQueueSpec, LocalQueue};
use roadstead_core::dispatch::capacity::{self, Amounts, Closed, QueueView, Room};
use roadstead_core::dispatch::ceiling::{self, Shortage};
use roadstead_core::name::{ClusterName, Key};
use roadstead_core::queue::StopPolicy;
use roadstead_core::workload::Workload;
use roadstead_kubeio::cache::{Cache, Health};
use roadstead_kubeio::latest::Follower;
use roadstead_kubeio::trouble::tell_unread;

pub(crate) use ledger::Ledger;

/// How many ClusterQueues are read to learn which program runs a worker.
const SAMPLE: u32 = 20;
/// First and longest pause between two requests that ask which program runs a worker; the pause doubles each time. A worker
/// without queues costs no request.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How the field managers of our processes begin in `managedFields`.
const OURS: &str = "roadstead-";

pub(crate) struct Queues {
    pub(crate) clusters: Arc<Cache<ClusterQueue>>,
    pub(crate) locals: Arc<Cache<LocalQueue>>,
    views: Arc<RwLock<Views>>,
    kin: AtomicU8,
    /// Whether all queues were listed at least once.
    listed: AtomicBool,
}

/// The ClusterQueues of a worker by name.
type Views = BTreeMap<String, Arc<QueueView>>;

/// What the limits of a worker say about one Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Its queues were never listed.
    Unknown,
    NoQueue,
    /// The queue may hold the Workload at some time.
    MayFit,
    /// The queue can never hold the Workload.
    Short(Shortage),
}

/// Which program looks after the queues of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kin {
    Unknown,
    Roadstead,
    /// Another program, such as Kueue.
    Other,
}

impl Queues {
    pub(crate) fn new() -> Self {
        let (clusters, views) = (Cache::<ClusterQueue>::new(), Arc::new(RwLock::default()));
        let parsed: Arc<RwLock<Views>> = views.clone();
        clusters.listen(move |change| {
            let name = change.key.name.to_string();
            let mut parsed = parsed.write().unwrap_or_else(PoisonError::into_inner);
            match change.new {
                Some(queue) => parsed.insert(name, Arc::new(roadstead_convert::queue_view(queue))),
                None => parsed.remove(&name),
            };
        });
        Self {
            clusters,
            locals: Cache::new(),
            views,
            kin: AtomicU8::new(Kin::Unknown as u8),
            listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn kin(&self) -> Kin {
        match self.kin.load(Ordering::Relaxed) {
            1 => Kin::Roadstead,
            2 => Kin::Other,
            _ => Kin::Unknown,
        }
    }

    /// Learns which program runs the worker, from the field managers of the statuses of its queues. Asks again until a status has
    /// one; sends no request while the worker has no queue.
    pub(crate) async fn recognise(&self, client: &Client) {
        let api: Api<ClusterQueue> = Api::all(client.clone());
        let mut pause = LOOK_AGAIN.0;
        loop {
            while self.clusters.is_empty() {
                tokio::time::sleep(LOOK_AGAIN.0).await;
            }
            let page = api.list_metadata(&ListParams::default().limit(SAMPLE)).await;
            let writers: Vec<String> = page
                .into_iter()
                .flat_map(|page| page.items)
                .flat_map(|queue| queue.metadata.managed_fields.unwrap_or_default())
                .filter(|entry| entry.subresource.as_deref() == Some("status"))
                .filter_map(|entry| entry.manager)
                .collect();
            if !writers.is_empty() {
                let ours = writers.iter().all(|writer| writer.starts_with(OURS));
                let kin = if ours { Kin::Roadstead } else { Kin::Other };
                self.kin.store(kin as u8, Ordering::Relaxed);
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_AGAIN.1);
        }
    }

    /// Calls `changed` when a queue comes or goes, or changes what it may take; not when only its use changes.
    ///
    /// Why: a worker without the queue of a Workload is not asked, and nothing else reports a queue that is created later.
    pub(crate) fn on_change(&self, changed: impl Fn() + Clone + Send + Sync + 'static) {
        let told = changed.clone();
        self.clusters.listen(move |change| {
            if change.old.map(|queue| offer(queue)) != change.new.map(|queue| offer(queue)) {
                told();
            }
        });
        self.locals.listen(move |change| {
            if change.old.map(|queue| &queue.spec) != change.new.map(|queue| &queue.spec) {
                changed();
            }
        });
    }

    /// Logs when a kind of queue has not been readable for a while, and when it is readable again. Never ends.
    pub(crate) async fn tell(&self) {
        tokio::join!(
            tell("ClusterQueue", self.clusters.health()),
            tell("LocalQueue", self.locals.health())
        );
    }

    /// Waits until all queues are listed, and remembers that. Calls `changed` the first time, because the limits of the worker
    /// are known from then on.
    pub(crate) async fn note_listed(&self, changed: impl FnOnce()) {
        let (mut clusters, mut locals) = (self.clusters.health(), self.locals.health());
        clusters.wait_for(|health| *health == Health::Live).await;
        locals.wait_for(|health| *health == Health::Live).await;
        if !self.listed.swap(true, Ordering::AcqRel) {
            changed();
        }
    }

    /// Whether the queue behind a LocalQueue could ever hold a Workload.
    pub(crate) fn limit(&self, local: &Key, workload: &Workload) -> Limit {
        if !self.listed.load(Ordering::Acquire) {
            return Limit::Unknown;
        }
        let Some(name) = self.cluster_queue_of(local) else {
            return Limit::NoQueue;
        };
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let Some(view) = views.get(&name) else {
            return Limit::NoQueue;
        };
        ceiling::shortage(&view.queue, workload).map_or(Limit::MayFit, Limit::Short)
    }

    /// Whether the queues of the worker can be read at present.
    fn are_known(&self) -> bool {
        self.clusters.is_live() && self.locals.is_live()
    }

    /// Why the queue behind a LocalQueue takes nothing; `None` if it may take something, or if that is not known.
    pub(crate) fn closed(&self, local: &Key) -> Option<Closed> {
        if !self.are_known() {
            return None;
        }
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        self.open(local, &views).err()
    }

    /// The name and the state of the ClusterQueue behind a LocalQueue.
    ///
    /// *Errors*: why that queue takes nothing.
    fn open<'a>(&self, local: &Key, views: &'a Views) -> Result<(&'a String, &'a QueueView), Closed> {
        let queue = self.locals.get(local).ok_or(Closed::QueueMissing)?;
        if queue.spec.stop_policy != roadstead_api::kueue::v1beta2::StopPolicy::None {
            return Err(Closed::QueueStopped);
        }
        let name = &queue.spec.cluster_queue;
        let (name, view) = views
            .get_key_value(name)
            .ok_or_else(|| Closed::ClusterQueueMissing { name: name.clone() })?;
        if view.is_stopped() {
            return Err(Closed::QueueStopped);
        }
        Ok((name, view))
    }

    /// What the queue behind a LocalQueue could take. `coming` says what was sent to a ClusterQueue lately.
    pub(crate) fn room(&self, local: &Key, asked: &Amounts, coming: impl FnOnce(&str) -> Amounts) -> Room {
        if !self.are_known() {
            return Room::Unknown;
        }
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let (name, view) = match self.open(local, &views) {
            Ok(open) => open,
            Err(why) => return Room::Closed(why),
        };
        let spare = view.queue.cohort.as_ref().map(|cohort| {
            let others = views.iter().filter(|(other, view)| {
                *other != name
                    && view.queue.cohort.as_ref() == Some(cohort)
                    && view.queue.stop == StopPolicy::None
            });
            capacity::spare(others.map(|(_, view)| &**view))
        });
        capacity::room(view, &spare.unwrap_or_default(), &coming(name), asked)
    }

    pub(crate) fn cluster_queue_of(&self, local: &Key) -> Option<String> {
        self.locals
            .get(local)
            .map(|queue| queue.spec.cluster_queue.clone())
    }
}

/// What decides which jobs a ClusterQueue takes: its spec, whether it is being deleted, and whether its status says that it is
/// inactive.
fn offer(queue: &ClusterQueue) -> (&ClusterQueueSpec, bool, bool) {
    let inactive = roadstead_convert::says_inactive(queue);
    (&queue.spec, queue.metadata.deletion_timestamp.is_some(), inactive)
}

async fn tell(kind: &str, health: Follower<Health>) {
    tell_unread(health, |why| match why {
        Some(why) => tracing::warn!(
            kind,
            "its queues cannot be read: {why}; the manager does not know its free quota, and offers it jobs as to a worker of another \
             make; if it is forbidden, run \"roadstead cluster join\" for this cluster again"
        ),
        None => tracing::info!(kind, "its queues can be read again"),
    })
    .await;
}

/// A queue of a worker.
pub(crate) type Place = (ClusterName, String);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue};
    use roadstead_core::dispatch::capacity::Closed;
    use roadstead_core::name::Key;
    use serde_json::{Value, from_value, json};

    use super::{Limit, Queues};

    fn cluster(version: u32, spec: &Value, status: &Value) -> ClusterQueue {
        let metadata = json!({"name": "team", "uid": "u", "resourceVersion": version.to_string()});
        from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn local(version: u32, spec: &Value, pending: u32) -> LocalQueue {
        let metadata =
            json!({"name": "team", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()});
        from_value(json!({"metadata": metadata, "spec": spec, "status": {"pendingWorkloads": pending}}))
            .unwrap()
    }

    /// Spec: multikueue 4.3
    #[test]
    fn what_a_queue_is_to_take_is_news_and_its_use_is_not() {
        let (queues, rung) = (Queues::new(), Arc::new(AtomicU32::new(0)));
        let bell = rung.clone();
        queues.on_change(move || {
            bell.fetch_add(1, Ordering::Relaxed);
        });
        let rang = || rung.swap(0, Ordering::Relaxed);
        let (open, held) = (json!({}), json!({"stopPolicy": "Hold"}));
        let active = |value: &str| {
            json!({"conditions": [{
                "type": "Active", "status": value, "reason": "r", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:09Z",
            }]})
        };
        let steps = [
            ("it came", cluster(1, &open, &json!({})), 1),
            (
                "it is used",
                cluster(2, &open, &json!({"pendingWorkloads": 3})),
                0,
            ),
            ("it is active", cluster(3, &open, &active("True")), 0),
            ("it is not", cluster(4, &open, &active("False")), 1),
            ("it is again", cluster(5, &open, &active("True")), 1),
            ("it is stopped", cluster(6, &held, &active("True")), 1),
        ];
        for (what, queue, wanted) in steps {
            queues.clusters.observe(queue);
            assert_eq!(rang(), wanted, "{what}");
        }
        queues.clusters.forget(&Key::new("", "team"), None);
        assert_eq!(rang(), 1, "it went");
        let (to, stopped) = (
            json!({"clusterQueue": "team"}),
            json!({"clusterQueue": "team", "stopPolicy": "Hold"}),
        );
        for (what, queue, wanted) in [
            ("it came", local(7, &to, 0), 1),
            ("it is used", local(8, &to, 2), 0),
            ("it is stopped", local(9, &stopped, 2), 1),
        ] {
            queues.locals.observe(queue);
            assert_eq!(rang(), wanted, "local: {what}");
        }
    }

    /// Spec: multikueue 4.4
    #[test]
    fn a_queue_that_is_missing_or_stopped_takes_nothing_and_what_is_not_known_says_nothing() {
        let queues = Queues::new();
        let (name, to) = (Key::new("ns", "team"), json!({"clusterQueue": "team"}));
        assert_eq!(queues.closed(&name), None, "they are not listed");
        let why = || {
            let views = queues.views.read().unwrap();
            queues.open(&name, &views).err()
        };
        assert_eq!(why(), Some(Closed::QueueMissing));
        queues.locals.observe(local(1, &to, 0));
        let team = "team".to_owned();
        assert_eq!(why(), Some(Closed::ClusterQueueMissing { name: team }));
        queues.clusters.observe(cluster(2, &json!({}), &json!({})));
        assert_eq!(why(), None);
        queues
            .clusters
            .observe(cluster(3, &json!({"stopPolicy": "Hold"}), &json!({})));
        assert_eq!(why(), Some(Closed::QueueStopped));
        queues.clusters.observe(cluster(4, &json!({}), &json!({})));
        let stopped = json!({"clusterQueue": "team", "stopPolicy": "Hold"});
        queues.locals.observe(local(5, &stopped, 0));
        assert_eq!(why(), Some(Closed::QueueStopped));
    }

    /// Spec: multikueue 4.3
    #[test]
    fn limits_are_unknown_until_the_queues_were_listed_and_a_queue_that_is_missing_gives_nothing() {
        let queues = Queues::new();
        let asks = |cpu: &str| {
            let pod =
                json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
            let stored = from_value(json!({
                "metadata": {"name": "w", "namespace": "ns"},
                "spec": {"podSets": [{"name": "main", "count": 1, "template": pod}]},
            }));
            roadstead_convert::workload(&stored.unwrap())
        };
        let limit = |cpu: &str| queues.limit(&Key::new("ns", "team"), &asks(cpu));
        assert_eq!(limit("1"), Limit::Unknown);
        queues.listed.store(true, Ordering::Relaxed);
        assert_eq!(limit("1"), Limit::NoQueue);
        queues
            .locals
            .observe(local(1, &json!({"clusterQueue": "team"}), 0));
        assert_eq!(limit("1"), Limit::NoQueue, "the one behind it is missing");
        let flavor = json!({"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]});
        let spec = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]});
        queues.clusters.observe(cluster(2, &spec, &json!({})));
        assert_eq!(limit("4"), Limit::MayFit);
        assert!(matches!(limit("5"), Limit::Short(short) if short.most.get() == 4_000));
    }
}
