//! The observer must find violations: here the tests break the invariants on purpose.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use roadstead_e2e::observer::{Cluster, Observer};
use roadstead_e2e::stage::apply;
use roadstead_e2e::{ControlPlane, Federation, Options};
use serde_json::{json, to_value};
use tokio::time::sleep;

use crate::shared::{eventually, plane, within};

const NAMESPACE: &str = "default";

fn cluster(plane: &ControlPlane) -> Cluster {
    Cluster {
        name: plane.name().to_owned(),
        client: plane.client().unwrap(),
    }
}

/// Creates a job as a manager would.
async fn run(client: &Client, workload: &str) {
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": workload, "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"},
            "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": workload},
        },
        "spec": {"suspend": false, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}],
        }}},
    });
    apply(client, job).await.unwrap();
}

fn broken(observer: &Observer) -> Vec<&'static str> {
    let mut broken: Vec<_> = observer
        .violations()
        .iter()
        .map(|violation| violation.invariant)
        .collect();
    broken.dedup();
    broken
}

/// Spec: safety 1 I1, I5, I7.
#[tokio::test]
async fn a_double_run_an_orphan_and_a_touched_object_are_seen() {
    // Why: a first build must not count against the deadline.
    plane().await;
    within(async {
        let workers = ["seen-east", "seen-west"].map(Options::bare).into();
        // Why boxed: two starts on one stack are large.
        let started = Box::pin(Federation::start(Options::bare("seen-manager"), workers)).await;
        let federation = started.unwrap();
        let clusters: Vec<Cluster> = std::iter::once(&federation.manager)
            .chain(&federation.workers)
            .map(cluster)
            .collect();
        for cluster in &clusters {
            for definition in roadstead_api::crd::all() {
                apply(&cluster.client, to_value(definition).unwrap())
                    .await
                    .unwrap();
            }
        }
        let [manager, east, west] = clusters.try_into().ok().unwrap();
        let (observer, _steps) = Observer::start(manager.clone(), vec![east.clone(), west.clone()]);
        observer.plant(NAMESPACE).await.unwrap();

        // First in one cluster, then in the other: no violation.
        run(&east.client, "moves").await;
        eventually(|| async { observer.started(NAMESPACE, "moves") }).await;
        let jobs: Api<Job> = Api::namespaced(east.client.clone(), NAMESPACE);
        jobs.delete("moves", &DeleteParams::background()).await.unwrap();
        run(&west.client, "moves").await;
        // Why a pause: the absence of a violation cannot be waited for.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(broken(&observer), [""; 0], "{:?}", observer.violations());
        let jobs: Api<Job> = Api::namespaced(west.client.clone(), NAMESPACE);
        jobs.delete("moves", &DeleteParams::background()).await.unwrap();
        assert_eq!(observer.close(Duration::from_secs(5)).await.unwrap(), [""; 0]);
        assert_eq!(broken(&observer), [""; 0], "{:?}", observer.violations());

        // In both at once.
        run(&east.client, "twice").await;
        run(&west.client, "twice").await;
        eventually(|| async { (!observer.violations().is_empty()).then_some(()) }).await;
        assert_eq!(broken(&observer), ["I1"]);
        assert_eq!(observer.duplicate_runs(), 1);

        let maps: Api<ConfigMap> = Api::namespaced(west.client.clone(), NAMESPACE);
        let touch = Patch::Merge(json!({"data": {"touched": "yes"}}));
        maps.patch("belongs-to-nobody-here", &PatchParams::default(), &touch)
            .await
            .unwrap();
        let orphans = observer.close(Duration::from_secs(1)).await.unwrap();
        assert_eq!(
            orphans,
            ["job default/twice in seen-east", "job default/twice in seen-west"]
        );
        assert_eq!(broken(&observer), ["I1", "I5", "I7"]);
    })
    .await;
}
