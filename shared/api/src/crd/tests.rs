use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// The schema of a definition as JSON, with the definition's name.
fn schemas() -> Vec<(String, Value)> {
    all()
        .into_iter()
        .map(|crd| {
            let name = crd.metadata.name.unwrap();
            let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
            (name, schema["openAPIV3Schema"].clone())
        })
        .collect()
}

/// Calls `check` with every schema inside a schema and its path.
fn walk(schema: &Value, path: &str, check: &mut impl FnMut(&Value, &str)) {
    check(schema, path);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), check);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            walk(&schema[keyword], &format!("{path}[]"), check);
        }
    }
}

#[test]
fn every_schema_is_structural() {
    for (name, schema) in schemas() {
        walk(&schema, "", &mut |schema, path| {
            for keyword in [
                "nullable",
                "oneOf",
                "allOf",
                "not",
                "$ref",
                "const",
                "title",
                "definitions",
            ] {
                assert!(schema.get(keyword).is_none(), "{name} {path} has {keyword}");
            }
            let int_or_string = schema["x-kubernetes-int-or-string"] == json!(true);
            assert_eq!(
                schema["type"].is_string(),
                !int_or_string,
                "{name} {path} has no type"
            );
            assert_eq!(
                schema.get("anyOf").is_some(),
                int_or_string,
                "{name} {path} has a choice"
            );
        });
    }
}

#[test]
fn every_field_is_documented_on_one_line() {
    for (name, schema) in schemas() {
        walk(&schema, "", &mut |schema, path| {
            let description = schema["description"].as_str();
            assert!(
                path.ends_with("[]") || description.is_some_and(|text| text.len() > 5),
                "{name} {path}"
            );
            assert!(
                !description.is_some_and(|text| text.contains('\n')),
                "{name} {path}"
            );
        });
    }
}

/// Spec: api, reading conventions: list types matter for server-side apply.
#[test]
fn every_list_of_objects_says_how_it_is_merged() {
    for (name, schema) in schemas() {
        walk(&schema, "", &mut |schema, path| {
            if schema["type"] != "array" {
                return;
            }
            let list_type = schema["x-kubernetes-list-type"].as_str();
            assert!(list_type.is_some(), "{name} {path} has no list type");
            assert_eq!(
                list_type == Some("map"),
                schema["x-kubernetes-list-map-keys"].is_array(),
                "{name} {path}"
            );
            for key in schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let field = &schema["items"]["properties"][key.as_str().unwrap()];
                let required = schema["items"]["required"]
                    .as_array()
                    .is_some_and(|names| names.contains(key));
                assert!(
                    required || field.get("default").is_some(),
                    "{name} {path}: key {key} may be absent"
                );
            }
        });
    }
}

/// Spec: api API-1, inventory and API-1.1, printer columns.
#[test]
fn names_scopes_and_columns_are_those_of_the_inventory() {
    let lines: Vec<String> = all()
        .iter()
        .map(|crd| {
            let version = &crd.spec.versions[0];
            let columns: Vec<String> = version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| {
                    let priority = column
                        .priority
                        .map(|priority| format!("!{priority}"))
                        .unwrap_or_default();
                    format!("{}{priority}={}", column.name, column.json_path)
                })
                .collect();
            format!(
                "{} {} {} {} [{}] {}",
                crd.metadata.name.as_deref().unwrap(),
                version.name,
                crd.spec.scope,
                if version.subresources.is_some() {
                    "status"
                } else {
                    "-"
                },
                crd.spec
                    .names
                    .short_names
                    .iter()
                    .flatten()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(","),
                columns.join("; "),
            )
        })
        .collect();
    let wanted = "\
clusterqueues.kueue.x-k8s.io v1beta2 Cluster status [cq] Cohort=.spec.cohortName; Strategy!1=.spec.queueingStrategy; Pending Workloads=.status.pendingWorkloads; Admitted Workloads!1=.status.admittedWorkloads
localqueues.kueue.x-k8s.io v1beta2 Namespaced status [queue,queues,lq] ClusterQueue=.spec.clusterQueue; Pending Workloads=.status.pendingWorkloads; Admitted Workloads=.status.admittedWorkloads
cohorts.kueue.x-k8s.io v1beta2 Cluster status [co] \n\
workloads.kueue.x-k8s.io v1beta2 Namespaced status [kwl,kueueworkload,kueueworkloads] Queue=.spec.queueName; Reserved in=.status.admission.clusterQueue; Admitted=.status.conditions[?(@.type=='Admitted')].status; Finished=.status.conditions[?(@.type=='Finished')].status; Age=.metadata.creationTimestamp
resourceflavors.kueue.x-k8s.io v1beta2 Cluster - [flavor,flavors,rf] \n\
admissionchecks.kueue.x-k8s.io v1beta2 Cluster status [ac] \n\
topologies.kueue.x-k8s.io v1beta2 Cluster - [topo] \n\
workloadpriorityclasses.kueue.x-k8s.io v1beta2 Cluster - [wpc] Value=.value
multikueueclusters.kueue.x-k8s.io v1beta2 Cluster status [mkc] Connected=.status.conditions[?(@.type=='Active')].status; Age=.metadata.creationTimestamp
multikueueconfigs.kueue.x-k8s.io v1beta2 Cluster - [mkconf] \n\
provisioningrequestconfigs.kueue.x-k8s.io v1beta2 Cluster - [prc] \n\
provisioningrequests.autoscaling.x-k8s.io v1 Namespaced status [provreq,provreqs] ";
    assert_eq!(lines.join("\n"), wanted);
}

/// Spec: api API-1, selectable field.
#[test]
fn only_workloads_can_be_selected_by_a_field() {
    for crd in all() {
        let fields = crd.spec.versions[0].selectable_fields.clone().unwrap_or_default();
        let paths: Vec<&str> = fields.iter().map(|field| field.json_path.as_str()).collect();
        let wanted: &[&str] = if crd.spec.names.kind == "Workload" {
            &[".status.admission.clusterQueue"]
        } else {
            &[]
        };
        assert_eq!(paths, wanted, "{}", crd.spec.names.kind);
    }
}

/// Spec: api API-2.4, API-3, API-5, API-6, API-7, API-9.4, API-10: texts that are fixed.
#[test]
fn the_rules_say_what_the_specification_says() {
    let mut messages = BTreeSet::new();
    for (_, schema) in schemas() {
        walk(&schema, "", &mut |schema, _| {
            for rule in schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                messages.insert(rule["message"].as_str().unwrap().to_owned());
            }
        });
    }
    for wanted in [
        "borrowingLimit must be nil when cohort is empty",
        "flavors must have the same number of resources as the coveredResources",
        "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        "field is immutable",
        "at least one nodeLabel is required when topology is set",
        "topologyName is immutable when topologyName is set",
        "must be unique",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
        "minCount should be positive and less or equal to count",
        "podSetAssignments must have the same number of podSets as the spec",
        "queueName is immutable while workload quota reserved",
        "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        "clusterName is immutable once set",
        "clusterName and nominatedClusterNames are mutually exclusive",
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
    ] {
        assert!(messages.contains(wanted), "no rule says {wanted:?}");
    }
}

#[test]
fn nothing_but_known_keywords_is_left_in_a_schema() {
    // Why: a definition drops what it does not know without a word, so the JSON before and after is compared.
    fn check<K: CustomResourceExt + JsonSchema>() {
        let before = schema_of::<K>();
        let after = serde_json::to_value(definition::<K>()).unwrap();
        let after = &after["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut keywords_before = Vec::new();
        walk(&before, "", &mut |schema, path| {
            keywords_before.push((
                path.to_owned(),
                schema
                    .as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect::<BTreeSet<_>>(),
            ));
        });
        let mut keywords_after = Vec::new();
        walk(after, "", &mut |schema, path| {
            keywords_after.push((
                path.to_owned(),
                schema
                    .as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect::<BTreeSet<_>>(),
            ));
        });
        assert_eq!(keywords_before, keywords_after);
    }
    check::<v1beta2::Workload>();
    check::<v1beta2::ClusterQueue>();
    check::<v1beta2::LocalQueue>();
    check::<v1beta2::ResourceFlavor>();
    check::<v1beta2::WorkloadPriorityClass>();
    check::<v1beta2::ProvisioningRequestConfig>();
}

#[test]
fn the_documentation_of_a_field_wins_over_that_of_its_type() {
    let mut schema = json!({
        "description": "of the\nfield",
        "anyOf": [{"type": "object", "description": "of the type"}, {"type": "null"}],
    });
    make_structural(&mut schema);
    assert_eq!(schema, json!({"description": "of the field", "type": "object"}));
}
