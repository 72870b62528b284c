//! Condition `Active` of an AdmissionCheck, for the checks that Roadstead controls.
//!
//! Invariant: the texts are those of the reference, byte for byte.

use std::borrow::Cow;

use crate::cluster::Active;
use crate::condition::Truth;
use crate::name::ClusterName;

/// `controllerName` of MultiKueue checks.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// `controllerName` of ProvisioningRequest checks.
pub const PROVISIONING_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// The group that parameters must have.
pub const PARAMETERS_GROUP: &str = "kueue.x-k8s.io";
/// The kind that parameters of a MultiKueue check must have.
pub const MULTIKUEUE_PARAMETERS: &str = "MultiKueueConfig";
/// The kind that parameters of a ProvisioningRequest check must have.
pub const PROVISIONING_PARAMETERS: &str = "ProvisioningRequestConfig";

const ACTIVE: &str = "Active";
const ACTIVE_MESSAGE: &str = "The admission check is active";

/// `spec.parameters` of an AdmissionCheck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Field `apiGroup`.
    pub group: String,
    /// Field `kind`.
    pub kind: String,
    /// Field `name`.
    pub name: String,
}

/// The name of the configuration that a check refers to, or the text that says what is wrong with the reference.
///
/// *Errors*: a text of `spec/multikueue.md 1.4` and `spec/provisioning.md 3`, ready for the condition.
pub fn parameters<'a>(reference: Option<&'a Parameters>, kind: &str) -> Result<&'a str, String> {
    let Some(reference) = reference else {
        return Err(String::from("missing parameters reference"));
    };
    if reference.name.is_empty() {
        return Err(String::from("empty name: bad parameters reference"));
    }
    if reference.group != PARAMETERS_GROUP {
        return Err(format!(
            "wrong group \"{}\", expecting \"{PARAMETERS_GROUP}\": bad parameters reference",
            reference.group
        ));
    }
    if reference.kind != kind {
        return Err(format!(
            "wrong kind \"{}\", expecting \"{kind}\": bad parameters reference",
            reference.kind
        ));
    }
    Ok(&reference.name)
}

/// What is known of a cluster that a MultiKueueConfig lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usable {
    /// It exists and is Active.
    Yes,
    /// It exists and is not Active.
    Inactive,
    /// There is no such MultiKueueCluster.
    Missing,
}

/// Condition `Active` of a MultiKueue check. *Source*: `spec/multikueue.md 1.4`.
///
/// `clusters` are those of the config in its order, or the text that says why the config cannot be loaded.
pub fn multikueue(clusters: Result<&[(ClusterName, Usable)], &str>) -> Active {
    let clusters = match clusters {
        Ok(clusters) => clusters,
        Err(problem) => {
            return Active {
                truth: Truth::False,
                reason: "BadConfig",
                message: Cow::Owned(format!("Cannot load the AdmissionChecks parameters: {problem}")),
            };
        }
    };
    let listed = |which: Usable| -> Vec<&str> {
        let of = clusters.iter().filter(|(_, usable)| *usable == which);
        of.map(|(name, _)| name.as_str()).collect()
    };
    let (missing, inactive) = (listed(Usable::Missing), listed(Usable::Inactive));
    let (truth, reason) = match (listed(Usable::Yes).len(), missing.len() + inactive.len()) {
        (1.., 0) => return active(),
        (0, _) => (Truth::False, "NoUsableClusters"),
        (1.., 1..) => (Truth::True, "SomeActiveClusters"),
    };
    let parts = [("Missing", missing), ("Inactive", inactive)];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts
        .map(|(word, names)| format!("{word} clusters: [{}]", names.join(" ")))
        .collect();
    Active {
        truth,
        reason,
        message: Cow::Owned(parts.join(", ")),
    }
}

/// Condition `Active` of a ProvisioningRequest check. *Source*: `spec/provisioning.md 3`.
///
/// `config` is `Ok` when the reference resolves, else the text that says why not.
///
/// Unlike the anchor: the caller writes whenever reason or message differ, so a second problem is not hidden by the first.
pub fn provisioning(config: Result<(), &str>) -> Active {
    match config {
        Ok(()) => active(),
        Err(problem) => Active {
            truth: Truth::False,
            reason: "BadParametersRef",
            message: Cow::Owned(problem.to_owned()),
        },
    }
}

const fn active() -> Active {
    Active {
        truth: Truth::True,
        reason: ACTIVE,
        message: Cow::Borrowed(ACTIVE_MESSAGE),
    }
}

#[cfg(test)]
mod tests;
