//! What only MPIJobs have. *Source*: `spec/jobs.md 9.4`.

use roadstead_api::constants::annotations::{POD_INDEX_OFFSET, PODSET_GROUP_NAME};
use serde_json::{Value, json};

use crate::json;
use crate::labels::annotation;

const LAUNCHER: [&str; 4] = ["spec", "mpiReplicaSpecs", "Launcher", "template"];
const WORKER: [&str; 4] = ["spec", "mpiReplicaSpecs", "Worker", "template"];

/// When the launcher is a worker too, the pods of the worker template begin with index 1.
///
/// Why not where both are one group for topology: there each pod set counts from the launcher on by itself.
pub(super) fn default(job: &mut Value) {
    let both = json::at(job, &LAUNCHER).is_some() && json::at(job, &WORKER).is_some();
    let grouped =
        json::at(job, &LAUNCHER).is_some_and(|template| annotation(template, PODSET_GROUP_NAME).is_some());
    if both && !grouped && json::is_true(job, &["spec", "runLauncherAsWorker"]) {
        let path = [WORKER.as_slice(), &["metadata", "annotations", POD_INDEX_OFFSET]].concat();
        json::set(job, &path, json!("1"));
    }
}
