use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::config::Config;
use roadstead_api::constants::annotations::CORDON;
use roadstead_api::constants::controllers::{MULTIKUEUE, PROVISIONING_REQUEST};
use roadstead_api::constants::names::REGISTRAR;
use roadstead_api::crd::WEBHOOK_SERVICE;
use roadstead_api::install::{Values, manifests, objects::definitions as all_definitions, owned};
use roadstead_api::rights;
use roadstead_kinds::TABLE;
use roadstead_kubeconfigs::secret;
use roadstead_serve::tls::{Lifetimes, issue};
use serde_json::{Value, json};

use super::*;

const HERE: &str = "ours";

fn now() -> Timestamp {
    "2026-11-26T10:00:00Z".parse().unwrap()
}

fn later(secs: i64) -> String {
    (now() + SignedDuration::from_secs(secs)).to_string()
}

fn standing(kind: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True"}]})
}

/// A certificate that was issued at that time, in the form in which a Secret holds it.
fn certificate_of(issued: Timestamp) -> Value {
    let bundle = issue(issued, &["a".to_owned()], &Lifetimes::default()).unwrap();
    let encoded = bundle.to_secret().into_iter().map(|(key, bytes)| {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        (key, Value::from(text))
    });
    Value::Object(encoded.collect())
}

/// A cluster without problems.
fn healthy(process: Process) -> Facts {
    let mut facts = Facts {
        namespace: HERE.to_owned(),
        now: now(),
        server_now: Some(now()),
        version: "v1.36.3".to_owned(),
        objects: super::super::facts::KINDS
            .into_iter()
            .map(|(_, _, kind, _)| (kind, Ok(Vec::new())))
            .collect(),
    };
    let certificate = certificate_of(now());
    let spared =
        json!({"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["kube-system", HERE]}]});
    let hook = json!({
        "name": "job", "clientConfig": {"caBundle": certificate["ca.crt"]}, "rules": [{"apiGroups": ["batch"]}],
        "namespaceSelector": spared,
    });
    for mut object in manifests(process, HERE, &Values::default()).unwrap() {
        match object["kind"].as_str() {
            Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
                object["webhooks"] = json!([hook]);
                object["metadata"]["managedFields"] = json!([{
                    "manager": REGISTRAR, "operation": "Apply",
                    "fieldsV1": {"f:webhooks": {"k:{\"name\":\"job\"}": {}}},
                }]);
            }
            Some("Deployment") => object["status"] = json!({"readyReplicas": 2}),
            Some("APIService") => object["status"] = standing("Available"),
            _ => {}
        }
        put(&mut facts, object);
    }
    for mut definition in all_definitions(HERE) {
        definition["status"] = standing("Established");
        if let Some(client) = definition.pointer_mut("/spec/conversion/webhook/clientConfig") {
            client["caBundle"] = "pem".into();
        }
        put(&mut facts, definition);
    }
    let config = Config::without_file(HERE);
    let of_kueue = |kind: &str, name: &str, spec: Value| json!({"kind": kind, "metadata": {"name": name}, "spec": spec, "status": standing("Active")});
    let (controller, parameters) = match process {
        Process::Manager => (MULTIKUEUE, "MultiKueueConfig"),
        Process::Worker => (PROVISIONING_REQUEST, "ProvisioningRequestConfig"),
    };
    let mut cluster = of_kueue(
        "MultiKueueCluster",
        "east",
        json!({"clusterSource": {"kubeConfig": {"locationType": "Secret", "location": "of-east"}}}),
    );
    cluster["status"]["conditions"] = json!([
        {"type": "Active", "status": "True"}, {"type": "WorkerFence", "status": "True"},
    ]);
    let locals = json!({"clusterQueue": "main"});
    for object in [
        json!({
            "kind": "Lease", "metadata": {"name": config.leader_election.resource_name},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": later(-3)},
        }),
        json!({
            "kind": "Secret", "metadata": {"name": config.cert_management.webhook_secret_name},
            "data": certificate,
        }),
        json!({
            "kind": "Secret",
            "metadata": {"name": "of-east", "annotations": {secret::EXPIRES_AT: later(3_000)}},
        }),
        json!({
            "kind": "EndpointSlice", "metadata": {"labels": {"kubernetes.io/service-name": WEBHOOK_SERVICE}},
            "endpoints": [{"conditions": {"ready": true}}],
        }),
        json!({"kind": "Node", "metadata": {"name": "a", "labels": {"pool": "x"}}}),
        of_kueue("ResourceFlavor", "default", json!({"nodeLabels": {"pool": "x"}})),
        of_kueue(
            "ClusterQueue",
            "main",
            json!({
                "resourceGroups": [{"flavors": [{"name": "default"}]}],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]},
            }),
        ),
        json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"}, "spec": locals}),
        of_kueue(
            "AdmissionCheck",
            "check",
            json!({"controllerName": controller, "parameters": {"kind": parameters, "name": "config"}}),
        ),
        of_kueue("ProvisioningRequestConfig", "config", json!({})),
        of_kueue("MultiKueueConfig", "config", json!({"clusters": ["east"]})),
        cluster,
        json!({
            "kind": "Workload", "metadata": {"name": "a", "namespace": "team"}, "spec": {"queueName": "main"},
        }),
    ] {
        put(&mut facts, object);
    }
    facts
}

fn put(facts: &mut Facts, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    if let Some((_, Ok(objects))) = facts.objects.iter_mut().find(|(known, _)| **known == kind) {
        objects.push(object);
    }
}

/// The objects of a kind, for a test to break.
fn of<'a>(facts: &'a mut Facts, kind: &str) -> &'a mut Vec<Value> {
    facts.objects.get_mut(kind).unwrap().as_mut().unwrap()
}

fn first<'a>(facts: &'a mut Facts, kind: &str) -> &'a mut Value {
    &mut of(facts, kind)[0]
}

fn without(facts: &mut Facts, kind: &str, name: &str) {
    of(facts, kind).retain(|object| object["metadata"]["name"] != name);
}

fn found(facts: &Facts, check: &str) -> Finding {
    let findings = judge(facts);
    findings
        .into_iter()
        .find(|finding| finding.check == check)
        .unwrap()
}

type Break = fn(&mut Facts);

/// For each check, the break that it must find.
const BROKEN: &[(&str, Break)] = &[
    ("kubernetes-version", |facts| facts.version = "v1.20.0".to_owned()),
    ("no-kueue", |facts| {
        put(
            facts,
            json!({
                "kind": "Deployment", "metadata": {"name": "kueue-controller-manager", "namespace": "kueue-system"},
                "spec": {"template": {"spec": {"containers": [{"image": "registry.k8s.io/kueue/kueue:v0.17.0"}]}}},
            }),
        );
    }),
    ("one-installation", |facts| {
        let mut other = first(facts, "Deployment").clone();
        other["metadata"]["namespace"] = "elsewhere".into();
        put(facts, other);
    }),
    ("clock", |facts| {
        facts.server_now = Some(now() + SignedDuration::from_hours(2));
    }),
    ("definitions-present", |facts| {
        without(facts, "CustomResourceDefinition", "workloads.kueue.x-k8s.io");
    }),
    ("definitions-served", |facts| {
        first(facts, "CustomResourceDefinition")["status"]["conditions"][0]["status"] = "False".into();
    }),
    ("definitions-version", |facts| {
        first(facts, "CustomResourceDefinition")["metadata"]["labels"][owned::VERSION_LABEL] =
            "v0.0.1".into();
    }),
    ("conversion", |facts| {
        let client =
            first(facts, "CustomResourceDefinition").pointer_mut("/spec/conversion/webhook/clientConfig");
        client.unwrap()["caBundle"] = Value::Null;
    }),
    ("deployment", |facts| of(facts, "Deployment").clear()),
    ("replicas", |facts| {
        first(facts, "Deployment")["status"]["readyReplicas"] = 0.into();
    }),
    ("image-version", |facts| {
        first(facts, "Deployment")["metadata"]["labels"][owned::VERSION_LABEL] = "v0.0.1".into();
    }),
    ("service-account", |facts| of(facts, "ServiceAccount").clear()),
    ("cluster-role", |facts| {
        let roles = of(facts, "ClusterRole");
        let role = roles
            .iter_mut()
            .find(|role| role["metadata"]["name"].to_string().contains("roadstead:"));
        role.unwrap()["rules"][0]["verbs"] = json!(["get"]);
    }),
    ("configuration", |facts| {
        first(facts, "ConfigMap")["data"]["config.yaml"] = "nonsense: true".into();
    }),
    ("leader", |facts| {
        first(facts, "Lease")["spec"]["renewTime"] = later(-3_600).into();
    }),
    ("mutating-webhooks", |facts| {
        of(facts, "MutatingWebhookConfiguration").clear();
    }),
    ("validating-webhooks", |facts| {
        of(facts, "ValidatingWebhookConfiguration").clear();
    }),
    ("certificate-authority", |facts| {
        first(facts, "MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
    }),
    ("lock-out", |facts| {
        first(facts, "MutatingWebhookConfiguration")["webhooks"][0]["namespaceSelector"] = Value::Null;
    }),
    ("certificate", |facts| {
        let long_ago = now() - SignedDuration::from_hours(24 * 3_650);
        first(facts, "Secret")["data"] = certificate_of(long_ago);
    }),
    ("webhook-service", |facts| {
        without(facts, "Service", WEBHOOK_SERVICE);
    }),
    ("webhook-endpoints", |facts| {
        first(facts, "EndpointSlice")["endpoints"][0]["conditions"]["ready"] = false.into();
    }),
    ("visibility", |facts| {
        first(facts, "APIService")["status"]["conditions"][0]["status"] = "False".into();
    }),
    ("clusters-registered", |facts| {
        of(facts, "MultiKueueCluster").clear();
    }),
    ("clusters-active", |facts| {
        first(facts, "MultiKueueCluster")["status"]["conditions"][0]["status"] = "False".into();
    }),
    ("clusters-listed", |facts| {
        first(facts, "MultiKueueConfig")["spec"]["clusters"] = json!([]);
    }),
    ("clusters-exist", |facts| {
        first(facts, "MultiKueueConfig")["spec"]["clusters"] = json!(["east", "gone"]);
    }),
    ("clusters-cordoned", |facts| {
        first(facts, "MultiKueueCluster")["metadata"]["annotations"] = json!({CORDON: "since"});
    }),
    ("fences", |facts| {
        first(facts, "MultiKueueCluster")["status"]["conditions"][1]["status"] = "False".into();
    }),
    ("credentials-present", |facts| without(facts, "Secret", "of-east")),
    ("credentials-age", |facts| {
        of(facts, "Secret")[1]["metadata"]["annotations"][secret::EXPIRES_AT] = later(-60).into();
    }),
    ("queues-present", |facts| of(facts, "LocalQueue").clear()),
    ("queues-active", |facts| {
        first(facts, "ClusterQueue")["status"]["conditions"][0]["status"] = "False".into();
    }),
    ("queues-stopped", |facts| {
        first(facts, "ClusterQueue")["spec"]["stopPolicy"] = "Hold".into();
    }),
    ("local-queues-lead-somewhere", |facts| {
        first(facts, "LocalQueue")["spec"]["clusterQueue"] = "gone".into();
    }),
    ("flavors-exist", |facts| of(facts, "ResourceFlavor").clear()),
    ("flavors-match-nodes", |facts| {
        first(facts, "Node")["metadata"]["labels"] = json!({"pool": "y"});
    }),
    ("checks-exist", |facts| of(facts, "AdmissionCheck").clear()),
    ("checks-active", |facts| {
        first(facts, "AdmissionCheck")["status"] = Value::Null;
    }),
    ("checks-handled", |facts| {
        first(facts, "AdmissionCheck")["spec"]["controllerName"] = "example.com/other".into();
    }),
    ("check-parameters", |facts| {
        first(facts, "AdmissionCheck")["spec"]["parameters"]["name"] = "gone".into();
    }),
    ("dispatch", |facts| {
        first(facts, "ClusterQueue")["spec"]["admissionChecksStrategy"] = Value::Null;
    }),
    ("workloads-have-queues", |facts| {
        first(facts, "Workload")["spec"]["queueName"] = "gone".into();
    }),
];

#[test]
fn where_all_is_well_every_check_says_so() {
    for process in Process::ALL {
        for finding in judge(&healthy(process)) {
            assert_eq!(finding.level, Level::Ok, "{process:?}: {finding:?}");
        }
    }
}

fn all() -> impl Iterator<Item = &'static Check> {
    ALL.iter().flat_map(|group| group.checks)
}

#[test]
fn every_check_finds_the_very_thing_that_it_is_about_and_names_a_next_step() {
    let tested: Vec<&str> = BROKEN.iter().map(|(check, _)| *check).collect();
    let known: Vec<&str> = all().map(|check| check.name).collect();
    assert_eq!(tested, known);
    for ((check, break_it), known) in BROKEN.iter().zip(all()) {
        let process = match known.on {
            On::Manager | On::Both => Process::Manager,
            On::Worker => Process::Worker,
        };
        let mut facts = healthy(process);
        break_it(&mut facts);
        let found = found(&facts, check);
        assert!(matches!(found.level, Level::Failed | Level::Warning), "{found:?}");
        assert!(found.next.is_some_and(|next| !next.is_empty()), "{check}");
    }
}

#[test]
fn entries_of_another_installation_and_its_authority_are_found() {
    let mut facts = healthy(Process::Worker);
    let left = json!({"name": "mpod.kb.io", "clientConfig": {"caBundle": "old"}});
    let hooks = &mut first(&mut facts, "MutatingWebhookConfiguration")["webhooks"];
    hooks.as_array_mut().unwrap().push(left);
    for check in ["mutating-webhooks", "certificate-authority"] {
        let found = found(&facts, check);
        assert_eq!(found.level, Level::Failed, "{found:?}");
        assert!(found.seen.ends_with(": mpod.kb.io"), "{found:?}");
    }
}

/// As Helm merges the Service of a Kueue that Helm has installed.
#[test]
fn a_service_that_selects_pods_of_kueue_is_found() {
    let mut facts = healthy(Process::Worker);
    let services = of(&mut facts, "Service").iter_mut();
    for service in services.filter(|service| service["metadata"]["name"] == WEBHOOK_SERVICE) {
        service["spec"]["selector"]["app.kubernetes.io/instance"] = "kueue".into();
    }
    let found = found(&facts, "webhook-service");
    assert_eq!(found.level, Level::Failed, "{found:?}");
    assert!(
        found.seen.contains("app.kubernetes.io/instance=kueue"),
        "{found:?}"
    );
    assert!(
        found
            .next
            .unwrap()
            .contains("delete service kueue-webhook-service")
    );
}

/// The healthy cluster with another configuration, for which the given objects are missing.
fn configured(process: Process, values: Value, missing: &[&str]) -> Facts {
    let mut facts = healthy(process);
    let values: Values = serde_json::from_value(values).unwrap();
    for object in manifests(process, HERE, &values).unwrap() {
        if let Some(kind @ ("ConfigMap" | "ClusterRole")) = object["kind"].as_str() {
            without(&mut facts, kind, object["metadata"]["name"].as_str().unwrap());
            put(&mut facts, object);
        }
    }
    for kind in missing {
        of(&mut facts, kind).clear();
    }
    facts
}

#[test]
fn an_installation_is_judged_by_its_own_configuration() {
    let alone = json!({"replicas": 1, "configuration": {"leaderElection": {"leaderElect": false}}});
    let facts = configured(Process::Worker, alone, &["Lease"]);
    assert_eq!(found(&facts, "leader").seen, "leaderElection is off");

    let elsewhere = json!({"configuration": {"leaderElection": {"resourceNamespace": "leases"}}});
    let facts = configured(Process::Worker, elsewhere, &["Lease"]);
    assert_eq!(found(&facts, "leader").level, Level::Unknown);

    let renamed = json!({"configuration": {"internalCertManagement": {"webhookSecretName": "renamed"}}});
    let mut facts = configured(Process::Worker, renamed, &[]);
    first(&mut facts, "Secret")["metadata"]["name"] = "renamed".into();
    assert_eq!(found(&facts, "certificate").level, Level::Ok);

    let own = json!({"configuration": {"internalCertManagement": {"enable": false}}});
    let mut facts = configured(Process::Worker, own, &["Secret"]);
    for check in ["certificate", "certificate-authority"] {
        assert_eq!(found(&facts, check).level, Level::Ok, "{check}");
    }
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        first(&mut facts, kind)["webhooks"][0]["clientConfig"] = json!({});
    }
    assert_eq!(found(&facts, "certificate-authority").level, Level::Ok);
}

#[test]
fn the_rights_of_every_integration_of_the_configuration_are_looked_for() {
    let values = json!({"configuration": {"integrations": {"frameworks": ["batch/job", "pod"]}}});
    let mut facts = configured(Process::Worker, values, &[]);
    assert_eq!(found(&facts, "cluster-role").level, Level::Ok);
    let wanted = rights::of_integration(Process::Worker, HERE, TABLE.named("pod").unwrap());
    let role = { wanted.iter() }
        .find(|object| object["kind"] == "ClusterRole")
        .unwrap();
    without(
        &mut facts,
        "ClusterRole",
        role["metadata"]["name"].as_str().unwrap(),
    );
    assert_eq!(found(&facts, "cluster-role").level, Level::Failed);
}

#[test]
fn a_cluster_counts_as_cordoned_when_the_manager_reads_it_so() {
    for (annotation, level) in [("", Level::Ok), ("false", Level::Ok), ("drain", Level::Warning)] {
        let mut facts = healthy(Process::Manager);
        first(&mut facts, "MultiKueueCluster")["metadata"]["annotations"] = json!({CORDON: annotation});
        assert_eq!(found(&facts, "clusters-cordoned").level, level, "{annotation:?}");
    }
}

#[test]
fn the_command_that_repairs_names_the_process_and_the_namespace_and_runs_in_a_shell_as_it_is() {
    for (process, word) in [(Process::Manager, "manager"), (Process::Worker, "worker")] {
        let mut facts = healthy(process);
        of(&mut facts, "ConfigMap").clear();
        let next = found(&facts, "configuration").next.unwrap();
        let namespace = &facts.namespace;
        assert_eq!(next, format!("roadstead install {word} --namespace {namespace}"));
    }
}

#[test]
fn what_may_not_be_read_is_unknown_and_no_failure() {
    let mut facts = healthy(Process::Manager);
    let refused = Unread("secrets cannot be listed: forbidden".to_owned());
    facts.objects.insert("Secret", Err(refused));
    let found = found(&facts, "certificate");
    assert_eq!(
        (found.level, &*found.seen),
        (Level::Unknown, "secrets cannot be listed: forbidden")
    );
    assert!(judge(&facts).iter().all(|finding| finding.level != Level::Failed));
}

#[test]
fn a_kind_of_cluster_is_only_asked_what_makes_sense_there() {
    let names = |process| -> Vec<&str> {
        judge(&healthy(process))
            .iter()
            .map(|finding| finding.check)
            .collect()
    };
    assert!(names(Process::Manager).contains(&"clusters-active"));
    assert!(!names(Process::Worker).contains(&"clusters-active"));
    assert!(!names(Process::Manager).contains(&"flavors-match-nodes"));
    assert!(all().count() >= 40);
}
