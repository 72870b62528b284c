//! `roadstead cluster join`, `list`, `leave` against real servers, and the renewal of the credential.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, MultiKueueConfig};
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fixture::{EAST, EVEN, MANAGER, Room, SPARE, WEST, beside_others};
use crate::shared::{chain, client_of, eventually};

/// The MultiKueueConfig that the spare cluster joins, so that no job of another test goes there.
const CONFIG: &str = "second-federation";
const WORKER_NAMESPACE: &str = SYSTEM_NAMESPACE;
const ISSUED_AT: &str = "roadstead.dev/issued-at";
const EXPIRES_AT: &str = "roadstead.dev/expires-at";
const ANSWERS: Duration = Duration::from_secs(1);

async fn command(room: Room, args: &[&str]) -> String {
    let said = room.shared.stage.command(args).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

async fn join(room: Room) -> Value {
    let stage = &room.shared.stage;
    let (worker, manager) = (text(&stage.kubeconfig(SPARE)), text(&stage.kubeconfig(MANAGER)));
    let server = stage.link(SPARE).unwrap().server_url();
    let said = command(
        room,
        &[
            "cluster",
            "join",
            SPARE,
            "--kubeconfig",
            &worker,
            "--manager-kubeconfig",
            &manager,
            "--server",
            &server,
            "--config-name",
            CONFIG,
            "--yes",
            "-o",
            "json",
        ],
    )
    .await;
    serde_json::from_str(&said).unwrap()
}

/// Kind and name of the objects of a registration, with the version, which changes with each write.
async fn made(room: Room) -> BTreeMap<String, String> {
    async fn add<K>(into: &mut BTreeMap<String, String>, api: Api<K>, wanted: impl Fn(&str) -> bool)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let all = api.list(&ListParams::default()).await.unwrap();
        for object in all.items.iter().filter(|object| wanted(&object.name_any())) {
            let key = format!("{}/{}", K::kind(&()), object.name_any());
            into.insert(key, object.resource_version().unwrap());
        }
    }
    let (manager, spare) = (room.shared.client(MANAGER), room.shared.client(SPARE));
    let mut all = BTreeMap::new();
    // Why not its status: the manager writes the condition.
    add(&mut all, Api::<MultiKueueConfig>::all(manager.clone()), |name| {
        name == CONFIG
    })
    .await;
    let secrets = Api::<Secret>::namespaced(manager, SYSTEM_NAMESPACE);
    add(&mut all, secrets, |name| name.ends_with(SPARE)).await;
    let accounts = Api::<ServiceAccount>::namespaced(spare.clone(), WORKER_NAMESPACE);
    add(&mut all, accounts, |name| name.starts_with("roadstead-")).await;
    // Only roles for managers; the worker has a role of its own.
    add(&mut all, Api::<ClusterRole>::all(spare), |name| {
        name.starts_with("roadstead-")
    })
    .await;
    all
}

async fn list(room: Room) -> Vec<Value> {
    let manager = text(&room.shared.stage.kubeconfig(MANAGER));
    let said = command(
        room,
        &["cluster", "list", "--manager-kubeconfig", &manager, "-o", "json"],
    )
    .await;
    serde_json::from_str(&said).unwrap()
}

fn row<'a>(rows: &'a [Value], name: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["name"] == name)
}

async fn active(room: Room) -> Value {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    let status = clusters.get(SPARE).await.unwrap().status.unwrap();
    let condition = status.conditions.iter().find(|each| each.type_ == "Active");
    serde_json::to_value(condition).unwrap()
}

/// Makes a renewal due and waits for it.
async fn renewal(room: Room) {
    let secrets: Api<Secret> = Api::namespaced(room.shared.client(MANAGER), SYSTEM_NAMESPACE);
    let all = secrets.list(&ListParams::default()).await.unwrap();
    let secret = all
        .items
        .iter()
        .find(|secret| secret.name_any().ends_with(SPARE))
        .unwrap();
    let (name, before) = (secret.name_any(), secret.data.clone());
    let standing = active(room).await;
    let now = Timestamp::now();
    let minutes = |count: i64| (now + jiff::SignedDuration::from_mins(count)).to_string();
    let due = json!({"metadata": {"annotations": {ISSUED_AT: minutes(-50), EXPIRES_AT: minutes(10)}}});
    secrets
        .patch(&name, &PatchParams::default(), &Patch::Merge(&due))
        .await
        .unwrap();
    let renewed = eventually(|| async {
        let secret = secrets.get(&name).await.ok()?;
        (secret.data != before).then_some(secret)
    })
    .await;
    let expires: Timestamp = renewed.annotations()[EXPIRES_AT].parse().unwrap();
    assert!(expires > now + jiff::SignedDuration::from_mins(30), "{expires}");
    let kubeconfig = renewed.data.unwrap()["kubeconfig"].0.clone();
    let client = client_of(&String::from_utf8(kubeconfig).unwrap()).await;
    let reviews = Api::<SelfSubjectReview>::all(client);
    let me = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let me = me.status.unwrap().user_info.unwrap().username.unwrap();
    assert!(
        me.starts_with(&format!("system:serviceaccount:{WORKER_NAMESPACE}:")),
        "{me}"
    );
    // Longer than connecting again takes.
    tokio::time::sleep(ANSWERS).await;
    assert_eq!(
        active(room).await,
        standing,
        "the connection stays Active all the time"
    );
}

/// Spec: safety 6; experience 3
#[test]
fn a_cluster_joins_once_is_listed_renews_its_credential_and_leaves_nothing() {
    beside_others("registration", EVEN, |room| async move {
        join(room).await;
        let first = made(room).await;
        assert!(first.len() >= 4, "{first:?}");
        let again = join(room).await;
        assert_eq!(made(room).await, first, "a second run changes nothing: {again}");
        let rows = list(room).await;
        for name in [EAST, WEST, SPARE] {
            let row = row(&rows, name).unwrap();
            assert_eq!(row["connected"], "True", "{row}");
            assert_eq!(row["reason"], "Active", "{row}");
            assert!(row["tokenExpiresAt"].is_string(), "{row}");
        }
        renewal(room).await;

        let stage = &room.shared.stage;
        let (worker, manager) = (text(&stage.kubeconfig(SPARE)), text(&stage.kubeconfig(MANAGER)));
        let before = made(room).await;
        let plan = [
            "cluster",
            "leave",
            SPARE,
            "--kubeconfig",
            &worker,
            "--manager-kubeconfig",
            &manager,
            "--dry-run",
        ];
        command(room, &plan).await;
        assert_eq!(made(room).await, before, "a plan changes nothing");
        let left = command(
            room,
            &[
                "cluster",
                "leave",
                SPARE,
                "--kubeconfig",
                &worker,
                "--manager-kubeconfig",
                &manager,
                "--yes",
                "-o",
                "json",
            ],
        )
        .await;
        let left: Value = serde_json::from_str(&left).unwrap();
        let verified = left["verified"].to_string();
        assert!(
            verified.contains("no workload and no job of origin multikueue"),
            "{left}"
        );
        assert_eq!(made(room).await, BTreeMap::new(), "{left}");
        assert!(row(&list(room).await, SPARE).is_none());
    });
}
