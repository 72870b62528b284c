//! What clients can read about our kinds before they use them: discovery, columns, documentation, warnings, selectors.

use std::collections::BTreeMap;

use http::header::WARNING;
use serde_json::{Value, json};

use super::fixture::{ALPHA, GROUP, HUB, OLD, Shared, on_plane};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const WRAPPERS: &str = "workload.codeflare.dev";

/// Kind, resource, scope, short names, and `status` where that is a resource of its own.
const RESOURCES: &str = "\
AdmissionCheck admissionchecks Cluster ac status
ClusterQueue clusterqueues Cluster cq status
Cohort cohorts Cluster co status
LocalQueue localqueues Namespaced queue,queues,lq status
MultiKueueCluster multikueueclusters Cluster mkc status
MultiKueueConfig multikueueconfigs Cluster mkconf
ProvisioningRequestConfig provisioningrequestconfigs Cluster prc
ResourceFlavor resourceflavors Cluster flavor,flavors,rf
Topology topologies Cluster topo
Workload workloads Namespaced kwl,kueueworkload,kueueworkloads status
WorkloadPriorityClass workloadpriorityclasses Cluster wpc";

/// What a group serves in a version, in the form above.
async fn resources(shared: &Shared, group: &str, version: &str) -> String {
    let list = shared
        .client
        .list_api_group_resources(&format!("{group}/{version}"))
        .await
        .unwrap();
    let mut lines: Vec<String> = Vec::new();
    for resource in list
        .resources
        .iter()
        .filter(|resource| !resource.name.contains('/'))
    {
        let scope = if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        let short = resource.short_names.as_deref().unwrap_or_default().join(",");
        let status = format!("{}/status", resource.name);
        let status = list.resources.iter().any(|other| other.name == status);
        let line = format!(
            "{} {} {scope} {short}{}",
            resource.kind,
            resource.name,
            if status { " status" } else { "" }
        );
        lines.push(line);
    }
    lines.sort();
    lines.join("\n")
}

/// Spec: api API-1; appwrapper 1.1.
#[test]
fn every_kind_is_found_under_its_names_in_its_versions() {
    on_plane(|shared| async move {
        assert_eq!(resources(shared, GROUP, HUB).await, RESOURCES);
        assert_eq!(resources(shared, GROUP, OLD).await, RESOURCES);
        assert_eq!(
            resources(shared, GROUP, ALPHA).await,
            "Cohort cohorts Cluster co status\nTopology topologies Cluster topo"
        );
        assert_eq!(
            resources(shared, WRAPPERS, HUB).await,
            "AppWrapper appwrappers Namespaced aw status"
        );
        let groups = shared.client.list_api_groups().await.unwrap().groups;
        let group = groups.iter().find(|group| group.name == GROUP).unwrap();
        let versions: Vec<_> = group.versions.iter().map(|each| each.version.as_str()).collect();
        assert_eq!(versions, [HUB, OLD, ALPHA], "the first one is preferred");
    });
}

/// Spec: api API-1: definitions are as the server wants them.
#[test]
fn the_server_has_nothing_to_say_against_a_definition() {
    on_plane(|shared| async move {
        for definition in &shared.definitions {
            let name = definition.metadata.name.as_deref().unwrap();
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let found = shared.ask("GET", &path, None).await.unwrap();
            let conditions = found["status"]["conditions"].as_array().unwrap();
            let said: BTreeMap<_, _> = conditions
                .iter()
                .map(|each| (each["type"].as_str().unwrap(), each["status"].as_str().unwrap()))
                .collect();
            assert_eq!(
                said,
                BTreeMap::from([("Established", "True"), ("NamesAccepted", "True")]),
                "{name}"
            );
        }
    });
}

/// Kind, and the columns beside `Name`; `!` is one that only `-o wide` shows. Without columns of its own a kind has `Age`.
const COLUMNS: &str = "\
AdmissionCheck Age date
ClusterQueue Cohort string; Strategy string!; Pending Workloads integer; Admitted Workloads integer!
Cohort Age date
LocalQueue ClusterQueue string; Pending Workloads integer; Admitted Workloads integer
MultiKueueCluster Connected string; Age date
MultiKueueConfig Age date
ProvisioningRequestConfig Age date
ResourceFlavor Age date
Topology Age date
Workload Queue string; Reserved in string; Admitted string; Finished string; Age date
WorkloadPriorityClass Value integer
AppWrapper Status string; Quota Reserved string; Resources Deployed string; Unhealthy string; Age date";

/// Spec: api API-1.1; appwrapper 1.1.
#[test]
fn a_listing_has_the_columns_of_the_table() {
    on_plane(|shared| async move {
        for line in COLUMNS.lines() {
            let (kind, wanted) = line.split_once(' ').unwrap();
            for version in &shared.definition(kind).spec.versions {
                let table = shared.json(&shared.path(kind, &version.name), TABLE).await;
                let columns = table["columnDefinitions"].as_array().unwrap().iter().skip(1);
                let columns: Vec<String> = columns
                    .map(|column| {
                        let wide = if column["priority"] == 0 { "" } else { "!" };
                        format!(
                            "{} {}{wide}",
                            column["name"].as_str().unwrap(),
                            column["type"].as_str().unwrap()
                        )
                    })
                    .collect();
                assert_eq!(columns.join("; "), wanted, "{kind} {}", version.name);
            }
        }
    });
}

/// Spec: api API-1.1: the cohort has another name in `v1beta1`.
#[test]
fn the_columns_of_a_queue_are_filled_in_both_versions() {
    on_plane(|shared| async move {
        let spec = json!({"spec": {"cohortName": "all"}});
        shared
            .create(HUB, "ClusterQueue", "in-columns", &spec)
            .await
            .unwrap();
        for version in [HUB, OLD] {
            let path = format!("{}/in-columns", shared.path("ClusterQueue", version));
            let table = shared.json(&path, TABLE).await;
            let cells = table["rows"][0]["cells"].as_array().unwrap();
            assert_eq!(
                cells[..3],
                [json!("in-columns"), json!("all"), json!("BestEffortFIFO")],
                "{version}"
            );
        }
    });
}

/// Spec: api API-1: `kubectl` prints these warnings.
#[test]
fn who_uses_an_old_version_is_warned_unless_it_is_as_good() {
    on_plane(|shared| async move {
        for definition in &shared.definitions {
            let kind = &definition.spec.names.kind;
            for version in &definition.spec.versions {
                let response = shared.send(&shared.path(kind, &version.name), JSON).await;
                let warnings: Vec<_> = response.headers().get_all(WARNING).iter().collect();
                let old = [OLD, ALPHA].contains(&version.name.as_str());
                if old && kind != "MultiKueueConfig" {
                    assert_eq!(
                        warnings,
                        ["299 - \"This version is deprecated. Use v1beta2 instead.\""],
                        "{kind} {}",
                        version.name
                    );
                } else {
                    assert!(warnings.is_empty(), "{kind} {}: {warnings:?}", version.name);
                }
            }
        }
    });
}

/// Spec: api API-1, selectable field.
#[test]
fn workloads_are_selected_by_the_queue_that_holds_their_quota() {
    on_plane(|shared| async move {
        let spec = json!({"spec": {"podSets": [{"template": {}}]}});
        for name in ["select-a", "select-b"] {
            let mut made = shared.create(HUB, "Workload", name, &spec).await.unwrap();
            let sets = json!([{"name": "main"}]);
            made["status"] =
                json!({"admission": {"clusterQueue": format!("of-{name}"), "podSetAssignments": sets}});
            shared.replace_status(&made).await.unwrap();
        }
        let select = |version| {
            let path = shared.path("Workload", version);
            format!("{path}?fieldSelector=status.admission.clusterQueue%3Dof-select-b")
        };
        let found = shared.ask("GET", &select(HUB), None).await.unwrap();
        let names: Vec<_> = found["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| &each["metadata"]["name"])
            .collect();
        assert_eq!(names, ["select-b"]);
        let refused = shared.ask("GET", &select(OLD), None).await.unwrap_err();
        assert!(refused.contains("field label not supported"), "{refused}");
    });
}

/// Every field below a schema with its documentation.
fn documented(schema: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    found.insert(path.to_owned(), schema["description"].clone());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // Why: these come from the server itself.
        if !(path.is_empty() && name == "metadata") {
            documented(field, &format!("{path}.{name}"), found);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            documented(&schema[inner], &format!("{path}[]"), found);
        }
    }
}

/// Spec: api API-1; experience: `kubectl explain` reads this.
#[test]
fn the_server_documents_every_field_as_the_definition_does() {
    on_plane(|shared| async move {
        for definition in &shared.definitions {
            let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
            for version in &definition.spec.versions {
                let name = &version.name;
                let open = shared
                    .json(&format!("/openapi/v3/apis/{group}/{name}"), JSON)
                    .await;
                let wanted = json!([{"group": group, "kind": kind, "version": name}]);
                let schemas = open["components"]["schemas"].as_object().unwrap();
                let served = schemas
                    .values()
                    .find(|schema| schema["x-kubernetes-group-version-kind"] == wanted)
                    .unwrap_or_else(|| panic!("{kind} {name} is not served"));
                let mut ours = BTreeMap::new();
                let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
                documented(&schema["openAPIV3Schema"], "", &mut ours);
                let mut theirs = BTreeMap::new();
                documented(served, "", &mut theirs);
                // Why: the server adds what every object has, and every manifest within an object.
                theirs.retain(|path, _| ours.contains_key(path));
                assert!(ours.len() >= 3, "{kind} {name}");
                assert_eq!(theirs, ours, "{kind} {name}");
            }
        }
        let open = shared
            .json(&format!("/openapi/v3/apis/{GROUP}/{HUB}"), JSON)
            .await;
        let schemas = open["components"]["schemas"].as_object().unwrap();
        let queue = schemas
            .iter()
            .find(|(name, _)| name.ends_with(".ClusterQueue"))
            .unwrap()
            .1;
        let preemption = &queue["properties"]["spec"]["properties"]["preemption"];
        assert_eq!(
            preemption["description"],
            "When workloads of this queue, or of its cohort, are preempted for a workload of this queue."
        );
    });
}
