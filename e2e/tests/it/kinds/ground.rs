//! A federation in which the controllers of other kinds run, and a namespace with a queue for each test.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_api::rights;
use roadstead_e2e::options::{Kind, PLAYED_JOBSETS, RUN_SECONDS};
use roadstead_e2e::stage::{self, Controller, Queue, Runs, SYSTEM_NAMESPACE, Solo, Spec, Stage, Worker};
use roadstead_e2e::{ControlPlane, Node, Options, Progress};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::commons::Common;
use crate::shared::{chain, eventually_or};

pub(super) const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
pub(super) const MANAGER: &str = "manager";
/// Where everything runs.
pub(super) const EAST: &str = "east";
/// For tests that take a worker out of the federation.
pub(super) const WEST: &str = "west";
/// Held by a test as long as it changes that worker as a whole.
pub(super) static WEST_CHANGES: Mutex<()> = Mutex::const_new(());
/// The integrations that are on in the federation.
const INTEGRATIONS: &str = "batch/job,jobset.x-k8s.io/jobset,ray.io/raycluster,ray.io/rayjob,ray.io/rayservice,kubeflow.org/tfjob,kubeflow.org/pytorchjob,\
                            kubeflow.org/paddlejob,kubeflow.org/xgboostjob,kubeflow.org/jaxjob,kubeflow.org/mpijob,\
                            workload.codeflare.dev/appwrapper,sparkoperator.k8s.io/sparkapplication,trainer.kubeflow.org/trainjob,pod";
/// And where everything is played.
const PLAYED: [&str; 2] = ["batch/job", "jobset.x-k8s.io/jobset"];
/// Longer than a test.
pub(super) const LONG_SECS: u32 = 600;

/// Limit of one test.
const DEADLINE: Duration = Duration::from_mins(3);
/// Limit of the start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);

// Why one runtime for all: background tasks of the federation must outlive the test that started it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static STAGE: Common<Stage> = Common::new(Stage::end);

async fn start() -> Stage {
    // Why no scheduler there: a job of the manager must not run on it.
    let manager = Options {
        scheduler: false,
        kwok: false,
        ..Options::complete(MANAGER)
    };
    let worker = |name: &str| {
        let node = Node::new(format!("{name}-1"), "64", "256Gi");
        let mut options = Options::complete(name).with_node(node);
        // Why: a RayService is ready when its Service has endpoints.
        options.controllers.push("endpointslice-controller".to_owned());
        options.controllers.extend(serving_controllers());
        Worker::new(options).unregistered()
    };
    let mut spec = Spec::new(manager, vec![worker(EAST), worker(WEST)])
        .with_controller(Runs::JobSets)
        .with_controller(Runs::RayClusters)
        .with_controller(Runs::TrainingJobs)
        .with_controller(Runs::MpiJobs)
        .with_controller(Runs::TrainJobs);
    let frameworks: Vec<&str> = INTEGRATIONS.split(',').collect();
    spec.configuration = json!({
        "integrations": {"frameworks": frameworks}, "multiKueue": {
            "gcInterval": "3s", "externalFrameworks": [{"name": super::external::NAME}],
        },
        "featureGates": {"SparkApplicationIntegration": true},
        "roadstead": {"appwrapper": {
            "allowedKinds": [
                "Pod.v1", "Service.v1", "Job.v1.batch", "JobSet.v1alpha2.jobset.x-k8s.io", "PyTorchJob.v1.kubeflow.org",
                "MPIJob.v2beta1.kubeflow.org", "RayJob.v1.ray.io", "RayCluster.v1.ray.io",
                "TrainJob.v1alpha1.trainer.kubeflow.org", "TrainingRuntime.v1alpha1.trainer.kubeflow.org",
            ],
        }},
    });
    let stage = Stage::start(spec, Progress::stderr())
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    for worker in [EAST, WEST] {
        for object in rights::appwrapper(SYSTEM_NAMESPACE) {
            stage::apply(&stage.client(worker).unwrap(), object)
                .await
                .unwrap();
        }
    }
    join(&stage, EAST).await;
    stage
}

/// Registers a worker for jobs of all kinds.
pub(super) async fn join(stage: &Stage, worker: &str) {
    let joined = stage
        .join_to(MANAGER, worker, &["--integrations", INTEGRATIONS])
        .await;
    joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
}

/// Runs a test in a namespace of this name, with a queue of this name and so many cores on each cluster.
pub(super) fn play<F: Future<Output = ()>>(
    name: &'static str,
    cores: &[(&str, &str)],
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let (stage, _peace) = STAGE.take(start).await;
        play_on(stage, name, cores, body).await;
    });
}

/// A federation with two workers in which pods are shown on virtual nodes and the manager has the controllers of workflows and of what
/// serves, for all tests of that. Worker `west` runs whole workflows too.
static SHOWN: Common<(Stage, [Controller; 3])> = Common::new(|(stage, controllers)| {
    controllers.iter().for_each(Controller::end);
    stage.end();
});

/// What worker `east` needs for results of workflow steps: the Workflows themselves are on the manager.
fn results_of_steps() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "workflowtaskresults.argoproj.io"},
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": {"kind": "WorkflowTaskResult", "listKind": "WorkflowTaskResultList",
                "plural": "workflowtaskresults", "singular": "workflowtaskresult"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

async fn start_shown() -> (Stage, [Controller; 3]) {
    let mut manager = Options {
        kwok: false,
        ..Options::complete(MANAGER)
    };
    manager.controllers.extend(serving_controllers());
    let worker = |name: &str| {
        let node = Node::new(format!("{name}-1"), "64", "256Gi");
        Worker::new(Options::complete(name).with_node(node)).unregistered()
    };
    let mut spec = Spec::new(manager, vec![worker(EAST), worker(WEST)]);
    spec.configuration = json!({
        "integrations": {"frameworks": [
            "batch/job", "pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset", "argoproj.io/workflow",
        ]},
        "multiKueue": {"gcInterval": "3s"},
        "roadstead": {"virtualNodes": {"enable": true}},
    });
    let stage = Stage::start(spec, Progress::stderr())
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    for object in rights::virtual_nodes(SYSTEM_NAMESPACE) {
        stage::apply(&stage.client(MANAGER).unwrap(), object)
            .await
            .unwrap();
    }
    let definition = stage::apply(&stage.client(EAST).unwrap(), results_of_steps()).await;
    definition.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let planes = stage.planes();
    let west = planes.workers.iter().find(|plane| plane.name() == WEST).unwrap();
    let start = async |runs, plane: &ControlPlane| {
        let started = Controller::start(runs, plane, &Progress::stderr()).await;
        started.unwrap_or_else(|error| panic!("{}", chain(&error)))
    };
    let controllers = [
        start(Runs::Workflows, &planes.manager).await,
        start(Runs::Workflows, west).await,
        start(Runs::LeaderWorkerSets, &planes.manager).await,
    ];
    for worker in [EAST, WEST] {
        let integrations = "batch/job,pod,argoproj.io/workflow";
        let joined = stage
            .join_to(MANAGER, worker, &["--integrations", integrations])
            .await;
        joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    (stage, controllers)
}

/// The same where pods are shown on virtual nodes.
pub(super) fn play_shown<F: Future<Output = ()>>(
    name: &'static str,
    cores: &[(&str, &str)],
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let ((stage, _controllers), _peace) = SHOWN.take(start_shown).await;
        play_on(stage, name, cores, body).await;
    });
}

async fn play_on<F: Future<Output = ()>>(
    stage: &'static Stage,
    name: &'static str,
    cores: &[(&str, &str)],
    body: impl FnOnce(Room) -> F,
) {
    let add = |queue: Queue, (cluster, cpu): &(&str, &str)| {
        queue.with_quota(*cluster, &[("cpu", *cpu), ("memory", "64Gi")])
    };
    let queue = cores.iter().fold(Queue::new(name), add);
    stage
        .furnish(name, queue)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let room = Room {
        home: Home::Stage(stage),
        name,
    };
    if timeout(DEADLINE, body(room)).await.is_err() {
        let tail = |cluster: &str| std::fs::read_to_string(stage.log(cluster).unwrap()).unwrap();
        for cluster in [MANAGER, EAST] {
            let log = tail(cluster);
            let lines: Vec<&str> = log.lines().rev().take(30).collect();
            println!(
                "{cluster}:\n{}",
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        panic!("test {name} must end within its deadline");
    }
}

/// Runs a test on one embedded cluster with a worker, in which JobSets are played.
pub(super) fn play_embedded<F: Future<Output = ()>>(name: &'static str, body: impl FnOnce(Room) -> F) {
    RUNTIME.block_on(async {
        let node = Node::new(format!("{EAST}-1"), "64", "256Gi");
        let mut options = Options::complete(name).with_node(node).of_kind(Kind::Embedded);
        options.controllers.push(PLAYED_JOBSETS.to_owned());
        let configuration = json!({"integrations": {"frameworks": PLAYED}});
        let started = Solo::start(options, &configuration, Progress::stderr()).await;
        let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
        // Why leaked: a reference to it can be copied.
        let solo: &'static Solo = Box::leak(Box::new(solo));
        let room = Room {
            home: Home::Solo(solo),
            name,
        };
        let ended = timeout(DEADLINE, body(room)).await;
        solo.end();
        ended.expect("the test must end within its deadline");
    });
}

/// One cluster with plain pods, for all tests of them.
static ALONE: Common<Solo> = Common::new(Solo::end);

async fn start_alone() -> Solo {
    let node = Node::new(format!("{EAST}-1"), "64", "256Gi");
    let options = Options::complete("pods").with_node(node);
    let configuration = json!({"integrations": {"frameworks": ["batch/job", "pod"]}});
    let started = Solo::start(options, &configuration, Progress::stderr()).await;
    started.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

fn end_both((solo, controller): &(Solo, Controller)) {
    controller.end();
    solo.end();
}

/// One cluster with the workflow controller, for all tests of it.
static WORKFLOWS: Common<(Solo, Controller)> = Common::new(end_both);

async fn start_workflows() -> (Solo, Controller) {
    let node = Node::new(format!("{EAST}-1"), "64", "256Gi");
    let options = Options::complete("workflows").with_node(node);
    // As the documentation of that engine gives it, and Workflows as units besides.
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        // Why none: its port cannot be chosen in this version.
        "visibilityServer": null,
        "featureGates": {"VisibilityOnDemand": false},
        "integrations": {
            "frameworks": ["pod", "argoproj.io/workflow"],
            "podOptions": {
                "namespaceSelector": {"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]},
                ]},
                "podSelector": {"matchExpressions": [
                    {"key": "workflows.argoproj.io/completed", "operator": "In", "values": ["false"]},
                ]},
            },
        },
    });
    let started = Solo::start(options, &configuration, Progress::stderr()).await;
    let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let controller = Controller::start(Runs::Workflows, solo.plane(), &Progress::stderr()).await;
    let controller = controller.unwrap_or_else(|error| panic!("{}", chain(&error)));
    (solo, controller)
}

/// One cluster with the controllers of what serves, for all tests of it. `AppWrapper` and `SparkApplication` are queued there too, plain
/// pods are not.
static SERVERS: Common<(Solo, Controller)> = Common::new(end_both);

/// The controllers of Kubernetes for what serves.
fn serving_controllers() -> [String; 3] {
    ["deployment", "replicaset", "statefulset"].map(|kind| format!("{kind}-controller"))
}

async fn start_servers() -> (Solo, Controller) {
    let node = Node::new(format!("{EAST}-1"), "64", "256Gi");
    let mut options = Options::complete("servers").with_node(node);
    options.controllers.extend(serving_controllers());
    let configuration = json!({
        "integrations": {"frameworks": [
            "batch/job", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset",
            "sparkoperator.k8s.io/sparkapplication", "workload.codeflare.dev/appwrapper",
        ]},
        "featureGates": {"SparkApplicationIntegration": true},
        "roadstead": {"appwrapper": {"allowedKinds": [
            "Deployment.v1.apps", "StatefulSet.v1.apps", "LeaderWorkerSet.v1.leaderworkerset.x-k8s.io",
            "SparkApplication.v1beta2.sparkoperator.k8s.io",
        ]}},
    });
    let started = Solo::start(options, &configuration, Progress::stderr()).await;
    let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
    for object in rights::appwrapper(SYSTEM_NAMESPACE) {
        let applied = stage::apply(&solo.client().unwrap(), object).await;
        applied.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    let controller = Controller::start(Runs::LeaderWorkerSets, solo.plane(), &Progress::stderr()).await;
    let controller = controller.unwrap_or_else(|error| panic!("{}", chain(&error)));
    (solo, controller)
}

/// Runs a test in a namespace of this name of a cluster that other tests share, with queues of these names and numbers of cores.
async fn play_in<F: Future<Output = ()>>(
    solo: &'static Solo,
    controller: Option<&Controller>,
    (name, queues): (&'static str, &[(&str, u32)]),
    body: impl FnOnce(Room) -> F,
) {
    let room = Room {
        home: Home::Solo(solo),
        name,
    };
    furnish(room, queues).await;
    let ended = timeout(DEADLINE, body(room)).await;
    assert!(
        ended.is_ok(),
        "test {name} must end within its deadline; the last lines of the worker:\n{}\nof the controller:\n{}",
        solo.log_tail(),
        controller.map_or_else(|| "(none)".to_owned(), Controller::log_tail)
    );
}

/// Runs a test about what serves in a namespace of this name, with a queue of this name and so many cores.
pub(super) fn play_servers<F: Future<Output = ()>>(
    name: &'static str,
    cores: u32,
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let ((solo, controller), _peace) = SERVERS.take(start_servers).await;
        play_in(solo, Some(controller), (name, &[(name, cores)]), body).await;
    });
}

/// Runs a test about workflows in a namespace of this name, with queues of these names and numbers of cores.
pub(super) fn play_workflows<F: Future<Output = ()>>(
    name: &'static str,
    queues: &[(&str, u32)],
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let ((solo, controller), _peace) = WORKFLOWS.take(start_workflows).await;
        play_in(solo, Some(controller), (name, queues), body).await;
    });
}

/// Makes the namespace of a test, with queues of these names and numbers of cores.
async fn furnish(room: Room, queues: &[(&str, u32)]) {
    let name = room.name;
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "cpu"}}),
        json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}),
    ] {
        room.apply(EAST, object).await;
    }
    for (queue, cores) in queues {
        let flavor =
            json!({"name": "cpu", "resources": [{"name": "cpu", "nominalQuota": cores.to_string()}]});
        let preemption = json!({"withinClusterQueue": "LowerPriority"});
        let whole = format!("{name}-{queue}");
        for object in [
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": whole}, "spec": {
                "namespaceSelector": {}, "preemption": preemption,
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}}),
            json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": queue, "namespace": name},
                "spec": {"clusterQueue": whole}}),
        ] {
            room.apply(EAST, object).await;
        }
    }
}

/// Runs a test on a cluster of its own, in a namespace of this name, with a queue of this name and so many cores. The test may kill the
/// worker.
pub(super) fn play_solo(
    name: &'static str,
    cores: u32,
    started: impl Future<Output = Result<Solo, stage::Error>>,
    body: impl AsyncFnOnce(&mut Solo, Room),
) {
    RUNTIME.block_on(async {
        let solo = Box::pin(timeout(START_DEADLINE, started))
            .await
            .expect("the start must end");
        let mut solo = solo.unwrap_or_else(|error| panic!("{}", chain(&error)));
        // Why leaked: a reference to it can be copied.
        let home = Home::Client(Box::leak(Box::new(solo.client().unwrap())));
        let room = Room { home, name };
        furnish(room, &[(name, cores)]).await;
        let ended = timeout(DEADLINE, body(&mut solo, room)).await;
        assert!(
            ended.is_ok(),
            "test {name} must end within its deadline:\n{}",
            solo.log_tail()
        );
    });
}

/// Runs a test about pods in a namespace of this name, with a queue of this name and so many cores.
pub(super) fn play_pods<F: Future<Output = ()>>(
    name: &'static str,
    cores: u32,
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let (solo, _peace) = ALONE.take(start_alone).await;
        play_in(solo, None, (name, &[(name, cores)]), body).await;
    });
}

/// Where a test plays.
#[derive(Clone, Copy)]
pub(super) enum Home {
    Stage(&'static Stage),
    Solo(&'static Solo),
    /// A cluster that the test may change.
    Client(&'static Client),
}

/// One test's part of it.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) home: Home,
    pub(super) name: &'static str,
}

/// A kind of object, by its API version and name.
pub(super) fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// A pod template whose pods ask for one core and run so long.
pub(super) fn pods(secs: u32) -> Value {
    json!({
        "metadata": {"annotations": {RUN_SECONDS: secs.to_string()}},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]},
    })
}

/// The condition of this type, as `status reason`.
pub(super) fn condition(object: &Value, kind: &str) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some(format!(
        "{} {}",
        found["status"].as_str()?,
        found["reason"].as_str()?
    ))
}

pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|said| said.starts_with("True"))
}

impl Room {
    /// A client of a cluster; of the only one, where there is one.
    pub(super) fn client(self, cluster: &str) -> Client {
        match self.home {
            Home::Stage(stage) => stage.client(cluster).unwrap(),
            Home::Solo(solo) => solo.client().unwrap(),
            Home::Client(client) => client.clone(),
        }
    }

    pub(super) fn stage(self) -> &'static Stage {
        match self.home {
            Home::Stage(stage) => stage,
            Home::Solo(_) | Home::Client(_) => panic!("this test has one cluster"),
        }
    }

    pub(super) fn api(self, cluster: &str, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(cluster), self.name, resource)
    }

    pub(super) async fn apply(self, cluster: &str, object: Value) -> Value {
        let applied = stage::apply(&self.client(cluster), object).await;
        serde_json::to_value(applied.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
    }

    /// The object once it is as wanted.
    pub(super) async fn until(
        self,
        cluster: &str,
        resource: &ApiResource,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let api = self.api(cluster, resource);
        let last = RefCell::new(Value::Null);
        let probe = || async {
            let object = api.get_opt(name).await.ok()??;
            let object = serde_json::to_value(&object).unwrap();
            let is_wanted = wanted(&object);
            last.replace(object.clone());
            is_wanted.then_some(object)
        };
        let instead = || format!("for {} {name} of {cluster}: {:#}", resource.kind, last.borrow());
        eventually_or(probe, instead).await
    }

    /// The Workload of a job once it is as wanted.
    pub(super) async fn workload(self, cluster: &str, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let api: Api<Workload> = Api::namespaced(self.client(cluster), self.name);
        let last = RefCell::new(Value::Null);
        let probe = || async {
            let all = api.list(&ListParams::default()).await.ok()?;
            let owned =
                { all.items.into_iter() }.find(|w| w.owner_references().iter().any(|o| o.name == job))?;
            let object = serde_json::to_value(&owned).unwrap();
            let is_wanted = wanted(&object);
            last.replace(object["status"].clone());
            is_wanted.then_some(object)
        };
        let instead = || format!("for the Workload of {job} of {cluster}: {:#}", last.borrow());
        eventually_or(probe, instead).await
    }

    pub(super) async fn merge(self, cluster: &str, resource: &ApiResource, name: &str, patch: Value) {
        let api = self.api(cluster, resource);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(super) async fn delete(self, cluster: &str, resource: &ApiResource, name: &str) {
        let api = self.api(cluster, resource);
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Phases of the pods in the namespace of the test, those that are being ended included.
    pub(super) async fn phases(self, cluster: &str) -> Vec<String> {
        let all = self
            .api(cluster, &resource("v1", "Pod"))
            .list(&ListParams::default())
            .await
            .unwrap();
        let phase = |pod: &DynamicObject| {
            pod.data["status"]["phase"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        all.items.iter().map(phase).collect()
    }

    /// Waits until so many pods run there.
    pub(super) async fn running(self, cluster: &str, pods: usize) {
        let last = RefCell::new(Vec::new());
        let probe = || async {
            let phases = self.phases(cluster).await;
            let running = phases.iter().filter(|phase| *phase == "Running").count();
            last.replace(phases);
            (running == pods).then_some(())
        };
        let instead = || format!("on {cluster}: {pods} running pods; there are {:?}", last.borrow());
        eventually_or(probe, instead).await;
    }

    /// Waits until nothing of these kinds is left in the namespace of the test.
    pub(super) async fn is_empty(self, cluster: &str, kinds: &[ApiResource]) {
        for kind in kinds {
            let (api, last) = (self.api(cluster, kind), RefCell::new(Value::Null));
            let probe = || async {
                let left = api.list(&ListParams::default()).await.ok()?.items;
                last.replace(json!(left));
                left.is_empty().then_some(())
            };
            let instead = || format!("for no {} in {cluster}: {:#}", kind.kind, last.borrow());
            eventually_or(probe, instead).await;
        }
    }
}

/// Has the higher priority go first in the queue of a test on a worker; the classes are the test's name with `-low` and `-high`.
pub(super) async fn tight_queue(room: Room) {
    for (name, value) in [("low", -1), ("high", 1)] {
        let name = format!("{}-{name}", room.name);
        let class = json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
        room.apply(EAST, class).await;
    }
    let patch = json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": room.name},
        "spec": {"preemption": {"withinClusterQueue": "LowerPriority"}},
    });
    let queues = Api::<DynamicObject>::all_with(room.client(EAST), &resource(KUEUE, "ClusterQueue"));
    queues
        .patch(room.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}
