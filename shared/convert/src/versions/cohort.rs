//! `Cohort`: `v1alpha1` calls the parent `parent`; an unused part of the status is dropped.

use super::Version;
use super::fields::{Fields, Wrong, object, rename};

pub(super) fn to_hub(root: &mut Fields, from: Version) -> Result<(), Wrong> {
    if from == Version::V1alpha1
        && let Some(spec) = object(root, "spec")?
    {
        rename(spec, "parent", "parentName");
    }
    if from != Version::V1beta2
        && let Some(status) = object(root, "status")?
        && let Some(sharing) = object(status, "status.fairSharing")?
    {
        sharing.remove("admissionFairSharingStatus");
    }
    Ok(())
}

pub(super) fn from_hub(root: &mut Fields, to: Version) -> Result<(), Wrong> {
    if to == Version::V1alpha1
        && let Some(spec) = object(root, "spec")?
    {
        rename(spec, "parentName", "parent");
    }
    Ok(())
}
