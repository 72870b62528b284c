//! The federations that the tests share, and a test's own room in one of them.

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::{MULTIKUEUE_ORIGIN, QUEUE_NAME};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, MultiKueueCluster, Workload};
use roadstead_e2e::observer::{Cluster, Observer};
use roadstead_e2e::options::{RUN_SECONDS, TTL_CONTROLLER};
use roadstead_e2e::plane::Authority;
use roadstead_e2e::stage::{Queue, Spec, Stage, Worker};
use roadstead_e2e::{Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::grounds::{empty, peaceful};
use crate::shared::{chain, eventually};

pub(super) const MANAGER: &str = "manager";
pub(super) const EAST: &str = "east";
pub(super) const WEST: &str = "west";
/// A cluster that is not registered, for tests that must not disturb the others.
pub(super) const SPARE: &str = "spare";
pub(super) const GPU: &str = "nvidia.com/gpu";

/// Limit of a test beside others.
const DEADLINE: Duration = Duration::from_mins(3);
/// Limit of a test that has the federation for itself.
const DEADLINE_ALONE: Duration = Duration::from_mins(6);

/// How often a read is sent to an API server that is too busy.
const ASKED_MAX: u32 = 20;
const ASKED_PAUSE: Duration = Duration::from_millis(500);

/// Limit of the output about a failed test.
const TELL: Duration = Duration::from_secs(20);

/// With this timeout a lease lasts ten seconds. Only queues with such a policy give up a lost worker.
const WORKER_LOST_TIMEOUT: &str = "15s";

/// The finalizer by which Kubernetes keeps a pod until its Job has counted it.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
const ENDING: &str = "test.roadstead.dev/ending";
/// Name of the quota that refuses pods.
const NO_PODS: &str = "no-pods";

/// Enough for small jobs everywhere.
pub(super) const EVEN: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "8")];
/// East has the most room, so that everything is sent there as long as it is well.
pub(super) const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "4")];
/// Longer than a test: such a job ends only when it is stopped.
pub(super) const LONG_SECS: u32 = 600;

// Why one runtime for all: background tasks of the federation must outlive the test that started it.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// The state that the tests in one federation share. It is never dropped. Its processes end with the process of the tests, or when no test has
/// used the federation for a while.
pub(super) struct Shared {
    pub(super) stage: Stage,
    observer: Observer,
    progress: Progress,
    clients: [(&'static str, Client); 4],
}

impl Shared {
    pub(super) async fn start() -> Self {
        // Why no scheduler: a job of the manager must not run on it. Why no TTL controller: a test with a TTL on the workers must
        // still see the end of its job on the manager.
        let mut manager = Options {
            scheduler: false,
            kwok: false,
            ..Options::complete(MANAGER).with_audit()
        };
        manager.controllers.retain(|name| name != TTL_CONTROLLER);
        let node = |name: &str| Node::new(name, "64", "256Gi");
        let workers = vec![
            // Why the flag: it makes HTTP/2 clients reconnect now and then; our clients do not use HTTP/2.
            Worker::new(
                Options::complete(EAST)
                    .with_node(node("east-1"))
                    .with_apiserver_flag("--goaway-chance=0.02"),
            ),
            Worker::new(Options::complete(WEST).with_node(node("west-1").with_resource(GPU, "8"))),
            Worker::new(Options::bare(SPARE)).unregistered(),
        ];
        let mut spec = Spec::new(manager, workers);
        spec.configuration =
            json!({"multiKueue": {"gcInterval": "3s", "workerLostTimeout": WORKER_LOST_TIMEOUT}});
        let progress = Progress::stderr();
        let stage = Stage::start(spec, progress.clone())
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        let clients = [MANAGER, EAST, WEST, SPARE].map(|name| (name, stage.client(name).unwrap()));
        let seen = |name: &str| Cluster {
            name: name.to_owned(),
            client: stage.client(name).unwrap(),
        };
        let (observer, _) = Observer::start(seen(MANAGER), vec![seen(EAST), seen(WEST)]);
        Self {
            stage,
            observer,
            progress,
            clients,
        }
    }

    /// Ends all processes.
    pub(super) fn end(&self) {
        self.observer.end();
        self.stage.end();
    }

    /// An administrator's client of a cluster.
    pub(super) fn client(&self, cluster: &str) -> Client {
        let found = self.clients.iter().find(|(name, _)| *name == cluster);
        found.expect("a cluster of the federation").1.clone()
    }
}

impl Shared {
    /// Undoes everything that a test did to links, servers, processes and registrations, also after a failure.
    async fn mend(&self) {
        let stage = &self.stage;
        for worker in [EAST, WEST, SPARE] {
            let (link, plane) = (
                stage.link(worker).unwrap(),
                stage.planes().worker(worker).unwrap(),
            );
            link.reroute(plane.address());
            link.heal();
            plane.resume().unwrap();
        }
        let planes = stage.planes();
        for plane in planes.workers.iter().chain([&planes.manager]) {
            plane.resume_storage().unwrap();
            plane.revive().await.unwrap();
            plane.free_storage().await.unwrap();
            plane.serve_with(&[]).await.unwrap();
            plane.certify(Authority::First).await.unwrap();
        }
        for cluster in [MANAGER, EAST, WEST, SPARE] {
            stage.resume(cluster).unwrap();
            stage.drop_clock(cluster).unwrap();
            stage.straighten(cluster).await.unwrap();
            if stage.memory(cluster).is_err() {
                stage.restart(cluster).await.unwrap();
            }
        }
        let clusters: Api<MultiKueueCluster> = Api::all(self.client(MANAGER));
        if clusters.get_opt(SPARE).await.unwrap().is_some() {
            self.leave(SPARE).await;
        }
    }

    /// Takes a worker out of the federation without waiting for its jobs.
    pub(super) async fn leave(&self, worker: &str) {
        self.leave_from(MANAGER, worker, &[]).await;
    }

    /// Takes a worker from this manager, with more arguments for the command.
    pub(super) async fn leave_from(&self, manager: &str, worker: &str, more: &[&str]) {
        let path = |cluster: &str| self.stage.kubeconfig(cluster).display().to_string();
        let (of_worker, of_manager) = (path(worker), path(manager));
        let leave = [
            "cluster",
            "leave",
            worker,
            "--kubeconfig",
            &of_worker,
            "--manager-kubeconfig",
            &of_manager,
            "--force",
            "--yes",
        ];
        let said = self.stage.command(&[&leave, more].concat()).await;
        said.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }

    /// When a job was first seen unsuspended in a worker, and in which.
    pub(super) fn started(&self, namespace: &str, job: &str) -> Option<(Instant, String)> {
        self.observer.started(namespace, job)
    }

    /// Prints a line about a test's measurement.
    pub(super) fn say(&self, text: &str) {
        self.progress.step(text);
    }

    /// The lines of a process's metrics that begin with `start`.
    pub(super) async fn metrics(&self, cluster: &str, start: &str) -> Vec<String> {
        let (_, text) = self.metrics_as(cluster, "*/*").await;
        let wanted = text.lines().filter(|line| line.starts_with(start));
        wanted.map(str::to_owned).collect()
    }

    /// Head and body of a process's metrics for a client that accepts this.
    pub(super) async fn metrics_as(&self, cluster: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.stage.metrics(cluster).unwrap())
            .await
            .unwrap();
        let request = format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }
}

/// Runs a test while others run too.
pub(super) fn beside_others<F: Future<Output = ()>>(
    name: &'static str,
    quota: &[(&str, &str)],
    body: impl FnOnce(Room) -> F,
) {
    RUNTIME.block_on(async {
        let (shared, _peace) = peaceful().await;
        let room = Room::open(shared, name, cpu_queue(name, quota)).await;
        let ended = timeout(DEADLINE, body(room)).await;
        ended.expect("the test must end within its deadline");
        room.stays_clean();
    });
}

/// Runs a test that has the federation for itself. Its changes to links and processes are undone afterwards.
pub(super) fn alone<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    quota: &[(&str, &str)],
    body: impl FnOnce(Room) -> F + Send + 'static,
) {
    RUNTIME.block_on(async {
        let (shared, _alone) = empty().await;
        let room = Room::open(shared, name, cpu_queue(name, quota)).await;
        let ended = RUNTIME
            .spawn(async move { timeout(DEADLINE_ALONE, body(room)).await })
            .await;
        // Why reported here: the clean-up may fail too after an incomplete test, and would hide the first failure.
        match &ended {
            Ok(Ok(())) => {}
            Ok(Err(late)) => shared.say(&format!("{name}: {late}")),
            Err(error) => shared.say(&format!("{name}: {error}")),
        }
        if !matches!(ended, Ok(Ok(()))) {
            // Why a limit: a server that the test has stopped does not answer before the clean-up.
            let _ = timeout(TELL, room.tell()).await;
        }
        shared.mend().await;
        match ended {
            Ok(ended) => ended.expect("the test must end within its deadline"),
            Err(error) => resume_unwind(error.into_panic()),
        }
        room.stays_clean();
    });
}

/// Runs a part of a test, and then its clean-up, also after a failure.
pub(super) async fn and_then(
    body: impl Future<Output = ()> + Send + 'static,
    mend: impl Future<Output = ()>,
) {
    let ended = tokio::spawn(body).await;
    mend.await;
    if let Err(error) = ended {
        resume_unwind(error.into_panic());
    }
}

/// A queue for CPU only.
pub(super) fn cpu_queue(name: &str, quota: &[(&str, &str)]) -> Queue {
    let add = |queue: Queue, (cluster, cpu): &(&str, &str)| queue.with_quota(*cluster, &[("cpu", *cpu)]);
    quota.iter().fold(Queue::new(name), add)
}

/// A namespace and a queue of the same name in every cluster.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) shared: &'static Shared,
    pub(super) name: &'static str,
    /// The cluster where its jobs are submitted.
    pub(super) manager: &'static str,
}

impl Room {
    pub(super) async fn open(shared: &'static Shared, name: &'static str, queue: Queue) -> Self {
        let made = shared.stage.furnish(name, queue).await;
        made.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let room = Self {
            shared,
            name,
            manager: MANAGER,
        };
        room.queue_is_known(name).await;
        room
    }

    /// Waits until the manager knows a ClusterQueue and the room's LocalQueue of the same name. A job that is created before gets no
    /// `managedBy`, so its Workload is deactivated. The manager writes the status of queues that it knows.
    #[track_caller]
    pub(super) fn queue_is_known(self, name: &str) -> impl Future<Output = ()> {
        let queues: Api<ClusterQueue> = Api::all(self.shared.client(self.manager));
        let local_queues: Api<LocalQueue> = self.api(self.manager);
        eventually(move || {
            let (queues, local_queues) = (queues.clone(), local_queues.clone());
            async move {
                let conditions = queues.get(name).await.ok()?.status?.conditions;
                let of_local = local_queues.get(name).await.ok()?.status?.conditions;
                let told = |all: &[Condition]| all.iter().any(|condition| condition.type_ == "Active");
                (told(&conditions) && told(&of_local)).then_some(())
            }
        })
    }

    pub(super) fn api<K>(&self, cluster: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.shared.client(cluster), self.name)
    }

    pub(super) fn jobs(&self, cluster: &str) -> Api<Job> {
        self.api(cluster)
    }

    pub(super) fn workloads(&self, cluster: &str) -> Api<Workload> {
        self.api(cluster)
    }

    /// A job of one pod that requests `cpu` and runs for `seconds`.
    pub(super) fn job(&self, name: &str, cpu: &str, seconds: u32) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.name, "labels": {QUEUE_NAME: self.name}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": {RUN_SECONDS: seconds.to_string()}},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}},
                }]},
            }},
        })
    }

    /// Submits a job to the manager. Returns the stored job.
    pub(super) async fn submit(&self, job: Value) -> Job {
        let job: Job = from_value(job).unwrap();
        let made = self.jobs(self.manager).create(&PostParams::default(), &job).await;
        made.unwrap()
    }

    /// Submits a job to the manager until it is accepted: while no process answers its webhook, every job is refused.
    #[track_caller]
    pub(super) fn insist(self, job: Value) -> impl Future<Output = ()> {
        let (job, jobs): (Job, _) = (from_value(job).unwrap(), self.jobs(self.manager));
        eventually(move || {
            let (job, jobs) = (job.clone(), jobs.clone());
            async move {
                match jobs.create(&PostParams::default(), &job).await {
                    Ok(_) => Some(()),
                    Err(kube::Error::Api(status)) if status.code == 409 => Some(()),
                    Err(_) => None,
                }
            }
        })
    }

    /// The manager's Workload of a job. A read that a busy API server refuses is repeated.
    ///
    /// Why: right after a definition was changed, and while its cache is behind, an API server answers 429, 503 or 504 for a
    /// moment. A Workload that cannot be read for that reason is not gone.
    pub(super) async fn workload(&self, job: &str) -> Option<Workload> {
        let of_job = |workload: &Workload| workload.owner_references().iter().any(|owner| owner.name == job);
        for _ in 0..ASKED_MAX {
            match self.workloads(self.manager).list(&ListParams::default()).await {
                Ok(all) => return all.items.into_iter().find(of_job),
                Err(kube::Error::Api(status)) if [429, 503, 504].contains(&status.code) => {
                    self.shared
                        .say(&format!("{}: asked for its Workloads again: {status}", self.name));
                    sleep(ASKED_PAUSE).await;
                }
                Err(error) => {
                    self.shared
                        .say(&format!("{}: its Workloads are not listed: {error}", self.name));
                    return None;
                }
            }
        }
        None
    }

    /// Waits until the manager's Workload of a job is as wanted.
    #[track_caller]
    pub(super) fn workload_where(
        self,
        job: &str,
        wanted: impl Fn(&Workload) -> bool,
    ) -> impl Future<Output = Workload> {
        let wanted = Arc::new(wanted);
        eventually(move || {
            let wanted = wanted.clone();
            async move { self.workload(job).await.filter(|workload| wanted(workload)) }
        })
    }

    /// Waits until the job was seen unsuspended in a worker. Returns the worker's name.
    #[track_caller]
    pub(super) fn started(self, job: &str) -> impl Future<Output = String> {
        eventually(move || async move { Some(self.shared.observer.started(self.name, job)?.1) })
    }

    /// Waits until the job's one pod is seen to run in the cluster.
    ///
    /// Why a test needs this before it kills the cluster's server: kwok does not repeat a refused write.
    #[track_caller]
    pub(super) fn runs_in(self, cluster: &str, job: &str) -> impl Future<Output = ()> {
        let jobs = self.jobs(cluster);
        eventually(move || {
            let jobs = jobs.clone();
            async move { (jobs.get(job).await.ok()?.status?.ready == Some(1)).then_some(()) }
        })
    }

    /// Keeps the job's one pod from ending when it is deleted, like a slow process. Returns the pod's name.
    pub(super) async fn hold_pod(self, cluster: &str, job: &str) -> String {
        let pods: Api<Pod> = self.api(cluster);
        let of_job = ListParams::default().labels(&format!("job-name={job}"));
        let pod =
            eventually(|| async { Some(pods.list(&of_job).await.ok()?.items.first()?.name_any()) }).await;
        let held = json!({"metadata": {"finalizers": [JOB_TRACKING, ENDING]}});
        self.merge::<Pod>(cluster, &pod, held).await;
        pod
    }

    /// Releases a held pod.
    pub(super) async fn let_go(self, cluster: &str, pod: &str) {
        let pods: Api<Pod> = self.api(cluster);
        // Why repeated: other clients write its status at the same time.
        eventually(|| async {
            let mut ended = pods.get(pod).await.ok()?;
            ended.finalizers_mut().retain(|each| each != ENDING);
            pods.replace(pod, &PostParams::default(), &ended).await.ok()
        })
        .await;
    }

    /// Makes the cluster refuse new pods.
    pub(super) async fn refuse_pods(self, cluster: &str) {
        let quotas: Api<ResourceQuota> = self.api(cluster);
        let none = json!({"metadata": {"name": NO_PODS}, "spec": {"hard": {"pods": "0"}}});
        let params = PostParams::default();
        quotas.create(&params, &from_value(none).unwrap()).await.unwrap();
        // Why by hand: the API server reads the quota's status, and its controller does not run here.
        let counted = Patch::Merge(json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}));
        let params = PatchParams::default();
        quotas.patch_status(NO_PODS, &params, &counted).await.unwrap();
    }

    /// Undoes [`Self::refuse_pods`].
    pub(super) async fn allow_pods(self, cluster: &str) {
        let quotas: Api<ResourceQuota> = self.api(cluster);
        quotas.delete(NO_PODS, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the job has this condition in the cluster.
    #[track_caller]
    pub(super) fn job_is(self, cluster: &str, job: &str, condition: &str) -> impl Future<Output = Job> {
        let jobs = self.jobs(cluster);
        eventually(move || {
            let jobs = jobs.clone();
            async move { jobs.get(job).await.ok().filter(|job| has(job, condition)) }
        })
    }

    /// Waits until the job has succeeded after one undisturbed run.
    pub(super) async fn ran_once(self, job: &str) {
        let ended = self.job_is(MANAGER, job, "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1), "{job}");
        let workload = self.workload(job).await.unwrap();
        assert!(was_sent_once(&workload), "{job}: {:?}", workload.status);
    }

    /// Waits until no object of a manager is left in the workers.
    pub(super) async fn is_swept(self) {
        for worker in [EAST, WEST] {
            self.is_swept_in(worker).await;
        }
    }

    #[track_caller]
    pub(super) fn is_swept_in(self, worker: &str) -> impl Future<Output = ()> {
        eventually(move || async move { self.ours_in(worker).await.is_empty().then_some(()) })
    }

    /// Prints the room's objects, a line each, to explain a failed test.
    pub(super) async fn tell(self) {
        for cluster in [MANAGER, EAST, WEST, SPARE] {
            self.tell_all(cluster, "Job", self.jobs(cluster)).await;
            self.tell_all(cluster, "Workload", self.workloads(cluster)).await;
        }
    }

    async fn tell_all<K>(self, cluster: &str, kind: &str, of: Api<K>)
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
    {
        let told = [
            "/metadata/name",
            "/metadata/deletionTimestamp",
            "/spec/suspend",
            "/status",
        ];
        let objects = match of.list(&ListParams::default()).await {
            Ok(objects) => objects,
            Err(error) => {
                return self
                    .shared
                    .say(&format!("{cluster}: each {kind} is not listed: {error}"));
            }
        };
        for object in objects {
            let object = json!(object);
            let told = told.map(|path| object.pointer(path).unwrap_or(&Value::Null).to_string());
            self.shared.say(&format!("{cluster}: {kind} {}", told.join(" ")));
        }
    }

    /// Names of a manager's objects in this worker.
    pub(super) async fn ours_in(&self, worker: &str) -> Vec<String> {
        let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
        let jobs = self.jobs(worker).list(&ours).await.unwrap();
        let workloads = self.workloads(worker).list(&ours).await.unwrap();
        let jobs = jobs.iter().map(|job| format!("job {}", job.name_any()));
        jobs.chain(
            workloads
                .iter()
                .map(|each| format!("workload {}", each.name_any())),
        )
        .collect()
    }

    /// Fails if an invariant was broken in this room, or a process has ended.
    pub(super) fn stays_clean(&self) {
        let violations = self.shared.observer.violations();
        let here = format!("{}/", self.name);
        let here: Vec<_> = violations
            .iter()
            .filter(|each| each.sentence.contains(&here))
            .collect();
        assert!(here.is_empty(), "{here:?}");
        self.shared
            .stage
            .check()
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    }

    /// Merges a patch into an object of the room.
    pub(super) async fn merge<K>(&self, cluster: &str, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = self.api(cluster);
        let merged = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        merged.unwrap()
    }
}

/// Whether the job was sent once and never taken back.
pub(super) fn was_sent_once(workload: &Workload) -> bool {
    !workload.annotations().contains_key(DISPATCH_EPOCH) && condition(workload, "Evicted").is_none()
}

/// Whether a job has this condition.
pub(super) fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|each| each.type_ == condition && each.status == "True")
}

/// A condition of a Workload: status, reason, message.
pub(super) fn condition(workload: &Workload, type_: &str) -> Option<(String, String, String)> {
    let conditions = &workload.status.as_ref()?.conditions;
    let found = conditions.iter().find(|each| each.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// The cluster that the manager recorded.
pub(super) fn cluster_name(workload: &Workload) -> Option<String> {
    workload.status.as_ref()?.cluster_name.clone()
}
