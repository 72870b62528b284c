//! Hand-made changes: a manager with the workers east and west, and the life of a job in steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use roadstead_apiserver::{Change, Stored};
use serde_json::{Value, json};

use crate::audit::{Auditor, Rules};

pub(super) const MANAGER: &str = "roadstead-manager";
pub(super) const WORKER: &str = "roadstead-worker";
pub(super) const PERSON: &str = "ada";
pub(super) const SYSTEM: &str = "system:controller";
pub(super) const JOBS: &str = "jobs.batch";
pub(super) const PODS: &str = "pods";
pub(super) const WORKLOADS: &str = "workloads.kueue.x-k8s.io";
pub(super) const CLUSTERS: &str = "multikueueclusters.kueue.x-k8s.io";
pub(super) const CHECKS: &str = "admissionchecks.kueue.x-k8s.io";
pub(super) const CONFIGS: &str = "multikueueconfigs.kueue.x-k8s.io";
pub(super) const QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
pub(super) const COHORTS: &str = "cohorts.kueue.x-k8s.io";

type Place = (String, String, String);

/// The world of one test.
pub(super) struct Scene {
    pub(super) auditor: Auditor,
    stored: BTreeMap<Place, Arc<Stored>>,
    version: u64,
    pub(super) now: Timestamp,
}

pub(super) fn rules() -> Rules {
    Rules::new("manager", &["east", "west"])
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is stored is written down where it is stored"
)]
impl Scene {
    /// A federation in which nothing has happened.
    pub(super) fn new() -> Self {
        Self::under(rules())
    }

    pub(super) fn under(rules: Rules) -> Self {
        let mut scene = Self {
            auditor: Auditor::new(rules),
            stored: BTreeMap::new(),
            version: 0,
            now: Timestamp::UNIX_EPOCH,
        };
        scene.put(
            "manager",
            PERSON,
            CHECKS,
            json!({"metadata": {"name": "mk"}, "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}),
        );
        scene.put(
            "manager",
            PERSON,
            CONFIGS,
            json!({"metadata": {"name": "all"}, "spec": {"clusters": ["east", "west"]}}),
        );
        for name in ["east", "west"] {
            scene.put("manager", PERSON, CLUSTERS, json!({"metadata": {"name": name}}));
            scene.active(name, "True", "Active");
        }
        scene
    }

    /// Sets condition `Active`, which shows a worker's connection.
    pub(super) fn active(&mut self, cluster: &str, status: &str, reason: &str) {
        let since = self.now.to_string();
        let condition =
            json!([{"type": "Active", "status": status, "reason": reason, "lastTransitionTime": since}]);
        self.edit(
            "manager",
            MANAGER,
            CLUSTERS,
            cluster,
            json!({"status": {"conditions": condition}}),
        );
    }

    /// An administrator gives up the runs on a worker, in the loss that is shown.
    pub(super) fn give_up(&mut self, cluster: &str) {
        let shown = &self.get("manager", CLUSTERS, cluster)["status"]["conditions"][0];
        let word =
            json!({"metadata": {"annotations": {"roadstead.dev/given-up": shown["lastTransitionTime"]}}});
        self.edit("manager", PERSON, CLUSTERS, cluster, word);
    }

    /// Stores a new object; namespace `ns` for what has one.
    pub(super) fn put(&mut self, cluster: &str, user: &str, resource: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut object = object;
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("{cluster}-{name}-{}", self.version));
        }
        self.store(cluster, user, resource, &name, Some(object));
    }

    /// Changes an object by a merge patch.
    pub(super) fn edit(&mut self, cluster: &str, user: &str, resource: &str, name: &str, patch: Value) {
        let mut object = self.get(cluster, resource, name).clone();
        json_patch::merge(&mut object, &patch);
        self.store(cluster, user, resource, name, Some(object));
    }

    pub(super) fn remove(&mut self, cluster: &str, user: &str, resource: &str, name: &str) {
        self.store(cluster, user, resource, name, None);
    }

    pub(super) fn get(&self, cluster: &str, resource: &str, name: &str) -> &Value {
        &self.stored[&(cluster.to_owned(), resource.to_owned(), name.to_owned())]
    }

    fn store(&mut self, cluster: &str, user: &str, resource: &str, name: &str, object: Option<Value>) {
        self.version += 1;
        self.now += SignedDuration::from_millis(100);
        let place = (cluster.to_owned(), resource.to_owned(), name.to_owned());
        let new = object.map(Stored::of);
        let old = match &new {
            Some(new) => self.stored.insert(place, new.clone()),
            None => self.stored.remove(&place),
        };
        let change = Change {
            version: self.version,
            resource: resource.into(),
            namespace: resource_has_namespace(resource).then(|| "ns".into()),
            name: name.into(),
            old,
            new,
            user: user.into(),
        };
        self.auditor.saw(cluster, &change, self.now);
    }

    pub(super) fn pass(&mut self, secs: i64) {
        self.now += SignedDuration::from_secs(secs);
    }

    /// Lets ten minutes pass and judges.
    pub(super) fn rest(&mut self) {
        self.pass(600);
        self.auditor.at_rest(self.now);
    }

    /// The invariants that were broken, in order.
    pub(super) fn broken(&self) -> Vec<&'static str> {
        self.auditor.violations().iter().map(|v| v.invariant).collect()
    }

    /// Asserts that nothing was broken.
    pub(super) fn is_fine(&self) {
        let told: Vec<String> = self
            .auditor
            .violations()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
    }

    /// A job on the manager, with a Workload that holds quota and is offered to both workers.
    pub(super) fn submit(&mut self, name: &str) {
        let job = json!({
            "metadata": {"name": name, "uid": format!("job-{name}"), "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue"},
        });
        self.put("manager", PERSON, JOBS, job);
        self.auditor.submitted(JOBS, "ns", name, self.now);
        let owner = json!([{"kind": "Job", "name": name, "uid": format!("job-{name}"), "controller": true}]);
        let workload = json!({
            "metadata": {"name": wl(name), "generation": 1, "ownerReferences": owner},
            "spec": {"queueName": "lq", "active": true},
        });
        self.put("manager", MANAGER, WORKLOADS, workload);
        self.status(
            "manager",
            MANAGER,
            name,
            json!({
                "conditions": [condition("QuotaReserved", "True", "QuotaReserved", 0)],
                "admissionChecks": [{"name": "mk", "state": "Pending", "message": "offered"}],
                "nominatedClusterNames": ["east", "west"],
            }),
        );
    }

    pub(super) fn status(&mut self, cluster: &str, user: &str, name: &str, status: Value) {
        self.edit(cluster, user, WORKLOADS, &wl(name), json!({"status": status}));
    }

    /// The manager's copy of a Workload on a worker.
    pub(super) fn offer(&mut self, name: &str, cluster: &str) {
        let labels = json!({"kueue.x-k8s.io/multikueue-origin": "multikueue"});
        let copy = json!({"metadata": {"name": wl(name), "labels": labels}, "spec": {"active": true}});
        self.put(cluster, MANAGER, WORKLOADS, copy);
    }

    /// The worker admits its copy.
    pub(super) fn admit(&mut self, name: &str, cluster: &str) {
        let conditions = [
            condition("QuotaReserved", "True", "Ok", 1),
            condition("Admitted", "True", "Ok", 1),
        ];
        self.status(cluster, WORKER, name, json!({"conditions": conditions}));
    }

    /// The manager decides for a worker.
    pub(super) fn choose(&mut self, name: &str, cluster: &str) {
        self.status("manager", MANAGER, name, json!({
            "conditions": [condition("QuotaReserved", "True", "Ok", 0), condition("Admitted", "True", "Ok", 2)],
            "admissionChecks": [{"name": "mk", "state": "Ready", "message": "there"}],
            "nominatedClusterNames": null, "clusterName": cluster,
        }));
    }

    /// A worker gets a copy and admits it, and the manager decides for it.
    pub(super) fn dispatch(&mut self, name: &str, cluster: &str) {
        self.offer(name, cluster);
        self.admit(name, cluster);
        self.choose(name, cluster);
    }

    /// The manager creates the job on a worker, which lets it go and has a pod.
    pub(super) fn run(&mut self, name: &str, cluster: &str) {
        self.make_job(name, cluster);
        self.edit(cluster, WORKER, JOBS, name, json!({"spec": {"suspend": false}}));
        self.pod(name, cluster);
    }

    pub(super) fn make_job(&mut self, name: &str, cluster: &str) {
        let job = json!({
            "metadata": {
                "name": name, "uid": format!("{cluster}-job-{name}"),
                "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue", "kueue.x-k8s.io/queue-name": "lq"},
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": wl(name)},
            },
            "spec": {"suspend": true},
        });
        self.put(cluster, MANAGER, JOBS, job);
    }

    pub(super) fn pod(&mut self, name: &str, cluster: &str) {
        let owner = json!([{"kind": "Job", "name": name, "uid": format!("{cluster}-job-{name}"), "controller": true}]);
        let pod = json!({"metadata": {"name": format!("{name}-0"), "ownerReferences": owner}, "status": {"phase": "Running"}});
        self.put(cluster, SYSTEM, PODS, pod);
    }

    /// All steps from the job to a pod on a worker.
    pub(super) fn start(&mut self, name: &str, cluster: &str) {
        self.submit(name);
        for worker in ["east", "west"] {
            self.offer(name, worker);
        }
        self.admit(name, cluster);
        self.choose(name, cluster);
        let loser = if cluster == "east" { "west" } else { "east" };
        self.remove(loser, MANAGER, WORKLOADS, &wl(name));
        self.run(name, cluster);
    }

    pub(super) fn pod_ends(&mut self, cluster: &str, pod: &str, phase: &str) {
        self.edit(cluster, SYSTEM, PODS, pod, json!({"status": {"phase": phase}}));
    }

    /// A Workload shows that it has ended.
    pub(super) fn finished(&mut self, cluster: &str, user: &str, name: &str, reason: &str) {
        let finished = json!({"conditions": [condition("Finished", "True", reason, 3)]});
        self.status(cluster, user, name, finished);
    }

    /// The pod and the job end on the worker.
    pub(super) fn end_there(&mut self, name: &str, cluster: &str) {
        self.pod_ends(cluster, &format!("{name}-0"), "Succeeded");
        let complete = json!({"conditions": [condition("Complete", "True", "", 3)], "succeeded": 1});
        self.edit(cluster, SYSTEM, JOBS, name, json!({"status": complete}));
        self.finished(cluster, WORKER, name, "Succeeded");
    }

    /// The manager shows the end.
    pub(super) fn mirror_end(&mut self, name: &str) {
        let complete = json!({"conditions": [condition("Complete", "True", "", 3)], "succeeded": 1});
        self.edit("manager", MANAGER, JOBS, name, json!({"status": complete}));
        self.finished("manager", MANAGER, name, "Succeeded");
    }

    /// The manager removes the job on the worker, and what it owns goes with it.
    pub(super) fn clean(&mut self, name: &str, cluster: &str) {
        self.remove(cluster, MANAGER, JOBS, name);
        self.remove(cluster, SYSTEM, PODS, &format!("{name}-0"));
        self.remove(cluster, SYSTEM, WORKLOADS, &wl(name));
    }

    /// All steps of a job's life.
    pub(super) fn live(&mut self, name: &str, cluster: &str) {
        self.start(name, cluster);
        self.end_there(name, cluster);
        self.mirror_end(name);
        self.clean(name, cluster);
    }
}

fn resource_has_namespace(resource: &str) -> bool {
    ![CLUSTERS, CHECKS, CONFIGS, QUEUES, COHORTS].contains(&resource)
}

pub(super) fn wl(job: &str) -> String {
    format!("wl-{job}")
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, secs: i64) -> Value {
    let at = Timestamp::from_second(secs).unwrap();
    json!({"type": kind, "status": status, "reason": reason, "message": "because", "lastTransitionTime": at.to_string()})
}
