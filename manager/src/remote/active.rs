//! Writes condition `Active` of each MultiKueueCluster, which shows its connection.
//!
//! *Source*: `spec/multikueue.md 1.4`, `spec/safety.md 3.5`.

use kube::Api;
use roadstead_api::constants::conditions;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::link::Link;
use roadstead_core::cluster::word::turn_time;
use roadstead_engine::active::condition_patch;
use roadstead_kubeio::write::{self, Written};

use super::Remote;
use super::fleet::{Fleet, LOOK};
use super::told::REMEDY;

/// The name of this write in the memory of reported failures.
const WRITING: &str = "writing condition Active";

impl Fleet {
    /// Repeats the write until it is stored: a write may fail, and then the AdmissionCheck of the cluster and all its queues would
    /// stay inactive. Never ends by itself.
    pub(super) async fn keep_saying(&self, remote: &Remote) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.say(remote).await;
        }
    }

    /// Writes what the link shows now.
    pub(super) async fn say(&self, remote: &Remote) {
        let name = remote.name.as_str();
        let active = remote.link(|link| link.active().cloned());
        let (Some(active), Some(cluster)) = (active, self.clusters.named(name)) else {
            return;
        };
        let stored = cluster.status.as_ref().map(|s| s.conditions.as_slice());
        let mut old = stored.unwrap_or_default().to_vec();
        let said = { old.iter() }.find(|said| said.type_ == conditions::ACTIVE);
        let last = said.map(|said| said.last_transition_time.0);
        let was_false = said.is_some_and(|said| said.status == "False");
        // Why: an administrator gives up a loss by its time. So each loss needs a time of its own, even if the end of the
        // previous one was never stored.
        if was_false && last < remote.link(Link::loss_shows_from) {
            old.retain(|said| said.type_ != conditions::ACTIVE);
        }
        let (generation, now) = (cluster.metadata.generation, turn_time((self.clock)(), last));
        let Some(patch) = condition_patch(&old, &active, generation, now) else {
            return;
        };
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match write::patch_status(&api, name, &patch).await {
            Written::Done(object) => {
                self.clusters.observe(*object);
                self.told.succeeded(name, WRITING);
            }
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                let why = format!(
                    "condition Active of its MultiKueueCluster cannot be written, so its AdmissionChecks and queues go by the old one, and \
                     while it does not say that the cluster is lost its runs cannot be given up: {why}; {REMEDY}"
                );
                self.told.failed(name, WRITING, &why);
            }
        }
    }
}
