//! The namespace and the queue of one scene, in every cluster, with reads and changes for scenes.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_api::constants::labels::{MULTIKUEUE_ORIGIN, MULTIKUEUE_WORKER_WORKLOAD_POD, QUEUE_NAME};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::time::sleep;

use super::scene::{MANAGER, Scene};
use crate::options::RUN_SECONDS;
use crate::stage::Queue;

/// Time limit of one wait.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);

/// CPUs of a room's queue in each cluster, and the check before its jobs start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    pub(super) manager: u8,
    pub(super) target: u8,
    pub(super) other: u8,
    pub(super) checks: Checks,
}

/// The check of a worker before a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// The worker has no check.
    None,
    /// An autoscaler must have capacity.
    Capacity,
}

/// Only the worker that the scene is about has room.
pub(super) const TARGET_ONLY: Quota = Quota {
    manager: 16,
    target: 8,
    other: 0,
    checks: Checks::None,
};
/// Both workers have room.
pub(super) const BOTH: Quota = Quota {
    manager: 16,
    target: 8,
    other: 8,
    checks: Checks::None,
};

/// One scene's room.
pub(super) struct Room<'a> {
    pub(super) scene: &'a Scene,
    /// Name of its namespace, ClusterQueue and LocalQueue.
    pub(super) name: &'static str,
    /// Whether its queue accepts that a job runs in two workers at once.
    may_run_twice: Cell<bool>,
}

impl<'a> Room<'a> {
    /// Creates the room and waits until its queue is active in every cluster.
    pub(super) async fn open(scene: &'a Scene, name: &'static str, quota: Quota) -> anyhow::Result<Self> {
        let Quota {
            manager,
            target,
            other,
            checks,
        } = quota;
        let cpu = |queue: Queue, cluster: &str, amount: u8| {
            queue.with_quota(cluster, &[("cpu", amount.to_string().as_str())])
        };
        let queue = cpu(Queue::new(name), MANAGER, manager);
        let queue = cpu(cpu(queue, scene.target, target), scene.other, other);
        let queue = match checks {
            Checks::None => queue,
            Checks::Capacity => queue.asking_capacity(),
        };
        scene.stage.furnish(name, queue).await?;
        let room = Self {
            scene,
            name,
            may_run_twice: Cell::new(false),
        };
        for cluster in scene.clusters() {
            room.queue_is_active(cluster).await?;
        }
        Ok(room)
    }

    /// Accepts from now on that a job runs in two workers at once, because the manager may start it again while its worker is lost.
    pub(super) fn may_run_twice(&self) {
        self.may_run_twice.set(true);
    }

    /// The invariants that jobs of this room have broken.
    pub(super) fn broken(&self) -> Vec<String> {
        let here = format!("{}/", self.name);
        let all = self.scene.observer.violations().into_iter();
        let here = all.filter(|each| each.sentence.contains(&here));
        { here }
            .filter(|each| !(self.may_run_twice.get() && each.invariant == "I1"))
            .filter(|each| each.invariant != "I6" || !self.scene.is_theirs(&each.sentence))
            .map(|each| format!("{} {}", each.invariant, each.sentence))
            .collect()
    }

    async fn queue_is_active(&self, cluster: &str) -> anyhow::Result<()> {
        let queues: Api<ClusterQueue> = Api::all(self.scene.client(cluster)?);
        let local_queues: Api<LocalQueue> = self.api(cluster)?;
        self.eventually(&format!("the queue is active in {cluster}"), || async {
            let queue = json!(queues.get(self.name).await?);
            let local_queue = json!(local_queues.get(self.name).await?);
            let active = |object: &Value| {
                let found = super::scene::condition(object, "Active");
                found.is_some_and(|found| found["status"] == "True")
            };
            Ok((active(&queue) && active(&local_queue)).then_some(()))
        })
        .await
    }

    /// Repeats a read until it returns a value.
    pub(super) async fn eventually<T, F: Future<Output = anyhow::Result<Option<T>>>>(
        &self,
        what: &str,
        mut probe: impl FnMut() -> F,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        loop {
            let answer = probe().await;
            if let Ok(Some(answer)) = answer {
                return Ok(answer);
            }
            if started.elapsed() > PATIENCE {
                let error = answer
                    .err()
                    .map(|error| format!(" ({error:#})"))
                    .unwrap_or_default();
                bail!("not seen in {} s: {what}{error}", PATIENCE.as_secs());
            }
            sleep(POLL).await;
        }
    }

    pub(super) fn api<K>(&self, cluster: &str) -> anyhow::Result<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Ok(Api::namespaced(self.scene.client(cluster)?, self.name))
    }

    /// A job of one pod that requests `cpu` CPUs and runs for `seconds`.
    pub(super) fn job(&self, name: &str, cpu: u8, seconds: u32) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.name, "labels": {QUEUE_NAME: self.name}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": {RUN_SECONDS: seconds.to_string()}},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "none", "resources": {"requests": {"cpu": cpu.to_string()}},
                }]},
            }},
        })
    }

    /// Submits a job to a cluster. Returns the stored job.
    pub(super) async fn submit_to(&self, cluster: &str, job: Value) -> anyhow::Result<Job> {
        let job: Job = from_value(job)?;
        let made = self
            .api::<Job>(cluster)?
            .create(&PostParams::default(), &job)
            .await;
        made.with_context(|| format!("submitting {} to {cluster}", job.name_any()))
    }

    /// Submits a job to the manager. Returns the stored job.
    pub(super) async fn submit(&self, job: Value) -> anyhow::Result<Job> {
        self.submit_to(MANAGER, job).await
    }

    /// Deletes a job as users do.
    pub(super) async fn delete_from(&self, cluster: &str, job: &str) -> anyhow::Result<()> {
        let jobs: Api<Job> = self.api(cluster)?;
        jobs.delete(job, &DeleteParams::background()).await?;
        Ok(())
    }

    /// The manager's Workload of a job.
    pub(super) async fn workload(&self, job: &str) -> anyhow::Result<Option<Workload>> {
        let all = self
            .api::<Workload>(MANAGER)?
            .list(&ListParams::default())
            .await?;
        let of_job = |workload: &Workload| workload.owner_references().iter().any(|owner| owner.name == job);
        Ok(all.items.into_iter().find(of_job))
    }

    /// The copy in a worker of the manager's Workload of a job.
    pub(super) async fn copy(&self, worker: &str, job: &str) -> anyhow::Result<Option<Workload>> {
        let Some(workload) = self.workload(job).await? else {
            return Ok(None);
        };
        Ok(self
            .api::<Workload>(worker)?
            .get_opt(&workload.name_any())
            .await?)
    }

    /// Waits until the manager's Workload of a job is as wanted.
    pub(super) async fn workload_where(
        &self,
        job: &str,
        what: &str,
        wanted: impl Fn(&Workload) -> bool,
    ) -> anyhow::Result<Workload> {
        let what = format!("the manager's Workload of {job} {what}");
        self.eventually(&what, || async {
            Ok(self.workload(job).await?.filter(|workload| wanted(workload)))
        })
        .await
    }

    /// Waits until the job runs in a worker and the manager shows that.
    pub(super) async fn runs_in(&self, worker: &str, job: &str) -> anyhow::Result<()> {
        for cluster in [worker, MANAGER] {
            let jobs: Api<Job> = self.api(cluster)?;
            self.eventually(&format!("{job} has a pod, as {cluster} shows it"), || async {
                let found = jobs.get_opt(job).await?;
                Ok(found.filter(|job| json!(job)["status"]["active"] == 1).map(drop))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the job has this condition on the manager.
    pub(super) async fn ends_as(&self, job: &str, condition: &str) -> anyhow::Result<Value> {
        let jobs: Api<Job> = self.api(MANAGER)?;
        self.eventually(&format!("{job} is {condition} on the manager"), || async {
            let found = json!(jobs.get(job).await?);
            let is_true =
                super::scene::condition(&found, condition).is_some_and(|each| each["status"] == "True");
            Ok(is_true.then_some(found))
        })
        .await
    }

    /// In which workers a job was started, in this order.
    pub(super) fn starts(&self, job: &str) -> Vec<String> {
        self.scene.history.starts(self.name, job)
    }

    /// Waits until nothing of the manager is left in this worker, no pod either.
    pub(super) async fn is_swept_in(&self, worker: &str) -> anyhow::Result<()> {
        self.eventually(&format!("nothing of the manager is left in {worker}"), || async {
            Ok(self.ours_in(worker).await?.is_empty().then_some(()))
        })
        .await
    }

    /// Waits until nothing of the manager is left in the workers.
    pub(super) async fn is_swept(&self) -> anyhow::Result<()> {
        self.is_swept_in(self.scene.target).await?;
        self.is_swept_in(self.scene.other).await
    }

    /// Names of the objects that the manager put into this worker.
    pub(super) async fn ours_in(&self, worker: &str) -> anyhow::Result<Vec<String>> {
        let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
        let jobs = self.api::<Job>(worker)?.list(&ours).await?;
        let workloads = self.api::<Workload>(worker)?.list(&ours).await?;
        let of_manager = ListParams::default().labels(MULTIKUEUE_WORKER_WORKLOAD_POD);
        let pods = self.api::<Pod>(worker)?.list(&of_manager).await?;
        let jobs = jobs.iter().map(|job| format!("job {}", job.name_any()));
        let workloads = workloads
            .iter()
            .map(|each| format!("workload {}", each.name_any()));
        let pods = pods.iter().map(|pod| format!("pod {}", pod.name_any()));
        Ok(jobs.chain(workloads).chain(pods).collect())
    }

    /// Merges a patch into an object of the room.
    pub(super) async fn merge<K>(&self, cluster: &str, name: &str, patch: Value) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = self.api(cluster)?;
        let merged = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        merged.with_context(|| format!("changing {name} in {cluster}"))
    }

    /// Merges a patch into the room's ClusterQueue.
    pub(super) async fn merge_queue(&self, cluster: &str, patch: Value) -> anyhow::Result<()> {
        let queues: Api<ClusterQueue> = Api::all(self.scene.client(cluster)?);
        let merged = queues
            .patch(self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        merged
            .map(drop)
            .with_context(|| format!("changing the queue in {cluster}"))
    }

    /// Sets the CPUs of the room's queue in a cluster.
    pub(super) async fn set_quota(&self, cluster: &str, cpu: u8) -> anyhow::Result<()> {
        self.set_amounts(cluster, &[("cpu", &cpu.to_string())]).await
    }

    /// Sets the quota of the room's queue in the manager and in the worker that the scene is about.
    pub(super) async fn set_quota_of_all(&self, amounts: &[(&str, &str)]) -> anyhow::Result<()> {
        for cluster in [MANAGER, self.scene.target] {
            self.set_amounts(cluster, amounts).await?;
        }
        Ok(())
    }

    async fn set_amounts(&self, cluster: &str, amounts: &[(&str, &str)]) -> anyhow::Result<()> {
        let covered: Vec<&str> = amounts.iter().map(|(name, _)| *name).collect();
        let resources: Vec<Value> = { amounts.iter() }
            .map(|(name, amount)| json!({"name": name, "nominalQuota": amount}))
            .collect();
        let flavors = json!([{"name": "default", "resources": resources}]);
        let groups = json!([{"coveredResources": covered, "flavors": flavors}]);
        self.merge_queue(cluster, json!({"spec": {"resourceGroups": groups}}))
            .await
    }

    /// Deactivates or activates a job's Workload on the manager.
    pub(super) async fn set_active(&self, job: &str, active: bool) -> anyhow::Result<()> {
        let workload = self
            .workload(job)
            .await?
            .context("the Workload is gone")?
            .name_any();
        self.merge::<Workload>(MANAGER, &workload, json!({"spec": {"active": active}}))
            .await?;
        Ok(())
    }

    /// Prints the room's objects, a line each, to explain a failed scene.
    pub(super) async fn tell(&self) {
        for cluster in self.scene.clusters() {
            self.tell_all::<Job>(cluster, "Job").await;
            self.tell_all::<Workload>(cluster, "Workload").await;
            self.tell_all::<Pod>(cluster, "Pod").await;
        }
    }

    async fn tell_all<K>(&self, cluster: &str, kind: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let told = [
            "/metadata/name",
            "/metadata/annotations",
            "/metadata/deletionTimestamp",
            "/metadata/finalizers",
            "/spec/active",
            "/spec/suspend",
            "/status",
        ];
        let Ok(api) = self.api::<K>(cluster) else { return };
        for object in api.list(&ListParams::default()).await.into_iter().flatten() {
            let object = json!(object);
            let told = told.map(|path| object.pointer(path).unwrap_or(&Value::Null).to_string());
            self.scene
                .progress
                .step(&format!("{cluster}: {kind} {}", told.join(" ")));
        }
    }
}

/// A condition of a Workload, as a sentence.
pub(super) fn says(workload: &Workload, kind: &str) -> String {
    workload.condition(kind).map_or_else(
        || format!("{kind} not set"),
        |found| format!("{kind} {} {} \"{}\"", found.status, found.reason, found.message),
    )
}

/// The cluster that the manager recorded.
pub(super) fn cluster_name(workload: &Workload) -> Option<&str> {
    workload.status.as_ref()?.cluster_name.as_deref()
}
