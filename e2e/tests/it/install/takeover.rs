//! An installation where Kueue ran before: its webhooks, definitions and objects are still there, and no process of it answers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use roadstead_e2e::stage::deployed;
use roadstead_serve::tls::{Lifetimes, issue};

use super::*;

/// Where Kueue ran.
const THEIRS: &str = "kueue-system";
const OLD: &str = "kueue.x-k8s.io/v1beta1";
/// The most that any request may take once the process is ready. A dead webhook of Kueue takes 10 s.
const PROMPT: Duration = Duration::from_secs(5);
/// Kinds of integrations of Kueue that our configuration does not ask for: group, version, plural.
const UNASKED: [(&str, &str, &str); 3] = [
    ("", "v1", "pods"),
    ("apps", "v1", "deployments"),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
];
/// Kinds of ours whose entries Kueue has too.
const ASKED: [(&str, &str, &str); 3] = [
    ("batch", "v1", "jobs"),
    ("kueue.x-k8s.io", "v1beta2", "clusterqueues"),
    ("kueue.x-k8s.io", "v1beta2", "workloads"),
];

/// What an installation of Kueue is made of, apart from its definitions and its Deployment.
fn furniture(secret: Value) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"});
    let named = |name: &str| json!({"name": name, "labels": labels});
    let local = |name: &str| json!({"name": name, "namespace": THEIRS, "labels": labels});
    let account =
        json!([{"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": THEIRS}]);
    let role =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut selector = labels.clone();
    selector["app.kubernetes.io/instance"] = "kueue".into();
    let service = |name: &str, port: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": local(name),
            "spec": {"ports": [port], "selector": selector},
        })
    };
    let reads_jobs =
        json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "delete"]}]);
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": named(THEIRS)}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": local("kueue-controller-manager")}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": named("kueue-manager-role"), "rules": reads_jobs}),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": named("kueue-manager-rolebinding"),
            "roleRef": role("ClusterRole", "kueue-manager-role"), "subjects": account,
        }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRole", "metadata": named("kueue-batch-admin-role"),
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"rbac.kueue.x-k8s.io/batch-admin": "true"}}]},
        }),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": named("kueue-job-editor-role"), "rules": reads_jobs}),
        json!({
            "apiVersion": rbac, "kind": "RoleBinding",
            "metadata": {"name": "kueue-visibility-server-auth-reader", "namespace": "kube-system", "labels": labels},
            "roleRef": role("Role", "extension-apiserver-authentication-reader"), "subjects": account,
        }),
        service(
            "kueue-webhook-service",
            json!({"port": 443, "protocol": "TCP", "targetPort": 9443}),
        ),
        service(
            "kueue-visibility-server",
            json!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": 8082}),
        ),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": local("c1f6bfd2.kueue.x-k8s.io"),
            "spec": {
                "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        }),
        secret,
    ];
    for version in ["v1beta1", "v1beta2"] {
        objects.push(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": named(&format!("{version}.visibility.kueue.x-k8s.io")),
            "spec": {
                "group": "visibility.kueue.x-k8s.io", "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"name": "kueue-visibility-server", "namespace": THEIRS},
            },
        }));
    }
    objects
}

/// The Secret of Kueue's webhooks, as Kueue's own process or as cert-manager writes it, and its authority.
fn certificate(by_cert_manager: bool) -> (Value, String) {
    let names = [format!("kueue-webhook-service.{THEIRS}.svc")];
    let now = jiff::Timestamp::from_second(1_790_000_000).unwrap();
    let bundle = issue(now, &names, &Lifetimes::default()).unwrap();
    let mut data: BTreeMap<String, k8s_openapi::ByteString> = { bundle.to_secret().into_iter() }
        .map(|(key, value)| (key, k8s_openapi::ByteString(value)))
        .collect();
    let mut kind = "Opaque";
    if by_cert_manager {
        data.remove("ca.key");
        kind = "kubernetes.io/tls";
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
        "metadata": {"name": "kueue-webhook-server-cert", "namespace": THEIRS},
    });
    (secret, bundle.ca_bundle())
}

/// The webhook configurations of Kueue. Their entries spare Kueue's own namespace.
fn webhooks(authority: &str) -> [Value; 2] {
    let authority = k8s_openapi::ByteString(authority.as_bytes().to_vec());
    let elsewhere = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", THEIRS]},
    ]});
    let entry = |prefix: &str, (group, version, plural): (&str, &str, &str)| {
        let kind = plural.trim_end_matches('s');
        let mut entry = json!({
            "name": format!("{prefix}{kind}.kb.io"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"caBundle": authority, "service": {
                "name": "kueue-webhook-service", "namespace": THEIRS, "path": format!("/{prefix}-{group}-{version}-{kind}"),
            }},
            "rules": [{
                "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [plural],
            }],
        });
        if group != "kueue.x-k8s.io" {
            entry["namespaceSelector"] = elsewhere.clone();
        }
        entry
    };
    [
        ("MutatingWebhookConfiguration", MUTATING_WEBHOOKS, "m"),
        ("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS, "v"),
    ]
    .map(|(kind, name, prefix)| {
        let entries: Vec<Value> = { ASKED.iter().chain(&UNASKED) }
            .map(|resource| entry(prefix, *resource))
            .collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": entries,
        })
    })
}

/// The definitions of an older Kueue, which stores `v1beta1`: converted by its webhook, or not at all.
fn definitions(is_stored: &str, authority: Option<&str>) -> Vec<CustomResourceDefinition> {
    let mut all = roadstead_api::crd::all();
    all.retain(|definition| definition.spec.group == "kueue.x-k8s.io");
    for definition in &mut all {
        let spec = &mut definition.spec;
        spec.versions
            .retain(|version| ["v1beta1", "v1beta2"].contains(&&*version.name));
        for version in &mut spec.versions {
            version.storage = version.name == is_stored;
        }
        match (&mut spec.conversion, authority) {
            (Some(conversion), Some(authority)) => {
                let webhook = conversion.webhook.as_mut().unwrap();
                webhook.client_config.as_mut().unwrap().ca_bundle =
                    Some(k8s_openapi::ByteString(authority.as_bytes().to_vec()));
            }
            (conversion, _) => *conversion = None,
        }
    }
    all
}

async fn define(client: &Client, definitions: Vec<CustomResourceDefinition>) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let params = PatchParams::apply("kueue").force();
        api.patch(&definition.name_any(), &params, &Patch::Apply(&definition))
            .await
            .unwrap();
    }
}

/// A Job of a user. Kueue has let it run if it is not suspended.
fn job(name: &str, suspend: bool) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE_NAME: QUEUE}},
        "spec": {"suspend": suspend, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    })
}

/// The Workload that Kueue has made for a Job.
fn workload(version: &str, job: &DynamicObject) -> Value {
    let name = job.name_any();
    json!({
        "apiVersion": version, "kind": "Workload",
        "metadata": {
            "name": format!("job-{name}-1a2b3"), "namespace": TEAM, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "labels": {"kueue.x-k8s.io/job-uid": job.uid()},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.uid(), "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"queueName": QUEUE, "active": true, "priority": 0, "podSets": [
            {"name": "main", "count": 1, "template": job.data["spec"]["template"]},
        ]},
    })
}

fn admitted() -> Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "by Kueue", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({"status": {
        "admission": {"clusterQueue": QUEUE, "podSetAssignments": [
            {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}},
        ]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
    }})
}

fn api_of(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match kind {
        "Job" | "LocalQueue" | "Workload" | "Deployment" => {
            Api::namespaced_with(client.clone(), TEAM, &resource)
        }
        _ => Api::all_with(client.clone(), &resource),
    }
}

/// Queues and Workloads of Kueue, by version: `v1beta1` with a running and a waiting job, and a queue in `v1beta2`.
async fn used(client: &Client) {
    let mut queue = of_the_queue(None).pop().unwrap();
    queue["apiVersion"] = OLD.into();
    queue["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    queue["spec"]["cohort"] = "all".into();
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}),
        json!({
            "apiVersion": OLD, "kind": "ResourceFlavor",
            "metadata": {"name": "default", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        }),
        queue,
        json!({"apiVersion": OLD, "kind": "Cohort", "metadata": {"name": "all"}}),
        json!({
            "apiVersion": OLD, "kind": "LocalQueue", "metadata": {"name": QUEUE, "namespace": TEAM},
            "spec": {"clusterQueue": QUEUE},
        }),
        job("running", false),
        job("waiting", true),
    ] {
        eventually(|| async { apply(client, object.clone()).await.ok() }).await;
    }
    let jobs = api_of(client, "batch/v1", "Job");
    for name in ["running", "waiting"] {
        apply(client, workload(OLD, &jobs.get(name).await.unwrap()))
            .await
            .unwrap();
    }
    // Its pod is ready, and Kueue has noted no condition about it: `waitForPodsReady` was off.
    let ready = json!({"status": {"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"}});
    jobs.patch_status("running", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
    let workloads = api_of(client, OLD, "Workload");
    workloads
        .patch_status(
            "job-running-1a2b3",
            &PatchParams::default(),
            &Patch::Merge(admitted()),
        )
        .await
        .unwrap();
}

/// Everything that Kueue has left. Its newer version stored one more queue, as `v1beta2`.
async fn left(client: &Client, by_cert_manager: bool) {
    let (secret, authority) = certificate(by_cert_manager);
    for object in furniture(secret) {
        apply(client, object).await.unwrap();
    }
    define(client, definitions("v1beta1", None)).await;
    used(client).await;
    define(client, definitions("v1beta2", Some(&authority))).await;
    let newer = json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue",
        "metadata": {"name": "newer", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"cohortName": "all", "namespaceSelector": {}},
    });
    let queues = api_of(client, KUEUE, "ClusterQueue");
    let newer: DynamicObject = from_value(newer).unwrap();
    eventually(|| async { queues.create(&PostParams::default(), &newer).await.ok() }).await;
    for webhooks in webhooks(&authority) {
        apply(client, webhooks).await.unwrap();
    }
}

/// A pod of Kueue that still accepts connections, and answers none. It makes each request that asks it hang.
async fn mute(client: &Client) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    let here = deployed::address().unwrap().to_string();
    for service in ["kueue-webhook-service", "kueue-visibility-server"] {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{service}-7d4"), "namespace": THEIRS, "labels": {"kubernetes.io/service-name": service},
            },
            "endpoints": [{"addresses": [here], "conditions": {"ready": true}}],
            "ports": [{"name": if service.ends_with("server") { "https" } else { "" }, "port": port, "protocol": "TCP"}],
        });
        apply(client, slice).await.unwrap();
    }
}

/// The entries of both webhook configurations.
async fn entries(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    for (kind, name) in [
        ("MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
        ("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS),
    ] {
        let api = api_of(client, "admissionregistration.k8s.io/v1", kind);
        let mut configuration = api.get(name).await.unwrap().data;
        if let Value::Array(entries) = configuration["webhooks"].take() {
            found.extend(entries);
        }
    }
    found
}

/// The process has taken everything over: webhooks, conversion, visibility, and what Kueue's users had.
async fn is_taken_over(cluster: &Cluster, namespace: &str) {
    let client = &cluster.client;
    let entries = entries(client).await;
    for (_, _, plural) in UNASKED {
        let name = format!("{}.kb.io", plural.trim_end_matches('s'));
        assert!(
            entries
                .iter()
                .all(|entry| !entry["name"].as_str().unwrap().ends_with(&name)),
            "{name} is left: {entries:?}"
        );
    }
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get("kueue-webhook-server-cert").await.unwrap();
    let authority = json!(secret.data.unwrap()["ca.crt"]);
    assert!(entries.len() >= 8, "{entries:?}");
    for entry in &entries {
        let asks = &entry["clientConfig"];
        assert_eq!(asks["caBundle"], authority, "{}", entry["name"]);
        assert_eq!(asks["service"]["namespace"], namespace, "{}", entry["name"]);
    }
    for version in ["v1beta1", "v1beta2"] {
        let name = format!("{version}.visibility.kueue.x-k8s.io");
        let services = api_of(client, "apiregistration.k8s.io/v1", "APIService");
        eventually(|| async {
            let spec = services.get(&name).await.ok()?.data["spec"].take();
            let is_checked = spec["insecureSkipTLSVerify"] != true && spec["caBundle"] == authority;
            is_checked.then_some(())
        })
        .await;
    }
    cluster.is_healthy(namespace).await;
}

/// Objects of users are as they were, in both versions, and jobs go on.
async fn is_kept(client: &Client) {
    for version in [OLD, KUEUE] {
        for (kind, names) in [
            ("ClusterQueue", &[QUEUE, "newer"][..]),
            ("LocalQueue", &[QUEUE]),
            ("Cohort", &["all"]),
            ("Workload", &["job-running-1a2b3", "job-waiting-1a2b3"]),
        ] {
            for name in names {
                let found = api_of(client, version, kind).get(name).await;
                found.unwrap_or_else(|error| panic!("{version} {kind} {name}: {error}"));
            }
        }
    }
    let jobs = api_of(client, "batch/v1", "Job");
    let created = jobs
        .create(&PostParams::default(), &from_value(job("new", false)).unwrap())
        .await
        .unwrap();
    assert_eq!(created.data["spec"]["suspend"], true, "the webhook held it");
    for name in ["new", "waiting"] {
        eventually(|| async {
            let job = jobs.get(name).await.ok()?;
            (job.data["spec"]["suspend"] == false).then_some(())
        })
        .await;
    }
    let workload = api_of(client, KUEUE, "Workload");
    let workload = workload.get("job-running-1a2b3").await.unwrap().data;
    let running = jobs.get("running").await.unwrap();
    assert_eq!(
        running.data["spec"]["suspend"], false,
        "it was stopped: {workload}"
    );
    let status = &workload["status"];
    assert_eq!(status["admission"]["clusterQueue"], QUEUE, "{workload}");
    assert_eq!(
        status["conditions"][0]["message"], "by Kueue",
        "its admission stands"
    );
    let queue = api_of(client, KUEUE, "ClusterQueue");
    eventually(|| async {
        let status = queue.get(QUEUE).await.ok()?.data["status"].take();
        (status["admittedWorkloads"] == 3).then_some(())
    })
    .await;
}

/// No request waits for a process of Kueue.
async fn is_prompt(client: &Client) {
    let pod = json!({"containers": [{"name": "main", "image": "none"}]});
    let labels = json!({"app": "a"});
    let objects = [
        ("batch/v1", "Job", job("prompt", true)),
        (
            "apps/v1",
            "Deployment",
            json!({
                "metadata": {"name": "prompt"},
                "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
            }),
        ),
        (
            OLD,
            "ClusterQueue",
            json!({"apiVersion": OLD, "kind": "ClusterQueue", "metadata": {"name": "prompt"}}),
        ),
    ];
    for (version, kind, mut object) in objects {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        let object: DynamicObject = from_value(object).unwrap();
        let api = api_of(client, version, kind);
        let begun = Instant::now();
        api.create(&PostParams::default(), &object)
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        api.delete("prompt", &DeleteParams::default()).await.unwrap();
        assert!(begun.elapsed() < PROMPT, "{kind}: {:?}", begun.elapsed());
    }
}

async fn install(cluster: &Cluster, namespace: &str) -> Result<String, String> {
    let (kubeconfig, values) = (cluster.kubeconfig(), cluster.values());
    roadstead(&[
        "install",
        cluster.part,
        "--kubeconfig",
        &kubeconfig,
        "--namespace",
        namespace,
        "--values",
        &values,
        "--yes",
        "--output",
        "json",
    ])
    .await
}

async fn deployed(cluster: &Cluster, namespace: &str) -> Deployed {
    let name = format!("roadstead-{}", cluster.part);
    let started = Deployed::start(&cluster.plane, namespace, &name).await;
    started.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn an_installation_takes_over_what_kueue_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let (worker, manager) = tokio::join!(
        Cluster::start(Options::bare("after-kueue-worker"), "worker", dir.path()),
        Cluster::start(Options::bare("after-kueue-manager"), "manager", dir.path()),
    );
    tokio::join!(in_the_namespace_of_kueue(&worker), in_another_namespace(&manager));
}

async fn in_the_namespace_of_kueue(cluster: &Cluster) {
    left(&cluster.client, true).await;
    install(cluster, THEIRS)
        .await
        .unwrap_or_else(|said| panic!("{said}"));
    let _process = deployed(cluster, THEIRS).await;
    is_taken_over(cluster, THEIRS).await;
    is_kept(&cluster.client).await;
    is_prompt(&cluster.client).await;
}

/// Kueue's webhooks would refuse the pods of the installation there, so it asks to delete them first.
async fn in_another_namespace(cluster: &Cluster) {
    left(&cluster.client, false).await;
    mute(&cluster.client).await;
    let before = cluster.inventory().await;
    let refused = install(cluster, NAMESPACE).await.unwrap_err();
    for words in [
        MUTATING_WEBHOOKS,
        VALIDATING_WEBHOOKS,
        "kueue-webhook-service",
        "kubectl delete",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    assert_eq!(cluster.inventory().await, before, "nothing was written");
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let api = api_of(&cluster.client, "admissionregistration.k8s.io/v1", kind);
        api.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
    }
    install(cluster, NAMESPACE)
        .await
        .unwrap_or_else(|said| panic!("{said}"));
    let _process = deployed(cluster, NAMESPACE).await;
    is_taken_over(cluster, NAMESPACE).await;
    is_kept(&cluster.client).await;
    is_prompt(&cluster.client).await;
}
