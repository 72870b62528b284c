//! `AppWrappers` on a real control plane with one worker: run, retried, moved, deleted, and taken over after a kill.

mod counts;
mod moved;
mod protected;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::{ClusterQueue, Workload};
use roadstead_api::rights;
use roadstead_e2e::options::{BATCH_CONTROLLERS, EXIT_CODE, RUN_SECONDS};
use roadstead_e2e::stage::{SYSTEM_NAMESPACE, Solo, apply};
use roadstead_e2e::{Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::runtime::Runtime;
use tokio::sync::RwLock;
use tokio::time::timeout;

use crate::commons::Common;
use crate::shared::{chain, eventually};

const DEADLINE: Duration = Duration::from_mins(5);
const GPU: &str = "nvidia.com/gpu";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const LABEL: &str = "workload.codeflare.dev/appwrapper";
const SLACK: &str = "wrap-slack";
const TUNING: &str = "workload.codeflare.dev.appwrapper";

// Why one runtime for all: background tasks of the worker must outlive the test that started it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// A test that restarts the worker has it alone.
static SOLO: Common<RwLock<Solo>> = Common::new(|solo| {
    // Why the lock is free: a test that uses the cluster is over.
    solo.try_read().expect("no test uses it").end();
});

async fn solo() -> &'static RwLock<Solo> {
    let start = async {
        let mut options = Options::complete("wrappers")
            .with_node(Node::new("wrap-1", "16", "64Gi").with_resource(GPU, "4"))
            .with_node(Node::new("wrap-2", "16", "64Gi").with_resource(GPU, "4"))
            .with_node(Node::new("wrap-spare", "16", "64Gi").with_resource(GPU, "4"));
        let more = ["deployment-controller", "replicaset-controller"];
        options.controllers = BATCH_CONTROLLERS
            .iter()
            .chain(&more)
            .map(|name| (*name).to_owned())
            .collect();
        let ours = json!({"appwrapper": {
            "allowedKinds": ["Pod.v1", "Service.v1", "Job.v1.batch", "Deployment.v1.apps", "PyTorchJob.v1.kubeflow.org"],
            "autopilot": {}, "faultTolerance": {"resetPause": "1s"}, "slackQueueName": SLACK, "protectAdmission": true,
        }});
        let frameworks = ["batch/job", "workload.codeflare.dev/appwrapper"];
        let configuration = json!({"integrations": {"frameworks": frameworks}, "roadstead": ours});
        let started = Solo::start(options, &configuration, Progress::stderr()).await;
        let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let client = solo.client().unwrap();
        for object in rights::appwrapper(SYSTEM_NAMESPACE) {
            apply(&client, object).await.unwrap();
        }
        RwLock::new(solo)
    };
    SOLO.get(|| start).await
}

#[derive(Clone)]
struct Room {
    client: Client,
    name: &'static str,
}

fn run<F: Future<Output = ()>>(name: &'static str, body: impl FnOnce(Room) -> F) {
    RUNTIME.block_on(async {
        let _beside_others = SOLO.peace().read().await;
        play(name, body).await;
    });
}

/// For a test that restarts the worker.
fn run_alone<F: Future<Output = ()>>(name: &'static str, body: impl FnOnce(Room) -> F) {
    RUNTIME.block_on(async {
        let _alone = SOLO.peace().write().await;
        play(name, body).await;
    });
}

async fn play<F: Future<Output = ()>>(name: &'static str, body: impl FnOnce(Room) -> F) {
    let client = solo().await.read().await.client().unwrap();
    let room = Room { client, name };
    let play = async {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply(&room.client, namespace).await.unwrap();
        room.has_its_account().await;
        body(room.clone()).await;
    };
    let ended = AssertUnwindSafe(timeout(DEADLINE, play)).catch_unwind().await;
    if !matches!(ended, Ok(Ok(()))) {
        let left = room
            .api::<AppWrapper>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let left: Vec<_> = left.items.iter().map(|one| json!(one.status)).collect();
        let log = solo().await.read().await.log_tail();
        panic!("{name} does not come to its end: {left:#?}; the worker's last lines:\n{log}");
    }
}

fn pod_template(seconds: u32) -> Value {
    json!({
        "metadata": {"annotations": {RUN_SECONDS: seconds.to_string()}},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}},
        ]},
    })
}

fn pod(name: &str, seconds: u32) -> Value {
    let mut pod = pod_template(seconds);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

fn job(name: &str, pods: u32, seconds: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod_template(seconds)},
    })
}

fn deployment(name: &str) -> Value {
    let mut template = pod_template(1);
    template["metadata"] = json!({"labels": {"app": name}});
    template["spec"]["restartPolicy"] = "Always".into();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template},
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

impl Room {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.name)
    }

    /// Without it the API server refuses pods.
    async fn has_its_account(&self) {
        let accounts = self.api::<k8s_openapi::api::core::v1::ServiceAccount>();
        eventually(|| async { accounts.get_opt("default").await.unwrap() }).await;
    }

    async fn submit(&self, name: &str, annotations: Value, components: Value) {
        let wrapper = json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"name": name, "namespace": self.name, "annotations": annotations},
            "spec": {"components": components},
        });
        let wrapper: AppWrapper = from_value(wrapper).unwrap();
        self.api::<AppWrapper>()
            .create(&PostParams::default(), &wrapper)
            .await
            .unwrap();
    }

    async fn wrapper(&self, name: &str) -> Option<AppWrapper> {
        self.api::<AppWrapper>().get_opt(name).await.unwrap()
    }

    async fn reaches(&self, name: &str, phase: &str) -> AppWrapper {
        eventually(|| async {
            let wrapper = self.wrapper(name).await?;
            (wrapper.status.as_ref()?.phase == phase).then_some(wrapper)
        })
        .await
    }

    async fn is_ready(&self, name: &str) {
        eventually(|| async {
            (condition(&self.wrapper(name).await?, "PodsReady")?.0 == "True").then_some(())
        })
        .await;
    }

    async fn pods(&self, wrapper: &str) -> Vec<Pod> {
        let params = ListParams::default().labels(&format!("{LABEL}={wrapper}"));
        self.api::<Pod>().list(&params).await.unwrap().items
    }

    async fn delete(&self, name: &str) {
        self.api::<AppWrapper>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        eventually(|| async { self.wrapper(name).await.is_none().then_some(()) }).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        let api = self.api::<AppWrapper>();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

/// Truth and reason of a condition.
fn condition(wrapper: &AppWrapper, kind: &str) -> Option<(String, String)> {
    let conditions = wrapper.status.as_ref()?.conditions.iter();
    let mut found = conditions.filter(|condition| condition.type_ == kind);
    found
        .next()
        .map(|condition| (condition.status.clone(), condition.reason.clone()))
}

fn said(wrapper: &AppWrapper, kind: &str) -> String {
    condition(wrapper, kind).map_or_else(String::new, |(truth, reason)| format!("{truth}/{reason}"))
}

/// Spec: appwrapper B30, B42, B43, B56, B134, 8.2.
#[test]
fn a_pod_a_job_a_deployment_and_a_service_run_as_one_and_leave_nothing() {
    run("wrap-all", |room| async move {
        let serves = json!({"roadstead.dev/role": "service"});
        room.submit(
            "aw",
            json!({}),
            json!([
                {"template": service("web")},
                {"template": deployment("web"), "annotations": serves},
                {"template": pod("driver", 3)},
                {"template": job("work", 2, 3)},
            ]),
        )
        .await;
        let wrapper = room.reaches("aw", "Succeeded").await;
        assert_eq!(said(&wrapper, "QuotaReserved"), "False/Succeeded");
        assert_eq!(said(&wrapper, "PodsReady"), "True/SufficientPodsReady");
        assert!(room.pods("aw").await.iter().all(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Succeeded")
        }));
        assert!(
            room.api::<Deployment>().get_opt("web").await.unwrap().is_none(),
            "the server is stopped"
        );
        assert!(room.workloads().await.is_empty(), "it names no queue");
        let job = room.api::<Job>().get("work").await.unwrap();
        let owner = &job.owner_references()[0];
        assert_eq!(
            (Some(&owner.uid), owner.controller),
            (wrapper.metadata.uid.as_ref(), Some(true))
        );
        room.delete("aw").await;
        assert!(room.pods("aw").await.is_empty());
        assert!(room.api::<Service>().get_opt("web").await.unwrap().is_none());
        assert!(room.api::<Job>().get_opt("work").await.unwrap().is_none());
    });
}

/// Spec: appwrapper B62, B72, B81.
#[test]
fn a_failing_pod_is_tried_again_and_then_given_up() {
    run("wrap-fails", |room| async move {
        let tuning = json!({
            format!("{TUNING}/failureGracePeriodDuration"): "0s", format!("{TUNING}/retryLimit"): "1",
        });
        let mut failing = pod("fails", 1);
        failing["metadata"]["annotations"][EXIT_CODE] = "3".into();
        room.submit("aw", tuning, json!([{"template": failing}])).await;
        let wrapper = room.reaches("aw", "Failed").await;
        assert_eq!(wrapper.status.map(|status| status.resetting_count), Some(1));
        let wrapper = eventually(|| async {
            let wrapper = room.wrapper("aw").await?;
            (said(&wrapper, "QuotaReserved") == "False/Failed").then_some(wrapper)
        })
        .await;
        assert_eq!(said(&wrapper, "ResourcesDeployed"), "False/Failed");
        assert_eq!(said(&wrapper, "Unhealthy"), "True/FoundFailedPods");
        assert!(room.pods("aw").await.is_empty());
    });
}

/// Spec: appwrapper B51, B55, B59; safety F34.
#[test]
fn a_killed_controller_is_followed_by_one_that_goes_on() {
    run_alone("wrap-killed", |room| async move {
        room.submit(
            "aw",
            json!({}),
            json!([{"template": pod("long", 600)}, {"template": job("work", 1, 600)}]),
        )
        .await;
        room.is_ready("aw").await;
        let before = room.api::<Job>().get("work").await.unwrap().metadata.uid;
        solo().await.write().await.restart().await.unwrap();
        room.patch("aw", json!({"spec": {"suspend": true}})).await;
        solo().await.write().await.restart().await.unwrap();
        let wrapper = room.reaches("aw", "Suspended").await;
        assert_eq!(said(&wrapper, "QuotaReserved"), "False/Suspended");
        assert!(room.pods("aw").await.is_empty());
        room.patch("aw", json!({"spec": {"suspend": false}})).await;
        solo().await.write().await.restart().await.unwrap();
        room.is_ready("aw").await;
        assert_ne!(room.api::<Job>().get("work").await.unwrap().metadata.uid, before);
        assert_eq!(room.pods("aw").await.len(), 2, "each child has its pod once");
        room.delete("aw").await;
        assert!(room.pods("aw").await.is_empty());
    });
}

/// Spec: appwrapper B34, N-17, N-32.
#[test]
fn a_stranger_of_the_same_name_survives_and_a_kind_that_is_not_allowed_is_refused() {
    run("wrap-refused", |room| async move {
        let stranger: Service = from_value(service("taken")).unwrap();
        room.api::<Service>()
            .create(&PostParams::default(), &stranger)
            .await
            .unwrap();
        room.submit(
            "aw",
            json!({}),
            json!([{"template": pod("first", 600)}, {"template": service("taken")}]),
        )
        .await;
        let wrapper = room.reaches("aw", "Failed").await;
        assert_eq!(said(&wrapper, "Unhealthy"), "True/CreateFailed");
        room.delete("aw").await;
        assert!(room.api::<Service>().get_opt("taken").await.unwrap().is_some());
        assert!(room.pods("aw").await.is_empty());

        let services = room.api::<Service>();
        services.delete("taken", &DeleteParams::default()).await.unwrap();
        room.submit(
            "again",
            json!({}),
            json!([{"template": pod("first", 600)}, {"template": service("taken")}]),
        )
        .await;
        room.is_ready("again").await;
        room.delete("again").await;

        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        room.submit(
            "other",
            json!({}),
            json!([{"template": map}, {"template": pod("second", 600)}]),
        )
        .await;
        let wrapper = room.reaches("other", "Failed").await;
        let conditions = wrapper.status.unwrap().conditions;
        let why = conditions
            .iter()
            .find(|condition| condition.type_ == "Unhealthy")
            .unwrap();
        assert!(
            why.message
                .contains("ConfigMap of v1 is not among appwrapper.allowedKinds"),
            "{}",
            why.message
        );
    });
}

/// Spec: appwrapper B111, B115, N-19.
#[test]
fn pods_leave_a_node_that_autopilot_marks() {
    run("wrap-moves", |room| async move {
        let mut gpu = pod("gpu", 600);
        gpu["spec"]["containers"][0]["resources"] = json!({"limits": {GPU: "1"}});
        room.submit("aw", json!({}), json!([{"template": gpu}])).await;
        room.is_ready("aw").await;
        let place = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let first = place(&room.api::<Pod>().get("gpu").await.unwrap()).unwrap();
        let nodes: Api<ApiNode> = Api::all(room.client.clone());
        let mark = |value: Value| {
            Patch::Merge(json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": value}}}))
        };
        let params = PatchParams::default();
        nodes.patch(&first, &params, &mark("EVICT".into())).await.unwrap();
        let second = eventually(|| async {
            let pod = room.api::<Pod>().get_opt("gpu").await.unwrap()?;
            place(&pod).filter(|node| *node != first)
        })
        .await;
        assert_ne!(first, second);
        room.is_ready("aw").await;
        let wrapper = room.reaches("aw", "Running").await;
        assert_eq!(wrapper.status.map(|status| status.resetting_count), Some(0));
        nodes.patch(&first, &params, &mark(Value::Null)).await.unwrap();
        room.delete("aw").await;
    });
}

impl Room {
    /// A queue with so many cores, named as the room.
    async fn furnish(&self, cpu: &str) {
        let quota = json!({"name": "cpu", "nominalQuota": cpu});
        for object in [
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": self.name},
                "spec": {"nodeLabels": {"kubernetes.io/os": "linux"}}}),
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": self.name}, "spec": {
                "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": self.name, "resources": [quota]}]}],
            }}),
            json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": self.name, "namespace": self.name},
                "spec": {"clusterQueue": self.name}}),
        ] {
            apply(&self.client, object).await.unwrap();
        }
    }

    /// Submits to the queue; the worker holds it back until it is admitted.
    async fn queue(&self, name: &str, components: Value) {
        self.queue_with(name, json!({}), components).await;
    }

    /// The same, with these labels more.
    async fn queue_with(&self, name: &str, mut labels: Value, components: Value) {
        labels[QUEUE_NAME] = self.name.into();
        let wrapper: AppWrapper = from_value(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"name": name, "namespace": self.name, "labels": labels},
            "spec": {"components": components, "managedBy": "workload.codeflare.dev/appwrapper-controller"},
        }))
        .unwrap();
        let stored = self
            .api::<AppWrapper>()
            .create(&PostParams::default(), &wrapper)
            .await
            .unwrap();
        assert!(stored.spec.suspend, "it is created suspended");
        assert!(stored.labels().contains_key("workload.codeflare.dev/user"));
    }

    async fn workloads(&self) -> Vec<Workload> {
        self.api::<Workload>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }
}

/// The children may say that they are of a queue: they follow the `AppWrapper` and are not queued again.
///
/// Spec: appwrapper B23, B126, B127, B128, B131, B136, B138, B139, B140; jobs 15.80
#[test]
fn a_queued_wrapper_waits_for_quota_as_one_and_its_children_are_not_queued_again() {
    run("wrap-queued", |room| async move {
        room.furnish("300m").await;
        let mut child = job("first-work", 2, 600);
        child["metadata"]["labels"] = json!({QUEUE_NAME: room.name});
        room.queue(
            "first",
            json!([{"template": child}, {"template": pod("first-pod", 600)}]),
        )
        .await;
        room.is_ready("first").await;
        let wrapper = room.wrapper("first").await.unwrap();
        let selector = &wrapper.spec.components[0].pod_set_infos[0].node_selector;
        assert_eq!(
            selector.get("kubernetes.io/os").map(String::as_str),
            Some("linux")
        );
        let workloads = room.workloads().await;
        assert_eq!(workloads.len(), 1, "{workloads:?}");
        let sets: Vec<_> = { workloads[0].spec.pod_sets.iter() }
            .map(|set| (set.name.as_str(), set.count))
            .collect();
        assert_eq!(sets, [("first-0", 2), ("first-1", 1)]);
        let moved = Patch::Merge(json!({"metadata": {"labels": {QUEUE_NAME: "other"}}}));
        let api = room.api::<AppWrapper>();
        let refused = api.patch("first", &PatchParams::default(), &moved).await;
        assert!(refused.unwrap_err().to_string().contains("field is immutable"));

        room.queue("second", json!([{"template": pod("second-pod", 2)}]))
            .await;
        eventually(|| async { (room.workloads().await.len() == 2).then_some(()) }).await;
        room.reaches("second", "Suspended").await;
        assert!(room.pods("second").await.is_empty());
        room.delete("first").await;
        room.reaches("second", "Succeeded").await;
        eventually(|| async {
            let workloads = room.workloads().await;
            let [workload] = &workloads[..] else { return None };
            let conditions = &workload.status.as_ref()?.conditions;
            let finished = conditions
                .iter()
                .find(|one| one.type_ == "Finished" && one.status == "True")?;
            assert_eq!(
                (finished.reason.as_str(), finished.message.as_str()),
                ("Succeeded", "AppWrapper finished successfully")
            );
            Some(())
        })
        .await;
    });
}

/// Spec: appwrapper B51, B129, B130
#[test]
fn an_evicted_wrapper_keeps_its_quota_until_its_pods_are_gone() {
    run("wrap-evicted", |room| async move {
        room.furnish("1").await;
        room.queue("aw", json!([{"template": pod("evicted", 600)}])).await;
        room.is_ready("aw").await;
        let workload = room.workloads().await.remove(0).name_any();
        let off = Patch::Merge(json!({"spec": {"active": false}}));
        room.api::<Workload>()
            .patch(&workload, &PatchParams::default(), &off)
            .await
            .unwrap();
        let wrapper = room.reaches("aw", "Suspended").await;
        assert!(wrapper.spec.suspend && wrapper.spec.components[0].pod_set_infos.is_empty());
        assert!(room.pods("aw").await.is_empty());
        let released = || async {
            let workloads = room.workloads().await;
            let status = workloads[0].status.as_ref()?;
            status.admission.is_none().then_some(())
        };
        eventually(released).await;
    });
}

/// Spec: appwrapper 5.4, B51, B54, B55, B130
#[test]
fn a_preempted_wrapper_is_stopped_as_one_and_resumed_when_there_is_room() {
    run("wrap-preempted", |room| async move {
        room.furnish("200m").await;
        let class = json!({
            "apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": room.name}, "value": 100,
        });
        apply(&room.client, class).await.unwrap();
        room.queue(
            "low",
            json!([{"template": job("low-work", 1, 600)}, {"template": pod("low-pod", 600)}]),
        )
        .await;
        room.is_ready("low").await;
        let workload = |all: Vec<Workload>, name: &str| {
            let prefix = format!("appwrapper-{name}-");
            all.into_iter().find(|one| one.name_any().starts_with(&prefix))
        };
        let described = workload(room.workloads().await, "low").unwrap();
        let first = room.api::<Pod>().get("low-pod").await.unwrap().uid();

        let class = json!({"kueue.x-k8s.io/priority-class": room.name});
        room.queue_with("high", class, json!([{"template": pod("high-pod", 5)}]))
            .await;
        room.is_ready("high").await;
        let low = room.wrapper("low").await.unwrap();
        assert!(low.spec.suspend && low.spec.components[0].pod_set_infos.is_empty());
        assert_eq!(said(&low, "QuotaReserved"), "False/Suspended");
        assert!(room.pods("low").await.is_empty(), "both children gave way");
        room.reaches("high", "Succeeded").await;

        room.is_ready("low").await;
        let again = room.api::<Pod>().get("low-pod").await.unwrap().uid();
        assert_ne!(first, again, "it was created anew");
        let all = room.workloads().await;
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(workload(all, "low").unwrap().uid(), described.uid());
        room.delete("low").await;
    });
}

/// It comes while a node is cordoned, follows that node when Autopilot marks it, and lends all of it in the end.
///
/// Spec: appwrapper 4.5, B121, B123, B124, B125, N-21
#[test]
fn a_slack_queue_lends_what_nodes_of_its_flavor_leave() {
    run("wrap-slack", |room| async move {
        let nodes: Api<ApiNode> = Api::all(room.client.clone());
        let params = PatchParams::default();
        let change = async |patch: Value| {
            nodes
                .patch("wrap-spare", &params, &Patch::Merge(patch))
                .await
                .unwrap();
        };
        let labels = json!({"labels": {"pool": "spare"}});
        change(json!({"spec": {"unschedulable": true}, "metadata": labels})).await;
        let quota = |name: &str, nominal: &str| json!({"name": name, "nominalQuota": nominal});
        for object in [
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": room.name},
                "spec": {"nodeLabels": {"pool": "spare"}}}),
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": SLACK}, "spec": {
                "cohortName": room.name, "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": [GPU, "cpu"], "flavors": [
                    {"name": room.name, "resources": [quota(GPU, "8"), quota("cpu", "20")]},
                ]}],
            }}),
        ] {
            apply(&room.client, object).await.unwrap();
        }
        let queues: Api<ClusterQueue> = Api::all(room.client.clone());
        let lends = async |expect: [Option<&str>; 2]| {
            eventually(|| async {
                let queue = queues.get(SLACK).await.ok()?;
                let resources = queue.spec.resource_groups[0].flavors[0].resources.iter();
                let limits: Vec<_> = resources
                    .map(|quota| quota.lending_limit.as_ref().map(|limit| limit.0.clone()))
                    .collect();
                (limits == expect.map(|limit| limit.map(str::to_owned))).then_some(())
            })
            .await;
        };
        lends([Some("4"), Some("4")]).await;
        let raised = Patch::Merge(json!({"spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}));
        queues.patch(SLACK, &params, &raised).await.unwrap();
        change(json!({
            "spec": {"unschedulable": null}, "metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "TESTING"}},
        }))
        .await;
        lends([Some("4"), None]).await;
        change(json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": null}}})).await;
        lends([None, None]).await;
        let kept = queues.get(SLACK).await.unwrap().spec.namespace_selector.unwrap();
        assert!(kept.match_labels.is_some_and(|labels| labels["a"] == "b"));
    });
}
