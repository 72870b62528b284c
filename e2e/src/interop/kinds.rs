//! Jobs of other kinds than `batch/v1`, with the controllers of those kinds in every cluster.

use anyhow::{Context as _, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, from_value, json};

use super::kind::{End, Facts};
use super::report::Report;
use super::room::{Room, TARGET_ONLY, cluster_name};
use super::scene::{MANAGER, Scene, condition};
use crate::conformance::normal::differences;

/// How long the pods run in scenes that watch a job run and then end.
///
/// Why not shorter: on a busy machine the manager may show only seconds later that the job runs.
const WATCHED_SECS: u32 = 20;
/// Most differences of two statuses that are printed.
const DIFFERENCES_MAX: usize = 10;

/// All scenes of a kind.
pub(super) async fn play(scene: &Scene, of: &'static Facts, report: &mut Report) {
    report
        .play(scene, "success", TARGET_ONLY, async |room: &Room<'_>| {
            success(room, of).await
        })
        .await;
    report
        .play(scene, "failure", TARGET_ONLY, async |room: &Room<'_>| {
            failure(room, of).await
        })
        .await;
    report
        .play(scene, "deleted", TARGET_ONLY, async |room: &Room<'_>| {
            deleted(room, of).await
        })
        .await;
    report
        .play(scene, "deactivated", TARGET_ONLY, async |room: &Room<'_>| {
            deactivated(room, of).await
        })
        .await;
}

impl Facts {
    pub(super) fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    fn api(&self, room: &Room<'_>, cluster: &str) -> anyhow::Result<Api<DynamicObject>> {
        let client = room.scene.client(cluster)?;
        Ok(Api::namespaced_with(client, room.name, &self.resource()))
    }

    async fn read(&self, room: &Room<'_>, cluster: &str, name: &str) -> anyhow::Result<Value> {
        Ok(json!(self.api(room, cluster)?.get(name).await?))
    }

    /// Submits a job to the manager, where the webhook holds it.
    async fn submit(&self, room: &Room<'_>, name: &str, seconds: u32, end: End) -> anyhow::Result<()> {
        let object = from_value(json!({
            "apiVersion": format!("{}/{}", self.group, self.version), "kind": self.kind,
            "metadata": {"name": name, "namespace": room.name, "labels": {QUEUE_NAME: room.name}},
            "spec": (self.spec)(seconds, end),
        }))?;
        let made = self
            .api(room, MANAGER)?
            .create(&PostParams::default(), &object)
            .await;
        let made = json!(made.with_context(|| format!("submitting {name}"))?);
        ensure!(
            made.pointer(self.suspend) == Some(&json!(true)),
            "the webhook did not suspend it"
        );
        ensure!(
            made.pointer(self.managed_by) == Some(&json!(MULTIKUEUE)),
            "managedBy is {:?}",
            made.pointer(self.managed_by)
        );
        Ok(())
    }

    /// Waits until both pods run in the worker and the manager shows the same status.
    async fn runs_in(&self, room: &Room<'_>, worker: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("both pods of {name} run in {worker}, and its status is the same on the manager");
        room.eventually(&what, || async {
            let there = self.read(room, worker, name).await?;
            let here = self.read(room, MANAGER, name).await?;
            ensure!((self.both_run)(&there), "{worker} shows {}", there["status"]);
            is_alike(&there["status"], &here["status"])?;
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the job has this condition on the manager, and has ended in the worker as the manager shows it. Its Workload must
    /// have ended with this reason. Returns the message.
    async fn ends_as(
        &self,
        room: &Room<'_>,
        name: &str,
        (shown, reason): (&str, &str),
    ) -> anyhow::Result<String> {
        room.eventually(&format!("{name} is {shown} on the manager"), || async {
            let job = self.read(room, MANAGER, name).await?;
            Ok(condition(&job, shown)
                .is_some_and(|found| found["status"] == "True")
                .then_some(()))
        })
        .await?;
        let worker = room.scene.target;
        let what = format!("{name} has ended in {worker} as the manager shows it");
        room.eventually(&what, || async {
            let here = self.read(room, MANAGER, name).await?;
            let there = room.scene.history.status(worker, room.name, name);
            let there = there.with_context(|| format!("{worker} has shown no status"))?;
            is_alike(&self.end_of(&there), &self.end_of(&here["status"]))?;
            Ok(Some(()))
        })
        .await?;
        let workload = room
            .workload_where(name, "is Finished", |workload| workload.is_true("Finished"))
            .await?;
        let end = workload.condition("Finished").context("no end")?;
        ensure!(end.reason == reason, "the manager's reason is {}", end.reason);
        Ok(end.message.clone())
    }

    /// The fields of a status that do not change after the end of the job.
    fn end_of(&self, status: &Value) -> Value {
        let kept = self.lasting.iter().map(|field| (*field, status[*field].clone()));
        kept.collect()
    }

    /// Waits until nothing is left of the job in the workers: neither it, nor what it made, nor its Workload.
    async fn is_swept(&self, room: &Room<'_>) -> anyhow::Result<()> {
        room.is_swept().await?;
        for worker in [room.scene.target, room.scene.other] {
            let jobs = self.api(room, worker)?;
            let workloads: Api<Workload> = room.api(worker)?;
            room.eventually(&format!("no {} is left in {worker}", self.kind), || async {
                let jobs = jobs.list(&ListParams::default()).await?.items;
                let workloads = workloads.list(&ListParams::default()).await?.items;
                Ok((jobs.is_empty() && workloads.is_empty()).then_some(()))
            })
            .await?;
        }
        Ok(())
    }
}

/// Fails if the manager shows a status that is not that of the worker.
fn is_alike(there: &Value, here: &Value) -> anyhow::Result<()> {
    let found = differences(&without_zeros(there), &without_zeros(here), DIFFERENCES_MAX);
    ensure!(
        found.is_empty(),
        "in the worker | on the manager: {}",
        found.join(", ")
    );
    Ok(())
}

/// The value without its fields that are zero.
///
/// Why: Kueue sends the difference of two typed objects, so a field that is zero on both sides, like `restarts` of a new JobSet, is
/// never written on its manager.
fn without_zeros(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, field)| !is_zero(field));
            kept.map(|(name, field)| (name.clone(), without_zeros(field)))
                .collect()
        }
        Value::Array(items) => items.iter().map(without_zeros).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// Spec: multikueue 1.8, 3.3 R6, 3.6
async fn success(room: &Room<'_>, of: &Facts) -> anyhow::Result<String> {
    let target = room.scene.target;
    of.submit(room, "train", WATCHED_SECS, End::Well).await?;
    of.runs_in(room, target, "train").await?;
    room.workload_where("train", "names the worker", |workload| {
        cluster_name(workload) == Some(target)
    })
    .await?;
    let said = of.ends_as(room, "train", (of.succeeded, "Succeeded")).await?;
    of.is_swept(room).await?;
    Ok(format!(
        "ran and ended in {target} with the same status on the manager; Finished Succeeded \"{said}\"; nothing left"
    ))
}

/// Spec: multikueue 3.6
async fn failure(room: &Room<'_>, of: &Facts) -> anyhow::Result<String> {
    of.submit(room, "fails", 1, End::Badly).await?;
    let said = of.ends_as(room, "fails", ("Failed", "Failed")).await?;
    of.is_swept(room).await?;
    Ok(format!(
        "ended in {} with the same status on the manager; Finished Failed \"{said}\"; nothing left",
        room.scene.target
    ))
}

/// Spec: multikueue 3.9, 10.F24
async fn deleted(room: &Room<'_>, of: &Facts) -> anyhow::Result<String> {
    let target = room.scene.target;
    of.submit(room, "cancelled", 600, End::Well).await?;
    of.runs_in(room, target, "cancelled").await?;
    of.api(room, MANAGER)?
        .delete("cancelled", &DeleteParams::background())
        .await?;
    of.is_swept(room).await?;
    room.eventually("the Workload is gone", || async {
        Ok(room.workload("cancelled").await?.is_none().then_some(()))
    })
    .await?;
    Ok(format!(
        "ran in {target} with the same status on the manager; deleted: nothing of it is left anywhere"
    ))
}

/// Spec: multikueue 3.8, 3.9
async fn deactivated(room: &Room<'_>, of: &Facts) -> anyhow::Result<String> {
    let target = room.scene.target;
    of.submit(room, "pausing", WATCHED_SECS, End::Well).await?;
    of.runs_in(room, target, "pausing").await?;
    let first = of.api(room, target)?.get("pausing").await?.uid();
    room.set_active("pausing", false).await?;
    of.is_swept(room).await?;
    room.eventually("it is held on the manager", || async {
        let job = of.read(room, MANAGER, "pausing").await?;
        Ok((job.pointer(of.suspend) == Some(&json!(true))).then_some(()))
    })
    .await?;
    room.set_active("pausing", true).await?;
    of.runs_in(room, target, "pausing").await?;
    let second = of.api(room, target)?.get("pausing").await?.uid();
    ensure!(first != second, "the same copy was started again");
    of.ends_as(room, "pausing", (of.succeeded, "Succeeded")).await?;
    of.is_swept(room).await?;
    Ok(format!(
        "switched off: gone from {target}; switched on: ran again to its end, each time with the same status on the manager"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(there: &Value, here: &Value, said: &str) {
        let apart = is_alike(there, here).map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(apart, said);
    }

    #[test]
    fn a_missing_field_equals_one_that_is_zero() {
        let ready = json!([{"name": "leader", "ready": 1, "failed": 0}]);
        let there = json!({"restarts": 0, "terminalState": "", "replicatedJobsStatus": ready});
        check(&there, &json!({"replicatedJobsStatus": ready}), "");
        check(&there, &there, "");
    }

    #[test]
    fn statuses_that_differ_are_told_by_field() {
        let status = |restarts: u8, ready: u8| json!({"restarts": restarts, "replicatedJobsStatus": [{"name": "leader", "ready": ready}]});
        check(
            &status(1, 1),
            &status(0, 1),
            "in the worker | on the manager: .restarts: 1 | null",
        );
        check(
            &status(0, 1),
            &status(0, 0),
            "in the worker | on the manager: .replicatedJobsStatus[0].ready: 1 | null",
        );
        check(
            &status(0, 1),
            &json!({}),
            "in the worker | on the manager: .replicatedJobsStatus: [{\"name\":\"leader\",\"ready\":1}] | null",
        );
    }
}
