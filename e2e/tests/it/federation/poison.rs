//! Invalid annotations and labels on all objects that our processes read: no process fails over them, also not after a restart.

use std::fs;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{from_value, json};

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone};
use crate::nightly::or_nightly;
use crate::shared::eventually;

/// Read by the manager or a worker, on a job, a Workload or a pod template.
const ANNOTATIONS: [&str; 28] = [
    annotations::JOB_OWNER_GVK,
    annotations::JOB_OWNER_NAME,
    annotations::PREBUILT_WORKLOAD_NAME,
    annotations::WORKLOAD,
    annotations::ELASTIC_JOB,
    annotations::WORKLOAD_SLICE_NAME,
    annotations::WORKLOAD_SLICE_REPLACEMENT_FOR,
    annotations::ADMISSION_GATED_BY,
    annotations::PRIORITY_BOOST,
    annotations::WORKLOAD_ALLOWED_RESOURCE_FLAVORS,
    annotations::PODSET_REQUIRED_TOPOLOGY,
    annotations::PODSET_SLICE_REQUIRED_TOPOLOGY,
    annotations::PODSET_SLICE_SIZE,
    annotations::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
    annotations::POD_INDEX_OFFSET,
    annotations::POD_GROUP_TOTAL_COUNT,
    annotations::JOB_MIN_PARALLELISM,
    annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM,
    annotations::SAFE_TO_FORCEFULLY_DELETE,
    annotations::MULTIKUEUE_ORIGIN_UID,
    annotations::STOPPING,
    annotations::CONSUME_PROVISIONING_REQUEST,
    annotations::PROVISIONING_CLASS_NAME,
    annotations::DISPATCH_EPOCH,
    annotations::WORKLOAD_UID,
    annotations::FENCED,
    annotations::LEASE_SECONDS,
    annotations::EXPLANATION,
];
/// As [`ANNOTATIONS`].
const LABELS: [&str; 6] = [
    labels::PRIORITY_CLASS,
    labels::PREBUILT_WORKLOAD_NAME,
    labels::MAX_EXEC_TIME_SECONDS,
    labels::JOB_UID,
    labels::MANAGED,
    labels::PODSET,
];
const NONSENSE: [&str; 6] = [
    "",
    "-1",
    "99999999999999999999",
    "{\"a\": [",
    "\u{202e}é\u{1f4a3}/..",
    "NaN",
];
/// The same for labels, which may hold less.
const LABEL_NONSENSE: [&str; 6] = ["", "0", "99999999999999999999", "a..b", "1e309", "NaN"];
/// Steps from one of them that is planted to the next. Why 4: there are 7 values for an annotation, so each comes in turn.
const STEP: usize = or_nightly(4, 1);
/// Creations under way at once.
const AT_ONCE: usize = 8;

/// Kind, key and value of what is planted.
type Poison = (&'static str, &'static str, String);

/// One for each object.
fn poisons() -> Vec<Poison> {
    let annotations = ANNOTATIONS.iter().flat_map(|key| {
        let long = "x".repeat(5_000);
        let values = NONSENSE.map(str::to_owned).into_iter().chain([long]);
        values.map(|value| ("annotations", *key, value))
    });
    let labels = LABELS
        .iter()
        .flat_map(|key| LABEL_NONSENSE.map(|value| ("labels", *key, value.to_owned())));
    annotations.chain(labels).step_by(STEP).collect()
}

/// A job that carries it itself and on its pods.
fn poisoned(room: Room, name: &str, (part, key, value): &Poison) -> Job {
    let mut job = room.job(name, "10m", 1);
    job["metadata"][part][*key] = json!(value);
    job["spec"]["template"]["metadata"][part][*key] = json!(value);
    from_value(job).unwrap()
}

/// A copy with our origin, as an administrator of a worker could create it by mistake.
fn poisoned_copy(room: Room, name: &str, (part, key, value): &Poison) -> Workload {
    let mut copy = json!({
        "metadata": {"name": name, "labels": {labels::MULTIKUEUE_ORIGIN: "multikueue"}},
        "spec": {"queueName": room.name, "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}],
        }}}]},
    });
    copy["metadata"][part][*key] = json!(value);
    from_value(copy).unwrap()
}

fn numbered<K>(prefix: &str, poisons: &[Poison], object: impl Fn(&str, &Poison) -> K) -> Vec<K> {
    let numbered = poisons.iter().enumerate();
    numbered
        .map(|(index, poison)| object(&format!("{prefix}-{index}"), poison))
        .collect()
}

/// Creates them; what an API server or a webhook refuses has been dealt with. Gives how many are there.
async fn plant<K>(api: Api<K>, objects: Vec<K>) -> usize
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let creations = objects.into_iter().map(|object| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &object).await.is_ok() }
    });
    let made: Vec<bool> = stream::iter(creations).buffer_unordered(AT_ONCE).collect().await;
    made.into_iter().filter(|made| *made).count()
}

fn panics(room: Room) -> Vec<String> {
    let logs = [MANAGER, EAST, WEST].map(|cluster| room.shared.stage.log(cluster).unwrap());
    let texts = logs.map(|log| fs::read_to_string(log).unwrap());
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|line| line.contains("panic"))
        .map(str::to_owned)
        .collect()
}

async fn runs(room: Room, name: &str) {
    room.submit(room.job(name, "1", 1)).await;
    let job = room.job_is(MANAGER, name, "Complete").await;
    assert_eq!(job.status.unwrap().succeeded, Some(1));
}

/// Spec: safety F34, I13
#[test]
fn annotations_and_labels_that_make_no_sense_stop_nobody_also_after_a_restart() {
    alone("poison", EVEN, |room| async move {
        let poisons = poisons();
        let jobs = numbered("job", &poisons, |name, poison| poisoned(room, name, poison));
        let copies = numbered("copy", &poisons, |name, poison| poisoned_copy(room, name, poison));
        let planted = plant(room.jobs(MANAGER), jobs).await;
        let copied = plant(room.workloads(EAST), copies).await;
        room.shared.say(&format!(
            "{planted} jobs and {copied} copies of {} with nonsense were let in",
            poisons.len()
        ));
        assert!(
            planted * STEP >= 100 && copied * STEP >= 200,
            "{planted} jobs, {copied} copies"
        );
        runs(room, "beside-them").await;
        for cluster in [MANAGER, EAST, WEST] {
            room.shared.stage.restart(cluster).await.unwrap();
        }
        runs(room, "after-restart").await;
        room.shared.stage.check().unwrap();

        let params = DeleteParams::background();
        let all = ListParams::default();
        room.jobs(MANAGER).delete_collection(&params, &all).await.unwrap();
        // Why again and again: one may be made anew by a worker for a job that was just going.
        eventually(|| async {
            let left = room.jobs(MANAGER).list(&all).await.ok()?;
            let workloads = room.workloads(MANAGER).list(&all).await.ok()?;
            (left.items.is_empty() && workloads.items.is_empty()).then_some(())
        })
        .await;
        room.is_swept().await;
        assert_eq!(panics(room), Vec::<String>::new());
    });
}
