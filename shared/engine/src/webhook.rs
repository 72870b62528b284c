//! The admission webhooks of this process: what they answer, their certificates, and their registration.
//!
//! Invariant: an answer is computed from caches alone, so a review costs the API server no further request.

mod certificates;
mod jobs;
mod registration;
mod workloads;

use std::sync::Arc;

use roadstead_api::config::Config;
use roadstead_serve::webhook::{Webhooks, mutate_path, validate_path};

use crate::caches::Caches;

pub(crate) use certificates::Certificates;

/// All handlers of this process, by path.
///
/// *Errors*: two handlers for one path.
pub(crate) fn handlers(
    caches: &Caches,
    config: &Arc<Config>,
) -> Result<Webhooks, roadstead_serve::webhook::Error> {
    let mut webhooks = Webhooks::new();
    for kind in roadstead_jobs::registry() {
        let gvk = kind.gvk();
        let enabled = caches.kind(gvk.group, gvk.kind).is_some();
        let (mutate, validate) = jobs::handlers(kind, enabled, caches.clone(), config.clone());
        webhooks.admission(mutate_path(gvk.group, gvk.version, gvk.kind), mutate)?;
        webhooks.admission(validate_path(gvk.group, gvk.version, gvk.kind), validate)?;
    }
    webhooks.admission(
        validate_path("kueue.x-k8s.io", "v1beta2", "Workload"),
        workloads::handler(),
    )?;
    Ok(webhooks)
}
