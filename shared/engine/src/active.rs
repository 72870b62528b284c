//! Condition `Active`, by which our configuration objects say whether they can be used.
//!
//! Invariant: `lastTransitionTime` moves only with the truth value; an unchanged condition is not written again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::AdmissionCheck;
use roadstead_core::check::{self, Parameters};
use roadstead_core::condition::Active;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write;
use serde_json::{Value, json};

use crate::clock::Clock;

/// The pause before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The name of the object that the parameters of a check refer to, if they are of this kind.
///
/// *Errors*: the text for condition `Active` (`spec/multikueue.md 1.4`, `spec/provisioning.md 3`).
pub fn parameters(check: &AdmissionCheck, kind: &str) -> Result<String, Failure> {
    let reference = check.spec.parameters.as_ref().map(|p| Parameters {
        group: p.api_group.clone(),
        kind: p.kind.clone(),
        name: p.name.clone(),
    });
    let name = check::parameters(reference.as_ref(), kind).map_err(Failure::lasting)?;
    Ok(name.to_owned())
}

/// Writes condition `Active` of the AdmissionChecks of one controller.
pub struct Reporter {
    client: Client,
    clock: Clock,
    checks: Arc<Cache<AdmissionCheck>>,
    touched: Arc<Dirty<()>>,
    troubles: Troubles<String>,
}

impl Reporter {
    /// A failed write marks `touched`, so that the caller computes the conditions again: no other event would.
    pub fn new(
        client: Client,
        clock: Clock,
        checks: &Arc<Cache<AdmissionCheck>>,
        touched: &Arc<Dirty<()>>,
    ) -> Self {
        Self {
            client,
            clock,
            checks: checks.clone(),
            touched: touched.clone(),
            troubles: Troubles::default(),
        }
    }

    /// Writes the condition if the stored one differs.
    pub async fn report(&self, check: &AdmissionCheck, active: &Active) {
        let name = check.metadata.name.as_deref().unwrap_or_default();
        let old =
            { check.status.as_ref() }.map_or_else(Default::default, |status| status.conditions.as_slice());
        let Some(patch) = condition_patch(old, active, check.metadata.generation, (self.clock)()) else {
            return;
        };
        let api: Api<AdmissionCheck> = Api::all(self.client.clone());
        match write::patch_status(&api, name, &patch).await.stored() {
            Ok(Some(object)) => {
                self.checks.observe(*object);
                if self.troubles.ends(&name.to_owned()).is_some() {
                    tracing::info!(admission_check = name, "condition Active is written again");
                }
            }
            Ok(None) => {}
            Err(failure) => {
                if self.troubles.is_news(name.to_owned(), failure.text()) {
                    tracing::warn!(
                        admission_check = name,
                        "condition Active cannot be written, so ClusterQueues with this check go by the old one: {failure}; it is tried \
                         again until it succeeds; if this is a refusal, apply deploy/rights"
                    );
                }
                self.touched.mark(());
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// A merge patch for the status that sets condition `Active` and keeps the others; `None` when it already says so.
///
/// `old` are the stored conditions; `generation` is that of the object from which the condition was computed.
pub fn condition_patch(
    old: &[Condition],
    active: &Active,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Value> {
    let new = roadstead_convert::with_active(old, active, generation, now);
    // Why as sets: the stored list may have another order.
    let same = old.len() == new.len() && new.iter().all(|condition| old.contains(condition));
    (!same).then(|| json!({ "status": { "conditions": new } }))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_core::condition::{Active, Truth};
    use serde_json::json;

    use super::condition_patch;

    fn active(truth: Truth, message: &'static str) -> Active {
        Active {
            truth,
            reason: "Because",
            message: message.into(),
        }
    }

    #[test]
    fn the_condition_is_written_once_and_its_time_moves_only_with_the_truth_value() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let other = json!({
            "type": "Other", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:01Z",
        });
        let stored = |patch: &serde_json::Value| {
            serde_json::from_value::<Vec<_>>(patch["status"]["conditions"].clone()).unwrap()
        };
        let old = vec![serde_json::from_value(other.clone()).unwrap()];
        let first = condition_patch(&old, &active(Truth::False, "a"), Some(1), at(10)).unwrap();
        assert_eq!(first["status"]["conditions"][0], other, "others are kept");
        let old = stored(&first);
        assert_eq!(
            condition_patch(&old, &active(Truth::False, "a"), Some(1), at(20)),
            None
        );
        let second = condition_patch(&old, &active(Truth::False, "b"), Some(1), at(20)).unwrap();
        assert_eq!(
            second["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:10Z"
        );
        let third = condition_patch(&stored(&second), &active(Truth::True, "b"), Some(2), at(30)).unwrap();
        assert_eq!(
            third["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }
}
