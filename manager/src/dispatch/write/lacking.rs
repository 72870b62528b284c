//! What a job names and a worker lacks: asked for before the job is offered, and brought there if both namespaces consent.

use roadstead_core::dispatch::Cause;
use roadstead_engine::caches::CachedJob;
use roadstead_jobs::JobKind;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::Lane;

use super::Site;
use crate::dispatch::carry::Carrier;
use crate::remote::needs;

impl Site<'_> {
    /// Looks whether this worker still lacks what the job names; if not, the Workload becomes due and may be offered to it.
    pub(super) async fn look_for_needs(&self) -> Result<(), Failure> {
        let lacking = self.lacking().await?;
        if lacking.is_empty() {
            self.d.memory.found(self.key, &self.remote.name);
            self.d.due.add(self.key.clone(), Lane::New);
        } else {
            self.exclude(Cause::DependencyMissing, lacking.join(", "));
        }
        Ok(())
    }

    /// The objects that the job needs, that this worker is known to lack and that the manager cannot bring there.
    pub(super) async fn lacking(&self) -> Result<Vec<String>, Failure> {
        let Some((kind, job)) = &self.scene.local_job else {
            return Ok(Vec::new());
        };
        let (named, namespace) = (job.with(|members| kind.needs(members)), &self.key.namespace);
        let lacking = needs::lacking(self.client, namespace, named, &self.remote.unreadable).await;
        if lacking.is_empty() {
            return Ok(Vec::new());
        }
        match Carrier::with_consent(self.d, self.client, namespace).await? {
            Some(carrier) => carrier.left(lacking).await,
            None => Ok(lacking.iter().map(ToString::to_string).collect()),
        }
    }

    /// Brings what the job needs and this worker lacks, if both namespaces consent. Returns what cannot be brought.
    pub(super) async fn bring_needs(
        &self,
        kind: &dyn JobKind,
        job: &CachedJob,
    ) -> Result<Vec<String>, Failure> {
        let Some(carrier) = Carrier::with_consent(self.d, self.client, &self.key.namespace).await? else {
            return Ok(Vec::new());
        };
        let copy = self
            .remote
            .workloads
            .get(self.key)
            .ok_or_else(|| Failure::passing("the copy of the workload is not known yet"))?;
        let (needs, wants) = job.with(|members| (kind.needs(members), kind.wants(members)));
        carrier.bring(needs, wants, &copy).await
    }
}
