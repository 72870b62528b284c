//! The identity of the cluster behind a MultiKueueCluster.

use std::fs;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::CLUSTER_IDENTITY;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_e2e::stage::{Error, FEDERATION, SYSTEM_NAMESPACE};
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, Room, SPARE, WEST, beside_others, cluster_name, was_sent_once};
use super::kubeconfigs::{active, forget, put, register, says};
use super::second::{SECOND, enlist, of_its_own, with_second};
use crate::shared::{chain, eventually};

/// The namespace of the managers' leases.
const LEASES: &str = SYSTEM_NAMESPACE;
const BOTH: &[(&str, &str)] = &[(MANAGER, "8"), (SPARE, "8"), (EAST, "8"), (WEST, "8")];

/// The name of the Secret of a cluster, and the kubeconfig in it.
async fn secret_of(client: &Client, cluster: &str) -> (String, String) {
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let source = clusters.get(cluster).await.unwrap().spec.cluster_source;
    let name = source.kube_config.unwrap().location;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let data = secrets.get(&name).await.unwrap().data.unwrap();
    let text = String::from_utf8(data["kubeconfig"].0.clone()).unwrap();
    (name, text)
}

/// Waits until a cluster of the second manager is connected.
async fn is_connected(second: Room, cluster: &str) {
    let client = second.shared.client(SPARE);
    active(&client, cluster, |said| says(said, "True", "Active", "Connected")).await;
}

/// Waits until a cluster of the second manager is refused, because its Secret leads to another one; of the job there is nothing in
/// west.
async fn is_refused(second: Room, cluster: &str, job: &str) {
    let client = second.shared.client(SPARE);
    active(&client, cluster, |said| {
        says(said, "False", "ClusterChanged", "leads to another cluster now")
    })
    .await;
    let workload = second.workload(job).await.unwrap();
    assert_eq!(cluster_name(&workload).as_deref(), Some(cluster));
    assert!(second.jobs(WEST).get_opt(job).await.unwrap().is_none());
}

/// Waits until something else is remembered of a cluster of the second manager than this, and gives it.
async fn remembers_other(second: Room, cluster: &str, than: &str) -> String {
    let clusters: Api<MultiKueueCluster> = Api::all(second.shared.client(SPARE));
    eventually(|| async {
        let found = clusters.get(cluster).await.ok()?;
        let now = found.annotations().get(CLUSTER_IDENTITY)?;
        (now != than).then(|| now.clone())
    })
    .await
}

/// The second manager has registered east. While its job runs there, the Secret of east points at west, which is not registered.
///
/// Spec: safety 3.8, I1
#[test]
fn a_secret_that_leads_to_another_cluster_while_a_job_runs_is_refused_until_it_leads_back() {
    let over = of_its_own(json!({}));
    with_second("another-cluster", BOTH, over, |first, second| async move {
        enlist(second, &[EAST]).await;
        second.submit(second.job("stays", "1", 15)).await;
        assert_eq!(first.started("stays").await, EAST);

        let client = second.shared.client(SPARE);
        let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
        let (secret, good) = secret_of(&client, EAST).await;
        let west = second.shared.stage.planes().worker(WEST).unwrap();
        put(&client, &secret, &west.kubeconfig()).await;
        is_refused(second, EAST, "stays").await;
        let leases: Api<Lease> = Api::namespaced(first.shared.client(WEST), LEASES);
        let lease = format!("roadstead-{SECOND}");
        assert!(leases.get_opt(&lease).await.unwrap().is_none(), "it wrote there");

        put(&client, &secret, &good).await;
        is_connected(second, EAST).await;
        second.job_is(SPARE, "stays", "Complete").await;
        assert!(was_sent_once(&second.workload("stays").await.unwrap()));

        // Now no job is left there, so the Secret may point at another cluster.
        second.is_swept_in(EAST).await;
        put(&client, &secret, &west.kubeconfig()).await;
        is_connected(second, EAST).await;
        let there = || async { leases.get_opt(&lease).await.ok()? };
        eventually(there).await;
        let log = fs::read_to_string(second.shared.stage.log(SPARE).unwrap()).unwrap();
        assert!(
            log.contains("used from now on because nothing of this manager is known to be on the one before")
        );
        assert!(!log.contains("as after a restore"), "its storage is another one");
        put(&client, &secret, &good).await;
        let uid = uid_of(&first.shared.client(EAST)).await;
        let leads_back = || async {
            let identity = clusters.get(EAST).await.ok()?.annotations().clone();
            identity.get(CLUSTER_IDENTITY)?.starts_with(&uid).then_some(())
        };
        eventually(leads_back).await;
        is_connected(second, EAST).await;
        leases.delete(&lease, &DeleteParams::default()).await.unwrap();
    });
}

/// The UID by which a cluster is known.
async fn uid_of(client: &Client) -> String {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

/// An account may not read any more which cluster it is on.
async fn is_not_identified(room: Room, cluster: &str, account: &str) {
    let roles: Api<ClusterRole> = Api::all(room.shared.client(cluster));
    let rules = roles.get(account).await.unwrap().rules.unwrap();
    let is_of_namespaces = |rule: &PolicyRule| rule.resources.iter().flatten().any(|one| one == "namespaces");
    let others: Vec<_> = rules.iter().filter(|rule| !is_of_namespaces(rule)).collect();
    assert_eq!(others.len() + 1, rules.len(), "the right is there at first");
    let patch = Patch::Merge(json!({ "rules": others }));
    roles
        .patch(account, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Moves the name east of the second manager to a worker, at the address of its API server itself, with more arguments.
async fn move_east(second: Room, worker: &str, more: &[&str]) -> Result<String, Error> {
    let stage = &second.shared.stage;
    let (worker, manager) = (stage.kubeconfig(worker), stage.kubeconfig(SPARE));
    let (worker, manager) = (worker.display().to_string(), manager.display().to_string());
    let ends = ["--kubeconfig", &worker, "--manager-kubeconfig", &manager];
    let flags = ["--config-name", FEDERATION, "--allow-loopback", "--yes"];
    let command = [&["cluster", "move", EAST], &ends[..], &flags, more].concat();
    stage.command(&command).await
}

/// The second manager has east, by an account that may not read which cluster it is, as one that was made for Kueue.
///
/// Spec: safety 3.8, I1
#[test]
fn a_cluster_that_is_not_identified_gets_another_address_by_command_while_a_job_runs() {
    let over = of_its_own(json!({}));
    with_second("not-identified", BOTH, over, |first, second| async move {
        enlist(second, &[EAST]).await;
        let (stage, client) = (&second.shared.stage, second.shared.client(SPARE));
        let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
        is_not_identified(first, EAST, &format!("roadstead-{SECOND}")).await;
        let forgets = Patch::Merge(json!({"metadata": {"annotations": {CLUSTER_IDENTITY: null}}}));
        clusters
            .patch(EAST, &PatchParams::default(), &forgets)
            .await
            .unwrap();
        stage.restart(SPARE).await.unwrap();
        let of_place = remembers_other(second, EAST, "").await;
        assert!(of_place.starts_with("- at "), "{of_place}");
        is_connected(second, EAST).await;

        second.submit(second.job("stays", "1", 600)).await;
        assert_eq!(first.started("stays").await, EAST);
        let (secret, good) = secret_of(&client, EAST).await;
        let (link, plane) = (stage.link(EAST).unwrap(), stage.planes().worker(EAST).unwrap());
        put(
            &client,
            &secret,
            &good.replace(&link.server_url(), &plane.server_url()),
        )
        .await;
        is_refused(second, EAST, "stays").await;

        let origin = ["--origin", SECOND];
        let why = move_east(second, EAST, &origin).await.unwrap_err();
        assert!(chain(&why).contains("--same-cluster"), "{}", chain(&why));
        let same = [&origin[..], &["--same-cluster"]].concat();
        let moved = move_east(second, EAST, &same).await;
        moved.unwrap_or_else(|error| panic!("{}", chain(&error)));
        is_connected(second, EAST).await;
        let identified = clusters.get(EAST).await.unwrap().annotations()[CLUSTER_IDENTITY].clone();
        assert!(
            identified.starts_with(&uid_of(&first.shared.client(EAST)).await),
            "{identified}"
        );
        assert!(
            !identified.ends_with(" -"),
            "the manager has seen it: {identified}"
        );

        // Another cluster takes the name only when nothing is placed on the one before.
        let why = move_east(second, WEST, &origin).await.unwrap_err();
        assert!(
            chain(&why).contains("1 workload placed there would start twice"),
            "{}",
            chain(&why)
        );
        assert!(was_sent_once(&second.workload("stays").await.unwrap()));
        let jobs = second.jobs(SPARE);
        jobs.delete("stays", &DeleteParams::background()).await.unwrap();
        second.is_swept_in(EAST).await;
        let moved = move_east(second, WEST, &origin).await;
        moved.unwrap_or_else(|error| panic!("{}", chain(&error)));
        second.submit(second.job("goes", "1", 1)).await;
        second.job_is(SPARE, "goes", "Complete").await;
        assert_eq!(first.started("goes").await, WEST);
        let jobs = second.jobs(SPARE);
        jobs.delete("goes", &DeleteParams::background()).await.unwrap();
        second.is_swept_in(WEST).await;
        // So that no account stays, neither there nor in east.
        let (west, manager) = (stage.kubeconfig(WEST), stage.kubeconfig(SPARE));
        let (west, manager) = (west.display().to_string(), manager.display().to_string());
        let leave = [
            "cluster",
            "leave",
            EAST,
            "--kubeconfig",
            &west,
            "--manager-kubeconfig",
            &manager,
            "--yes",
        ];
        let left = stage.command(&[&leave[..], &origin].concat()).await;
        left.unwrap_or_else(|error| panic!("{}", chain(&error)));
        enlist(second, &[EAST]).await;
    });
}

/// Spec: safety 3.8, I5
#[test]
fn a_cluster_that_this_manager_has_already_and_its_own_are_refused() {
    beside_others("registered-twice", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let (alias, east) = ("east-again", room.shared.stage.planes().worker(EAST).unwrap());
        room.submit(room.job("stays", "1", 5)).await;
        room.started("stays").await;
        put(&client, alias, &east.kubeconfig()).await;
        register(&client, alias).await;
        active(&client, alias, |said| {
            says(said, "False", "RegisteredTwice", "as MultiKueueCluster \"east\"")
        })
        .await;
        room.job_is(MANAGER, "stays", "Complete").await;
        room.ran_once("stays").await;
        forget(&client, alias).await;
        let (itself, manager) = ("itself", &room.shared.stage.planes().manager);
        put(&client, itself, &manager.kubeconfig()).await;
        register(&client, itself).await;
        active(&client, itself, |said| {
            says(said, "False", "ManagementCluster", "the management cluster")
        })
        .await;
        forget(&client, itself).await;
        active(&client, EAST, |said| says(said, "True", "Active", "Connected")).await;
    });
}
