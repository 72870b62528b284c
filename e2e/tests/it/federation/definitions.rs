//! The definitions of our kinds on a real API server: established, structural, and with rules that refuse.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, from_value, json};

use super::fixture::{EVEN, Room, SPARE, beside_others};

const TIME: &str = "2026-01-01T00:00:00Z";
/// What the server says of a definition that is as it should be.
const GOOD: [&str; 2] = ["Established", "NamesAccepted"];

/// One object and what the server says: nothing, or a refusal with these words.
struct Case {
    kind: &'static str,
    before: Option<(Value, Value)>,
    spec: Value,
    status: Value,
    refusal: Option<&'static str>,
}

/// Creating an object.
fn new(kind: &'static str, spec: Value, refusal: impl Into<Option<&'static str>>) -> Case {
    Case {
        kind,
        before: None,
        spec,
        status: Value::Null,
        refusal: refusal.into(),
    }
}

/// Changing a spec while the status is this.
fn change(
    kind: &'static str,
    status: &Value,
    old: &Value,
    new: Value,
    refusal: impl Into<Option<&'static str>>,
) -> Case {
    Case {
        kind,
        before: Some((old.clone(), status.clone())),
        spec: new,
        status: Value::Null,
        refusal: refusal.into(),
    }
}

/// Changing the status of a Workload.
fn status(old: Value, new: Value, refusal: impl Into<Option<&'static str>>) -> Case {
    Case {
        kind: "Workload",
        before: Some((workload_spec(), old)),
        spec: Value::Null,
        status: new,
        refusal: refusal.into(),
    }
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "fieldOfTheFuture": {"x": [1]}}]}})
}

fn pod_set(name: &str, more: &Value) -> Value {
    merged(json!({"name": name, "count": 2, "template": template()}), more)
}

fn workload_spec() -> Value {
    json!({"queueName": "q", "podSets": [pod_set("main", &json!({}))]})
}

fn merged(mut object: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn conditions(types: &[(&str, &str)]) -> Value {
    let condition = |(type_, status): &(&str, &str)| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": TIME});
    json!({"conditions": types.iter().map(condition).collect::<Vec<_>>()})
}

fn admission(pod_sets: usize) -> Value {
    let assignments = vec![json!({"name": "main", "flavors": {"cpu": "f"}, "count": 2}); pod_sets];
    json!({"admission": {"clusterQueue": "cq", "podSetAssignments": assignments}})
}

fn reserved() -> Value {
    merged(conditions(&[("QuotaReserved", "True")]), &admission(1))
}

fn group(resources: &[&str], more: &Value) -> Value {
    let quotas: Vec<_> = resources
        .iter()
        .map(|name| merged(json!({"name": name, "nominalQuota": 9}), more))
        .collect();
    json!({"coveredResources": resources, "flavors": [{"name": "f", "resources": quotas}]})
}

fn queues() -> Vec<Case> {
    let kind = "ClusterQueue";
    let mut lopsided = group(&["cpu", "memory"], &json!({}));
    lopsided["flavors"][0]["resources"].as_array_mut().unwrap().pop();
    let checks = |list: Value| json!({"admissionChecksStrategy": {"admissionChecks": list}});
    vec![
        new(kind, json!({}), None),
        new(kind, json!({"namespaceSelector": null}), None),
        new(
            kind,
            json!({"cohortName": "c", "resourceGroups": [group(&["cpu"], &json!({"borrowingLimit": "2Gi"}))]}),
            None,
        ),
        new(
            kind,
            json!({"resourceGroups": [group(&["cpu"], &json!({"borrowingLimit": 1}))]}),
            "borrowingLimit must be nil when cohort is empty",
        ),
        new(
            kind,
            json!({"resourceGroups": [lopsided]}),
            "flavors must have the same number of resources as the coveredResources",
        ),
        new(
            kind,
            json!({"flavorFungibility": {"preference": "BorrowingOverPreemption"}}),
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        ),
        new(
            kind,
            json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
        new(
            kind,
            json!({"queueingStrategy": "Fifo"}),
            "supported values: \"StrictFIFO\", \"BestEffortFIFO\"",
        ),
        new(kind, checks(json!([])), "at least 1 items"),
        new(
            kind,
            checks(json!([{"name": "a"}, {"name": "a"}])),
            "Duplicate value",
        ),
        new(kind, json!({"cohortName": "Bad_Name"}), "should match"),
        change(
            "LocalQueue",
            &Value::Null,
            &json!({"clusterQueue": "a"}),
            json!({"clusterQueue": "b"}),
            "field is immutable",
        ),
        change(
            "LocalQueue",
            &Value::Null,
            &json!({"clusterQueue": "a"}),
            json!({"clusterQueue": "a", "stopPolicy": "Hold"}),
            None,
        ),
    ]
}

fn configuration() -> Vec<Case> {
    let (flavor, cluster, config) = ("ResourceFlavor", "MultiKueueCluster", "MultiKueueConfig");
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    let one = "exactly one of the fields in [kubeConfig clusterProfileRef] must be set";
    let secret = json!({"location": "s"});
    vec![
        new(flavor, json!({}), None),
        new(
            flavor,
            json!({"topologyName": "t"}),
            "at least one nodeLabel is required when topology is set",
        ),
        new(
            flavor,
            json!({"nodeTaints": [{"key": "a", "effect": "Nope"}]}),
            "supported taint effect values",
        ),
        new(flavor, tolerates(json!({"operator": "Exists"})), None),
        new(
            flavor,
            tolerates(json!({"operator": "Equal", "value": "b"})),
            "operator must be Exists when",
        ),
        new(
            flavor,
            tolerates(json!({"key": "a", "operator": "Exists", "value": "b"})),
            "a value must be empty when 'operator' is 'Exists'",
        ),
        change(
            flavor,
            &Value::Null,
            &json!({"topologyName": "t", "nodeLabels": {"a": "b"}}),
            json!({"nodeLabels": {"a": "b"}}),
            "topologyName is immutable when topologyName is set",
        ),
        new("AdmissionCheck", json!({}), "controllerName"),
        change(
            "AdmissionCheck",
            &Value::Null,
            &json!({"controllerName": "a"}),
            json!({"controllerName": "b"}),
            "field is immutable",
        ),
        new(cluster, json!({"clusterSource": {"kubeConfig": secret}}), None),
        new(
            cluster,
            json!({"clusterSource": {"clusterProfileRef": {"name": "p"}}}),
            None,
        ),
        new(cluster, json!({"clusterSource": {}}), one),
        new(
            cluster,
            json!({"clusterSource": {"kubeConfig": secret, "clusterProfileRef": {"name": "p"}}}),
            one,
        ),
        new(
            cluster,
            json!({"clusterSource": {"kubeConfig": {"location": "a", "locationType": "Url"}}}),
            "supported values: \"Secret\", \"Path\"",
        ),
        new(config, json!({"clusters": ["a", "b"]}), None),
        new(config, json!({"clusters": ["a", "a"]}), "must be unique"),
        new(
            config,
            json!({"clusters": (0..21).map(|n| n.to_string()).collect::<Vec<_>>()}),
            "at most 20 items",
        ),
        new(
            "ProvisioningRequestConfig",
            json!({"provisioningClassName": ""}),
            "provisioningClassName",
        ),
    ]
}

fn workload_specs() -> Vec<Case> {
    let kind = "Workload";
    let sets = |list: Value| json!({"podSets": list});
    let class = |group: &str, kind: &str, name: &str| {
        merged(
            workload_spec(),
            &json!({"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": name}}),
        )
    };
    let own = |name| class("kueue.x-k8s.io", "WorkloadPriorityClass", name);
    let plain = |name| class("scheduling.k8s.io", "PriorityClass", name);
    let limit = |seconds: i64| merged(workload_spec(), &json!({"maximumExecutionTimeSeconds": seconds}));
    let admitted = merged(
        conditions(&[("QuotaReserved", "True"), ("Admitted", "True")]),
        &admission(1),
    );
    let other_queue = merged(workload_spec(), &json!({"queueName": "other"}));
    vec![
        new(kind, workload_spec(), None),
        new(kind, sets(json!([])), "at least 1 items"),
        new(
            kind,
            sets(json!([pod_set("a", &json!({})), pod_set("a", &json!({}))])),
            "Duplicate value",
        ),
        new(
            kind,
            sets(json!([pod_set("a", &json!({"minCount": 3}))])),
            "minCount should be positive and less or equal to count",
        ),
        new(kind, limit(0), "greater than or equal to 1"),
        new(
            kind,
            class("kueue.x-k8s.io", "PriorityClass", "w"),
            "kind must be",
        ),
        new(
            kind,
            class("x", "PriorityClass", "w"),
            "supported values: \"kueue.x-k8s.io\", \"scheduling.k8s.io\"",
        ),
        change(
            kind,
            &reserved(),
            &workload_spec(),
            other_queue.clone(),
            "queueName is immutable while workload quota reserved",
        ),
        change(
            kind,
            &conditions(&[("QuotaReserved", "False")]),
            &workload_spec(),
            other_queue,
            None,
        ),
        change(
            kind,
            &reserved(),
            &merged(workload_spec(), &json!({"priority": 1})),
            plain("p"),
            "priorityClassRef cannot be added or removed",
        ),
        change(
            kind,
            &reserved(),
            &plain("p"),
            plain("o"),
            "priorityClassRef.name of a PriorityClass is immutable",
        ),
        change(kind, &reserved(), &own("p"), own("o"), None),
        change(
            kind,
            &admitted,
            &limit(5),
            limit(6),
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        ),
        change(kind, &reserved(), &limit(5), limit(6), None),
    ]
}

fn workload_statuses() -> Vec<Case> {
    let check = |more: &Value| {
        merged(
            json!({"name": "c", "state": "Pending", "lastTransitionTime": TIME, "message": ""}),
            more,
        )
    };
    let checks = |list: Vec<Value>| json!({"admissionChecks": list});
    vec![
        status(Value::Null, reserved(), None),
        status(
            Value::Null,
            merged(conditions(&[("QuotaReserved", "True")]), &admission(0)),
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        status(
            json!({"clusterName": "a"}),
            json!({"clusterName": "b"}),
            "clusterName is immutable once set",
        ),
        status(json!({"clusterName": "a"}), json!({}), None),
        status(
            json!({"nominatedClusterNames": ["a"]}),
            json!({"nominatedClusterNames": ["a"], "clusterName": "a"}),
            "clusterName and nominatedClusterNames are mutually exclusive",
        ),
        status(
            json!({"nominatedClusterNames": ["a"]}),
            json!({"clusterName": "a"}),
            None,
        ),
        status(
            Value::Null,
            checks(vec![check(&json!({"requeueAfterSeconds": 1, "retryCount": 2}))]),
            None,
        ),
        status(
            Value::Null,
            checks(vec![check(&json!({"state": "Unknown"}))]),
            "supported values: \"Pending\", \"Ready\", \"Retry\", \"Rejected\"",
        ),
        status(
            Value::Null,
            checks((0..9).map(|n| check(&json!({"name": format!("c{n}")}))).collect()),
            "at most 8 items",
        ),
        status(
            Value::Null,
            conditions(&[("A", "Yes")]),
            "supported values: \"True\", \"False\", \"Unknown\"",
        ),
        status(
            Value::Null,
            conditions(&[("A", "True"), ("A", "True")]),
            "Duplicate value",
        ),
    ]
}

fn requests() -> Vec<Case> {
    let kind = "ProvisioningRequest";
    let spec = |template: &str, count: i32| json!({"provisioningClassName": "c", "podSets": [{"podTemplateRef": {"name": template}, "count": count}]});
    vec![
        new(kind, spec("t", 1), None),
        new(kind, spec("t", 0), "greater than or equal to 1"),
        change(
            kind,
            &Value::Null,
            &spec("t", 1),
            spec("u", 1),
            "Value is immutable",
        ),
    ]
}

fn served() -> BTreeMap<String, CustomResourceDefinition> {
    let all = roadstead_api::crd::all().into_iter();
    all.map(|definition| (definition.spec.names.kind.clone(), definition))
        .collect()
}

fn api(
    room: Room,
    client: &Client,
    definition: &CustomResourceDefinition,
) -> (Api<DynamicObject>, ApiResource) {
    let names = &definition.spec.names;
    let version = definition
        .spec
        .versions
        .iter()
        .find(|version| version.storage)
        .unwrap();
    let gvk = GroupVersionKind::gvk(&definition.spec.group, &version.name, &names.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
    let api = if definition.spec.scope == "Namespaced" {
        Api::namespaced_with(client.clone(), room.name, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    (api, resource)
}

/// What the server says to one case; `Ok` if it takes it.
async fn answer(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    name: &str,
    case: &Case,
) -> Result<(), String> {
    let said = |error: kube::Error| error.to_string();
    let params = PostParams::default();
    let object = |spec: &Value| DynamicObject::new(name, resource).data(json!({"spec": spec}));
    let Some((spec, status)) = &case.before else {
        return api
            .create(&params, &object(&case.spec))
            .await
            .map(drop)
            .map_err(said);
    };
    let mut stored = api
        .create(&params, &object(spec))
        .await
        .expect("the object before");
    if !status.is_null() {
        stored.data["status"] = status.clone();
        stored = api
            .replace_status(name, &params, &stored)
            .await
            .expect("the status before");
    }
    let changed = if case.spec.is_null() {
        stored.data["status"] = case.status.clone();
        api.replace_status(name, &params, &stored).await
    } else {
        stored.data["spec"] = case.spec.clone();
        api.replace(name, &params, &stored).await
    };
    changed.map(drop).map_err(said)
}

/// Spec: api API-2, API-3, API-9.4, API-10
#[test]
fn the_rules_of_the_definitions_refuse_with_their_words_and_nothing_else() {
    beside_others("definitions", EVEN, |room| async move {
        let client = room.shared.client(SPARE);
        let served = served();
        let all = [
            queues(),
            configuration(),
            workload_specs(),
            workload_statuses(),
            requests(),
        ];
        let mut wrong = Vec::new();
        for (index, case) in all.iter().flatten().enumerate() {
            let (api, resource) = api(room, &client, &served[case.kind]);
            let name = format!("definitions-{index}");
            let said = answer(&api, &resource, &name, case).await;
            let right = match (&said, case.refusal) {
                (Ok(()), None) => true,
                (Err(message), Some(words)) => message.contains(words),
                (Ok(()), Some(_)) | (Err(_), None) => false,
            };
            if !right {
                wrong.push(format!(
                    "{} {} {}: wanted {:?}, got {said:?}",
                    case.kind, case.spec, case.status, case.refusal
                ));
            }
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// Spec: api API-1
#[test]
fn every_definition_is_established_and_structural() {
    beside_others("established", EVEN, |room| async move {
        let api: Api<CustomResourceDefinition> = Api::all(room.shared.client(SPARE));
        for definition in served().values() {
            let found = api.get(&definition.name_any()).await.unwrap();
            let conditions = found.status.unwrap().conditions.unwrap_or_default();
            for type_ in GOOD {
                let is_true = conditions
                    .iter()
                    .any(|each| each.type_ == type_ && each.status == "True");
                assert!(is_true, "{}: {conditions:?}", definition.name_any());
            }
            let others: Vec<_> = conditions
                .iter()
                .filter(|each| !GOOD.contains(&each.type_.as_str()))
                .collect();
            assert!(others.is_empty(), "{}: {others:?}", definition.name_any());
        }
    });
}

/// Spec: api API-2.1
#[test]
fn what_is_left_out_gets_its_default() {
    beside_others("defaults", EVEN, |room| async move {
        let client = room.shared.client(SPARE);
        let (api, resource) = api(room, &client, &served()["ClusterQueue"]);
        let object = DynamicObject::new("defaulted", &resource).data(json!({"spec": {}}));
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let made = api.create(&dry, &object).await.unwrap();
        let expected: Value = from_value(json!({
            "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never",
                "borrowWithinCohort": {"policy": "Never"}},
        }))
        .unwrap();
        assert_eq!(made.data["spec"], expected);
    });
}
