//! Rules of `MPIJob` only. *Source*: `spec/jobs.md 9.4`.

use roadstead_api::constants::annotations::{POD_INDEX_OFFSET, PODSET_GROUP_NAME};
use serde_json::json;

use crate::json;
use crate::kind::MemberMut;

const LAUNCHER: [&str; 4] = ["spec", "mpiReplicaSpecs", "Launcher", "template"];
const WORKER: [&str; 4] = ["spec", "mpiReplicaSpecs", "Worker", "template"];

/// When the launcher also works as a worker, the pods of the worker template begin with index 1.
///
/// Why not where both are one topology group: there each pod set already counts from the launcher on.
pub(super) fn default(job: &mut MemberMut<'_>) {
    let both = json::at(job.data, &LAUNCHER).is_some() && json::at(job.data, &WORKER).is_some();
    let group = [
        LAUNCHER.as_slice(),
        &["metadata", "annotations", PODSET_GROUP_NAME],
    ]
    .concat();
    let grouped = json::at(job.data, &group).is_some();
    if both && !grouped && json::is_true(job.data, &["spec", "runLauncherAsWorker"]) {
        let path = [WORKER.as_slice(), &["metadata", "annotations", POD_INDEX_OFFSET]].concat();
        json::set(job.data, &path, json!("1"));
    }
}
