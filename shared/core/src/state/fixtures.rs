//! Objects for tests of this crate.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Event, Settings, State};
use crate::amount::Amount;
use crate::condition::Truth;
use crate::cycle::Decision;
use crate::name::{ClusterQueueName, Key};
use crate::queue::{
    CheckRule, ClusterQueue, Cohort, Flavor, FlavorQuota, LocalQueue, Quota, ResourceGroup, Selector,
};
use crate::status::Admission;
use crate::workload::{PodSet, Workload};

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One group that covers the resources of its first flavor.
pub(crate) fn group(flavors: &[(&str, &[(&str, i64)])]) -> ResourceGroup {
    ResourceGroup {
        covered: flavors[0]
            .1
            .iter()
            .map(|(resource, _)| (*resource).into())
            .collect(),
        flavors: flavors
            .iter()
            .map(|(name, nominal)| FlavorQuota {
                name: (*name).into(),
                quotas: nominal
                    .iter()
                    .map(|(r, v)| ((*r).into(), Quota::of(Amount::new(*v))))
                    .collect(),
            })
            .collect(),
    }
}

pub(crate) fn cluster_queue(name: &str, groups: Vec<ResourceGroup>) -> ClusterQueue {
    ClusterQueue {
        name: name.into(),
        namespaces: Some(Selector::default()),
        groups,
        ..ClusterQueue::default()
    }
}

/// A queue `cq` with `cpu` cores in flavor `default`.
pub(crate) fn cores(cpu: i64) -> ClusterQueue {
    cluster_queue("cq", vec![group(&[("default", &[("cpu", cpu * 1_000)])])])
}

pub(crate) fn rule(name: &str) -> CheckRule {
    CheckRule {
        name: name.into(),
        on_flavors: Vec::new(),
    }
}

pub(crate) fn flavor(name: &str) -> Flavor {
    Flavor {
        name: name.into(),
        ..Flavor::default()
    }
}

pub(crate) fn local_queue(cluster_queue: &str) -> LocalQueue {
    LocalQueue {
        key: Key::new("ns", "lq"),
        cluster_queue: cluster_queue.into(),
        ..LocalQueue::default()
    }
}

pub(crate) fn pod_set(name: &str, count: u32, requests: &[(&str, i64)]) -> PodSet {
    PodSet {
        name: name.into(),
        count,
        requests: requests
            .iter()
            .map(|(r, v)| ((*r).into(), Amount::new(*v)))
            .collect(),
        ..PodSet::default()
    }
}

/// A workload `ns/<name>` of queue `lq` with these pod sets, created at second `created`.
pub(crate) fn workload(name: &str, created: i64, pod_sets: Vec<PodSet>) -> Workload {
    Workload {
        key: Key::new("ns", name),
        uid: format!("uid-{name}").into(),
        created: at(created),
        generation: 1,
        queue: "lq".to_owned(),
        active: true,
        pod_sets,
        ..Workload::default()
    }
}

/// A workload of one pod that asks for `cpu` cores.
pub(crate) fn asks(name: &str, created: i64, cpu: i64) -> Workload {
    workload(name, created, vec![pod_set("main", 1, &[("cpu", cpu * 1_000)])])
}

/// A state together with the Workloads as the API server would hold them.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) workloads: BTreeMap<Key, Workload>,
}

impl World {
    /// Knows namespace `ns`, LocalQueue `ns/lq` of ClusterQueue `cq`, and flavor `default`; it is synced.
    pub(crate) fn new(queue: ClusterQueue) -> Self {
        let mut world = Self {
            state: State::new(Settings::default()),
            now: at(1_000),
            workloads: BTreeMap::new(),
        };
        world.tell(Event::Namespace {
            name: "ns".into(),
            labels: [("team".to_owned(), "a".to_owned())].into(),
        });
        world.tell(Event::Flavor(flavor("default")));
        world.tell(Event::LocalQueue(local_queue("cq")));
        world.tell(Event::ClusterQueue(Box::new(queue)));
        world.tell(Event::Synced);
        world
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.state.apply(event, self.now);
    }

    pub(crate) fn put(&mut self, workload: Workload) {
        self.workloads.insert(workload.key.clone(), workload.clone());
        self.tell(Event::Workload(Box::new(workload)));
    }

    pub(crate) fn edit(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let mut workload = self.workloads[&Key::new("ns", name)].clone();
        change(&mut workload);
        self.put(workload);
    }

    /// Runs cycles until nothing is left to do.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let mut decisions = self.state.cycle(self.now);
        while self.state.has_work() {
            decisions.extend(self.state.cycle(self.now));
        }
        decisions
    }

    /// Decides and writes the decisions; returns lines such as `a: reserved` and `b: WaitingForQuota <message>`.
    pub(crate) fn run(&mut self) -> Vec<String> {
        let decisions = self.decide();
        decisions
            .into_iter()
            .map(|decision| self.write(decision))
            .collect()
    }

    /// Writes a decision; returns a line that shows what was written.
    pub(crate) fn write(&mut self, decision: Decision) -> String {
        let now = self.now;
        match decision {
            Decision::Reserve {
                key,
                uid: _,
                admission,
                considered: _,
            } => {
                self.edit(&key.name, |w| hold(w, admission, now));
                format!("{}: reserved", key.name)
            }
            Decision::NotAdmitted { key, uid: _, reason } => {
                let (word, message) = (reason.word().as_str(), reason.to_string());
                let line = format!("{}: {word} {message}", key.name);
                self.edit(&key.name, |w| {
                    w.status
                        .conditions
                        .set("QuotaReserved", Truth::False, word, message, now);
                });
                line
            }
            Decision::Preempt {
                key,
                reason,
                message,
                preemptor,
                ..
            } => {
                self.edit(&key.name, |w| evict(w, reason.as_str(), message, now));
                format!("{}: {} for {}", key.name, reason.as_str(), preemptor.name)
            }
        }
    }

    /// Another queue, with a LocalQueue of the same name in `ns`.
    pub(crate) fn add_queue(&mut self, queue: ClusterQueue) {
        let mut local = local_queue(queue.name.as_str());
        local.key = Key::new("ns", queue.name.as_str());
        self.tell(Event::LocalQueue(local));
        self.tell(Event::ClusterQueue(Box::new(queue)));
    }

    /// A workload of one pod for the queue of that name.
    pub(crate) fn ask(&mut self, queue: &str, name: &str, (priority, milli): (i32, i64)) {
        let pods = pod_set("main", 1, &[("cpu", milli)]);
        let born = 100 + i64::try_from(self.workloads.len()).unwrap();
        let mut asked = workload(name, born, vec![pods]);
        asked.queue = queue.to_owned();
        asked.priority = priority;
        self.put(asked);
    }

    /// Sets a condition of a workload.
    pub(crate) fn set(
        &mut self,
        name: &str,
        kind: &'static str,
        truth: Truth,
        reason: &'static str,
        at: Timestamp,
    ) {
        self.edit(name, |w| w.status.conditions.set(kind, truth, reason, "", at));
    }

    /// Lets an evicted workload give its quota back.
    pub(crate) fn release(&mut self, name: &str) {
        let now = self.now;
        self.edit(name, |w| release(w, now));
    }

    /// The flavor assigned to `cpu` of the first pod set.
    pub(crate) fn flavor_of(&self, name: &str) -> String {
        let admission = self.workloads[&Key::new("ns", name)]
            .status
            .admission
            .clone()
            .unwrap();
        admission.pod_sets[0].flavors[&"cpu".into()].to_string()
    }

    pub(crate) fn report(&self) -> crate::report::ClusterQueueReport {
        self.state
            .cluster_queue_report(&ClusterQueueName::from("cq"))
            .unwrap()
    }

    pub(crate) fn local_report(&self) -> crate::report::LocalQueueReport {
        self.state.local_queue_report(&Key::new("ns", "lq")).unwrap()
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

pub(crate) fn hold(workload: &mut Workload, admission: Admission, now: Timestamp) {
    let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
    for kind in ["Evicted", "Preempted"] {
        if workload.status.conditions.is_true(kind) {
            let conditions = &mut workload.status.conditions;
            conditions.set(kind, Truth::False, "QuotaReserved", "", now);
        }
    }
    workload.status.admission = Some(admission);
    workload
        .status
        .conditions
        .set("QuotaReserved", Truth::True, "QuotaReserved", message, now);
}

/// Evicts a workload; it still holds its quota.
pub(crate) fn evict(workload: &mut Workload, reason: &'static str, message: String, now: Timestamp) {
    let conditions = &mut workload.status.conditions;
    conditions.set("Evicted", Truth::True, "Preempted", message.clone(), now);
    conditions.set("Preempted", Truth::True, reason, message, now);
}

/// A queue of that many cores in a cohort.
pub(crate) fn in_cohort(name: &str, cohort: &str, cpu: i64) -> ClusterQueue {
    let mut queue = cluster_queue(name, vec![group(&[("default", &[("cpu", cpu * 1_000)])])]);
    queue.cohort = Some(cohort.into());
    queue
}

pub(crate) fn cohort(name: &str, parent: Option<&str>) -> Event {
    Event::Cohort(Cohort {
        name: name.into(),
        parent: parent.map(Into::into),
        ..Cohort::default()
    })
}

pub(crate) fn finish(workload: &mut Workload) {
    workload
        .status
        .conditions
        .set("Finished", Truth::True, "Succeeded", "done", at(2_000));
}

pub(crate) fn release(workload: &mut Workload, now: Timestamp) {
    workload.status.admission = None;
    workload
        .status
        .conditions
        .set("QuotaReserved", Truth::False, "PendingEvaluation", "evicted", now);
    workload.status.conditions.remove("Admitted");
    *workload
        .status
        .evictions
        .entry(("Preempted".to_owned(), String::new()))
        .or_default() += 1;
}
