//! The webhook configurations of an installation, without their entries.
//!
//! Invariant: no entry is here. The process writes the entries, because only it knows its kinds and its authority. *Why* the objects are
//! installed although the process would create them: what Helm, `kubectl delete -f` or `roadstead uninstall` removes includes them
//! then. If they stayed, the API server would refuse every job, because no process answers.

use serde_json::{Value, json};

use crate::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};

/// Both configurations. An upgrade keeps the entries, because no version of these objects has named any.
pub(super) fn manifests() -> Vec<Value> {
    let configuration = |kind: &str, name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        })
    };
    vec![
        configuration("MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
        configuration("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS),
    ]
}
