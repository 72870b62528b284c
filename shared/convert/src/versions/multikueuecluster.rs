//! `MultiKueueCluster`: `v1beta1` has the sources of the kubeconfig directly in the spec.

use super::Version;
use super::fields::{Fields, Wrong, object, object_or_new, take};

const SOURCES: [&str; 2] = ["kubeConfig", "clusterProfileRef"];

pub(super) fn to_hub(root: &mut Fields, from: Version) -> Result<(), Wrong> {
    if from == Version::V1beta2 {
        return Ok(());
    }
    let Some(spec) = object(root, "spec")? else {
        return Ok(());
    };
    for name in SOURCES {
        if let Some(source) = take(spec, name) {
            object_or_new(spec, "spec.clusterSource")?.insert(name.to_owned(), source);
        }
    }
    Ok(())
}

pub(super) fn from_hub(root: &mut Fields, to: Version) -> Result<(), Wrong> {
    if to == Version::V1beta2 {
        return Ok(());
    }
    let Some(spec) = object(root, "spec")? else {
        return Ok(());
    };
    let found = match object(spec, "spec.clusterSource")? {
        Some(sources) => SOURCES.map(|name| take(sources, name)),
        None => [None, None],
    };
    spec.remove("clusterSource");
    for (name, source) in SOURCES.into_iter().zip(found) {
        if let Some(source) = source {
            spec.insert(name.to_owned(), source);
        }
    }
    Ok(())
}
