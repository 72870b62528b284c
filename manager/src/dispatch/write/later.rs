//! Sends the changes of a local job to its copies on a worker, if they were made after the copies were sent.
//!
//! *Source*: `spec/jobs.md 12.9`.

use roadstead_jobs::kind::Later;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::super::owning::{later, owner_of};
use super::super::read;
use super::Site;

impl Site<'_> {
    /// Patches the copies of the job. A refusal ends no run: the job runs without the change too, and the patch is tried again.
    pub(super) async fn update_job(&self) -> Result<(), Failure> {
        let job_key = self.scene.job_key.as_ref();
        let Some((jobs, there)) = read::find_job(self.remote, self.key, job_key) else {
            return Ok(());
        };
        // Why: the account on a worker that was registered by hand may lack the right to patch jobs.
        if !self.remote.may_change(&jobs.resource) {
            return Ok(());
        }
        let stored = self.d.caches.workloads.get(self.key);
        let owner = stored.as_deref().and_then(|stored| owner_of(self.d, stored));
        for Later { copy, mut patch } in owner
            .map(|owner| later(self.d, &owner, &there))
            .unwrap_or_default()
        {
            patch["metadata"]["uid"] = json!(copy.uid);
            match write::patch(&self.api_of(jobs), &copy.name, &patch).await {
                Written::Done(object) => jobs.objects.observe(*object),
                Written::Gone | Written::AlreadyExists => {}
                Written::Conflict => {
                    self.d.metrics.conflict(&self.remote.name);
                    return Err(Failure::passing(format!(
                        "updating {} met a newer version",
                        copy.name
                    )));
                }
                Written::Refused(why) => {
                    return Err(Failure::lasting(why).in_doing(format!("updating {}", copy.name)));
                }
                Written::Unclear(why) => {
                    return Err(Failure::passing(why).in_doing(format!("updating {}", copy.name)));
                }
            }
        }
        Ok(())
    }
}
