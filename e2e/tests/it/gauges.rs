//! Statuses, finalizers and metrics of a worker, as its users see them.

use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use roadstead_e2e::stage::{self, Solo};
use roadstead_e2e::{Options, Progress, audit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::shared::{chain, eventually, within};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
/// Limit of the start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);

fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

fn queues(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterQueue", "clusterqueues")
}

fn workloads(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "workloads");
    Api::namespaced_with(client.clone(), "team", &resource)
}

fn locals(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "LocalQueue");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "localqueues");
    Api::namespaced_with(client.clone(), "team", &resource)
}

async fn get(api: &Api<DynamicObject>, name: &str) -> Option<DynamicObject> {
    api.get_opt(name).await.unwrap()
}

fn condition(object: &DynamicObject, kind: &str) -> Option<Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind).cloned()
}

async fn queue(client: &Client, name: &str, flavor: &str, cores: &str) {
    let spec = json!({
        "cohortName": "crew", "namespaceSelector": {},
        "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
            { "name": flavor, "resources": [{ "name": "cpu", "nominalQuota": cores }] },
        ]}],
    });
    let queue =
        json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec});
    stage::apply(client, queue).await.unwrap();
    let local = json!({
        "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": "team"},
        "spec": {"clusterQueue": name},
    });
    stage::apply(client, local).await.unwrap();
}

async fn submit(client: &Client, name: &str, queue: &str, cores: &str) {
    submit_with(client, name, queue, cores, json!({})).await;
}

async fn submit_with(client: &Client, name: &str, queue: &str, cores: &str, labels: Value) {
    let metadata = json!({"name": name, "namespace": "team", "labels": labels});
    let workload = serde_json::from_value(json!({
        "apiVersion": KUEUE, "kind": "Workload", "metadata": metadata,
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cores}}}],
        }}}]},
    }))
    .unwrap();
    workloads(client)
        .create(&PostParams::default(), &workload)
        .await
        .unwrap();
}

async fn admitted(client: &Client, name: &str) -> DynamicObject {
    eventually(|| async {
        let workload = get(&workloads(client), name).await?;
        (condition(&workload, "Admitted")?["status"] == "True").then_some(workload)
    })
    .await
}

async fn finish(client: &Client, name: &str) {
    let workload = admitted(client, name).await;
    let mut conditions = workload.data["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    workloads(client)
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

pub(crate) async fn page(solo: &Solo) -> String {
    let mut stream = TcpStream::connect(solo.metrics()).await.unwrap();
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Waits until a line of the page begins so.
async fn line(solo: &Solo, start: &str) -> String {
    eventually(|| async {
        let page = page(solo).await;
        page.lines()
            .find(|line| line.starts_with(start))
            .map(str::to_owned)
    })
    .await
}

async fn start(name: &str, configuration: Value) -> Solo {
    let starting = Solo::start(
        Options::bare(name).with_audit(),
        &configuration,
        Progress::stderr(),
    );
    let solo = timeout(START_DEADLINE, starting)
        .await
        .expect("the start must end");
    let solo = solo.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let client = solo.client().unwrap();
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "doomed"}}),
        json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": "crew"}, "spec": {"parentName": "all"}}),
    ] {
        stage::apply(&client, object).await.unwrap();
    }
    solo
}

/// Spec: admission-engine B060, B061, B224, B227, B229, B232.
#[tokio::test(flavor = "multi_thread")]
async fn queues_tell_their_state_and_go_when_nobody_needs_them() {
    let configuration = json!({
        "metrics": {"enableClusterQueueResources": true},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
        "admissionFairSharing": {"usageHalfLifeTime": "168h"},
    });
    let solo = start("gauges", configuration).await;
    let client = solo.client().unwrap();
    within(async {
        queue(&client, "alpha", "doomed", "4").await;
        let used = eventually(|| async {
            let local = get(&locals(&client), "alpha").await?;
            let past = &local.data["status"]["fairSharing"]["admissionFairSharingStatus"];
            past.is_object().then(|| past["consumedResources"].clone())
        })
        .await;
        assert_eq!(
            used,
            json!({"cpu": "0"}),
            "its ClusterQueue does not go by usage, and says it all the same"
        );
        submit(&client, "long", "alpha", "3").await;
        admitted(&client, "long").await;
        let status = eventually(|| async {
            let queue = get(&queues(&client), "alpha").await?;
            let status = queue.data["status"].clone();
            (status["admittedWorkloads"] == 1).then_some(status)
        })
        .await;
        let reserved = &status["flavorsReservation"][0]["resources"][0];
        assert_eq!(
            (&reserved["total"], &reserved["borrowed"]),
            (&json!("3"), &json!("0"))
        );
        assert_eq!(status["fairSharing"]["weightedShare"], 0);
        let cohorts = api(&client, "Cohort", "cohorts");
        eventually(|| async {
            let cohort = get(&cohorts, "crew").await?;
            cohort.data["status"]["fairSharing"]["weightedShare"].as_i64()
        })
        .await;

        let borrowing = "kueue_cluster_queue_borrowing_limit{";
        assert!(line(&solo, borrowing).await.ends_with(" +Inf"));
        let counted = "kueue_admitted_workloads_total{replica_role=\"leader\",cluster_queue=\"alpha\"";
        assert!(line(&solo, counted).await.ends_with(" 1"));

        let flavors = api(&client, "ResourceFlavor", "resourceflavors");
        for (api, name) in [(&queues(&client), "alpha"), (&flavors, "doomed")] {
            eventually(|| async {
                let object = get(api, name).await?;
                object.finalizers().iter().any(|f| f == IN_USE).then_some(())
            })
            .await;
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        eventually(|| async {
            let active = condition(&get(&queues(&client), "alpha").await?, "Active")?;
            (active["reason"] == "Terminating").then_some(())
        })
        .await;
        submit(&client, "late", "alpha", "1").await;
        eventually(|| async {
            let late = get(&workloads(&client), "late").await?;
            condition(&late, "QuotaReserved").filter(|c| c["status"] == "False")
        })
        .await;
        assert!(
            get(&queues(&client), "alpha").await.is_some(),
            "its quota is held"
        );
        assert!(get(&flavors, "doomed").await.is_some(), "its queue is there");

        finish(&client, "long").await;
        eventually(|| async { get(&queues(&client), "alpha").await.is_none().then_some(()) }).await;
        eventually(|| async { get(&flavors, "doomed").await.is_none().then_some(()) }).await;
        let left = eventually(|| async {
            let page = page(&solo).await;
            (!page.contains("cluster_queue=\"alpha\"")).then_some(page)
        })
        .await;
        assert!(left.contains("kueue_build_info"));
        moves(&solo, &client).await;
    })
    .await;
    within(pace(&solo, &client)).await;
}

/// Series of a cohort go with the last queue that names it, and a cohort without a parent has a share too.
async fn moves(solo: &Solo, client: &Client) {
    queue(client, "mover", "default", "4").await;
    let cohort = |name: &str| Patch::Merge(json!({"spec": {"cohortName": name}}));
    let params = PatchParams::default();
    queues(client)
        .patch("mover", &params, &cohort("loose"))
        .await
        .unwrap();
    let quota = |cohort: &str| {
        format!(
            "kueue_cluster_queue_nominal_quota{{replica_role=\"leader\",cohort=\"{cohort}\",cluster_queue=\"mover\""
        )
    };
    line(solo, &quota("loose")).await;
    submit(client, "counted", "mover", "1").await;
    admitted(client, "counted").await;
    let total = "kueue_cohort_subtree_admitted_workloads_total{replica_role=\"leader\",cohort=\"loose\"";
    assert!(line(solo, total).await.ends_with(" 1"));
    line(
        solo,
        "kueue_cohort_weighted_share{replica_role=\"leader\",cohort=\"loose\"}",
    )
    .await;
    queues(client)
        .patch("mover", &params, &cohort("crew"))
        .await
        .unwrap();
    line(solo, &quota("crew")).await;
    eventually(|| async { (!page(solo).await.contains("\"loose\"")).then_some(()) }).await;
}

/// Many changes of one queue within a second make about one write of its status.
async fn pace(solo: &Solo, client: &Client) {
    queue(client, "busy", "default", "100").await;
    let log = solo.plane().audit_log().unwrap();
    submit(client, "w-0", "busy", "1").await;
    admitted(client, "w-0").await;
    // Why: the write of the first admission, and the pause after it, must be over.
    sleep(Duration::from_secs(3)).await;
    let writes = || {
        let requests = audit::read(&log).unwrap().into_iter();
        requests
            .filter(|r| r.resource == "clusterqueues" && r.subresource == "status" && r.code == 200)
            .count()
    };
    let before = writes();
    for index in 1..=5 {
        submit(client, &format!("w-{index}"), "busy", "1").await;
    }
    eventually(|| async {
        let busy = get(&queues(client), "busy").await?;
        (busy.data["status"]["admittedWorkloads"] == 6).then_some(())
    })
    .await;
    let more = writes() - before;
    assert!((1..=2).contains(&more), "{more} writes for five changes");
}

/// Spec: api API-13 (`metrics.customLabels`), admission-engine 8.
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_labels_stand_behind_the_others() {
    let labels = json!([
        {"name": "team"},
        {"name": "owner", "sourceKind": "LocalQueue", "sourceAnnotationKey": "example.com/owner"},
        {"name": "tier", "sourceKind": "Workload", "sourceLabelKey": "example.com/tier", "trackedValues": ["gold"]},
        {"name": "bill", "sourceKind": "Workload", "sourceAnnotationKey": "example.com/bill", "trackedValues": ["ann"]},
    ]);
    let configuration = json!({
        "metrics": {"customLabels": labels},
        "managedJobsNamespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system", "quiet"]},
        ]},
        "featureGates": {"CustomMetricLabels": true},
    });
    let solo = start("labels", configuration).await;
    let client = solo.client().unwrap();
    within(async {
        queue(&client, "alpha", "default", "4").await;
        let label = |team: &str| Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
        let params = PatchParams::default();
        queues(&client).patch("alpha", &params, &label("red")).await.unwrap();
        let owner = Patch::Merge(json!({"metadata": {"annotations": {"example.com/owner": "ann"}}}));
        locals(&client).patch("alpha", &params, &owner).await.unwrap();
        let of_queue = "kueue_reserving_active_workloads{replica_role=\"leader\",cluster_queue=\"alpha\"";
        line(&solo, &format!("{of_queue},custom_team=\"red\"}} 0")).await;

        for (name, tier) in [("plain", None), ("gold", Some("gold")), ("odd", Some("tin"))] {
            let labels = tier.map(|tier| json!({"example.com/tier": tier}));
            submit_with(&client, name, "alpha", "1", labels.unwrap_or_default()).await;
            admitted(&client, name).await;
        }
        line(&solo, &format!("{of_queue},custom_team=\"red\"}} 3")).await;
        let counted = "kueue_admitted_workloads_total{replica_role=\"leader\",cluster_queue=\"alpha\",priority_class=\"\"";
        for tier in ["", "gold", "kueue.x-k8s.io/_UNTRACKED_VALUE_"] {
            line(&solo, &format!("{counted},custom_team=\"red\",custom_tier=\"{tier}\",custom_bill=\"\"}} 1")).await;
        }
        let of_local = "kueue_local_queue_reserving_active_workloads{replica_role=\"leader\",name=\"alpha\",namespace=\"team\"";
        line(&solo, &format!("{of_local},custom_owner=\"ann\"}} 3")).await;

        queues(&client).patch("alpha", &params, &label("blue")).await.unwrap();
        line(&solo, &format!("{of_queue},custom_team=\"blue\"}} 3")).await;
        let page = page(&solo).await;
        assert!(!page.contains("custom_team=\"red\""), "{page}");
    })
    .await;
    within(billed(&solo, &client)).await;
    within(quiet(&client)).await;
}

/// What metrics read from a Workload is copied from its job, and the gauge of those that are admitted carries it.
async fn billed(solo: &Solo, client: &Client) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "billed", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "alpha", "example.com/tier": "gold"},
            "annotations": {"example.com/bill": "ann", "example.com/other": "x"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}},
    });
    stage::apply(client, job).await.unwrap();
    let admitted = "kueue_admitted_active_workloads{replica_role=\"leader\",cluster_queue=\"alpha\",custom_team=\"blue\",\
                    custom_tier=\"gold\",custom_bill=\"ann\"}";
    assert!(line(solo, admitted).await.ends_with(" 1.0"));
    let all = workloads(client)
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    let of_job = all
        .items
        .iter()
        .find(|w| w.name_any().starts_with("job-billed"))
        .unwrap();
    let notes = of_job.annotations();
    assert_eq!(notes.get("example.com/bill").map(String::as_str), Some("ann"));
    assert!(!notes.contains_key("example.com/other"));
}

/// Spec: jobs 3. A job that names a queue in an excluded namespace runs at once, and its creator gets a warning.
async fn quiet(client: &Client) {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}});
    stage::apply(client, space).await.unwrap();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "left-alone", "namespace": "quiet", "labels": {"kueue.x-k8s.io/queue-name": "alpha"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    let request = http::Request::post("/apis/batch/v1/namespaces/quiet/jobs")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(serde_json::to_vec(&job).unwrap()))
        .unwrap();
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 201);
    let warned: Vec<&str> = answer
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|w| w.to_str().ok())
        .collect();
    let words = "label kueue.x-k8s.io/queue-name (alpha) has no effect: managedJobsNamespaceSelector leaves namespace quiet out";
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains(words), "{warned:?}");
    let made: Value = serde_json::from_slice(&answer.into_body().collect_bytes().await.unwrap()).unwrap();
    assert_ne!(made["spec"]["suspend"], true);
}
