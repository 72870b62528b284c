//! `LocalQueue`: the name of the usage in the status; the copy of the flavors is dropped.

use super::Version;
use super::fields::{Fields, Wrong, object, rename};

pub(super) fn to_hub(root: &mut Fields, from: Version) -> Result<(), Wrong> {
    if from != Version::V1beta2
        && let Some(status) = object(root, "status")?
    {
        rename(status, "flavorUsage", "flavorsUsage");
        status.remove("flavors");
    }
    Ok(())
}

pub(super) fn from_hub(root: &mut Fields, to: Version) -> Result<(), Wrong> {
    if to != Version::V1beta2
        && let Some(status) = object(root, "status")?
    {
        rename(status, "flavorsUsage", "flavorUsage");
    }
    Ok(())
}
