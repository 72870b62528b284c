//! The kinds of jobs that the administrator names in `multiKueue.externalFrameworks`.
//!
//! *Source*: `spec/multikueue.md 5.4`.

use std::time::Duration;

use kube::Client;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use roadstead_api::config::GroupVersionKindName;
use roadstead_jobs::{JobKind, external};
use roadstead_kubeio::served::plural;

/// How long the start waits for the plural of one kind.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// These kinds, each with the plural by which the manager's own cluster serves it.
///
/// Why a kind that is not served gets a plural too: its definition may be installed later, and nearly every plural follows the rule.
pub(crate) async fn named(client: &Client, names: &[GroupVersionKindName]) -> Vec<&'static dyn JobKind> {
    let mut kinds = Vec::new();
    for name in names {
        let gvk = GroupVersionKind::gvk(&name.group, &name.version, &name.kind);
        let guess = ApiResource::from_gvk(&gvk).plural;
        let plural = match tokio::time::timeout(ANSWER_MAX, plural(client, &gvk)).await {
            Ok(Ok(Some(plural))) => plural,
            Ok(Ok(None)) => {
                tracing::warn!(
                    "this cluster does not serve {name} of multiKueue.externalFrameworks: it is looked for as \"{guess}\"; if its \
                     CustomResourceDefinition has another plural, restart the manager once it is installed"
                );
                guess
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    "asking for the plural of {name} failed: {error}; it is taken for \"{guess}\""
                );
                guess
            }
            Err(_elapsed) => {
                tracing::warn!("no answer about the plural of {name}; it is taken for \"{guess}\"");
                guess
            }
        };
        kinds.push(external::kind(&name.group, &name.version, &name.kind, &plural));
    }
    kinds
}
