//! `ClusterQueue`: the cohort's name, the flat list of checks, and two old words of flavor fungibility.

use std::collections::BTreeSet;

use roadstead_api::kueue::v1beta2::ConcurrentAdmissionPolicy;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Version;
use super::carried;
use super::fields::{Fields, Wrong, object, object_or_new, rename, take};

const POLICY: &str = "concurrentAdmissionPolicy";

/// The fields of a queue that only `v1beta2` has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Carried {
    #[serde(rename = "concurrentAdmissionPolicy")]
    _policy: ConcurrentAdmissionPolicy,
}

pub(super) fn to_hub(root: &mut Fields, from: Version) -> Result<(), Wrong> {
    if from == Version::V1beta2 {
        return Ok(());
    }
    let carried = carried::take::<Carried>(root)?;
    if !carried.is_empty() {
        object_or_new(root, "spec")?.extend(carried);
    }
    if let Some(spec) = object(root, "spec")? {
        rename(spec, "cohort", "cohortName");
        checks_to_hub(spec)?;
        if let Some(fungibility) = object(spec, "spec.flavorFungibility")? {
            for choice in ["whenCanBorrow", "whenCanPreempt"] {
                if let Some(Value::String(word)) = fungibility.get_mut(choice)
                    && matches!(word.as_str(), "Borrow" | "Preempt")
                {
                    "MayStopSearch".clone_into(word);
                }
            }
        }
    }
    if let Some(status) = object(root, "status")? {
        status.remove("pendingWorkloadsStatus");
        if let Some(sharing) = object(status, "status.fairSharing")? {
            sharing.remove("admissionFairSharingStatus");
        }
    }
    Ok(())
}

/// The flat list replaces the strategy: one rule per name, for all flavors.
fn checks_to_hub(spec: &mut Fields) -> Result<(), Wrong> {
    let wrong = Wrong::new("spec.admissionChecks", "a list of names");
    let names = match take(spec, "admissionChecks") {
        None => return Ok(()),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(wrong),
    };
    let mut seen = BTreeSet::new();
    let mut rules = Vec::with_capacity(names.len());
    for name in names {
        let Value::String(name) = name else {
            return Err(wrong);
        };
        // Why without repetition: `v1beta2` allows one rule per name.
        if seen.insert(name.clone()) {
            rules.push(json!({"name": name}));
        }
    }
    if !rules.is_empty() {
        spec.insert(
            "admissionChecksStrategy".to_owned(),
            json!({"admissionChecks": rules}),
        );
    }
    Ok(())
}

pub(super) fn from_hub(root: &mut Fields, to: Version) -> Result<(), Wrong> {
    if to == Version::V1beta2 {
        return Ok(());
    }
    let mut carried = Fields::new();
    if let Some(spec) = object(root, "spec")? {
        rename(spec, "cohortName", "cohort");
        if let Some(policy) = take(spec, POLICY) {
            carried.insert(POLICY.to_owned(), policy);
        }
    }
    carried::put(root, carried)
}
