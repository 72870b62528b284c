//! One of the two sides: it makes moves and reads the resulting state.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload};
use roadstead_e2e::stage::apply;
use serde::de::DeserializeOwned;
use serde_json::{Value, json, to_value};

use super::moves::{Chosen, Move, PRIORITIES, Sequence};
use super::page::Page;
use crate::shared::{chain, eventually, owned};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// The visible state, by object.
pub(super) type View = BTreeMap<String, String>;

/// The classes that all sequences share.
pub(super) async fn prepare(client: &Client) {
    for value in PRIORITIES {
        let class = json!({
            "apiVersion": KUEUE, "kind": "WorkloadPriorityClass",
            "metadata": {"name": format!("p{value}")}, "value": value,
        });
        apply(client, class).await.unwrap();
    }
}

/// One side.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) client: Client,
    pub(super) page: Arc<Page>,
}

/// One side, as far as one sequence sees it.
pub(super) struct Side {
    client: Client,
    page: Arc<Page>,
    name: String,
}

impl Side {
    pub(super) fn new(seat: &Seat, name: &str) -> Self {
        Self {
            client: seat.client.clone(),
            page: seat.page.clone(),
            name: name.to_owned(),
        }
    }

    fn own(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    async fn apply(&self, object: Value) {
        let what = object.to_string();
        apply(&self.client, object)
            .await
            .unwrap_or_else(|error| panic!("{what}: {}", chain(&error)));
    }

    async fn cluster_queue(&self, name: &str, spec: &Value) {
        let metadata = json!({"name": self.own(name)});
        let spec = owned(spec.clone(), |name| self.own(name));
        self.apply(json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": metadata, "spec": spec}))
            .await;
    }

    pub(super) async fn furnish(&self, sequence: &Sequence) {
        self.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}))
            .await;
        for flavor in &sequence.flavors {
            self.apply(json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": self.own(flavor)}}))
                .await;
        }
        for (name, spec) in &sequence.cohorts {
            let (metadata, spec) = (
                json!({"name": self.own(name)}),
                owned(spec.clone(), |name| self.own(name)),
            );
            self.apply(json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": metadata, "spec": spec}))
                .await;
        }
        for (name, spec) in &sequence.queues {
            self.cluster_queue(name, spec).await;
            self.apply(json!({
                "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": self.name},
                "spec": {"clusterQueue": self.own(name)},
            }))
            .await;
        }
    }

    pub(super) async fn make(&self, one: &Move) {
        match one {
            Move::Submit {
                job,
                queue,
                pods,
                cpu,
                priority,
            } => self.submit(job, queue, (*pods, *cpu), *priority).await,
            Move::Finish(Chosen::Job(job)) => self.finish(job).await,
            Move::Delete(Chosen::Job(job)) => {
                let jobs: Api<Job> = self.namespaced();
                jobs.delete(job, &DeleteParams::background()).await.unwrap();
                eventually(|| async { jobs.get_opt(job).await.ok()?.is_none().then_some(()) }).await;
            }
            Move::Finish(Chosen::Number(_)) | Move::Delete(Chosen::Number(_)) => {}
            Move::Stop { queue, policy } => {
                let queues: Api<ClusterQueue> = Api::all(self.client.clone());
                let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
                queues
                    .patch(&self.own(queue), &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            }
            Move::Change { queue, spec } => self.cluster_queue(queue, spec).await,
        }
    }

    async fn submit(&self, name: &str, queue: &str, (pods, cpu): (u32, u32), priority: i32) {
        let labels = json!({
            "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": format!("p{priority}"),
        });
        let requests = json!({"requests": {"cpu": cpu.to_string()}});
        let job = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": requests}]},
            }},
        });
        let job: Job = serde_json::from_value(job).unwrap();
        self.namespaced::<Job>()
            .create(&PostParams::default(), &job)
            .await
            .unwrap();
        let workloads: Api<Workload> = self.namespaced();
        eventually(|| async {
            let all = workloads.list(&ListParams::default()).await.ok()?;
            all.items.iter().any(|w| owner(w) == Some(name)).then_some(())
        })
        .await;
    }

    /// All pods of a running Job become ready, and then succeed.
    async fn finish(&self, job: &str) {
        let pods: Api<Pod> = self.namespaced();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let jobs: Api<Job> = self.namespaced();
        let wanted = jobs.get(job).await.unwrap().spec.unwrap().parallelism;
        let found = eventually(|| async {
            let found = pods.list(&of_job).await.ok()?.items;
            (i32::try_from(found.len()).ok() == wanted).then_some(found)
        })
        .await;
        // Why ready first: else it is chance whether that is seen before the end.
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        for (status, until) in [(ready, "PodsReady"), (json!({"phase": "Succeeded"}), "Finished")] {
            let patch = Patch::Merge(json!({ "status": status }));
            for pod in &found {
                pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            }
            let workloads: Api<Workload> = self.namespaced();
            eventually(|| async {
                let all = workloads.list(&ListParams::default()).await.ok()?;
                let of_job = all.items.into_iter().find(|w| owner(w) == Some(job));
                of_job.is_none_or(|w| w.is_true(until)).then_some(())
            })
            .await;
        }
    }

    /// Reads the statuses of all objects of this sequence.
    pub(super) async fn look(&self) -> View {
        let mut view = View::new();
        let all = ListParams::default();
        for workload in self.namespaced::<Workload>().list(&all).await.unwrap() {
            if let Some(job) = owner(&workload).map(str::to_owned) {
                self.show_workload(&mut view, &job, &to_value(&workload).unwrap());
            }
        }
        for job in self.namespaced::<Job>().list(&all).await.unwrap() {
            let runs = job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(false));
            let ended = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
            let ended = ended
                .filter(|c| c.status == "True")
                .any(|c| c.type_ == "Complete");
            view.insert(
                format!("job {} runs", job.name_any()),
                (runs && !ended).to_string(),
            );
        }
        for queue in self.namespaced::<LocalQueue>().list(&all).await.unwrap() {
            self.show_queue(
                &mut view,
                &format!("local {}", queue.name_any()),
                &to_value(&queue).unwrap(),
            );
        }
        for queue in Api::<ClusterQueue>::all(self.client.clone())
            .list(&all)
            .await
            .unwrap()
        {
            let name = queue.name_any();
            if let Some(name) = name.strip_prefix(&format!("{}-", self.name)) {
                self.show_queue(&mut view, &format!("queue {name}"), &to_value(&queue).unwrap());
            }
        }
        self.page
            .show(&mut view, &self.name, |text| self.nameless(text))
            .await;
        view
    }

    fn show_conditions(&self, view: &mut View, name: &str, status: &Value) {
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let message = self.nameless(&text("message"));
            view.insert(
                format!("{name} {}", text("type")),
                format!("{} {}: {message}", text("status"), text("reason")),
            );
        }
    }

    fn show_workload(&self, view: &mut View, job: &str, workload: &Value) {
        let (name, status) = (format!("job {job}"), &workload["status"]);
        self.show_conditions(view, &name, status);
        let mut show = |what: &str, value: &Value| {
            if !value.is_null() {
                view.insert(format!("{name} {what}"), self.nameless(&value.to_string()));
            }
        };
        show("active", &workload["spec"]["active"]);
        show("priority", &workload["spec"]["priority"]);
        show("admission", &status["admission"]);
        show("evictions", &status["schedulingStats"]["evictions"]);
        show("requeue count", &status["requeueState"]["count"]);
    }

    fn show_queue(&self, view: &mut View, name: &str, queue: &Value) {
        let status = &queue["status"];
        self.show_conditions(view, name, status);
        for field in ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"] {
            // Why zero: a zero may be left out.
            let count = status[field].as_i64().unwrap_or_default();
            view.insert(format!("{name} {field}"), count.to_string());
        }
        for field in ["flavorsReservation", "flavorsUsage"] {
            if !status[field].is_null() {
                view.insert(format!("{name} {field}"), status[field].to_string());
            }
        }
    }

    /// The text without values that differ from run to run: UIDs and the endings of names.
    fn nameless(&self, text: &str) -> String {
        let mut words = Vec::new();
        for word in text.split(' ') {
            let kept = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_uid = kept.len() == 36 && kept.bytes().filter(|b| *b == b'-').count() == 4;
            let parts: Vec<&str> = kept.rsplitn(2, '-').collect();
            let is_workload = kept.starts_with("job-j") && parts.len() == 2 && parts[0].len() == 5;
            words.push(match (is_uid, is_workload) {
                (true, _) => word.replace(kept, "UID"),
                (_, true) => word.replace(kept, parts[1]),
                (false, false) => word.to_owned(),
            });
        }
        words
            .join(" ")
            .replace(&format!("{}-", self.name), "")
            .replace(&self.name, "NS")
    }

    /// Everything of the sequence goes.
    pub(super) async fn clear(&self, sequence: &Sequence) {
        let jobs: Api<Job> = self.namespaced();
        let _ = jobs
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await;
        let workloads: Api<Workload> = self.namespaced();
        eventually(|| async {
            let left = workloads.list(&ListParams::default()).await.ok()?;
            left.items.is_empty().then_some(())
        })
        .await;
        for (name, _) in &sequence.queues {
            self.delete::<ClusterQueue>(name).await;
        }
        for (name, _) in &sequence.cohorts {
            self.delete::<Cohort>(name).await;
        }
        for flavor in &sequence.flavors {
            self.delete::<ResourceFlavor>(flavor).await;
        }
        let _ = Api::<Namespace>::all(self.client.clone())
            .delete(&self.name, &DeleteParams::default())
            .await;
    }

    async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        // Why ignored: leftovers disturb no other sequence.
        let _ = Api::<K>::all(self.client.clone())
            .delete(&self.own(name), &DeleteParams::default())
            .await;
    }
}

/// The Job that a Workload belongs to.
fn owner(workload: &Workload) -> Option<&str> {
    let owner = workload.owner_references().first()?;
    Some(owner.name.as_str())
}
