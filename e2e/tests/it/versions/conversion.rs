//! Conversion by a real API server through our webhook, and defaults.

use roadstead_convert::versions::CARRIED;
use serde_json::{Value, json};

use super::fixture::{ALPHA, GROUP, HUB, OLD, Shared, on_plane};

const TIME: &str = "2026-01-01T00:00:00Z";

/// Complains unless `actual` has everything that `wanted` has.
fn holds(actual: &Value, wanted: &Value) {
    fn has(actual: &Value, wanted: &Value) -> bool {
        match (actual, wanted) {
            (Value::Object(actual), Value::Object(wanted)) => wanted
                .iter()
                .all(|(name, wanted)| has(actual.get(name).unwrap_or(&Value::Null), wanted)),
            (actual, wanted) => actual == wanted,
        }
    }
    assert!(has(actual, wanted), "{actual:#} lacks something of {wanted:#}");
}

/// Creates an object in one version and reads it in this and another, then the same from the other side.
async fn both_ways(shared: &Shared, kind: &str, old: (&str, Value), new: Value) {
    let (version, old) = old;
    for (number, (written, fields)) in [(version, &old), (HUB, &new)].into_iter().enumerate() {
        let name = format!("both-ways-{version}-{number}");
        let mut made = shared
            .create(written, kind, &name, &without_status(fields))
            .await
            .unwrap();
        if let Some(status) = fields.get("status") {
            made["status"] = status.clone();
            shared.replace_status(&made).await.unwrap();
        }
        for (read, wanted) in [(version, &old), (HUB, &new)] {
            let found = shared.read(read, kind, &name).await;
            assert_eq!(found["apiVersion"], format!("{GROUP}/{read}"));
            holds(&found, wanted);
        }
    }
}

fn without_status(fields: &Value) -> Value {
    let mut fields = fields.clone();
    fields.as_object_mut().unwrap().remove("status");
    fields
}

/// Spec: api API-11; admission-engine B002, B024, B025.
#[test]
fn each_kind_with_another_form_is_read_in_both_versions() {
    on_plane(|shared| async move {
        let spec = |spec: Value| json!({"spec": spec});
        both_ways(
            shared,
            "ClusterQueue",
            (OLD, spec(json!({"cohort": "x"}))),
            spec(json!({"cohortName": "x"})),
        )
        .await;
        let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]);
        both_ways(
            shared,
            "LocalQueue",
            (
                OLD,
                json!({"spec": {"clusterQueue": "q"}, "status": {"flavorUsage": usage}}),
            ),
            json!({"spec": {"clusterQueue": "q"}, "status": {"flavorsUsage": usage}}),
        )
        .await;
        let share = json!({"fairSharing": {"weightedShare": 4}});
        both_ways(
            shared,
            "Cohort",
            (ALPHA, json!({"spec": {"parent": "p"}, "status": share})),
            json!({"spec": {"parentName": "p"}, "status": share}),
        )
        .await;
        both_ways(
            shared,
            "Cohort",
            (OLD, spec(json!({"parentName": "p"}))),
            spec(json!({"parentName": "p"})),
        )
        .await;
        let config = json!({"kubeConfig": {"location": "s", "locationType": "Secret"}});
        both_ways(
            shared,
            "MultiKueueCluster",
            (OLD, spec(config.clone())),
            spec(json!({"clusterSource": config})),
        )
        .await;

        let sets = json!([{"name": "main", "count": 3, "template": {"spec": {"fieldOfTheFuture": [1]}}}]);
        let placed = |assignment: Value| json!({"clusterQueue": "q", "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]});
        let hosts = json!(["kubernetes.io/hostname"]);
        let domains: Vec<_> = (1..=3)
            .map(|n| json!({"values": [format!("n-{n}")], "count": 1}))
            .collect();
        let slice = json!({
            "domainCount": 3,
            "valuesPerLevel": [{"individual": {"prefix": "n-", "roots": ["1", "2", "3"]}}],
            "podCounts": {"universal": 1},
        });
        both_ways(
            shared,
            "Workload",
            (
                OLD,
                json!({
                    "spec": {
                        "podSets": sets, "priority": 1, "priorityClassName": "p",
                        "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                    },
                    "status": {
                        "accumulatedPastExexcutionTimeSeconds": 9,
                        "admission": placed(json!({"levels": hosts, "domains": domains})),
                    },
                }),
            ),
            json!({
                "spec": {
                    "podSets": sets, "priority": 1,
                    "priorityClassRef": {"group": GROUP, "kind": "WorkloadPriorityClass", "name": "p"},
                },
                "status": {
                    "accumulatedPastExecutionTimeSeconds": 9,
                    "admission": placed(json!({"levels": hosts, "slices": [slice]})),
                },
            }),
        )
        .await;
    });
}

/// Spec: api API-1: kinds whose versions differ in limits and defaults only.
#[test]
fn each_kind_with_the_same_form_is_read_in_both_versions() {
    on_plane(|shared| async move {
        for (kind, fields) in [
            ("ResourceFlavor", json!({"spec": {"nodeLabels": {"a": "b"}}})),
            ("AdmissionCheck", json!({"spec": {"controllerName": "c"}})),
            ("Topology", json!({"spec": {"levels": [{"nodeLabel": "rack"}]}})),
            ("WorkloadPriorityClass", json!({"value": 5, "description": "d"})),
            ("MultiKueueConfig", json!({"spec": {"clusters": ["a", "b"]}})),
            (
                "ProvisioningRequestConfig",
                json!({"spec": {"provisioningClassName": "c"}}),
            ),
        ] {
            both_ways(shared, kind, (OLD, fields.clone()), fields).await;
        }
        let levels = json!({"spec": {"levels": [{"nodeLabel": "rack"}]}});
        both_ways(shared, "Topology", (ALPHA, levels.clone()), levels).await;
    });
}

/// Spec: admission-engine B003, B004.
#[test]
fn old_words_and_lists_of_a_queue_are_read_as_their_new_form() {
    on_plane(|shared| async move {
        let old = json!({"spec": {
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "admissionChecks": ["a", "b"],
        }});
        let new = json!({"spec": {
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
            "admissionChecks": null,
            "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]},
        }});
        shared
            .create(OLD, "ClusterQueue", "old-words", &old)
            .await
            .unwrap();
        for version in [HUB, OLD] {
            holds(&shared.read(version, "ClusterQueue", "old-words").await, &new);
        }
    });
}

/// Spec: api API-11: a client that writes as `v1beta1` erases no field that only `v1beta2` has.
#[test]
fn a_writer_of_v1beta1_erases_nothing() {
    on_plane(|shared| async move {
        let layers = json!([{"topology": "rack", "size": 2}]);
        let state = json!([{"name": "multikueue", "position": "Closed", "lastTransitionTime": TIME}]);
        let spec = json!({
            "preemptionGates": [{"name": "multikueue"}],
            "podSets": [{
                "name": "main", "count": 4, "template": {},
                "topologyRequest": {"required": "block", "podsetSliceRequiredTopologyConstraints": layers},
            }],
        });
        let kept = json!({"spec": spec, "status": {"preemptionGates": state}});
        let mut made = shared
            .create(HUB, "Workload", "kept", &json!({"spec": spec}))
            .await
            .unwrap();
        made["status"] = json!({"preemptionGates": state});
        shared.replace_status(&made).await.unwrap();

        let mut old = shared.read(OLD, "Workload", "kept").await;
        assert!(old["metadata"]["annotations"][CARRIED].is_string(), "{old:#}");
        // As a controller does that knows its own fields only, and no annotations.
        old["metadata"]["annotations"] = Value::Null;
        old["status"] = json!({"clusterName": "east"});
        shared.replace_status(&old).await.unwrap();
        let found = shared.read(HUB, "Workload", "kept").await;
        holds(&found, &kept);
        assert_eq!(found["status"]["clusterName"], "east");
        assert_eq!(found["metadata"]["annotations"], Value::Null);

        let mut old = shared.read(OLD, "Workload", "kept").await;
        old["spec"]["active"] = false.into();
        shared.replace(&old).await.unwrap();
        let found = shared.read(HUB, "Workload", "kept").await;
        holds(&found, &kept);
        assert_eq!(found["spec"]["active"], false);

        let mut patch = shared.object(
            "Workload",
            OLD,
            "kept",
            &json!({"spec": {
                "queueName": "q", "podSets": [{"name": "main", "count": 4, "template": {}}],
            }}),
        );
        patch["metadata"]["namespace"] = super::fixture::NAMESPACE.into();
        shared.apply(patch).await.unwrap();
        let found = shared.read(HUB, "Workload", "kept").await;
        holds(&found, &kept);
        assert_eq!(found["spec"]["queueName"], "q");

        let policy =
            json!({"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}});
        shared.create(HUB, "ClusterQueue", "kept", &policy).await.unwrap();
        let mut old = shared.read(OLD, "ClusterQueue", "kept").await;
        old["status"] = json!({"pendingWorkloads": 3});
        shared.replace_status(&old).await.unwrap();
        holds(&shared.read(HUB, "ClusterQueue", "kept").await, &policy);
    });
}

#[test]
fn a_forged_annotation_is_refused_with_its_name() {
    on_plane(|shared| async move {
        let fields = json!({
            "metadata": {"name": "forged", "annotations": {CARRIED: r#"{"preemptionGates": "all"}"#}},
            "spec": {"podSets": [{"count": 1, "template": {}}]},
        });
        let refused = shared
            .create(OLD, "Workload", "forged", &fields)
            .await
            .unwrap_err();
        assert!(
            refused.contains("Workload `forged`: `metadata.annotations[kueue.x-k8s.io/v1beta2-fields]`"),
            "{refused}"
        );
    });
}

/// Spec: api, columns "Default"; admission-engine B001, but for the finalizer, which the webhook sets; provisioning 15.6.
#[test]
fn what_is_left_out_gets_the_default_of_its_version() {
    on_plane(|shared| async move {
        let quota = json!([{"name": "cpu", "nominalQuota": "9"}]);
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quota}]}]);
        let queue = json!({"spec": {"namespaceSelector": {}, "resourceGroups": groups}});
        let defaulted = json!({"spec": {
            "namespaceSelector": {}, "resourceGroups": groups,
            "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "reclaimWithinCohort": "Never", "withinClusterQueue": "Never", "borrowWithinCohort": {"policy": "Never"},
            },
        }});
        let provisioning = json!({"spec": {"provisioningClassName": "c", "retryStrategy": {
            "backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800,
        }}});
        let sets = json!([{"name": "main", "count": 1, "template": {}}]);
        let config = json!({"location": "s", "locationType": "Secret"});
        for (version, kind, given, wanted) in [
            (HUB, "ClusterQueue", queue.clone(), defaulted.clone()),
            (OLD, "ClusterQueue", queue, defaulted),
            (
                HUB,
                "LocalQueue",
                json!({"spec": {"fairSharing": {}}}),
                json!({"spec": {"stopPolicy": "None", "fairSharing": {"weight": "1"}}}),
            ),
            (
                OLD,
                "LocalQueue",
                json!({"spec": {}}),
                json!({"spec": {"stopPolicy": "None"}}),
            ),
            (
                HUB,
                "Cohort",
                json!({"spec": {"fairSharing": {}}}),
                json!({"spec": {"fairSharing": {"weight": "1"}}}),
            ),
            (
                HUB,
                "Workload",
                json!({"spec": {"podSets": [{"template": {}}]}}),
                json!({"spec": {"active": true, "podSets": sets}}),
            ),
            (
                OLD,
                "Workload",
                json!({"spec": {"podSets": [{"template": {}, "count": 1}]}}),
                json!({"spec": {"active": true, "podSets": sets}}),
            ),
            (
                HUB,
                "AdmissionCheck",
                json!({"spec": {"controllerName": "c"}}),
                json!({"spec": {"controllerName": "c"}}),
            ),
            (
                OLD,
                "AdmissionCheck",
                json!({"spec": {"controllerName": "c"}}),
                json!({"spec": {"controllerName": "c"}}),
            ),
            (
                HUB,
                "MultiKueueCluster",
                json!({"spec": {"clusterSource": {"kubeConfig": {"location": "s"}}}}),
                json!({"spec": {"clusterSource": {"kubeConfig": config}}}),
            ),
            (
                OLD,
                "MultiKueueCluster",
                json!({"spec": {"kubeConfig": {"location": "s"}}}),
                json!({"spec": {"kubeConfig": config}}),
            ),
            (
                HUB,
                "ProvisioningRequestConfig",
                json!({"spec": {"provisioningClassName": "c"}}),
                provisioning.clone(),
            ),
            (
                OLD,
                "ProvisioningRequestConfig",
                json!({"spec": {"provisioningClassName": "c"}}),
                provisioning,
            ),
            (
                HUB,
                "AppWrapper",
                json!({"spec": {"components": []}}),
                json!({"spec": {"components": []}}),
            ),
        ] {
            let path = format!("{}?dryRun=All", shared.path(kind, version));
            let object = shared.object(kind, version, "defaulted", &given);
            let made = shared.ask("POST", &path, Some(&object)).await.unwrap();
            assert_eq!(made["spec"], wanted["spec"], "{kind} {version}");
        }
    });
}
