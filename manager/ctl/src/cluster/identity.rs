//! Which cluster a kubeconfig leads to: the UID of its namespace `kube-system`, which the manager notes at each MultiKueueCluster.
//!
//! Why a command checks this before it writes anything: with the kubeconfig of another cluster it would change that cluster.
//!
//! *Source*: `spec/safety.md 3.8`.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use roadstead_api::constants::annotations::CLUSTER_IDENTITY;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::identity::{Identity, Verdict};
use roadstead_kubeconfigs::account::rights::IDENTITY;

use crate::failure::{Code, Failure};

/// The UID of the cluster of a client.
pub(crate) async fn uid_of(client: &Client) -> Result<String, Failure> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let found = { namespaces.get(IDENTITY).await }
        .map_err(|error| Failure::request("reading which cluster the kubeconfig leads to failed", &error))?;
    Ok(found.uid().unwrap_or_default())
}

/// Which cluster a name leads to, as far as the manager could read it.
pub(crate) fn known(cluster: &MultiKueueCluster) -> Option<Identity> {
    stored(cluster).filter(|known| known.uid.is_some())
}

/// What the manager has stored about a cluster, also where it could not read which one it is.
pub(super) fn stored(cluster: &MultiKueueCluster) -> Option<Identity> {
    Identity::read(cluster.annotations().get(CLUSTER_IDENTITY)?)
}

/// Refuses the kubeconfig of another cluster than the one to which a registered name leads. `next` is what to do in that case.
///
/// A cluster that the manager could not identify passes.
pub(crate) async fn is_of(cluster: &MultiKueueCluster, worker: &Client, next: &str) -> Result<(), Failure> {
    if known(cluster).is_none() {
        return Ok(());
    }
    is_same(cluster, &uid_of(worker).await?, next)
}

fn is_same(cluster: &MultiKueueCluster, uid: &str, next: &str) -> Result<(), Failure> {
    let found = Identity {
        uid: Some(uid.to_owned()),
        place: None,
    };
    if known(cluster).is_none_or(|known| known.judge(&found) == Verdict::Same) {
        return Ok(());
    }
    Err(Failure::new(
        format!("the kubeconfig leads to another cluster than {}", cluster.name_any()),
        format!(
            "its namespace {IDENTITY} has the UID {uid}, and the manager has noted another one (annotation {CLUSTER_IDENTITY} of the \
             MultiKueueCluster)"
        ),
        next,
    )
    .code(Code::Usage))
}

/// Refuses the name for the management cluster itself, or for a cluster that has another name already.
///
/// Which cluster the management cluster is does not count if the user may not read it: the manager checks again before it connects.
pub(crate) async fn has_no_other_name(name: &str, manager: &Client, found: &Identity) -> Result<(), Failure> {
    let home = uid_of(manager).await.ok();
    let clusters = Api::<MultiKueueCluster>::all(manager.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| Failure::request("listing the MultiKueueClusters failed", &error))?;
    may_be_called(name, found, home.as_deref(), &clusters.items)
}

fn may_be_called(
    name: &str,
    found: &Identity,
    home: Option<&str>,
    clusters: &[MultiKueueCluster],
) -> Result<(), Failure> {
    let refused =
        |what: String, why: &str, next: String| Err(Failure::new(what, why, next).code(Code::Usage));
    if home.is_some() && home == found.uid.as_deref() {
        return refused(
            "the management cluster cannot be a worker of itself".to_owned(),
            "the kubeconfig of the worker and that of the manager lead to the same cluster",
            "name the worker's kubeconfig with --kubeconfig, and the manager's with --manager-kubeconfig"
                .to_owned(),
        );
    }
    let leads_there = |cluster: &&MultiKueueCluster| {
        cluster.name_any() != name && stored(cluster).is_some_and(|known| known.judge(found) == Verdict::Same)
    };
    let other = { clusters.iter() }.find(leads_there);
    let Some(other) = other.map(ResourceExt::name_any) else {
        return Ok(());
    };
    refused(
        format!("the cluster of the kubeconfig is registered already, as {other}"),
        "a cluster with two names would get some jobs twice",
        format!("use the name {other}, or first: roadstead cluster leave {other}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn cluster(name: &str, identity: &str) -> MultiKueueCluster {
        from_value(json!({
            "metadata": {"name": name, "annotations": {CLUSTER_IDENTITY: identity}},
            "spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
        }))
        .unwrap()
    }

    /// Spec: safety 3.8
    #[test]
    fn a_kubeconfig_of_another_cluster_is_refused_with_both_names() {
        let east = cluster("east", "uid at here");
        assert_eq!(is_same(&east, "uid", "go"), Ok(()));
        let refused = is_same(&east, "other", "go").unwrap_err();
        assert!(refused.what.ends_with("another cluster than east"), "{refused}");
        assert_eq!((refused.code, refused.next.as_str()), (Code::Usage, "go"));
        let not_identified = cluster("east", "- at here");
        assert_eq!(is_same(&not_identified, "other", "go"), Ok(()));
    }

    /// Spec: safety 3.8
    #[test]
    fn neither_the_manager_nor_a_cluster_with_another_name_gets_this_one() {
        let clusters = [cluster("east", "uid at here"), cluster("west", "- at there")];
        let judge = |name: &str, uid: &str, place: &str| {
            let found = Identity::read(&format!("{uid} at {place}")).unwrap();
            may_be_called(name, &found, Some("home"), &clusters)
        };
        assert_eq!(judge("north", "new", "elsewhere"), Ok(()));
        assert_eq!(judge("east", "uid", "elsewhere"), Ok(()), "its own name");
        assert_eq!(
            judge("east", "new", "elsewhere"),
            Ok(()),
            "it moves to a new cluster"
        );
        for name in ["north", "east"] {
            let itself = judge(name, "home", "elsewhere").unwrap_err();
            assert!(itself.next.contains("--manager-kubeconfig"), "{itself}");
        }
        for name in ["north", "west"] {
            let second = judge(name, "uid", "elsewhere").unwrap_err();
            assert!(second.what.ends_with("as east"), "{second}");
            assert!(second.next.ends_with("roadstead cluster leave east"), "{second}");
        }
        let not_identified = judge("east", "new", "there").unwrap_err();
        assert!(not_identified.what.ends_with("as west"), "{not_identified}");
    }
}
