//! Which cluster's job the local job mirrors.

use super::{Copies, Pass};
use crate::name::ClusterName;

impl Pass<'_> {
    /// Mirrors the job of the cluster that the status names; if that cluster shows none, the job of another cluster.
    pub(super) fn mirror_holder(&mut self) {
        let holder = self.plan.status.cluster.as_ref();
        let mut with_job: Vec<_> = self
            .reachable()
            .filter(|(_, copies)| copies.current_job(self.o.epoch).is_some())
            .collect();
        with_job.sort_by_key(|(cluster, _)| Some(*cluster) != holder);
        if let Some((cluster, _)) = with_job.first() {
            self.mirror_from(cluster);
        }
    }

    pub(super) fn mirror_if_job(&mut self, cluster: &ClusterName, copies: &Copies) {
        if copies.current_job(self.o.epoch).is_some() {
            self.mirror_from(cluster);
        }
    }

    pub(super) fn mirror_from(&mut self, cluster: &ClusterName) {
        if self.o.job.present {
            self.plan.mirror = Some(cluster.clone());
        }
    }
}
