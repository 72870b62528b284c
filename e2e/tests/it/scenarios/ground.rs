//! One cluster for all scenarios, and a piece of it for each: a namespace and names of its own.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use roadstead_e2e::stage::{self, Solo, merge};
use roadstead_e2e::{Options, Progress};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::commons::Common;
use crate::shared::{chain, eventually, owned};

/// Limit of one scenario.
const DEADLINE: Duration = Duration::from_mins(1);
/// Limit of the start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// The flavor that all scenarios share.
pub(super) const FLAVOR: &str = "default";
/// A queue with plenty, to see that a cycle has passed.
const SIDE: &str = "side";
/// Values of the priority classes that all scenarios share.
const PRIORITIES: [i32; 8] = [-10, -2, -1, 0, 1, 2, 10, 100];

// Why one runtime for all: background tasks of the cluster must outlive the test that started it.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static CLASSICAL: Common<Solo> = Common::new(Solo::end);

/// A cluster whose worker has this configuration.
pub(super) async fn start(name: &str, configuration: Value) -> Solo {
    let options = Options {
        scheduler: false,
        kwok: false,
        ..Options::complete(name)
    };
    let starting = Solo::start(options, &configuration, Progress::stderr());
    let solo = timeout(START_DEADLINE, starting)
        .await
        .expect("the start must end");
    let solo = solo.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let client = solo.client().unwrap();
    let mut objects =
        vec![json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}})];
    objects.extend(PRIORITIES.map(|value| {
        json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": class(value)}, "value": value})
    }));
    for object in objects {
        stage::apply(&client, object).await.unwrap();
    }
    solo
}

/// Runs one scenario on the cluster with the configuration as it comes.
pub(super) fn scenario<F: Future<Output = ()>>(name: &'static str, play: impl FnOnce(Ground) -> F) {
    RUNTIME.block_on(async {
        let (solo, _peace) = CLASSICAL.take(|| start("alone", json!({}))).await;
        let ground = Ground::new(solo.client().unwrap(), name).await;
        let doing = ground.doing.clone();
        if timeout(DEADLINE, play(ground)).await.is_err() {
            let doing = doing.lock().unwrap().clone();
            panic!(
                "scenario {name} still waits until {doing}; the worker's last lines:\n{}",
                solo.log_tail()
            );
        }
    });
}

/// Runs scenarios on a cluster of their own.
pub(super) fn alone<F: Future<Output = ()>>(
    name: &'static str,
    configuration: Value,
    play: impl FnOnce(Solo) -> F,
) {
    RUNTIME.block_on(async {
        let solo = start(name, configuration).await;
        timeout(DEADLINE * 2, play(solo))
            .await
            .expect("the scenarios must end");
    });
}

fn class(priority: i32) -> String {
    format!("p{priority}").replace("p-", "minus-")
}

/// Where a scenario plays.
pub(super) struct Ground {
    pub(super) client: Client,
    pub(super) name: &'static str,
    /// What is waited for, to be told when it does not come.
    doing: Arc<Mutex<String>>,
}

/// A Job to submit.
pub(super) struct Ask {
    name: &'static str,
    queue: &'static str,
    pods: i32,
    requests: Value,
    priority: Option<i32>,
    over: Value,
}

/// One pod of one core.
pub(super) fn ask(name: &'static str, queue: &'static str) -> Ask {
    Ask {
        name,
        queue,
        pods: 1,
        requests: json!({"cpu": "1"}),
        priority: None,
        over: json!({}),
    }
}

impl Ask {
    pub(super) fn cpu(mut self, cpu: &str) -> Self {
        self.requests = json!({"cpu": cpu});
        self
    }

    pub(super) fn requests(mut self, requests: Value) -> Self {
        self.requests = requests;
        self
    }

    pub(super) const fn pods(mut self, pods: i32) -> Self {
        self.pods = pods;
        self
    }

    pub(super) const fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Merged over the Job.
    pub(super) fn with(mut self, over: Value) -> Self {
        self.over = over;
        self
    }
}

/// One resource group of `cpu`: flavors with nominal quotas.
pub(super) fn cpu(flavors: &[(&str, &str)]) -> Value {
    groups(&[&flavors
        .iter()
        .map(|(flavor, quota)| (*flavor, json!({"cpu": quota})))
        .collect::<Vec<_>>()])
}

/// Resource groups: flavors with nominal quotas by resource.
pub(super) fn groups(groups: &[&[(&str, Value)]]) -> Value {
    let resources = |quotas: &Value| -> Vec<Value> {
        let quotas = quotas.as_object().unwrap();
        quotas
            .iter()
            .map(|(name, quota)| {
                let mut resource = json!({"name": name});
                let limits = if quota.is_object() {
                    quota.clone()
                } else {
                    json!({"nominalQuota": quota})
                };
                merge(&mut resource, &limits);
                resource
            })
            .collect()
    };
    let group = |flavors: &&[(&str, Value)]| {
        let covered: Vec<_> = flavors[0].1.as_object().unwrap().keys().collect();
        let flavors: Vec<_> = flavors
            .iter()
            .map(|(name, quotas)| json!({"name": name, "resources": resources(quotas)}))
            .collect();
        json!({"coveredResources": covered, "flavors": flavors})
    };
    groups.iter().map(group).collect()
}

/// The condition of this type, as `(status, reason, message)`.
pub(super) fn condition(object: &DynamicObject, kind: &str) -> Option<(String, String, String)> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

fn is(object: &DynamicObject, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|(found, _, _)| found == status)
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap();
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Ground {
    pub(super) async fn new(client: Client, name: &'static str) -> Self {
        let ground = Self {
            client,
            name,
            doing: Arc::default(),
        };
        ground
            .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
        ground
            .queue(SIDE, json!({"resourceGroups": cpu(&[(FLAVOR, "1000")])}))
            .await;
        ground
    }

    /// The name of a cluster-scoped object of this scenario.
    pub(super) fn own(&self, name: &str) -> String {
        if name == FLAVOR {
            FLAVOR.to_owned()
        } else {
            format!("{}-{name}", self.name)
        }
    }

    pub(super) async fn apply(&self, object: Value) -> DynamicObject {
        stage::apply(&self.client, object)
            .await
            .unwrap_or_else(|error| panic!("{}: {}", self.name, chain(&error)))
    }

    pub(super) async fn flavor(&self, name: &str, spec: Value) {
        let metadata = json!({"name": self.own(name)});
        self.apply(
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": metadata, "spec": spec}),
        )
        .await;
    }

    pub(super) async fn cohort(&self, name: &str, spec: Value) {
        let (metadata, spec) = (
            json!({"name": self.own(name)}),
            owned(spec, |name| self.own(name)),
        );
        self.apply(json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": metadata, "spec": spec}))
            .await;
    }

    /// A ClusterQueue, and a LocalQueue of the same name. Names of cohorts and flavors in the spec are this scenario's own.
    pub(super) async fn queue(&self, name: &str, spec: Value) {
        self.cluster_queue(name, spec).await;
        self.local_queue(name, json!({})).await;
    }

    pub(super) async fn cluster_queue(&self, name: &str, spec: Value) {
        let mut whole = json!({"namespaceSelector": {}});
        merge(&mut whole, &owned(spec, |name| self.own(name)));
        let metadata = json!({"name": self.own(name)});
        self.apply(json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": metadata, "spec": whole}))
            .await;
    }

    pub(super) async fn local_queue(&self, name: &str, over: Value) {
        let mut spec = json!({"clusterQueue": self.own(name)});
        merge(&mut spec, &over);
        let metadata = json!({"name": name, "namespace": self.name});
        self.apply(json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec}))
            .await;
    }

    pub(super) async fn get(&self, kind: &str, name: &str) -> Option<DynamicObject> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(KUEUE, kind));
        api.get_opt(&self.own(name)).await.unwrap()
    }

    pub(super) async fn delete(&self, kind: &str, name: &str) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(KUEUE, kind));
        api.delete(&self.own(name), &DeleteParams::default())
            .await
            .unwrap();
    }

    fn doing(&self, what: String) {
        *self.doing.lock().unwrap() = what;
    }

    /// Waits until the status of a cluster-scoped object is as wanted.
    pub(super) async fn status(&self, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.doing(format!("the status of {kind} {name} is as wanted"));
        eventually(|| async {
            let found = self.get(kind, name).await?;
            Some(found.data["status"].clone()).filter(&wanted)
        })
        .await
    }

    /// Waits until condition `Active` of a ClusterQueue says this.
    pub(super) async fn active(&self, name: &str, status: &str, reason: &str) -> String {
        self.doing(format!("{name} is Active={status} for {reason}"));
        eventually(|| async {
            let found = self.get("ClusterQueue", name).await?;
            let (is, why, message) = condition(&found, "Active")?;
            (is == status && why == reason).then_some(message)
        })
        .await
    }

    pub(super) async fn submit(&self, ask: Ask) {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": ask.queue});
        if let Some(priority) = ask.priority {
            labels["kueue.x-k8s.io/priority-class"] = class(priority).into();
        }
        let mut job = json!({
            "metadata": {"name": ask.name, "labels": labels},
            "spec": {"parallelism": ask.pods, "completions": ask.pods, "backoffLimit": 0, "template": {
                "spec": {"restartPolicy": "Never", "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": ask.requests}},
                ]},
            }},
        });
        if let Some(gpu) = ask.requests.get("nvidia.com/gpu") {
            job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] =
                json!({"nvidia.com/gpu": gpu});
        }
        merge(&mut job, &ask.over);
        let job: Job = serde_json::from_value(job).unwrap();
        self.jobs().create(&PostParams::default(), &job).await.unwrap();
        // Why: the order of the queue is the order of creation of the Workloads.
        eventually(|| self.workload(ask.name)).await;
    }

    pub(super) fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), self.name)
    }

    pub(super) fn workloads(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.name, &resource(KUEUE, "Workload"))
    }

    /// The Workload of a Job.
    pub(super) async fn workload(&self, job: &str) -> Option<DynamicObject> {
        let all = self.workloads().list(&ListParams::default()).await.ok()?;
        all.items
            .into_iter()
            .find(|w| w.owner_references().iter().any(|owner| owner.name == job))
    }

    pub(super) async fn workload_when(
        &self,
        job: &str,
        wanted: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        eventually(|| async { self.workload(job).await.filter(&wanted) }).await
    }

    /// Waits until a Job is admitted and no longer suspended.
    pub(super) async fn runs(&self, job: &str) -> DynamicObject {
        self.doing(format!("{job} runs"));
        let workload = self.workload_when(job, |w| is(w, "Admitted", "True")).await;
        eventually(|| async {
            let job = self.jobs().get(job).await.ok()?;
            (job.spec?.suspend != Some(true)).then_some(())
        })
        .await;
        workload
    }

    /// Waits until a Job is told why it waits; the reason and a part of the message.
    pub(super) async fn waits(&self, job: &str, reason: &str, message: &str) {
        self.doing(format!("{job} waits for {reason}: {message}"));
        self.workload_when(job, |w| {
            condition(w, "QuotaReserved").is_some_and(|(status, why, text)| {
                status == "False" && why == reason && text.contains(message)
            })
        })
        .await;
    }

    /// Waits until a Job was preempted for this reason.
    pub(super) async fn preempted(&self, job: &str, reason: &str) -> DynamicObject {
        self.doing(format!("{job} is preempted for {reason}"));
        self.workload_when(job, |w| {
            condition(w, "Preempted").is_some_and(|(status, why, _)| status == "True" && why == reason)
        })
        .await
    }

    /// A cycle passes: whatever could be decided before is decided.
    pub(super) async fn tick(&self, name: &'static str) {
        self.submit(ask(name, SIDE)).await;
        self.runs(name).await;
    }

    pub(super) async fn holds_quota(&self, job: &str) -> bool {
        is(&self.workload(job).await.unwrap(), "QuotaReserved", "True")
    }

    pub(super) async fn is_evicted(&self, job: &str) -> bool {
        is(&self.workload(job).await.unwrap(), "Evicted", "True")
    }

    /// Passes a tick and fails if this Job holds quota then.
    pub(super) async fn still_waits(&self, job: &str, tick: &'static str) {
        self.tick(tick).await;
        let workload = self.workload(job).await.unwrap();
        assert!(
            !is(&workload, "QuotaReserved", "True"),
            "{job} must wait: {:#}",
            workload.data["status"]
        );
    }

    /// Passes a tick and fails if this Job was evicted by then.
    pub(super) async fn still_runs(&self, job: &str, tick: &'static str) {
        self.tick(tick).await;
        let workload = self.workload(job).await.unwrap();
        let evicted = is(&workload, "Evicted", "True");
        assert!(
            is(&workload, "Admitted", "True") && !evicted,
            "{job} must run: {:#}",
            workload.data["status"]
        );
    }

    /// All pods of a running Job succeed.
    pub(super) async fn finish(&self, job: &str) {
        self.doing(format!("{job} finishes"));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.name);
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let wanted = self
            .jobs()
            .get(job)
            .await
            .unwrap()
            .spec
            .unwrap()
            .parallelism
            .unwrap_or(1);
        let found = eventually(|| async {
            let found = pods.list(&of_job).await.ok()?.items;
            (i32::try_from(found.len()) == Ok(wanted)).then_some(found)
        })
        .await;
        for pod in found {
            let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
        self.workload_when(job, |w| is(w, "Finished", "True")).await;
    }

    /// Says, in the place of a controller named in `spec.managedBy`, how many pods of a Job are active.
    pub(super) async fn active_pods(&self, job: &str, active: i32) {
        let started = self
            .jobs()
            .get(job)
            .await
            .unwrap()
            .status
            .and_then(|s| s.start_time);
        let mut status = json!({"active": active});
        if started.is_none() && active > 0 {
            status["startTime"] = json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        let patch = Patch::Merge(json!({"status": status}));
        self.jobs()
            .patch_status(job, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits for the next second: creation times are counted in seconds.
    pub(super) async fn next_second(&self) {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
}
