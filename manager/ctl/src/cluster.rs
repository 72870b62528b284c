//! `roadstead cluster ...`: registers, lists and removes worker clusters.

pub mod account;
pub mod cordon;
pub mod give_up;
pub(crate) mod identity;
pub mod join;
pub mod leave;
pub mod list;
pub mod move_cluster;
mod settings;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use roadstead_api::kueue::v1beta2::{KubeConfig, LocationType, MultiKueueCluster};

use crate::failure::{Code, Failure};

/// Longest cluster name, in bytes: it becomes a label value.
const NAME_BYTES_MAX: usize = 63;
/// The condition that shows whether a cluster is connected.
const ACTIVE: &str = "Active";

/// Name of the Secret with the credential of a cluster.
pub fn secret_name(cluster: &str) -> String {
    format!("roadstead-{cluster}")
}

/// Refuses a name that cannot be a label value.
fn check_name(name: &str) -> Result<(), Failure> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    let fits = bytes.len() <= NAME_BYTES_MAX
        && bytes.first().copied().is_some_and(good)
        && bytes.last().copied().is_some_and(good)
        && bytes.iter().all(|b| good(*b) || *b == b'-');
    if fits {
        return Ok(());
    }
    Err(Failure::new(
        format!("{name:?} cannot be the name of a cluster"),
        format!("a name has 1 to {NAME_BYTES_MAX} lower-case letters, digits and dashes, and begins and ends without a dash"),
        "choose another name",
    )
    .code(Code::Usage))
}

pub(crate) fn secret_of(cluster: &MultiKueueCluster) -> Option<&str> {
    match &cluster.spec.cluster_source.kube_config {
        Some(KubeConfig {
            location,
            location_type: LocationType::Secret,
        }) => Some(location),
        Some(_) | None => None,
    }
}

/// The MultiKueueCluster of a worker that must be registered.
pub(crate) async fn registered(
    api: &Api<MultiKueueCluster>,
    name: &str,
) -> Result<MultiKueueCluster, Failure> {
    let there = { api.get_opt(name).await }
        .map_err(|error| Failure::request("reading the MultiKueueCluster failed", &error))?;
    there.ok_or_else(|| {
        Failure::new(
            format!("cluster {name} is not registered"),
            "there is no MultiKueueCluster of that name",
            "roadstead cluster list",
        )
        .code(Code::NotFound)
    })
}

pub(crate) fn active(cluster: &MultiKueueCluster) -> Option<&Condition> {
    cluster
        .status
        .as_ref()?
        .conditions
        .iter()
        .find(|condition| condition.type_ == ACTIVE)
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_that_make_no_label_are_refused() {
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(64)] {
            assert_eq!(check_name(bad).unwrap_err().code.number(), 2, "{bad}");
        }
        check_name("east-1").unwrap();
    }
}
