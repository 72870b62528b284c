//! Says in condition `Active` of each MultiKueueCluster how its connection stands, and remembers which loss people can know of.
//!
//! *Source*: `spec/multikueue.md 1.4`, `spec/safety.md 3.5`.

use kube::Api;
use roadstead_api::constants::conditions;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::Connection;
use roadstead_core::cluster::word::turn_time;
use roadstead_engine::active::condition_patch;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::Remote;
use super::supervisor::{Fleet, LOOK};
use super::told::REMEDY;

/// What is tried, for the memory of what was told of it.
const WRITING: &str = "writing condition Active";

impl Fleet {
    /// Says how a connection stands, now and as long as nothing else is to be said.
    pub(super) async fn report(&self, remote: &Remote, connection: Connection) {
        remote.with(|link| link.shown = Some(connection));
        self.say(remote).await;
    }

    /// Says it again until it stands there: a write may fail, and with the cluster its AdmissionCheck and all queues would stay
    /// inactive. Never ends by itself.
    pub(super) async fn keep_saying(&self, remote: &Remote) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.say(remote).await;
        }
    }

    pub(super) async fn say(&self, remote: &Remote) {
        let name = remote.name.as_str();
        let (Some(shown), Some(cluster)) =
            (remote.with(|link| link.shown.clone()), self.clusters.named(name))
        else {
            return;
        };
        let Some(active) = shown.active() else {
            return;
        };
        let stored = cluster.status.as_ref().map(|s| s.conditions.as_slice());
        let mut old = stored.unwrap_or_default().to_vec();
        let said = { old.iter() }.find(|said| said.type_ == conditions::ACTIVE);
        let last = said.map(|said| said.last_transition_time.0);
        let was_false = said.is_some_and(|said| said.status == "False");
        // Why: each loss has a time of its own, which an administrator's word names, also where nothing was stored in between.
        if was_false && last < remote.loss_shows_from() {
            old.retain(|said| said.type_ != conditions::ACTIVE);
        }
        let (generation, now) = (cluster.metadata.generation, turn_time((self.clock)(), last));
        let Some(mut patch) = condition_patch(&old, &active, generation, now) else {
            return self.is_said(remote, &shown, None);
        };
        // Why: a write that changes nothing is answered with a version of before this loss. What turns False changes its time.
        if was_false {
            patch["metadata"]["resourceVersion"] = json!(cluster.metadata.resource_version);
        }
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match write::patch_status(&api, name, &patch).await {
            Written::Done(object) => {
                let version = object.metadata.resource_version.as_deref();
                let version = version.and_then(|version| version.parse().ok());
                let stays = object.metadata.deletion_timestamp.is_none();
                self.clusters.observe(*object);
                let since = shown
                    .says_lost_since()
                    .filter(|since| remote.lost_since() == Some(*since));
                if let Some(since) = since {
                    // Why already: nobody could delete it knowing of the loss before this was stored.
                    remote.witnessed(|witness| witness.saw(since, [], stays));
                }
                self.told.succeeded(name, WRITING);
                self.is_said(remote, &shown, version);
            }
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                let why = format!(
                    "condition Active of its MultiKueueCluster cannot be written, so its AdmissionChecks and queues go by the old one, and \
                     while it does not say that the cluster is lost nobody can give its runs up: {why}; {REMEDY}"
                );
                self.told.failed(name, WRITING, &why);
            }
        }
    }

    /// Condition `Active` says this, in this version of the object if it was written now.
    fn is_said(&self, remote: &Remote, shown: &Connection, version: Option<u64>) {
        // Why a ring: from now on it can be said that its runs are lost, and who looks for that begins now.
        if remote.is_told(shown, version) {
            self.changed.mark(remote.name.clone());
        }
    }
}
