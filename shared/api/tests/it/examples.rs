//! One full example of every kind: it must survive the types, use every field of the schema, and fail with a clear
//! error when a word is wrong.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use roadstead_api::{appwrapper, autoscaling::v1, crd, kueue::v1beta2};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A kind with its examples, and its type as a function from JSON to JSON.
struct Kind {
    name: &'static str,
    yaml: &'static str,
    through_type: fn(Value) -> Result<Value, serde_json::Error>,
}

fn through<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

macro_rules! kinds {
    ($($kind:ty => $file:literal),* $(,)?) => {
        [$(Kind {
            name: stringify!($kind),
            yaml: include_str!(concat!("examples/", $file, ".yaml")),
            through_type: through::<$kind>,
        }),*]
    };
}

fn kinds() -> [Kind; 13] {
    kinds![
        v1beta2::ClusterQueue => "clusterqueue",
        v1beta2::LocalQueue => "localqueue",
        v1beta2::Cohort => "cohort",
        v1beta2::Workload => "workload",
        v1beta2::ResourceFlavor => "resourceflavor",
        v1beta2::AdmissionCheck => "admissioncheck",
        v1beta2::Topology => "topology",
        v1beta2::WorkloadPriorityClass => "workloadpriorityclass",
        v1beta2::MultiKueueCluster => "multikueuecluster",
        v1beta2::MultiKueueConfig => "multikueueconfig",
        v1beta2::ProvisioningRequestConfig => "provisioningrequestconfig",
        v1::ProvisioningRequest => "provisioningrequest",
        appwrapper::v1beta2::AppWrapper => "appwrapper",
    ]
}

impl Kind {
    fn examples(&self) -> Vec<Value> {
        serde_saphyr::from_multiple(self.yaml).unwrap()
    }

    fn schema(&self) -> Value {
        let short = self.name.rsplit("::").next().unwrap().trim();
        let crd: CustomResourceDefinition = crd::all()
            .into_iter()
            .find(|crd| crd.spec.names.kind == short)
            .unwrap();
        serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap()["openAPIV3Schema"]
            .clone()
    }
}

/// Every place of `value` that the schema knows, as (path of the schema, path of the value, schema).
fn places<'s>(
    schema: &'s Value,
    value: &Value,
    path: &str,
    pointer: &str,
    found: &mut Vec<(String, String, &'s Value)>,
) {
    found.push((path.to_owned(), pointer.to_owned(), schema));
    if let (Some(fields), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, field) in fields {
            if let Some(inner) = object.get(name) {
                places(
                    field,
                    inner,
                    &format!("{path}.{name}"),
                    &format!("{pointer}/{name}"),
                    found,
                );
            }
        }
    }
    if let (true, Some(items)) = (schema["items"].is_object(), value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            places(
                &schema["items"],
                item,
                &format!("{path}[]"),
                &format!("{pointer}/{index}"),
                found,
            );
        }
    }
}

fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        fields(field, &format!("{path}.{name}"), found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn every_example_comes_back_unchanged() {
    for kind in kinds() {
        for example in kind.examples() {
            let back =
                (kind.through_type)(example.clone()).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            assert_eq!(back, example, "{}", kind.name);
        }
    }
}

/// Spec: api API-2 to API-10. With the test above: no field of a schema is unknown to its type, or named otherwise.
#[test]
fn the_examples_use_every_field_of_the_schema() {
    for kind in kinds() {
        let schema = kind.schema();
        let mut known = BTreeSet::new();
        fields(&schema, "", &mut known);
        for example in kind.examples() {
            let mut used = Vec::new();
            places(&schema, &example, "", "", &mut used);
            for (path, _, _) in used {
                known.remove(&path);
            }
        }
        assert!(known.is_empty(), "{}: no example uses {known:?}", kind.name);
    }
}

#[test]
fn an_unknown_word_is_refused_with_the_words_that_are_allowed() {
    let mut tried = 0;
    for kind in kinds() {
        let schema = kind.schema();
        for example in kind.examples() {
            let mut used = Vec::new();
            places(&schema, &example, "", "", &mut used);
            for (path, pointer, field) in used {
                let Some(words) = field["enum"].as_array() else {
                    continue;
                };
                if path.ends_with("conditions[].status") {
                    continue; // a plain string in the type of every Kubernetes client
                }
                let mut wrong = example.clone();
                *wrong.pointer_mut(&pointer).unwrap() = json!("Nonsense");
                let error = (kind.through_type)(wrong).unwrap_err().to_string();
                assert!(error.contains("`Nonsense`"), "{} {path}: {error}", kind.name);
                for word in words {
                    let word = format!("`{}`", word.as_str().unwrap());
                    assert!(error.contains(&word), "{} {path}: {error}", kind.name);
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 19, "only {tried} words tried");
}

/// Spec: api API-1, kinds that make sense without a spec.
#[test]
fn a_spec_may_be_absent_where_everything_in_it_may() {
    let bare =
        |kind: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "x"}});
    serde_json::from_value::<v1beta2::ClusterQueue>(bare("ClusterQueue")).unwrap();
    serde_json::from_value::<v1beta2::LocalQueue>(bare("LocalQueue")).unwrap();
    serde_json::from_value::<v1beta2::Cohort>(bare("Cohort")).unwrap();
    serde_json::from_value::<v1beta2::Workload>(bare("Workload")).unwrap();
    let flavor: v1beta2::ResourceFlavor = serde_json::from_value(bare("ResourceFlavor")).unwrap();
    assert_eq!(flavor.metadata.name.as_deref(), Some("x"));
    let error = serde_json::from_value::<v1beta2::Topology>(bare("Topology")).unwrap_err();
    assert_eq!(error.to_string(), "missing field `spec`");
}

/// Spec: api, reading conventions: a quantity is a number or a string.
#[test]
fn a_quantity_may_be_a_number() {
    let quota: v1beta2::ResourceQuota =
        serde_json::from_value(json!({"name": "cpu", "nominalQuota": 9})).unwrap();
    assert_eq!(quota.nominal_quota.0, "9");
}

/// Spec: api API-2.1 and API-9.1: what the API server fills in is also what an absent field means here.
#[test]
fn absent_fields_mean_what_the_server_would_fill_in() {
    let queue: v1beta2::ClusterQueueSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(queue, v1beta2::ClusterQueueSpec::default());
    assert_eq!(queue.queueing_strategy, v1beta2::QueueingStrategy::BestEffortFifo);
    assert_eq!(
        queue.flavor_fungibility.when_can_preempt,
        v1beta2::FlavorFungibilityPolicy::TryNextFlavor
    );
    let pod_set: v1beta2::PodSet = serde_json::from_value(json!({"template": {}})).unwrap();
    assert_eq!((pod_set.name.as_str(), pod_set.count), ("main", 1));
    let workload = v1beta2::Workload::default();
    assert!(workload.is_active());
}
