//! The webhooks of this process: what they answer, their certificates, and their registration.
//!
//! Invariant: an answer is computed from caches alone. Objects that a new job names and that no cache holds yet are read into the
//! caches first (`lookup`). Any other review costs the API server no further request.
//!
//! Reading order: this file (which path has which handler), `jobs`, `lookup`, `own`, `conversion`, then `certificates` (the loop
//! that keeps everything registered), `registration`, `takeover`, `definitions`.

mod answers;
mod certificates;
mod conversion;
mod definitions;
mod filled;
mod jobs;
mod lookup;
mod nodes;
mod own;
mod registration;
mod takeover;
mod wrapped;

use std::sync::Arc;

use kube::Client;
use roadstead_api::config::Config;
use roadstead_jobs::appwrapper::ROW;
use roadstead_kinds::Kinds;
use roadstead_serve::webhook::{CONVERT_PATH, Webhooks, mutate_path, validate_path};

use crate::caches::Caches;

pub(crate) use certificates::Certificates;
pub use conversion::handler as conversion;
use filled::Filled;
use lookup::Lookup;

/// All handlers of this process, by path.
///
/// Every path of every known kind is served, so that one set of webhook configurations fits each process: where the
/// integration is off or not built, the answer is "allowed, unchanged".
///
/// *Errors*: two handlers for one path.
pub(crate) fn handlers(
    client: &Client,
    caches: &Caches,
    config: &Arc<Config>,
    kinds: Kinds,
) -> Result<Webhooks, roadstead_serve::webhook::Error> {
    let mut webhooks = Webhooks::default();
    let filled = Arc::new(Filled::new(caches));
    let lookup = Lookup {
        client: client.clone(),
        caches: caches.clone(),
        filled: filled.clone(),
        troubles: Arc::default(),
    };
    let managers = registration::managers(&config.roadstead.multi_kueue.lease_namespace);
    for row in kinds.iter() {
        let enabled = caches.kind(row.group, row.kind).map(|jobs| jobs.kind);
        let (mutate, validate) = match enabled {
            Some(kind) => jobs::handlers(kind, caches.clone(), config.clone(), &filled),
            None => (answers::unchanged(), answers::unheeded(row.kind)),
        };
        let path = mutate_path(row.group, row.version, row.kind);
        match enabled.map(|kind| lookup.preparation(kind, config)) {
            Some(preparation) => webhooks.prepared_admission(path, preparation, mutate)?,
            None => webhooks.admission(path, mutate)?,
        }
        let path = validate_path(row.group, row.version, row.kind);
        if enabled.is_some() && row == ROW {
            let review = wrapped::review(client.clone(), managers.clone(), wrapped::Rules::of(config));
            webhooks.prepared_admission(path, review, validate)?;
        } else {
            webhooks.admission(path, validate)?;
        }
    }
    for (path, handler) in own::handlers(config) {
        webhooks.admission(path, handler)?;
    }
    webhooks.conversion(CONVERT_PATH, conversion())?;
    if config.roadstead.virtual_nodes {
        webhooks.node(nodes::answer(caches.clone()));
    }
    Ok(webhooks)
}
