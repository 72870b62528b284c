//! The settings of the administrator about each cluster, and whether its runs are given up.

use jiff::Timestamp;
use roadstead_api::constants::annotations::{CORDON, GIVEN_UP};
use roadstead_api::constants::conditions::ACTIVE;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::link::Link;
use roadstead_core::cluster::word;
use roadstead_core::dispatch::Cordon;

use crate::remote::Remote;

pub(crate) fn cordon(cluster: &MultiKueueCluster) -> Cordon {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Cordon::Leaving;
    }
    let annotations = cluster.metadata.annotations.as_ref();
    Cordon::read(annotations.and_then(|all| all.get(CORDON)).map(String::as_str))
}

/// The time of the loss that an administrator has given up, from the annotation; a text that is no time does not count.
pub(crate) fn given_up(cluster: &MultiKueueCluster) -> Option<Timestamp> {
    cluster.metadata.annotations.as_ref()?.get(GIVEN_UP)?.parse().ok()
}

/// Since when condition `Active` of a cluster has been False.
fn shown_lost(cluster: &MultiKueueCluster) -> Option<Timestamp> {
    let mut conditions = cluster.status.as_ref()?.conditions.iter();
    let active = conditions.find(|condition| condition.type_ == ACTIVE)?;
    (active.status == "False").then_some(active.last_transition_time.0)
}

/// Whether an administrator has given up the runs on a cluster in its present loss.
pub(crate) fn is_given_up(remote: &Remote, cluster: &MultiKueueCluster) -> bool {
    let earliest = remote.link(Link::loss_shows_from);
    earliest.is_some_and(|earliest| word::is_given_up(given_up(cluster), shown_lost(cluster), earliest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use roadstead_api::constants::annotations::{CORDON, GIVEN_UP};
    use roadstead_api::kueue::v1beta2::{
        ClusterSource, KubeConfig, LocationType, MultiKueueCluster, MultiKueueClusterSpec,
    };
    use roadstead_core::dispatch::Cordon;

    use serde_json::{from_value, json};

    use super::{cordon, given_up, shown_lost};

    fn cluster() -> MultiKueueCluster {
        MultiKueueCluster::new(
            "east",
            MultiKueueClusterSpec {
                cluster_source: ClusterSource {
                    kube_config: Some(KubeConfig {
                        location: "s".to_owned(),
                        location_type: LocationType::Secret,
                    }),
                    cluster_profile_ref: None,
                },
            },
        )
    }

    /// Spec: safety 3.5
    #[test]
    fn a_word_is_read_as_a_time_and_a_loss_from_a_condition_that_is_false() {
        let mut cluster = cluster();
        assert_eq!((given_up(&cluster), shown_lost(&cluster)), (None, None));
        for (text, wanted) in [
            ("1970-01-01T00:00:09Z", jiff::Timestamp::from_second(9).ok()),
            ("yes", None),
            ("", None),
        ] {
            let annotations = BTreeMap::from([(GIVEN_UP.to_owned(), text.to_owned())]);
            cluster.metadata.annotations = Some(annotations);
            assert_eq!(given_up(&cluster), wanted, "{text}");
        }
        for (status, wanted) in [
            ("False", jiff::Timestamp::from_second(9).ok()),
            ("True", None),
            ("Unknown", None),
        ] {
            let conditions = json!({"conditions": [{
                "type": "Active", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:09Z",
            }]});
            cluster.status = Some(from_value(conditions).unwrap());
            assert_eq!(shown_lost(&cluster), wanted, "{status}");
        }
    }

    #[test]
    fn an_annotation_or_a_deletion_closes_a_cluster() {
        let mut cluster = cluster();
        assert_eq!(cordon(&cluster), Cordon::Open);
        for (value, wanted) in [
            ("true", Cordon::Closed),
            ("maintenance", Cordon::Closed),
            ("drain", Cordon::Drained),
            ("false", Cordon::Open),
        ] {
            let annotations = BTreeMap::from([(CORDON.to_owned(), value.to_owned())]);
            cluster.metadata.annotations = Some(annotations);
            assert_eq!(cordon(&cluster), wanted, "{value}");
        }
        cluster.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(cordon(&cluster), Cordon::Leaving);
    }
}
