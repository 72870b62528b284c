//! A bare client: only the writes of one job, with the contents that Roadstead's processes wrote.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, json};

/// The objects of one real job, to be written again under other names.
pub(super) struct Content {
    namespace: String,
    job: Value,
    manager: Written,
    worker: Written,
}

/// A Workload as created, and its status.
struct Written {
    object: Value,
    status: Value,
}

/// The clusters that the bare client writes to. Its jobs go to the workers in turn, as the real jobs are spread over them.
pub(super) struct Bare {
    manager: Apis,
    workers: Vec<Apis>,
    content: Content,
}

struct Apis {
    jobs: Api<DynamicObject>,
    workloads: Api<DynamicObject>,
}

impl Apis {
    fn new(client: Client, namespace: &str) -> Self {
        Self {
            jobs: Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Job>(&())),
            workloads: Api::namespaced_with(client, namespace, &ApiResource::erase::<Workload>(&())),
        }
    }
}

impl Content {
    /// Reads the objects of the only dispatched job from both clusters.
    pub(super) async fn read(
        manager: &Client,
        worker: &Client,
        namespace: &str,
        job: Value,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            namespace: namespace.to_owned(),
            job,
            manager: Written::read(manager, namespace)
                .await
                .context("the manager's workload")?,
            worker: Written::read(worker, namespace)
                .await
                .context("the worker's workload")?,
        })
    }
}

impl Written {
    async fn read(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let api = Apis::new(client.clone(), namespace).workloads;
        let unfinished = |workload: &DynamicObject| {
            let conditions = workload.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            !conditions.iter().any(|condition| condition["type"] == "Finished")
        };
        let found = api
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .find(unfinished);
        let Some(found) = found else {
            bail!("none is there")
        };
        let labels = found.metadata.labels.clone();
        let annotations = found.metadata.annotations.clone();
        let finalizers = found.metadata.finalizers.clone();
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"labels": labels, "annotations": annotations, "finalizers": finalizers},
            "spec": found.data["spec"],
        });
        Ok(Self {
            object,
            status: found.data["status"].clone(),
        })
    }

    /// The status with reserved quota and pending checks.
    fn status_before(&self) -> Value {
        let mut status = self.status.clone();
        if let Some(conditions) = status["conditions"].as_array_mut() {
            conditions.retain(|condition| condition["type"] == "QuotaReserved");
        }
        if let Some(fields) = status.as_object_mut() {
            fields.remove("clusterName");
        }
        for check in status["admissionChecks"].as_array_mut().into_iter().flatten() {
            check["state"] = json!("Pending");
        }
        status
    }
}

impl Bare {
    pub(super) fn new(manager: &Client, workers: &[Client], content: Content) -> Self {
        let apis = |client: &Client| Apis::new(client.clone(), &content.namespace);
        Self {
            manager: apis(manager),
            workers: workers.iter().map(apis).collect(),
            content,
        }
    }

    /// Makes all writes that lead to a running job on the worker of its turn, in series. Returns their duration, and the duration
    /// of those that cannot run in parallel.
    ///
    /// The first write is the user's creation of the job. Only the last two could run in parallel: they update the manager's
    /// Workload and job.
    pub(super) async fn dispatch(&self, turn: usize, name: &str) -> anyhow::Result<(Duration, Duration)> {
        let Some(on_worker) = self.workers.get(turn % self.workers.len().max(1)) else {
            bail!("no worker")
        };
        let Content {
            namespace: _,
            job,
            manager,
            worker,
        } = &self.content;
        let started = Instant::now();
        create(&self.manager.jobs, name, job).await?;
        create(&self.manager.workloads, name, &manager.object).await?;
        patch_status(&self.manager.workloads, name, &manager.status_before()).await?;
        create(&on_worker.workloads, name, &worker.object).await?;
        patch_status(&on_worker.workloads, name, &worker.status).await?;
        create(&on_worker.jobs, name, job).await?;
        unsuspend(&on_worker.jobs, name).await?;
        let critical = started.elapsed();
        patch_status(&self.manager.workloads, name, &manager.status).await?;
        unsuspend(&self.manager.jobs, name).await?;
        Ok((started.elapsed(), critical))
    }

    /// Writes the end of a dispatched job into the manager's job. Returns the duration.
    pub(super) async fn finish(&self, name: &str) -> anyhow::Result<Duration> {
        let status = ended_status();
        let started = Instant::now();
        patch_status(&self.manager.jobs, name, &status).await?;
        Ok(started.elapsed())
    }
}

/// The status that the Job controller writes for a job of one succeeded pod.
pub(super) fn ended_status() -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
            "lastProbeTime": now, "lastTransitionTime": now,
        })
    };
    json!({
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    })
}

async fn create(api: &Api<DynamicObject>, name: &str, object: &Value) -> anyhow::Result<()> {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    let object: DynamicObject = serde_json::from_value(object)?;
    let made = api.create(&PostParams::default(), &object).await;
    made.map(drop).with_context(|| format!("creating {name}"))
}

async fn patch_status(api: &Api<DynamicObject>, name: &str, status: &Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    let done = api.patch_status(name, &PatchParams::default(), &patch).await;
    done.map(drop)
        .with_context(|| format!("patching the status of {name}"))
}

async fn unsuspend(api: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
    let done = api.patch(name, &PatchParams::default(), &patch).await;
    done.map(|job| drop(job.name_any()))
        .with_context(|| format!("starting {name}"))
}
