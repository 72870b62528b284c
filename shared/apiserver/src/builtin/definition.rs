//! Custom resource definitions.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::Cause;
use crate::json;
use crate::names;
use crate::schema::Node;

/// Keeps a definition until its resources are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) fn default(definition: &mut Value) {
    let kind = json::text(definition, &["spec", "names", "kind"]).to_owned();
    json::default(definition, &["spec", "conversion"], json!({"strategy": "None"}));
    json::default(definition, &["spec", "names", "singular"], kind.to_lowercase());
    json::default(definition, &["spec", "names", "listKind"], format!("{kind}List"));
    if definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"].is_object() {
        let port = ["spec", "conversion", "webhook", "clientConfig", "service", "port"];
        json::default(definition, &port, 443);
    }
}

pub(super) fn prepare_create(definition: &mut Value) {
    let storage: Vec<Value> = json::items(definition, &["spec", "versions"])
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    json::set(
        definition,
        &["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage}),
    );
}

/// Accepts the names of a new or changed definition, as a real server does shortly after the write. Returns whether
/// anything changed. `taken` says whether another definition has a name.
pub(crate) fn accept(definition: &mut Value, now: Timestamp, taken: &dyn Fn(&str) -> bool) -> bool {
    let before = definition.clone();
    let mut finalizers = json::items(definition, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(CLEANUP.into());
        json::set(definition, &["metadata", "finalizers"], finalizers);
    }
    let names = definition["spec"]["names"].clone();
    let refused: Option<&'static str> = ["plural", "kind", "listKind", "singular"]
        .into_iter()
        .find(|field| taken(json::text(&names, &[field])));
    let accepted = match refused {
        None => (
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found".to_owned(),
        ),
        Some(field) => (
            "NamesAccepted",
            "False",
            match field {
                "plural" => "PluralConflict",
                "kind" => "KindConflict",
                "listKind" => "ListKindConflict",
                _ => "SingularConflict",
            },
            format!("{:?} is already in use", json::text(&names, &[field])),
        ),
    };
    let established = crate::kinds::is_established(definition);
    let mut wanted = vec![accepted];
    if refused.is_none() {
        json::set(definition, &["status", "acceptedNames"], names);
        wanted.push((
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted".to_owned(),
        ));
    } else if !established {
        wanted.push((
            "Established",
            "False",
            "NotAccepted",
            "not all names are accepted".to_owned(),
        ));
    }
    let mut versions = json::items(definition, &["status", "storedVersions"]).to_vec();
    for version in json::items(definition, &["spec", "versions"]) {
        if version["storage"] == true && !versions.contains(&version["name"]) {
            versions.push(version["name"].clone());
        }
    }
    json::set(definition, &["status", "storedVersions"], versions);
    conditions(definition, now, &wanted);
    *definition != before
}

/// Sets conditions: type, status, reason, message. A condition that already has this status and reason stays as it is.
pub(crate) fn conditions(object: &mut Value, now: Timestamp, wanted: &[(&str, &str, &str, String)]) {
    let mut list = json::items(object, &["status", "conditions"]).to_vec();
    let generation = object["metadata"]["generation"].clone();
    for (name, status, reason, message) in wanted {
        let found = list.iter().position(|condition| condition["type"] == *name);
        if let Some(at) = found
            && list[at]["status"] == *status
            && list[at]["reason"] == *reason
        {
            continue;
        }
        let mut condition = json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": crate::clock::seconds(now),
        });
        if generation.is_number() {
            condition["observedGeneration"] = generation.clone();
        }
        match found {
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
    }
    json::set(object, &["status", "conditions"], list);
}

pub(super) fn validate(definition: &Value) -> Vec<Cause> {
    let spec = &definition["spec"];
    let mut causes = Vec::new();
    let group = json::text(spec, &["group"]);
    let plural = json::text(spec, &["names", "plural"]);
    let name = json::text(definition, &["metadata", "name"]);
    if name != format!("{plural}.{group}") {
        let says = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), says));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !names::is_subdomain(group) {
        causes.extend(names::check_name("spec.group", group, names::Rule::Subdomain));
    } else if !group.contains('.') {
        let says = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", &group.into(), says));
    }
    for field in ["plural", "kind"] {
        if json::text(spec, &["names", field]).is_empty() {
            causes.push(Cause::required(format!("spec.names.{field}"), ""));
        }
    }
    let scope = json::text(spec, &["scope"]);
    if !["Cluster", "Namespaced"].contains(&scope) {
        let allowed = ["Cluster", "Namespaced"].map(str::to_owned);
        causes.push(if scope.is_empty() {
            Cause::required("spec.scope", "")
        } else {
            Cause::not_supported("spec.scope", &scope.into(), &allowed)
        });
    }
    let versions = json::items(spec, &["versions"]);
    let stored = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count();
    if stored != 1 {
        let says = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], says));
        let says = "must have the storage version";
        causes.push(Cause::invalid("status.storedVersions", &Value::Null, says));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            causes.push(Cause::required(
                format!("{path}.schema.openAPIV3Schema"),
                "schemas are required",
            ));
            continue;
        }
        // Why: a real server names the field once if all versions share one schema.
        let shared = versions.iter().all(|other| other["schema"] == version["schema"]);
        let at = if shared {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("{path}.schema.openAPIV3Schema")
        };
        if schema["type"] != "object" {
            let says = "must be object at the root";
            causes.push(if schema["type"].is_string() {
                Cause::invalid(format!("{at}.type"), &schema["type"], says)
            } else {
                Cause::required(format!("{at}.type"), says)
            });
        }
        structural(schema, &at, &mut causes);
        crate::custom::broken_rules(&Node::custom(schema), &at, &mut causes);
    }
    let conversion = &spec["conversion"];
    if conversion["strategy"] == "Webhook" {
        if json::items(conversion, &["webhook", "conversionReviewVersions"]).is_empty() {
            causes.push(Cause::required("spec.conversion.conversionReviewVersions", ""));
        }
        if !conversion["webhook"]["clientConfig"].is_object() {
            causes.push(Cause::required(
                "spec.conversion.webhookClientConfig",
                "required when strategy is set to Webhook",
            ));
        }
    }
    causes
}

/// Checks that every place of a schema has a type.
fn structural(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let free = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if json::text(schema, &["type"]).is_empty() && !free {
        causes.push(Cause::required(
            format!("{path}.type"),
            "must not be empty for specified object fields",
        ));
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        structural(inner, &format!("{path}.properties[{name}]"), causes);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            structural(&schema[below], &format!("{path}.{below}"), causes);
        }
    }
}

pub(super) fn validate_update(definition: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fields: [&[&str]; 4] = [
        &["spec", "group"],
        &["spec", "scope"],
        &["spec", "names", "plural"],
        &["spec", "names", "kind"],
    ];
    if crate::kinds::is_established(old) {
        for path in fields {
            let (new, before) = (json::at(definition, path), json::at(old, path));
            if new != before {
                causes.push(Cause::immutable(path.join("."), new.unwrap_or(&Value::Null)));
            }
        }
    }
    for stored in json::items(old, &["status", "storedVersions"]) {
        let kept = json::items(definition, &["spec", "versions"])
            .iter()
            .any(|version| version["name"] == *stored);
        if !kept {
            let field = "status.storedVersions[0]";
            let says = "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions";
            causes.push(Cause::invalid(field, stored, says));
        }
    }
    causes
}
