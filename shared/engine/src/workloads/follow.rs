//! The steps of a pass after the status is written.

use std::sync::Arc;

use kube::core::DynamicObject;
use kube::{Api, Resource as _, ResourceExt as _};
use roadstead_api::constants::{finalizers, labels};
use roadstead_api::kueue::v1beta2::{PriorityClassKind, Workload};
use roadstead_core::lifecycle::{Activation, FINISHED, Finalizer, Removal};
use roadstead_core::status::Status;
use roadstead_kubeio::reconcile::Outcome;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::{Workloads, not_found};
use crate::caches::Caches;
use crate::control;

impl Workloads {
    /// Writes what must be stored before the status: annotations to which it refers, and our finalizer on a Workload that gets a cluster and
    /// was made by the controller of a user. Returns the object after that.
    ///
    /// Why the finalizer: without it the Workload could be deleted while its job runs on a worker, and the next one for that job would be
    /// sent to another worker.
    pub(super) async fn annotate(
        &self,
        stored: Arc<Workload>,
        annotations: &[(&'static str, String)],
        status: &Status,
    ) -> Result<Arc<Workload>, Outcome> {
        let lacks_finalizer = status.cluster.is_some() && is_held_by_nothing(&self.caches, &stored);
        if annotations.is_empty() && !lacks_finalizer {
            return Ok(stored);
        }
        let meta = &stored.metadata;
        let mut patch = json!({ "metadata": { "resourceVersion": meta.resource_version, "uid": meta.uid } });
        for (key, value) in annotations {
            patch["metadata"]["annotations"][key] = json!(value);
        }
        if lacks_finalizer {
            let held = stored.finalizers().iter().map(String::as_str);
            let all: Vec<&str> = held.chain([finalizers::RESOURCE_IN_USE]).collect();
            patch["metadata"]["finalizers"] = json!(all);
        }
        let name = meta.name.as_deref().unwrap_or_default();
        let key = roadstead_kubeio::cache::key_of(&*stored);
        self.caches.unsure.note(&stored);
        let answer = write::patch(&self.api(&stored), name, &patch).await;
        if matches!(answer, Written::Done(_) | Written::Refused(_)) {
            self.caches.unsure.settle(&key);
        }
        match answer.or_end("annotating the workload failed")? {
            Some(object) => {
                self.caches.workloads.observe((*object).clone());
                Ok(Arc::new(*object))
            }
            None => Err(not_found("annotating the workload").into()),
        }
    }

    /// Deactivates the Workload, sets its priority to that of its class, or removes its finalizer.
    pub(super) async fn change_spec(
        &self,
        stored: &Workload,
        active: Activation,
        finalizer: Finalizer,
    ) -> Result<(), Outcome> {
        let mut patch = serde_json::Map::new();
        if active == Activation::Deactivate && stored.is_active() {
            patch.insert("spec".into(), json!({ "active": false }));
        }
        if let Some(priority) = priority(&self.caches, stored) {
            let spec = patch.entry("spec").or_insert_with(|| json!({}));
            spec["priority"] = json!(priority);
        }
        let held = stored.metadata.finalizers.as_deref().unwrap_or_default();
        if finalizer == Finalizer::Drop && held.iter().any(|f| f == finalizers::RESOURCE_IN_USE) {
            let kept: Vec<&String> = held
                .iter()
                .filter(|f| *f != finalizers::RESOURCE_IN_USE)
                .collect();
            // Why the version: a merge patch replaces the whole list, and another client may have added to it.
            let version = self
                .caches
                .workloads
                .get(&roadstead_kubeio::cache::key_of(stored));
            let version = version.and_then(|w| w.metadata.resource_version.clone());
            patch.insert(
                "metadata".into(),
                json!({ "finalizers": kept, "resourceVersion": version }),
            );
        }
        if patch.is_empty() {
            return Ok(());
        }
        let name = stored.metadata.name.as_deref().unwrap_or_default();
        let answer = write::patch(&self.api(stored), name, &patch.into()).await;
        if let Some(object) = answer.or_end("changing the workload failed")? {
            let key = roadstead_kubeio::cache::key_of(&*object);
            let last = object.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
            if object.metadata.deletion_timestamp.is_some() && last {
                self.caches.workloads.forget(&key, object.metadata.uid.as_deref());
            } else {
                self.caches.workloads.observe(*object);
            }
        }
        Ok(())
    }

    /// Deletes a Workload whose retention time is over.
    pub(super) async fn remove(&self, stored: &Workload, removal: Removal) -> Result<(), Outcome> {
        let deleted = match removal {
            Removal::Nothing => return Ok(()),
            Removal::Workload => {
                let name = stored.metadata.name.as_deref().unwrap_or_default();
                let answer = write::delete(&self.api(stored), name, stored.metadata.uid.as_deref()).await;
                (stored.object_ref(&()), answer.stored().map(drop))
            }
            Removal::Job => {
                let Some((at, uid)) = control::of(&self.caches, stored) else {
                    return Ok(());
                };
                let jobs = self.caches.jobs.get(at.kind);
                // Why not a job of a kind that is not known here: only its user's controller deletes it.
                let Some(jobs) = jobs.filter(|jobs| !jobs.kind.is_external()) else {
                    return Ok(());
                };
                let is_it = |object: &DynamicObject| uid.is_none() || object.metadata.uid == uid;
                let Some(job) = jobs.job(&at.key).filter(|job| is_it(job.first())) else {
                    return Ok(());
                };
                let namespace = &at.key.key().namespace;
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), namespace, &jobs.resource);
                let mut answer = Ok(());
                for object in job.objects() {
                    let uid = object.metadata.uid.as_deref();
                    let one = write::delete(&api, &object.name_any(), uid).await;
                    if let Err(failure) = one.stored() {
                        answer = Err(failure);
                    }
                }
                (job.first().object_ref(&jobs.resource), answer)
            }
        };
        let (object, answer) = deleted;
        answer.map_err(|failure| failure.in_doing("deleting what was kept long enough failed"))?;
        if let Some(note) = removal.note() {
            self.recorder.record(object, note);
        }
        Ok(())
    }
}

/// Whether the job of a Workload is only dispatched here, and nothing would keep the Workload if a user deleted it.
fn is_held_by_nothing(caches: &Caches, stored: &Workload) -> bool {
    let jobs = control::of(caches, stored).and_then(|(at, _)| caches.jobs.get(at.kind));
    jobs.is_some_and(|jobs| jobs.kind.is_external())
        && stored.metadata.deletion_timestamp.is_none()
        && !stored
            .finalizers()
            .iter()
            .any(|f| f == finalizers::RESOURCE_IN_USE)
}

/// The priority that a Workload must be given, when it differs from its present one.
///
/// Unlike the anchor: compared on every pass, so that a change of the class that no process saw is followed too. A remote copy
/// has the priority that its manager gives it. *Source*: `spec/admission-engine.md 4.4`.
fn priority(caches: &Caches, stored: &Workload) -> Option<i32> {
    let class = stored.spec.priority_class_ref.as_ref()?;
    let ours = class.kind == PriorityClassKind::WorkloadPriorityClass
        && stored.metadata.deletion_timestamp.is_none()
        && !stored.labels().contains_key(labels::MULTIKUEUE_ORIGIN)
        && !stored.is_true(FINISHED);
    if !ours {
        return None;
    }
    let value = caches.workload_classes.named(&class.name)?.spec.value;
    (stored.spec.priority != Some(value)).then_some(value)
}
