//! The objects that are created on the clusters of a run, and the jobs as the API stores them.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_api::constants::annotations::WORKER_LOST_POLICY;
use roadstead_api::constants::controllers::{CLASS_CHECK_CAPACITY, MULTIKUEUE, PROVISIONING_REQUEST};
use roadstead_apiserver::{Server, User};
use serde_json::{Value, json};

use super::fault::{Forgery, Space};
use super::kind::{self, Child, JobKind};
use super::script::{JobPlan, POLICIES, Script, WorkerPlan};

pub(super) const NAMESPACE: &str = "team";
/// The namespace of the product's own objects.
pub(super) const SYSTEM: &str = "kueue-system";
/// The namespace of the managers' leases on workers. Why its own: a fault can delete it alone.
pub(super) const LEASES: &str = "roadstead-system";
/// The user name of users' writes.
const USER: &str = "user";
const QUEUE: &str = "main";
const FLAVOR: &str = "default";
const FEDERATION: &str = "federation";
const CAPACITY: &str = "capacity";
const URGENT: &str = "urgent";
/// Label of the objects that a manager created on a worker.
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Label of the objects of another client.
const FOREIGN: &str = "example.com/foreign";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// The path of definitions of kinds.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The token of every kubeconfig; it must show nowhere else (`spec/safety.md I8`).
pub(super) const CANARY: &str = "canary-token-of-the-simulated-worker";

/// Sends a request directly, as a user on a network without trouble.
pub(super) async fn ask(
    server: &Server,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (StatusCode, Value) {
    let merge = method == Method::PATCH;
    let kind = if merge {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let mut request = Request::new(Bytes::from(body.map(Value::to_string).unwrap_or_default()));
    *request.method_mut() = method;
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    request
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static(kind));
    let response = server.handle(request, User::new(USER, &["system:masters"])).await;
    let status = response.status();
    let bytes = response.into_body().collect().await;
    let bytes = bytes.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Creates objects given with their path.
///
/// *Errors*: what the server says against one of them.
pub(super) async fn create(server: &Server, objects: Vec<(String, Value)>) -> Result<(), String> {
    for (path, object) in objects {
        let (status, answer) = ask(server, Method::POST, &path, Some(&object)).await;
        if !status.is_success() {
            return Err(format!("{path}: {status}: {}", answer["message"]));
        }
    }
    Ok(())
}

fn kueue(plural: &str, kind: &str, name: &str, spec: &Value) -> (String, Value) {
    let path = format!("/apis/{KUEUE}/{plural}");
    let mut object = json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}});
    if !spec.is_null() {
        object["spec"] = spec.clone();
    }
    (path, object)
}

/// Removes the rules of a schema. Why: evaluating them costs most of a run, and tests against real servers prove that objects keep
/// them.
fn remove_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(remove_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The definitions of all kinds and the namespaces: the same for every cluster and run.
pub(super) fn everywhere() -> Vec<(String, Value)> {
    let mut objects: Vec<(String, Value)> = roadstead_api::crd::all()
        .iter()
        .filter_map(|definition| serde_json::to_value(definition).ok())
        .map(|mut definition| {
            remove_rules(&mut definition);
            (DEFINITIONS.to_owned(), definition)
        })
        .collect();
    let played = JobKind::ALL.into_iter().filter_map(JobKind::played);
    let definitions = played.filter_map(|kind| serde_json::to_value(kind.definition().ok()?).ok());
    objects.extend(definitions.map(|definition| (DEFINITIONS.to_owned(), definition)));
    for name in [SYSTEM, LEASES, NAMESPACE] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects.push(("/api/v1/namespaces".to_owned(), object));
    }
    let (_, mut urgent) = kueue("", "WorkloadPriorityClass", URGENT, &Value::Null);
    urgent["value"] = 100.into();
    objects.push((format!("/apis/{KUEUE}/workloadpriorityclasses"), urgent));
    objects.push(kueue("resourceflavors", "ResourceFlavor", FLAVOR, &json!({})));
    objects.push(local_queue(QUEUE, QUEUE));
    objects
}

fn local_queue(name: &str, leads_to: &str) -> (String, Value) {
    (
        format!("/apis/{KUEUE}/namespaces/{NAMESPACE}/localqueues"),
        json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": leads_to},
        }),
    )
}

/// The name of the queue with this policy. On the manager it is a LocalQueue and a ClusterQueue, on workers a LocalQueue only.
const fn queue_name(says: Option<WorkerLostPolicy>) -> &'static str {
    match says {
        None => QUEUE,
        Some(WorkerLostPolicy::Wait) => "patient",
        Some(WorkerLostPolicy::Fence) => "fenced",
        Some(WorkerLostPolicy::RetryAnyway) => "hasty",
    }
}

/// The LocalQueues beside the first one that every worker needs, because they have the same names everywhere.
fn more_local_queues(by_queue: bool) -> impl Iterator<Item = (String, Value)> {
    let all = POLICIES.into_iter().filter(move |_| by_queue);
    all.map(|says| local_queue(queue_name(Some(says)), QUEUE))
}

const fn space_name(which: Space) -> &'static str {
    match which {
        Space::Team => NAMESPACE,
        Space::Leases => LEASES,
    }
}

pub(super) fn namespace(which: Space, by_queue: bool) -> Vec<(String, Value)> {
    let name = space_name(which);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut objects = vec![("/api/v1/namespaces".to_owned(), object)];
    if which == Space::Team {
        objects.push(local_queue(QUEUE, QUEUE));
        objects.extend(more_local_queues(by_queue));
    }
    objects
}

/// Whether a namespace exists and is not being deleted.
pub(super) async fn has_namespace(server: &Server, which: Space) -> bool {
    let path = format!("/api/v1/namespaces/{}", space_name(which));
    let (code, found) = ask(server, Method::GET, &path, None).await;
    code.is_success() && found["metadata"]["deletionTimestamp"].is_null()
}

pub(super) async fn delete_namespace(server: &Server, which: Space) {
    let path = format!("/api/v1/namespaces/{}", space_name(which));
    ask(server, Method::DELETE, &path, None).await;
}

pub(super) async fn delete_children(worker: &Server, wrapper: &str) {
    let jobs = JobKind::Job.path(NAMESPACE);
    let (_, all) = ask(worker, Method::GET, &jobs, None).await;
    for job in all["items"].as_array().into_iter().flatten() {
        let owner = &job["metadata"]["ownerReferences"][0];
        if owner["kind"] == JobKind::AppWrapper.to_string() && owner["name"] == wrapper {
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{jobs}/{name}?propagationPolicy=Background");
            ask(worker, Method::DELETE, &path, None).await;
        }
    }
}

/// Removes all objects of a kind at once, as when its definition is deleted by force, with the objects that they own.
pub(super) async fn remove_kind(server: &Server, kind: JobKind) {
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0].clone();
    let is_of_it = |object: &Value| owner(object)["kind"] == kind.to_string();
    delete_at_once(server, &kind.path(NAMESPACE), |_| true).await;
    let jobs = JobKind::Job.path(NAMESPACE);
    delete_at_once(server, &jobs, is_of_it).await;
    let (_, jobs) = ask(server, Method::GET, &jobs, None).await;
    let jobs = jobs["items"].as_array().cloned().unwrap_or_default();
    let is_left = |pod: &Value| {
        let owner = owner(pod);
        let is_there = || jobs.iter().any(|job| job["metadata"]["uid"] == owner["uid"]);
        is_of_it(pod) || (owner["kind"] == "Job" && !is_there())
    };
    delete_at_once(server, &pods_path(), is_left).await;
}

/// Deletes the objects at a path that `which` selects at once, whatever finalizers they have.
async fn delete_at_once(server: &Server, path: &str, which: impl Fn(&Value) -> bool) {
    let (_, all) = ask(server, Method::GET, path, None).await;
    let all = all["items"].as_array().into_iter().flatten();
    for object in all.filter(|object| which(object)) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        let bare = json!({"metadata": {"finalizers": null}});
        ask(server, Method::PATCH, &path, Some(&bare)).await;
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        ask(server, Method::DELETE, &path, Some(&at_once)).await;
    }
}

/// Writes a condition with an early time into every copy on a worker that no manager has chosen; returns how many.
pub(super) async fn forge(managers: &[&Server], worker: &Server, number: usize, what: Forgery) -> usize {
    let path = workloads_path();
    let mut chosen = BTreeSet::new();
    for manager in managers {
        let (_, local) = ask(manager, Method::GET, &path, None).await;
        let all = local["items"].as_array().into_iter().flatten();
        let here = all.filter(|workload| workload["status"]["clusterName"] == cluster_name(number));
        // Why compare only names: a Workload's name is made from its job's UID, so no two managers have the same name.
        chosen.extend(here.filter_map(|workload| workload["metadata"]["name"].as_str().map(str::to_owned)));
    }
    let (_, copies) = ask(worker, Method::GET, &path, None).await;
    let mut written = 0;
    for copy in copies["items"].as_array().into_iter().flatten() {
        let name = copy["metadata"]["name"].as_str().unwrap_or_default();
        if chosen.contains(name) || copy["metadata"]["labels"][ORIGIN].is_null() {
            continue;
        }
        let (kind, reason) = match what {
            Forgery::Admitted => ("Admitted", "Admitted"),
            Forgery::Evicted => ("Evicted", "Preempted"),
            Forgery::Finished => ("Finished", "Succeeded"),
        };
        let mut conditions = copy["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions.retain(|condition| condition["type"] != kind);
        conditions.push(json!({
            "type": kind, "status": "True", "reason": reason, "message": "so they say",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }));
        let patch = json!({"status": {"conditions": conditions}});
        let (status, _) = ask(
            worker,
            Method::PATCH,
            &format!("{path}/{name}/status"),
            Some(&patch),
        )
        .await;
        written += usize::from(status.is_success());
    }
    written
}

fn check(name: &str, controller: &str, kind: &str) -> (String, Value) {
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": kind, "name": name});
    let spec = json!({"controllerName": controller, "parameters": parameters});
    kueue("admissionchecks", "AdmissionCheck", name, &spec)
}

fn queue(name: &str, cpus: i64, check: Option<&str>, preempts: bool) -> (String, Value) {
    let resources = json!([{"name": "cpu", "nominalQuota": cpus.to_string()}]);
    let groups =
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": resources}]}]);
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    if let Some(check) = check {
        spec["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": check}]});
    }
    if preempts {
        spec["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    }
    kueue("clusterqueues", "ClusterQueue", name, &spec)
}

pub(super) fn of_manager(script: &Script) -> Vec<(String, Value)> {
    let names: Vec<String> = (1..=script.workers.len()).map(cluster_name).collect();
    let mut objects = vec![
        check(FEDERATION, MULTIKUEUE, "MultiKueueConfig"),
        kueue(
            "multikueueconfigs",
            "MultiKueueConfig",
            FEDERATION,
            &json!({"clusters": names}),
        ),
        queue(QUEUE, script.cpus, Some(FEDERATION), script.preempts),
    ];
    for says in POLICIES.into_iter().filter(|_| script.by_queue) {
        let name = queue_name(Some(says));
        let (path, mut queue) = queue(name, script.cpus, Some(FEDERATION), script.preempts);
        // The values of the annotation are the names of the policies.
        queue["metadata"]["annotations"][WORKER_LOST_POLICY] = format!("{says:?}").into();
        objects.extend([(path, queue), local_queue(name, name)]);
    }
    for name in names {
        objects.push(secret(&name, &name, Trust::Worker));
        objects.push(cluster(&name));
    }
    objects
}

/// The cluster object of a worker, and where it is created.
pub(super) fn cluster(name: &str) -> (String, Value) {
    let source = json!({"kubeConfig": {"locationType": "Secret", "location": name}});
    kueue(
        "multikueueclusters",
        "MultiKueueCluster",
        name,
        &json!({"clusterSource": source}),
    )
}

pub(super) fn config_path() -> String {
    format!("/apis/{KUEUE}/multikueueconfigs/{FEDERATION}")
}

/// How a kubeconfig verifies its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// By its certificate.
    Worker,
    /// By nothing (`insecure-skip-tls-verify`), so the product must refuse the kubeconfig.
    Nobody,
}

/// The Secret through which a worker is reached; it leads to the worker `to`.
pub(super) fn secret(name: &str, to: &str, trust: Trust) -> (String, Value) {
    let cluster = match trust {
        Trust::Worker => json!({"server": address(to), "certificate-authority-data": AUTHORITY}),
        Trust::Nobody => json!({"server": address(to), "insecure-skip-tls-verify": true}),
    };
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": CANARY}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    (
        format!("/api/v1/namespaces/{SYSTEM}/secrets"),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SYSTEM},
            "stringData": {"kubeconfig": kubeconfig.to_string()},
        }),
    )
}

/// A job of another client on a worker; it is held, so it does nothing.
pub(super) fn foreign_job(kind: JobKind, name: &str) -> (String, Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {FOREIGN: "yes"}});
    let template = json!({"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.com/other"}],
    }});
    (kind.path(NAMESPACE), kind.unmanaged(&metadata, 1, &template))
}

pub(super) fn is_foreign(job: &Value) -> bool {
    job["metadata"]["labels"][FOREIGN] == "yes"
}

pub(super) fn of_worker(plan: &WorkerPlan, by_queue: bool) -> Vec<(String, Value)> {
    let mut objects: Vec<(String, Value)> = more_local_queues(by_queue).collect();
    if plan.asks_capacity {
        objects.push(kueue(
            "provisioningrequestconfigs",
            "ProvisioningRequestConfig",
            CAPACITY,
            &json!({"provisioningClassName": CLASS_CHECK_CAPACITY}),
        ));
        objects.push(check(CAPACITY, PROVISIONING_REQUEST, "ProvisioningRequestConfig"));
    }
    objects.push(queue(
        QUEUE,
        plan.cpus,
        plan.asks_capacity.then_some(CAPACITY),
        plan.preempts,
    ));
    objects
}

/// The objects of a job with their paths, as they are stored after the webhooks.
pub(super) fn job(plan: &JobPlan) -> Vec<(String, Value)> {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": queue_name(plan.queue)});
    if plan.urgent {
        labels["kueue.x-k8s.io/priority-class"] = URGENT.into();
    }
    let mut annotations = json!({roadstead_world::RUN_SECONDS: plan.secs.to_string()});
    if plan.fails {
        annotations[roadstead_world::EXIT_CODE] = "1".into();
    }
    let requests = json!({"cpu": plan.cpus.to_string()});
    let metadata = json!({
        "name": plan.name, "namespace": NAMESPACE, "labels": labels,
        "annotations": plan.kind.patience(plan.child),
    });
    let mut template = json!({
        "metadata": {"annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.com/main", "resources": {"requests": requests}}],
        },
    });
    if plan.child == Child::Hangs {
        template["spec"]["nodeSelector"] = json!({"example.com/nowhere": "yes"});
    }
    let path = plan.kind.path(NAMESPACE);
    if plan.kind == JobKind::Pod {
        let names = plan.objects();
        let is_group = names.len() > 1;
        let member = |name: String| {
            let mut metadata = metadata.clone();
            metadata["name"] = name.into();
            let mut pod = plan.kind.object(&metadata, 1, &template);
            if is_group {
                kind::join_group(&mut pod, &plan.name, plan.pods);
            }
            (path.clone(), pod)
        };
        return names.into_iter().map(member).collect();
    }
    let mut object = plan.kind.object(&metadata, plan.pods, &template);
    // Limit: of the played controllers, only that of Jobs removes jobs that have ended.
    if plan.vanishes && plan.kind == JobKind::Job {
        object["spec"]["ttlSecondsAfterFinished"] = 0.into();
    }
    vec![(path, object)]
}

pub(super) fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

pub(super) fn workloads_path() -> String {
    format!("/apis/{KUEUE}/namespaces/{NAMESPACE}/workloads")
}

pub(super) fn requests_path() -> String {
    format!("/apis/autoscaling.x-k8s.io/v1/namespaces/{NAMESPACE}/provisioningrequests")
}

/// The name of a cluster: `manager`, then the workers from `worker-1` on.
pub(super) fn cluster_name(number: usize) -> String {
    if number == 0 {
        "manager".to_owned()
    } else {
        format!("worker-{number}")
    }
}

/// Where a worker's API server would be, on a network.
fn address(name: &str) -> String {
    format!("https://{name}.example.com:6443")
}

pub(super) fn cluster_at(server: &str) -> Option<usize> {
    let name = server.strip_prefix("https://worker-")?;
    name.split('.').next()?.parse().ok()
}

/// An empty PEM certificate in base64, because a kubeconfig must have one. The simulation never uses it.
const AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
