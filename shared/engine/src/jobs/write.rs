//! The actions of a job's plan, each one idempotent.

use std::sync::Arc;

use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::config::{FeatureGate, LabelSourceKind};
use roadstead_api::constants::{annotations, finalizers, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_convert::{Made, Priority};
use roadstead_core::job::{Action, StopReason};
use roadstead_core::lifecycle::{EVICTED, FINISHED, Request};
use roadstead_core::name::{Key, Uid};
use roadstead_core::note::Note;
use roadstead_jobs::kind::{MemberId, Target, Tending, Why, Write};
use roadstead_kinds::Members;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::Lane;
use roadstead_kubeio::reconcile::Outcome;
use roadstead_kubeio::write::{self, Written};
use serde_json::{Value, json};

use super::{Jobs, read, resolve_priority, told};
use crate::caches::{KindCache, member, member_mut};
use crate::metrics::Part;

/// Carries out one action, and returns the writes by which it started or stopped the job. `Err` ends the pass.
pub(super) async fn act(
    jobs: &Jobs,
    kind: &KindCache,
    scene: &read::Scene,
    action: Action,
) -> Result<Vec<Write>, Outcome> {
    match action {
        Action::Start(key) => return start(jobs, kind, scene, &key).await,
        Action::Stop { reason, restore } => return stop(jobs, kind, scene, (reason, restore)).await,
        Action::CreateWorkload(key) => create(jobs, kind, scene, &key).await?,
        Action::AdoptPrebuilt(key) => adopt(jobs, kind, scene, &key).await?,
        Action::UpdateWorkloadSpec(key) => update_spec(jobs, kind, scene, &key).await?,
        Action::DeleteWorkload(key) => delete(jobs, scene, &key).await?,
        Action::WithdrawWorkload(key) => withdraw(jobs, scene, &key).await?,
        Action::SetQueueName { workload, queue } => {
            change(jobs, &workload, &json!({ "spec": { "queueName": queue } })).await?;
        }
        Action::SetPriority(key) => {
            let priority = priority(jobs, kind, scene)?;
            let patch = json!({ "spec": { "priority": priority.value, "priorityClassRef": priority.class } });
            change(jobs, &key, &patch).await?;
        }
        Action::SetGates { workload, gated_by } => {
            let value = if gated_by.is_empty() {
                Value::Null
            } else {
                Value::String(gated_by)
            };
            change(
                jobs,
                &workload,
                &json!({ "metadata": { "annotations": { annotations::ADMISSION_GATED_BY: value } } }),
            )
            .await?;
        }
        Action::SuspendChild => {
            let mut suspended = DynamicObject::clone(scene.job.first());
            kind.kind.suspend(&mut member_mut(&mut suspended));
            let patch = roadstead_jobs::json::difference(&scene.job.first().data, &suspended.data);
            let of = member(&suspended).id();
            let target = Target::Main;
            let write = patch.map(|patch| Write::Patch { of, target, patch });
            carry_out_all(jobs, kind, &scene.key, write).await?;
        }
        Action::Release => {
            let writes = scene.job.with(|members| kind.kind.release(members));
            carry_out_all(jobs, kind, &scene.key, writes).await?;
        }
        Action::AskOutOfSync(key) => ask(jobs, scene, &key, Request::OutOfSync),
    }
    Ok(Vec::new())
}

async fn stop(
    jobs: &Jobs,
    kind: &KindCache,
    scene: &read::Scene,
    (reason, restore): (StopReason, Option<Key>),
) -> Result<Vec<Write>, Outcome> {
    let original = restore
        .and_then(|key| scene.stored.get(&key))
        .map(|w| roadstead_convert::pod_sets(w));
    let original = original.unwrap_or_default();
    let (said, message) = why(scene, reason);
    let why = Why {
        reason: &said,
        message: &message,
        for_good: reason == StopReason::WorkloadDeleted,
        now: (jobs.clock)(),
    };
    let writes = { &scene.job }.with(|members| kind.kind.stop(members, &original, &why));
    // Why not logged without writes: then the pass only waits for the job's pods, and such passes are frequent.
    if !writes.is_empty() {
        tracing::info!(job = %scene.key, reason = reason.as_str(), "stopping the job");
    }
    carry_out_all(jobs, kind, &scene.key, writes.iter().cloned()).await?;
    Ok(writes)
}

/// Why a job is stopped, as its objects show it. *Source*: `spec/jobs.md 5.9`.
fn why(scene: &read::Scene, reason: StopReason) -> (String, String) {
    let evicted = scene.current_workload().and_then(|w| w.condition(EVICTED));
    match (reason, evicted) {
        (StopReason::WorkloadEvicted, Some(evicted)) => (
            format!("{}DueTo{}", reason.as_str(), evicted.reason),
            evicted.message.clone(),
        ),
        (StopReason::WorkloadDeleted, _) => (reason.as_str().to_owned(), "Workload is deleted".to_owned()),
        (StopReason::NotAdmitted, _) => (
            reason.as_str().to_owned(),
            "Not admitted by cluster queue".to_owned(),
        ),
        (StopReason::NoMatchingWorkload | StopReason::WorkloadEvicted, _) => {
            (reason.as_str().to_owned(), "No matching Workload".to_owned())
        }
    }
}

/// Does what is due about the members of a group. `Err` ends the pass.
pub(super) async fn tend(jobs: &Jobs, kind: &KindCache, scene: &read::Scene) -> Result<(), Outcome> {
    let Some(group) = &scene.group else {
        return Ok(());
    };
    if let Some(workload) = scene.current_workload()
        && !workload.is_true(FINISHED)
        && workload.metadata.deletion_timestamp.is_none()
    {
        own(jobs, kind, group, workload).await?;
    }
    carry_out_all(jobs, kind, &scene.key, group.writes.iter().cloned()).await?;
    for told in &group.told {
        let is_it = |object: &&Arc<DynamicObject>| object.name_any() == told.of.name;
        if let Some(object) = scene.job.objects().find(is_it) {
            jobs.tell(kind, object, vec![told.note.clone()]);
        }
    }
    Ok(())
}

/// Makes the new members of a group owners of its Workload.
async fn own(jobs: &Jobs, kind: &KindCache, group: &Tending, workload: &Workload) -> Result<(), Outcome> {
    let mut owners = workload.metadata.owner_references.clone().unwrap_or_default();
    let missing = |id: &&MemberId| !owners.iter().any(|owner| owner.uid == id.uid);
    let added: Vec<_> = { group.kept.iter() }
        .filter(missing)
        .map(|id| roadstead_convert::member_reference(&kind.resource.api_version, &kind.resource.kind, id))
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let text = format!("Added {} owner reference(s)", added.len());
    owners.extend(added);
    let patch = json!({ "metadata": {
        "resourceVersion": workload.metadata.resource_version, "ownerReferences": owners,
    } });
    change(jobs, &roadstead_kubeio::cache::key_of(workload), &patch).await?;
    let note = Note::normal("OwnerReferencesAdded", text);
    jobs.recorder
        .record(kube::Resource::object_ref(workload, &()), note);
    Ok(())
}

fn ask(jobs: &Jobs, scene: &read::Scene, key: &Key, request: Request) {
    let uid = scene
        .stored
        .get(key)
        .and_then(|w| w.metadata.uid.clone())
        .unwrap_or_default();
    jobs.requests.put(key.clone(), Uid::new(uid), request);
    jobs.workloads_due.add(key.clone(), Lane::Placed);
}

/// The job's priority. If the job names a class that does not exist, its user gets an Event and the job is tried again.
fn priority(jobs: &Jobs, kind: &KindCache, scene: &read::Scene) -> Result<Priority, Outcome> {
    let gates = &jobs.config.feature_gates;
    let priority =
        { &scene.job }.with(|job| resolve_priority(&jobs.caches, gates, kind.kind, job, &scene.pod_sets));
    priority.map_err(|failure| {
        let note = Note::warning("WorkloadPriorityClassNotFound", failure.to_string());
        jobs.tell(kind, scene.job.first(), vec![note]);
        failure.into()
    })
}

fn build(jobs: &Jobs, kind: &KindCache, scene: &read::Scene, name: &str) -> Result<Workload, Outcome> {
    if let Some(rest) = scene.awaited.filter(|rest| !rest.is_zero()) {
        return Err(Outcome::After(rest));
    }
    if let Some(unfit) = &scene.unfit {
        jobs.tell(kind, scene.job.first(), vec![unfit.clone()]);
        return Err(Outcome::Done);
    }
    let meta = &scene.job.first().metadata;
    let priority = priority(jobs, kind, scene)?;
    let (labels, annotations_to_copy) = jobs.config.metrics_sources(LabelSourceKind::Workload);
    let labels_to_copy = [jobs.config.integrations.label_keys_to_copy.clone(), labels].concat();
    let mut workload = roadstead_convert::workload_for_job(Made {
        name: name.to_owned(),
        job: meta,
        api_version: &kind.resource.api_version,
        kind: &kind.resource.kind,
        group: scene.group.as_ref().map(|group| group.kept.as_slice()),
        labels_to_copy: &labels_to_copy,
        annotations_to_copy: &annotations_to_copy,
        queue: scene.queue.clone(),
        pod_sets: scene.pod_sets.clone(),
        priority,
        max_execution_secs: roadstead_jobs::labels::max_execution_secs(meta),
        topology: { &jobs.config.feature_gates }.enabled(FeatureGate::TopologyAwareScheduling),
    });
    if !scene.maker_notes.is_empty() {
        let notes = workload.metadata.annotations.get_or_insert_default();
        notes.extend(scene.maker_notes.clone());
    }
    Ok(workload)
}

async fn create(jobs: &Jobs, kind: &KindCache, scene: &read::Scene, key: &Key) -> Result<(), Outcome> {
    let workload = build(jobs, kind, scene, &key.name)?;
    // Why a workload that is already there is no failure: our cache is behind, or another object has that name; the next pass
    // shows which.
    let answer = write::create(&api(jobs, key), &workload).await;
    match answer.or_end(format_args!("creating workload {key} failed"))? {
        Some(object) => {
            jobs.caches.workloads.observe(*object);
            Ok(())
        }
        None => Err(Failure::lasting(
            "this cluster's API server does not serve Workloads of kueue.x-k8s.io/v1beta2 (404 at creation): apply deploy/crds",
        )
        .into()),
    }
}

/// *Source*: `spec/jobs.md 5.3 A3`.
async fn adopt(jobs: &Jobs, kind: &KindCache, scene: &read::Scene, key: &Key) -> Result<(), Outcome> {
    let Some(workload) = scene.stored.get(key) else {
        return Ok(());
    };
    let owner = json!({
        "apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "name": &*scene.key.name,
        "uid": scene.uid, "controller": true, "blockOwnerDeletion": true,
    });
    let mut owners: Vec<Value> = workload
        .metadata
        .owner_references
        .iter()
        .flatten()
        .filter_map(|owner| serde_json::to_value(owner).ok())
        .collect();
    owners.push(owner);
    // Why the version: two jobs that name one Workload must not both become its controller.
    let patch = json!({ "metadata": {
        "resourceVersion": workload.metadata.resource_version,
        "ownerReferences": owners,
        "labels": { labels::JOB_UID: scene.uid },
    } });
    change(jobs, key, &patch).await
}

async fn update_spec(jobs: &Jobs, kind: &KindCache, scene: &read::Scene, key: &Key) -> Result<(), Outcome> {
    let built = build(jobs, kind, scene, &key.name)?;
    let mut spec = serde_json::to_value(&built.spec).map_err(Failure::from)?;
    // Why set to null: a merge patch keeps the fields that it does not name.
    for field in ["maximumExecutionTimeSeconds", "priorityClassRef", "queueName"] {
        if spec.get(field).is_none() {
            spec[field] = Value::Null;
        }
    }
    change(jobs, key, &json!({ "spec": spec })).await
}

async fn delete(jobs: &Jobs, scene: &read::Scene, key: &Key) -> Result<(), Outcome> {
    let Some(workload) = scene.stored.get(key) else {
        return Ok(());
    };
    let held = workload.metadata.finalizers.clone().unwrap_or_default();
    if held.iter().any(|f| f == finalizers::RESOURCE_IN_USE) {
        let kept: Vec<&String> = held
            .iter()
            .filter(|f| *f != finalizers::RESOURCE_IN_USE)
            .collect();
        let version = workload.metadata.resource_version.as_ref();
        change(
            jobs,
            key,
            &json!({ "metadata": { "finalizers": kept, "resourceVersion": version } }),
        )
        .await?;
    }
    withdraw(jobs, scene, key).await
}

async fn withdraw(jobs: &Jobs, scene: &read::Scene, key: &Key) -> Result<(), Outcome> {
    let Some(workload) = scene.stored.get(key) else {
        return Ok(());
    };
    let uid = workload.metadata.uid.as_deref();
    let answer = write::delete(&api(jobs, key), &key.name, uid).await;
    if matches!(answer, Written::Gone) {
        jobs.caches.workloads.forget(key, uid);
    }
    let deleted = answer.stored();
    let what = format_args!("deleting workload {key} failed");
    if let Some(object) = deleted.map_err(|failure| failure.in_doing(what))? {
        jobs.caches.workloads.observe(*object);
    }
    Ok(())
}

async fn start(jobs: &Jobs, kind: &KindCache, scene: &read::Scene, key: &Key) -> Result<Vec<Write>, Outcome> {
    let Some(workload) = scene.stored.get(key) else {
        return Ok(Vec::new());
    };
    // Why only the counted members: the others hold no quota.
    let Some(job) = scene.counted() else {
        return Ok(Vec::new());
    };
    let start = read::infos(&jobs.caches, workload)
        .and_then(|infos| job.with(|members| kind.kind.start(members, &infos)));
    match start {
        Ok(writes) => {
            carry_out_all(jobs, kind, &scene.key, writes.iter().cloned()).await?;
            if kind.kind.kind().members == Members::Group {
                let part = scene.group.as_ref().map_or(Part::Whole, |_| Part::OfGroup);
                let pods = told::changed(&writes).len();
                jobs.metrics.gates_removed(workload, part, pods);
            }
            Ok(writes)
        }
        Err(error) if error.is_permanent() => {
            ask(
                jobs,
                scene,
                key,
                Request::FailedToStart {
                    message: error.to_string(),
                },
            );
            Ok(Vec::new())
        }
        Err(error) => Err(Failure::passing(error.to_string()).into()),
    }
}

/// Carries out writes one after another. `Err` ends the pass.
async fn carry_out_all(
    jobs: &Jobs,
    kind: &KindCache,
    job: &Key,
    writes: impl IntoIterator<Item = Write>,
) -> Result<(), Outcome> {
    for write in writes {
        carry_out(jobs, kind, job, write).await?;
    }
    Ok(())
}

enum Change {
    Patch(Target, Value),
    Delete,
    Bind(String),
}

/// Carries out one write, but only on the object that was read (same UID). `Err` ends the pass.
pub(super) async fn carry_out(jobs: &Jobs, kind: &KindCache, job: &Key, write: Write) -> Result<(), Outcome> {
    let (MemberId { name, uid }, change) = match write {
        Write::Patch { of, target, patch } => (of, Change::Patch(target, patch)),
        Write::Delete { of } => (of, Change::Delete),
        Write::Bind { of, node } => (of, Change::Bind(node)),
    };
    let key = Key::new(job.namespace.clone(), name.as_str());
    let current = kind.objects.get(&key);
    if current.is_none_or(|current| current.metadata.uid.as_deref() != Some(uid.as_str())) {
        return Ok(());
    }
    let api = Api::namespaced_with(jobs.client.clone(), &key.namespace, &kind.resource);
    let answer = match change {
        Change::Delete => write::delete(&api, &name, Some(&uid)).await,
        Change::Bind(node) => {
            let bound = write::bind(&api, &name, &uid, &node).await;
            let what = format_args!("binding pod {key} to node {node} failed");
            return bound.map_err(|failure| failure.in_doing(what).into());
        }
        Change::Patch(target, mut patch) => {
            patch["metadata"]["uid"] = json!(uid);
            match target {
                Target::Main => write::patch(&api, &name, &patch).await,
                Target::Status => write::patch_status(&api, &name, &patch).await,
            }
        }
    };
    if let Some(object) = answer.or_end(format_args!("changing job {key} failed"))? {
        kind.objects.observe(*object);
    }
    Ok(())
}

async fn change(jobs: &Jobs, key: &Key, patch: &Value) -> Result<(), Outcome> {
    let answer = write::patch(&api(jobs, key), &key.name, patch).await;
    if let Some(object) = answer.or_end(format_args!("changing workload {key} failed"))? {
        jobs.caches.workloads.observe(*object);
    }
    Ok(())
}

fn api(jobs: &Jobs, key: &Key) -> Api<Workload> {
    Api::namespaced(jobs.client.clone(), &key.namespace)
}
