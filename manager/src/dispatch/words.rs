//! The texts for a worker that refuses an object.

use roadstead_core::dispatch::Cause;
use roadstead_kubeio::failure::Failure;

/// The failure if the worker does not serve the kind. API servers report a missing namespace with another text.
pub(super) fn not_served(kind: &str, version: &str) -> Failure {
    Failure::lasting(format!(
        "its API server does not serve {kind} of {version} (404 at creation): install the CustomResourceDefinitions there that the \
         manager's kinds need, or see whether the server in the kubeconfig is an API server"
    ))
}

/// The failure if a creation met another write on the worker.
pub(super) fn met_another_write(what: &str) -> Failure {
    Failure::passing(format!(
        "{what} was not created, because something else was written there at the same moment (409); it is tried again; if that \
         stays, look for a ResourceQuota or a webhook in this namespace of the worker"
    ))
}

/// What the text of a refusal means.
pub(super) fn refusal(why: &str) -> Cause {
    if why.starts_with("namespaces ") && why.ends_with("not found") {
        Cause::NamespaceMissing
    } else if why.starts_with("admission webhook") {
        Cause::WebhookFailed
    } else {
        Cause::CreateRefused
    }
}
