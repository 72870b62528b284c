//! The `CustomResourceDefinition`s of all kinds, built from the types.
//!
//! Invariant: every schema is structural in the API server's sense, and no field is nullable: the API server drops a null value.
//! The schema that `kube` derives is not used: it makes each `Option` nullable and replaces the documentation of a field by that
//! of its type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion,
    CustomResourceValidation, ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::CustomResourceExt;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use crate::kueue::{v1alpha1, v1beta1, v1beta2};
use crate::older::Older;
use crate::{appwrapper::v1beta2::AppWrapper, autoscaling::v1::ProvisioningRequest};

/// Path of the conversion webhook.
pub const CONVERT_PATH: &str = "/convert";
/// Name of the Service in front of the webhooks, unless the configuration names another.
pub const WEBHOOK_SERVICE: &str = "kueue-webhook-service";
/// Namespace of that Service.
pub const WEBHOOK_NAMESPACE: &str = "kueue-system";

/// The warning for clients that use an older version.
const DEPRECATED: &str = "This version is deprecated. Use v1beta2 instead.";

/// The definitions of all kinds in the order of `spec/api.md` API-1, then those of other groups.
///
/// The stored version is the first one of each. A process that serves the conversion webhook puts its address and authority into
/// `spec.conversion`, which here names only the Service.
pub fn all() -> Vec<CustomResourceDefinition> {
    [
        Draft::of::<v1beta2::ClusterQueue>()
            .older("v1beta1", v1beta1::clusterqueue)
            .converted_by_webhook(),
        Draft::of::<v1beta2::LocalQueue>()
            .older("v1beta1", v1beta1::localqueue)
            .converted_by_webhook(),
        Draft::of::<v1beta2::Cohort>()
            .older("v1beta1", v1beta1::cohort)
            .older("v1alpha1", v1alpha1::cohort)
            .converted_by_webhook(),
        Draft::of::<v1beta2::Workload>()
            .older("v1beta1", v1beta1::workload)
            .converted_by_webhook(),
        Draft::of::<v1beta2::ResourceFlavor>().older("v1beta1", v1beta1::resourceflavor),
        Draft::of::<v1beta2::AdmissionCheck>().older("v1beta1", v1beta1::admissioncheck),
        Draft::of::<v1beta2::Topology>()
            .older("v1beta1", v1beta1::topology)
            .older("v1alpha1", v1alpha1::topology),
        Draft::of::<v1beta2::WorkloadPriorityClass>().older("v1beta1", v1beta1::workloadpriorityclass),
        Draft::of::<v1beta2::MultiKueueCluster>()
            .older("v1beta1", v1beta1::multikueuecluster)
            .converted_by_webhook(),
        Draft::of::<v1beta2::MultiKueueConfig>()
            .older("v1beta1", v1beta1::multikueueconfig)
            .without_deprecation(),
        Draft::of::<v1beta2::ProvisioningRequestConfig>()
            .older("v1beta1", v1beta1::provisioningrequestconfig),
        Draft::of::<ProvisioningRequest>(),
        Draft::of::<AppWrapper>(),
    ]
    .map(Draft::finish)
    .into()
}

/// A definition under construction, newest version first.
struct Draft {
    definition: CustomResourceDefinition,
    /// The schema of the oldest version so far.
    schema: Value,
}

impl Draft {
    /// The stored version of a kind, with a schema that the API server accepts.
    fn of<K: CustomResourceExt + JsonSchema>() -> Self {
        let schema = schema_of::<K>();
        let mut definition = K::crd();
        for version in &mut definition.spec.versions {
            version.schema = Some(validation(&schema));
        }
        Self { definition, schema }
    }

    /// Adds a deprecated version. `differ` changes the schema of the version added before.
    fn older(mut self, name: &str, differ: fn(&mut Older)) -> Self {
        let mut older = Older::of(self.schema);
        differ(&mut older);
        self.schema = older.finish();
        let columns = self.definition.spec.versions.first();
        let columns = columns.and_then(|stored| stored.additional_printer_columns.clone());
        let version = CustomResourceDefinitionVersion {
            name: name.to_owned(),
            served: true,
            storage: false,
            deprecated: Some(true),
            deprecation_warning: Some(DEPRECATED.to_owned()),
            additional_printer_columns: columns.map(|mut columns| {
                for column in &mut columns {
                    if column.json_path == ".spec.cohortName" {
                        ".spec.cohort".clone_into(&mut column.json_path);
                    }
                }
                columns
            }),
            schema: Some(validation(&self.schema)),
            selectable_fields: None,
            subresources: self
                .definition
                .spec
                .versions
                .first()
                .and_then(|stored| stored.subresources.clone()),
        };
        self.definition.spec.versions.push(version);
        self
    }

    /// Lets clients use the older versions without a warning.
    fn without_deprecation(mut self) -> Self {
        for version in &mut self.definition.spec.versions {
            version.deprecated = None;
            version.deprecation_warning = None;
        }
        self
    }

    /// Adds the conversion webhook, for a kind whose versions differ in more than limits.
    fn converted_by_webhook(mut self) -> Self {
        self.definition.spec.conversion = Some(CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(WebhookClientConfig {
                    ca_bundle: None,
                    service: Some(ServiceReference {
                        name: WEBHOOK_SERVICE.to_owned(),
                        namespace: WEBHOOK_NAMESPACE.to_owned(),
                        path: Some(CONVERT_PATH.to_owned()),
                        port: None,
                    }),
                    url: None,
                }),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        });
        self
    }

    fn finish(self) -> CustomResourceDefinition {
        self.definition
    }
}

#[expect(
    clippy::expect_used,
    reason = "a schema made of JSON objects has no other form; a test builds every kind"
)]
fn validation(schema: &Value) -> CustomResourceValidation {
    CustomResourceValidation {
        open_api_v3_schema: Some(
            serde_json::from_value(schema.clone()).expect("a structural schema is a schema"),
        ),
    }
}

/// The structural schema of one kind, with the rules about the whole object.
fn schema_of<K: CustomResourceExt + JsonSchema>() -> Value {
    let generated = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator()
        .into_root_schema_for::<K>();
    let mut schema = generated.to_value();
    make_structural(&mut schema);
    // Why: the derived default of an absent spec is only for reading; a stored absent spec stays absent.
    if let Some(spec) = schema
        .pointer_mut("/properties/spec")
        .and_then(Value::as_object_mut)
    {
        spec.remove("default");
    }
    if let (Some(rules), Some(root)) = (object_rules::<K>(), schema.as_object_mut()) {
        root.insert("x-kubernetes-validations".to_owned(), rules);
    }
    schema
}

/// The rules of a kind about the whole object.
fn object_rules<K: CustomResourceExt>() -> Option<Value> {
    (K::crd_name() == v1beta2::Workload::crd_name())
        .then(|| v1beta2::workload_object_rules(v1beta2::class_rules()))
}

/// Rewrites a JSON schema into what a `CustomResourceDefinition` may hold.
fn make_structural(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("title");
    if let Some(Value::String(description)) = object.get_mut("description") {
        // Why: a doc comment is wrapped and marked up for the source; `kubectl explain` shows plain text.
        *description = description.replace('\n', " ").replace('`', "");
    }
    take_out_null(object);
    flatten_enum(object);
    if object.get("default").is_some_and(is_zero) {
        // Why: serde's default of an absent field is no default of the API; the field stays absent when stored.
        object.remove("default");
    }
    for keyword in ["properties", "patternProperties"] {
        if let Some(fields) = object.get_mut(keyword).and_then(Value::as_object_mut) {
            fields.values_mut().for_each(make_structural);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(keyword) {
            make_structural(inner);
        }
    }
}

fn take_out_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = object.get("anyOf") else {
        return;
    };
    let (nulls, others): (Vec<_>, Vec<_>) = choices
        .iter()
        .partition(|choice| choice.get("type").is_some_and(|name| name == "null"));
    if let ([_], [Value::Object(only)]) = (nulls.as_slice(), others.as_slice()) {
        let only = only.clone();
        object.remove("anyOf");
        for (keyword, value) in only {
            // Why: the keyword of the field (its documentation) wins over that of its type.
            object.entry(keyword).or_insert(value);
        }
    }
}

/// Replaces a choice of documented words by a plain list of words.
fn flatten_enum(object: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = object.get("oneOf") else {
        return;
    };
    let words: Option<Vec<Value>> = variants
        .iter()
        .map(|variant| variant.get("const").cloned())
        .collect();
    if let Some(words) = words {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), Value::Array(words));
    }
}

/// Whether a value is Rust's default of an absent field.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests;
