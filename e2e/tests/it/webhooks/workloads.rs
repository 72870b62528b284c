//! Workloads, their status and their changes.

use kube::Client;
use roadstead_e2e::stage::merge;
use serde_json::{Value, json};

use super::ground::{KUEUE, Part, create, judge, on_cluster, patch, stranger, try_create};

const HOOK: &str = "vworkload.kb.io";

fn workload(name: &str, set: Value) -> Value {
    let mut main = json!({"name": "main", "count": 5, "template": {"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}});
    merge(&mut main, &set);
    json!({"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": name, "namespace": "default"},
        "spec": {"podSets": [main]}})
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn admission(count: i32, usage: Value) -> Value {
    json!({"clusterQueue": "q", "podSetAssignments": [
        {"name": "main", "count": count, "flavors": {"cpu": "f"}, "resourceUsage": usage}]})
}

fn ready(updates: Value) -> Value {
    json!([{"name": "x", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "podSetUpdates": updates}])
}

/// A stored Workload whose quota is reserved. It has finished, so that the process leaves it as it is.
async fn reserved(client: &Client, name: &str, more: Value) -> Value {
    let workload = workload(name, json!({}));
    create(client, &workload).await;
    let mut status = json!({"conditions": [condition("QuotaReserved"), condition("Finished")], "admission": admission(5, json!({"cpu": "5"}))});
    merge(&mut status, &more);
    patch(
        client,
        &workload,
        Part::Status,
        &json!({ "status": status }),
        false,
    )
    .await
    .unwrap_or_else(|why| panic!("{why}"));
    workload
}

/// Spec: api API-9.5.1 to 9.5.4, 9.5.9; admission-engine B014, B015, B026.
#[test]
fn each_rule_about_new_workloads_holds() {
    let template = |template: Value| json!({ "template": template });
    let containers = |name: &str, resource: &str, amount: &str| {
        template(
            json!({"spec": {name: [{"name": "c", "image": "i", "resources": {"requests": {resource: amount}}}]}}),
        )
    };
    let slice = |request: Value| json!({ "topologyRequest": request });
    let mut cases = vec![
        (
            "labels",
            workload("w", template(json!({"metadata": {"labels": {"a": "b"}}}))),
            None,
        ),
        (
            "no label key",
            workload("w", template(json!({"metadata": {"labels": {"a b": "c"}}}))),
            Some("spec.podSets[0].template.metadata.labels: Invalid value: \"a b\""),
        ),
        (
            "no annotation key",
            workload("w", template(json!({"metadata": {"annotations": {"a b": "c"}}}))),
            Some("metadata.annotations: Invalid value: \"a b\""),
        ),
        (
            "a request",
            workload("w", containers("containers", "memory", "1Gi")),
            None,
        ),
        (
            "pods",
            workload("w", containers("containers", "pods", "1")),
            Some("the key is reserved for internal kueue use"),
        ),
        (
            "pods at the start",
            workload("w", containers("initContainers", "pods", "1")),
            Some("initContainers[0]"),
        ),
        (
            "a negative request",
            workload("w", containers("containers", "cpu", "-1")),
            Some("requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
        ),
        (
            "a slice",
            workload(
                "w",
                slice(json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 1})),
            ),
            None,
        ),
        (
            "a slice without size",
            workload("w", slice(json!({"podSetSliceRequiredTopology": "rack"}))),
            Some("podSetSliceSize: Required value"),
        ),
        (
            "a size without slice",
            workload("w", slice(json!({"podSetSliceSize": 1}))),
            Some("podSetSliceSize: Forbidden"),
        ),
        ("a minimum", workload("w", json!({"minCount": 2})), None),
    ];
    let mut two = workload("w", json!({"minCount": 2}));
    let mut other = two["spec"]["podSets"][0].clone();
    other["name"] = json!("other");
    two["spec"]["podSets"].as_array_mut().unwrap().push(other);
    cases.push(("two minimums", two, Some("at most one podSet can use minCount")));
    let noted = |key: &str, value: &str, set: Value| {
        let mut workload = workload("w", set);
        workload["metadata"]["annotations"] = json!({ key: value });
        workload
    };
    let elastic = "kueue.x-k8s.io/elastic-job";
    let gates = "kueue.x-k8s.io/admission-gated-by";
    cases.extend([
        ("elastic", noted(elastic, "true", json!({})), None),
        (
            "elastic with a minimum",
            noted(elastic, "true", json!({"minCount": 2})),
            Some("partial admission and elastic job cannot be used together"),
        ),
        ("gates", noted(gates, "x.io/a,y.io/b", json!({})), None),
        (
            "a gate twice",
            noted(gates, "x.io/a,x.io/a", json!({})),
            Some("Duplicate value: \"x.io/a\""),
        ),
        (
            "a gate without domain",
            noted(gates, "a", json!({})),
            Some("must be a domain-prefixed path"),
        ),
        (
            "an empty gate",
            noted(gates, "x.io/a,", json!({})),
            Some("must not be empty"),
        ),
    ]);
    on_cluster(|solo, _| async move {
        let client = stranger(solo).await;
        for (about, object, refusal) in cases {
            judge(about, &try_create(&client, &object).await, HOOK, refusal);
        }
    });
}

/// Spec: api API-9.5.5 to 9.5.8; admission-engine B016, B019.
#[test]
fn each_rule_about_statuses_holds() {
    let main = |count: i32| json!([{"name": "main", "count": count}]);
    let update = |update: Value| json!({"admissionChecks": ready(json!([update]))});
    let conditions = json!([condition("QuotaReserved")]);
    let cases = [
        (
            "reserved with an admission",
            json!({"conditions": conditions, "admission": admission(5, json!({"cpu": "5"}))}),
            None,
        ),
        (
            "reserved without",
            json!({"conditions": conditions}),
            Some("status.admission: Required value: must be set while the QuotaReserved condition is true"),
        ),
        (
            "even usage",
            json!({"admission": admission(2, json!({"nvidia.com/gpu": "4"}))}),
            None,
        ),
        (
            "odd usage",
            json!({"admission": admission(2, json!({"nvidia.com/gpu": "5"}))}),
            Some("resourceUsage[nvidia.com/gpu]: Invalid value: \"5\": is not a multiple of 2"),
        ),
        (
            "another pod set",
            json!({"admission": {"podSetAssignments": [{"name": "other"}]}}),
            Some("podSetAssignments[0].name: Not found: \"other\""),
        ),
        ("some reclaimed", json!({"reclaimablePods": main(5)}), None),
        (
            "too many reclaimed",
            json!({"reclaimablePods": main(6)}),
            Some("should be less or equal to 5"),
        ),
        (
            "reclaimed of another",
            json!({"reclaimablePods": [{"name": "other", "count": 1}]}),
            Some("reclaimablePods[0].name: Not found: \"other\""),
        ),
        (
            "an update",
            update(json!({"name": "main", "labels": {"a": "b"}, "nodeSelector": {"a": "b"}})),
            None,
        ),
        (
            "an update of another",
            update(json!({"name": "other"})),
            Some("podSetUpdates[0].name: Not found: \"other\""),
        ),
        (
            "no label in an update",
            update(json!({"name": "main", "labels": {"a b": "c"}})),
            Some("podSetUpdates[0].labels: Invalid value: \"a b\""),
        ),
        (
            "no selector in an update",
            update(json!({"name": "main", "nodeSelector": {"a": "b c"}})),
            Some("podSetUpdates[0].nodeSelector[a]: Invalid value: \"b c\""),
        ),
    ];
    on_cluster(|solo, _| async move {
        let client = stranger(solo).await;
        let workload = workload("statuses", json!({}));
        create(&client, &workload).await;
        for (about, status, refusal) in cases {
            let answer = patch(
                &client,
                &workload,
                Part::Status,
                &json!({ "status": status }),
                true,
            )
            .await;
            judge(about, &answer, HOOK, refusal);
        }
    });
}

/// Spec: api API-9.5.10; admission-engine B018, B019, B021.
#[test]
fn each_rule_about_changes_holds() {
    let image = |name: &str| {
        let changed = workload(
            name,
            json!({"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}),
        );
        json!({"spec": changed["spec"]})
    };
    let pods = |count: i32| json!({"status": {"reclaimablePods": [{"name": "main", "count": count}]}});
    let moved = json!({"status": {"admission": {"clusterQueue": "other"}}});
    let released = json!({"status": {"admission": null, "conditions": []}});
    let delayed = json!({"status": {"admission": {"podSetAssignments": [
        {"name": "main", "count": 5, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "5"}, "delayedTopologyRequest": "Pending"}]}}});
    let placed = |name: &str| json!({"status": {"clusterName": name, "nominatedClusterNames": null}});
    let other =
        json!({"status": {"admissionChecks": ready(json!([{"name": "main", "labels": {"a": "c"}}]))}});
    let cases = [
        (
            Part::Main,
            "an image",
            image("held"),
            Some("spec.podSets: Invalid value: field is immutable"),
        ),
        (Part::Main, "the priority", json!({"spec": {"priority": 5}}), None),
        (
            Part::Status,
            "fewer reclaimed",
            pods(2),
            Some("reclaimablePods[main].count: Invalid value: \"2\": cannot be less than 3"),
        ),
        (Part::Status, "more reclaimed", pods(4), None),
        (
            Part::Status,
            "too many reclaimed",
            pods(6),
            Some("should be less or equal to 5"),
        ),
        (
            Part::Status,
            "none reclaimed",
            json!({"status": {"reclaimablePods": []}}),
            Some("cannot be removed"),
        ),
        (
            Part::Status,
            "another queue",
            moved,
            Some("status.admission: Invalid value: field is immutable"),
        ),
        (Part::Status, "released", released, None),
        (Part::Status, "a later place", delayed, None),
        (
            Part::Status,
            "another update",
            other,
            Some("podSetUpdates: Invalid value: field is immutable"),
        ),
        (Part::Status, "nominated", placed("w1"), None),
        (
            Part::Status,
            "not nominated",
            placed("w3"),
            Some(
                "Invalid value: \"w3\": when setting clusterName it must be one of the nominatedClusterNames",
            ),
        ),
    ];
    on_cluster(|solo, _| async move {
        let client = stranger(solo).await;
        let more = json!({"reclaimablePods": [{"name": "main", "count": 3}], "nominatedClusterNames": ["w1", "w2"],
            "admissionChecks": ready(json!([{"name": "main", "labels": {"a": "b"}}]))});
        let held = reserved(&client, "held", more).await;
        let free = workload("free", json!({}));
        create(&client, &free).await;
        judge(
            "an image of a free one",
            &patch(&client, &free, Part::Main, &image("free"), true).await,
            HOOK,
            None,
        );
        for (part, about, change, refusal) in cases {
            judge(
                about,
                &patch(&client, &held, part, &change, true).await,
                HOOK,
                refusal,
            );
        }
    });
}

/// Spec: api API-9.5.10; admission-engine B026.
#[test]
fn gates_only_go() {
    on_cluster(|solo, _| async move {
        let client = stranger(solo).await;
        let by =
            |gates: Value| json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}});
        let mut gated = workload("gated", json!({}));
        merge(&mut gated, &by(json!("x.io/a")));
        create(&client, &gated).await;
        let bare = workload("ungated", json!({}));
        create(&client, &bare).await;
        for (about, object, gates, refusal) in [
            (
                "one more",
                &gated,
                json!("x.io/a,x.io/b"),
                Some("can only remove gates, not add new ones"),
            ),
            ("none any more", &gated, Value::Null, None),
            (
                "a late one",
                &bare,
                json!("x.io/a"),
                Some("cannot add admission gate after creation"),
            ),
        ] {
            judge(
                about,
                &patch(&client, object, Part::Main, &by(gates), true).await,
                HOOK,
                refusal,
            );
        }
    });
}
