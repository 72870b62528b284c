use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::*;

/// The schema of each version of a definition as JSON, with the definition's name and the version's.
fn schemas() -> Vec<(String, Value)> {
    let versions = all().into_iter().flat_map(|crd| {
        let name = crd.metadata.name.unwrap();
        let of = move |version: CustomResourceDefinitionVersion| {
            let schema = serde_json::to_value(version.schema.unwrap()).unwrap();
            (
                format!("{name} {}", version.name),
                schema["openAPIV3Schema"].clone(),
            )
        };
        crd.spec.versions.into_iter().map(of).collect::<Vec<_>>()
    });
    versions.collect()
}

/// The field at a path such as `spec.podSets[].name`; null if there is none.
fn field<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |schema, name| {
        let field = name.trim_end_matches("[]");
        let schema = &schema["properties"][field];
        if name == field { schema } else { &schema["items"] }
    })
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

#[test]
fn the_documentation_of_a_field_says_its_default_its_words_and_its_limits() {
    for (name, schema) in schemas() {
        walk(&schema, "", &mut |schema, path| {
            let Some(text) = schema["description"].as_str() else {
                return;
            };
            let says = |words: &str| assert!(text.contains(words), "{name} {path}: {text:?} lacks {words:?}");
            if schema.get("default").is_some_and(|default| !default.is_object()) {
                says("default");
            }
            for word in schema["enum"].as_array().into_iter().flatten() {
                says(word.as_str().unwrap());
            }
            // Why: names of objects have the same limit everywhere.
            let is_name =
                schema.get("pattern").is_some() && [253, 63].iter().any(|max| schema["maxLength"] == *max);
            for limit in [
                "minItems",
                "maxItems",
                "minLength",
                "maxLength",
                "maxProperties",
                "minimum",
                "maximum",
            ] {
                if let Some(limit) = schema.get(limit).filter(|_| !is_name) {
                    says(limit.to_string().trim_end_matches(".0"));
                }
            }
        });
    }
}

/// Spec: api, reading conventions: list types matter for server-side apply; multikueue 11.104.
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

/// A definition in one line, and one for each version.
fn summary(crd: &CustomResourceDefinition) -> String {
    let short = crd
        .spec
        .names
        .short_names
        .as_deref()
        .unwrap_or_default()
        .join(",");
    let conversion = crd
        .spec
        .conversion
        .as_ref()
        .map_or("None", |conversion| &conversion.strategy);
    let name = crd.metadata.name.as_deref().unwrap();
    let versions = crd.spec.versions.iter().map(|version| {
        let columns = version.additional_printer_columns.iter().flatten().map(|column| {
            let priority = column
                .priority
                .map_or(String::new(), |priority| format!("!{priority}"));
            format!(" {}{priority}={};", column.name, column.json_path)
        });
        let marks = [
            (version.storage, " stored"),
            (version.deprecated == Some(true), " deprecated"),
            (version.subresources.is_some(), " status"),
        ];
        let marks = marks.iter().filter(|(holds, _)| *holds).map(|(_, mark)| *mark);
        format!(
            "\n  {}{}:{}",
            version.name,
            marks.collect::<String>(),
            columns.collect::<String>()
        )
    });
    format!(
        "{name} {} [{short}] {conversion}{}",
        crd.spec.scope,
        versions.collect::<String>()
    )
}

/// Spec: api API-1, inventory and API-1.1, printer columns; appwrapper 1.1, B1; multikueue 11.104.
#[test]
fn names_scopes_versions_and_columns_are_those_of_the_inventory() {
    let lines: Vec<String> = all().iter().map(summary).collect();
    let wanted = "\
clusterqueues.kueue.x-k8s.io Cluster [cq] Webhook
  v1beta2 stored status: Cohort=.spec.cohortName; Strategy!1=.spec.queueingStrategy; Pending Workloads=.status.pendingWorkloads; Admitted Workloads!1=.status.admittedWorkloads;
  v1beta1 deprecated status: Cohort=.spec.cohort; Strategy!1=.spec.queueingStrategy; Pending Workloads=.status.pendingWorkloads; Admitted Workloads!1=.status.admittedWorkloads;
localqueues.kueue.x-k8s.io Namespaced [queue,queues,lq] Webhook
  v1beta2 stored status: ClusterQueue=.spec.clusterQueue; Pending Workloads=.status.pendingWorkloads; Admitted Workloads=.status.admittedWorkloads;
  v1beta1 deprecated status: ClusterQueue=.spec.clusterQueue; Pending Workloads=.status.pendingWorkloads; Admitted Workloads=.status.admittedWorkloads;
cohorts.kueue.x-k8s.io Cluster [co] Webhook
  v1beta2 stored status:
  v1beta1 deprecated status:
  v1alpha1 deprecated status:
workloads.kueue.x-k8s.io Namespaced [kwl,kueueworkload,kueueworkloads] Webhook
  v1beta2 stored status: Queue=.spec.queueName; Reserved in=.status.admission.clusterQueue; Admitted=.status.conditions[?(@.type=='Admitted')].status; Finished=.status.conditions[?(@.type=='Finished')].status; Age=.metadata.creationTimestamp;
  v1beta1 deprecated status: Queue=.spec.queueName; Reserved in=.status.admission.clusterQueue; Admitted=.status.conditions[?(@.type=='Admitted')].status; Finished=.status.conditions[?(@.type=='Finished')].status; Age=.metadata.creationTimestamp;
resourceflavors.kueue.x-k8s.io Cluster [flavor,flavors,rf] None
  v1beta2 stored:
  v1beta1 deprecated:
admissionchecks.kueue.x-k8s.io Cluster [ac] None
  v1beta2 stored status:
  v1beta1 deprecated status:
topologies.kueue.x-k8s.io Cluster [topo] None
  v1beta2 stored:
  v1beta1 deprecated:
  v1alpha1 deprecated:
workloadpriorityclasses.kueue.x-k8s.io Cluster [wpc] None
  v1beta2 stored: Value=.value;
  v1beta1 deprecated: Value=.value;
multikueueclusters.kueue.x-k8s.io Cluster [mkc] Webhook
  v1beta2 stored status: Connected=.status.conditions[?(@.type=='Active')].status; Age=.metadata.creationTimestamp;
  v1beta1 deprecated status: Connected=.status.conditions[?(@.type=='Active')].status; Age=.metadata.creationTimestamp;
multikueueconfigs.kueue.x-k8s.io Cluster [mkconf] None
  v1beta2 stored:
  v1beta1:
provisioningrequestconfigs.kueue.x-k8s.io Cluster [prc] None
  v1beta2 stored:
  v1beta1 deprecated:
provisioningrequests.autoscaling.x-k8s.io Namespaced [provreq,provreqs] None
  v1 stored status:
appwrappers.workload.codeflare.dev Namespaced [aw] None
  v1beta2 stored status: Status=.status.phase; Quota Reserved=.status.conditions[?(@.type=='QuotaReserved')].status; Resources Deployed=.status.conditions[?(@.type=='ResourcesDeployed')].status; Unhealthy=.status.conditions[?(@.type=='Unhealthy')].status; Age=.metadata.creationTimestamp;";
    assert_eq!(lines.join("\n"), wanted);
}

/// Spec: api API-1: a client that uses an older version gets a warning.
#[test]
fn a_deprecated_version_says_what_to_use_instead() {
    for crd in all() {
        for version in &crd.spec.versions {
            let warning = (version.deprecated == Some(true))
                .then_some("This version is deprecated. Use v1beta2 instead.");
            assert_eq!(
                version.deprecation_warning.as_deref(),
                warning,
                "{}",
                crd.spec.names.kind
            );
        }
    }
}

/// Plural, path, keyword, its value in `v1beta1`, its value in `v1beta2`; null where there is none.
const DIFFERENCES: &str = r#"
clusterqueues spec.cohort type "string" null
clusterqueues spec.cohortName type null "string"
clusterqueues spec.concurrentAdmissionPolicy type null "object"
clusterqueues spec.admissionChecks type "array" null
clusterqueues spec.admissionScope.admissionMode enum null ["UsageBasedAdmissionFairSharing","NoAdmissionFairSharing"]
clusterqueues spec.flavorFungibility.whenCanBorrow enum ["MayStopSearch","TryNextFlavor","Borrow"] ["MayStopSearch","TryNextFlavor"]
clusterqueues spec.flavorFungibility.whenCanPreempt enum ["MayStopSearch","TryNextFlavor","Preempt"] ["MayStopSearch","TryNextFlavor"]
clusterqueues spec.admissionChecksStrategy required null ["admissionChecks"]
clusterqueues spec.admissionChecksStrategy.admissionChecks maxItems null 64
clusterqueues spec.admissionChecksStrategy.admissionChecks[].name minLength null 1
clusterqueues spec.admissionChecksStrategy.admissionChecks[].onFlavors x-kubernetes-list-type "atomic" "set"
clusterqueues status.conditions maxItems null 16
clusterqueues status.pendingWorkloadsStatus type "object" null
clusterqueues status.fairSharing.admissionFairSharingStatus type "object" null
localqueues status.conditions maxItems null 16
localqueues status.flavorUsage type "array" null
localqueues status.flavorsUsage type null "array"
localqueues status.flavors maxItems 64 null
cohorts spec.parentName type "string" "string"
cohorts status.fairSharing.admissionFairSharingStatus type "object" null
workloads spec required ["podSets"] null
workloads spec.podSets[] required ["count","template"] ["template"]
workloads spec.podSets[].topologyRequest.required maxLength null 63
workloads spec.podSets[].topologyRequest.subGroupCount minimum null 0
workloads spec.podSets[].topologyRequest.podSetGroupName maxLength null 256
workloads spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints maxItems null 3
workloads spec.priorityClassName maxLength 253 null
workloads spec.priorityClassSource default "" null
workloads spec.priorityClassRef type null "object"
workloads spec.preemptionGates maxItems null 8
workloads status.conditions maxItems null 16
workloads status.preemptionGates maxItems null 8
workloads status.accumulatedPastExexcutionTimeSeconds type "integer" null
workloads status.nominatedClusterNames[] maxLength null 256
workloads status.clusterName maxLength null 256
workloads status.unhealthyNodes x-kubernetes-list-type "atomic" "map"
workloads status.admissionChecks[].name minLength null 1
workloads status.admission required ["clusterQueue","podSetAssignments"] null
workloads status.admission.podSetAssignments[] required ["name"] null
workloads status.admission.podSetAssignments[].delayedTopologyRequest enum null ["Pending","Ready"]
workloads status.admission.podSetAssignments[].topologyAssignment.domains type "array" null
workloads status.admission.podSetAssignments[].topologyAssignment.slices maxItems null 1000
workloads status.schedulingStats.evictions maxItems null 256
admissionchecks spec.controllerName maxLength null 253
admissionchecks spec.retryDelayMinutes default 15 null
admissionchecks spec.parameters.kind minLength null 1
admissionchecks status.conditions maxItems null 16
workloadpriorityclasses description maxLength null 2048
multikueueclusters spec required ["kubeConfig"] ["clusterSource"]
multikueueclusters spec.kubeConfig required ["location","locationType"] null
multikueueclusters status.conditions maxItems null 16
multikueueconfigs spec.clusters x-kubernetes-list-type "set" "atomic"
multikueueconfigs spec.clusters[] maxLength null 256
multikueueconfigs spec.quotaManagement type null "string"
provisioningrequestconfigs spec.podSetUpdates.nodeSelector x-kubernetes-list-type "atomic" "map"
provisioningrequestconfigs spec.provisioningClassName minLength null 1
"#;

/// Spec: api API-2 to API-10, columns "v1beta1".
#[test]
fn an_older_version_differs_where_the_tables_say_so() {
    let schemas: BTreeMap<_, _> = schemas().into_iter().collect();
    for line in DIFFERENCES.trim().lines() {
        let [plural, path, keyword, old, new] = *line.split(' ').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        for (version, wanted) in [("v1beta1", old), ("v1beta2", new)] {
            let schema = &schemas[&format!("{plural}.kueue.x-k8s.io {version}")];
            let found = field(schema, path)[keyword].to_string();
            // Why: the types hold limits as floating-point numbers.
            assert_eq!(found.trim_end_matches(".0"), wanted, "{line}");
        }
    }
    let cohort = &schemas["cohorts.kueue.x-k8s.io v1alpha1"];
    assert_eq!(field(cohort, "spec.parent")["maxLength"], 253);
    assert!(field(cohort, "spec.parentName").is_null());
}

/// Spec: api API-1, selectable field.
#[test]
fn only_stored_workloads_can_be_selected_by_a_field() {
    for crd in all() {
        for version in &crd.spec.versions {
            let fields = version.selectable_fields.iter().flatten();
            let paths: Vec<&str> = fields.map(|field| field.json_path.as_str()).collect();
            let wanted: &[&str] = if crd.spec.names.kind == "Workload" && version.storage {
                &[".status.admission.clusterQueue"]
            } else {
                &[]
            };
            assert_eq!(paths, wanted, "{} {}", crd.spec.names.kind, version.name);
        }
    }
}

/// Spec: api API-1, webhook conversion.
#[test]
fn conversion_asks_the_service_of_the_webhooks() {
    for crd in all() {
        let Some(conversion) = crd.spec.conversion else {
            continue;
        };
        let webhook = serde_json::to_value(conversion.webhook.unwrap()).unwrap();
        assert_eq!(
            webhook,
            json!({
                "clientConfig": {"service": {
                    "name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/convert",
                }},
                "conversionReviewVersions": ["v1"],
            })
        );
    }
}

/// A client that applies without server-side apply keeps the whole object in an annotation, and all annotations together
/// may have 256 KiB.
#[test]
fn every_definition_fits_in_an_annotation_of_itself() {
    for crd in all() {
        let size = serde_json::to_vec(&crd).unwrap().len();
        assert!(size < 256 * 1024, "{}: {size} bytes", crd.spec.names.kind);
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
        "priority should not be nil when priorityClassName is set",
        "Nested AppWrappers are forbidden",
        "attempt to change immutable field",
    ] {
        assert!(messages.contains(wanted), "no rule says {wanted:?}");
    }
}

#[test]
fn nothing_but_known_keywords_is_left_in_a_schema() {
    // Why: a definition silently drops unknown keywords, so the JSON before and after is compared.
    fn keywords(schema: &Value) -> Vec<(String, BTreeSet<String>)> {
        let mut found = Vec::new();
        walk(schema, "", &mut |schema, path| {
            found.push((
                path.to_owned(),
                schema.as_object().unwrap().keys().cloned().collect(),
            ));
        });
        found
    }
    for draft in [
        Draft::of::<v1beta2::Workload>(),
        Draft::of::<v1beta2::Workload>().older("v1beta1", v1beta1::workload),
        Draft::of::<v1beta2::ClusterQueue>(),
        Draft::of::<v1beta2::ClusterQueue>().older("v1beta1", v1beta1::clusterqueue),
        Draft::of::<v1beta2::LocalQueue>().older("v1beta1", v1beta1::localqueue),
        Draft::of::<v1beta2::ResourceFlavor>(),
        Draft::of::<v1beta2::WorkloadPriorityClass>(),
        Draft::of::<v1beta2::ProvisioningRequestConfig>(),
        Draft::of::<AppWrapper>(),
    ] {
        let before = draft.schema.clone();
        let after = draft.finish().spec.versions.pop().unwrap().schema.unwrap();
        let after = serde_json::to_value(after).unwrap();
        assert_eq!(keywords(&before), keywords(&after["openAPIV3Schema"]));
    }
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
