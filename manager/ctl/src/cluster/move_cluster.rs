//! `roadstead cluster move`: an administrator's word that a name leads to another cluster, or that its cluster has another address.
//!
//! Invariant: no job starts twice because of a move: the name moves to another cluster only if no Workload is placed on the
//! earlier one, and the new cluster has no other name. A cluster is identified by the UID of its namespace `kube-system`.
//!
//! *Source*: `spec/safety.md 3.8`.

use jiff::Timestamp;
use kube::Api;
use roadstead_api::constants::annotations::CLUSTER_IDENTITY;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::identity::{Identity, Verdict};
use roadstead_kubeconfigs::place::Place;
use roadstead_kubeio::write;
use serde_json::json;

use super::cordon::{count, placed_on};
use super::identity::{has_no_other_name, known, uid_of};
use super::join::Purpose;
use super::{join, registered, secret_name};
use crate::args::{Join, Move};
use crate::failure::{Failure, done};
use crate::output::{self, say};

/// The cluster to which the administrator's kubeconfig leads, compared with the cluster of the registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The cluster that the name leads to already.
    SameCluster,
    AnotherCluster,
    /// Which of both is unknown: the manager's account was never allowed to read the identity of the cluster of the name.
    NotIdentified,
}

/// Moves a name.
pub async fn run(args: &Move, now: Timestamp) -> Result<(), Failure> {
    let name = args.join.name.as_str();
    if args.join.print_yaml {
        return join::run(&args.join, now).await;
    }
    let sides = join::Sides::open(&args.join).await?;
    let endpoint = join::address(&args.join, &sides.worker)?;
    let api = Api::<MultiKueueCluster>::all(sides.manager.clone());
    let cluster = registered(&api, name).await?;
    let print = Place::of(&endpoint).print();
    let new = Identity {
        uid: Some(uid_of(&sides.worker.client).await?),
        place: Some(print.clone()),
    };
    has_no_other_name(name, &sides.manager, &new).await?;
    let target = target(&cluster, &new, args.same_cluster);
    let placed = placed_on(&sides.manager, name).await?;
    may_move(name, target, &placed)?;
    say(&match target {
        Target::SameCluster => {
            format!("cluster {name} stays the same cluster, at the address of the kubeconfig")
        }
        Target::AnotherCluster | Target::NotIdentified => format!(
            "cluster {name} will lead to another cluster; no workload is placed on the one before, and what was only offered there stays \
             there"
        ),
    });
    let is_known = known(&cluster).as_ref() == Some(&new);
    if !args.join.dry_run {
        output::consent(args.join.yes, "move it?")?;
        let patch = json!({
            "metadata": {
                "resourceVersion": cluster.metadata.resource_version,
                "annotations": { CLUSTER_IDENTITY: noted(new, is_known).to_string() },
            },
            "spec": {"clusterSource": {"kubeConfig": {"location": secret_name(name), "locationType": "Secret"}}},
        });
        done(
            &format!("moving cluster {name} failed"),
            write::patch(&api, name, &patch).await,
        )?;
    }
    let join = Join {
        yes: true,
        ..args.join.clone()
    };
    join::register(&join, &sides, &Purpose::Move { print, is_known }, now).await
}

/// The identity to write. The place is left out where the manager was not connected there: only the manager writes it when it is.
fn noted(new: Identity, is_known: bool) -> Identity {
    Identity {
        place: new.place.filter(|_| is_known),
        ..new
    }
}

fn target(cluster: &MultiKueueCluster, new: &Identity, same_cluster: bool) -> Target {
    match known(cluster) {
        Some(known) => match known.judge(new) {
            Verdict::Same => Target::SameCluster,
            Verdict::Another => Target::AnotherCluster,
        },
        None if same_cluster => Target::SameCluster,
        None => Target::NotIdentified,
    }
}

/// Refuses to move a name to another cluster while these Workloads are placed on the earlier one.
fn may_move(name: &str, target: Target, placed: &[String]) -> Result<(), Failure> {
    let why = match target {
        Target::SameCluster => return Ok(()),
        Target::AnotherCluster | Target::NotIdentified if placed.is_empty() => return Ok(()),
        Target::AnotherCluster => "the kubeconfig leads to another cluster than the one where they may run",
        Target::NotIdentified => "which cluster they may run on was never identified",
    };
    let same = match target {
        Target::NotIdentified => "; if the kubeconfig leads to the same cluster: --same-cluster",
        Target::SameCluster | Target::AnotherCluster => "",
    };
    Err(Failure::new(
        format!(
            "cluster {name} does not move: {} placed there would start twice",
            count(placed)
        ),
        why,
        format!(
            "roadstead cluster drain {name} --evict; if the cluster is lost and they do not run any more: roadstead cluster give-up {name}{same}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn cluster(identity: Option<&str>) -> MultiKueueCluster {
        from_value(json!({
            "metadata": {"name": "east", "annotations": {CLUSTER_IDENTITY: identity.unwrap_or("written by an earlier version")}},
            "spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
        }))
        .unwrap()
    }

    /// Spec: safety 3.8
    #[test]
    fn the_place_is_written_only_if_the_manager_was_there() {
        let new = Identity::read("uid at here").unwrap();
        assert_eq!(noted(new.clone(), true).to_string(), "uid at here");
        assert_eq!(noted(new, false).to_string(), "uid at -");
    }

    /// Spec: safety 3.8
    #[test]
    fn a_name_moves_to_another_cluster_only_when_nothing_is_placed_on_the_one_before() {
        let new = Identity {
            uid: Some("uid".to_owned()),
            place: None,
        };
        for (known, same_cluster, expected) in [
            (Some("uid at here"), false, Target::SameCluster),
            (Some("other at here"), false, Target::AnotherCluster),
            (Some("other at here"), true, Target::AnotherCluster),
            (Some("- at here"), false, Target::NotIdentified),
            (Some("- at here"), true, Target::SameCluster),
            (None, false, Target::NotIdentified),
        ] {
            let target = target(&cluster(known), &new, same_cluster);
            assert_eq!(target, expected, "{known:?}");
            assert!(may_move("east", target, &[]).is_ok());
            let placed = may_move("east", target, &["ns/w".to_owned()]);
            match target {
                Target::SameCluster => assert!(placed.is_ok()),
                Target::AnotherCluster | Target::NotIdentified => {
                    let said = placed.unwrap_err().to_string();
                    assert!(
                        said.contains("1 workload placed there would start twice"),
                        "{said}"
                    );
                    assert!(said.contains("roadstead cluster give-up east"), "{said}");
                    assert_eq!(
                        said.contains("--same-cluster"),
                        target == Target::NotIdentified,
                        "{said}"
                    );
                }
            }
        }
    }
}
