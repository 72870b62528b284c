//! What the built-in kinds do besides having a shape: defaults, what the server sets itself, and what it refuses.

mod definition;
mod events;
mod job;
mod job_status;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use definition::{accept as accept_definition, conditions as definition_conditions};
pub(crate) use events::{from_core as event_from_core, to_core as event_to_core};

use crate::failure::Cause;
use crate::json;
use crate::kinds::Kind;
use crate::names;

/// Which part of an object a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, where the kind has one.
    Main,
    Status,
}

/// What defaults and checks may read besides the object.
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    /// Finds an object by resource, namespace and name.
    pub(crate) find: &'a dyn Fn(&str, &str, &str) -> Option<Value>,
    /// All objects of a resource.
    pub(crate) list: &'a dyn Fn(&str) -> Vec<Value>,
}

/// Kinds whose generation counts changes.
fn has_generation(kind: &Kind) -> bool {
    matches!(
        kind.plural.as_str(),
        "pods"
            | "jobs"
            | "priorityclasses"
            | "podtemplates"
            | "mutatingwebhookconfigurations"
            | "validatingwebhookconfigurations"
            | "customresourcedefinitions"
    )
}

/// Kinds that a PUT may replace without a `resourceVersion`.
pub(crate) fn may_update_blindly(kind: &Kind) -> bool {
    !kind.is_custom()
        && !matches!(
            kind.plural.as_str(),
            "leases"
                | "customresourcedefinitions"
                | "mutatingwebhookconfigurations"
                | "validatingwebhookconfigurations"
                | "runtimeclasses"
        )
}

pub(crate) fn may_create_on_update(kind: &Kind) -> bool {
    !kind.is_custom()
        && matches!(
            kind.plural.as_str(),
            "leases"
                | "roles"
                | "rolebindings"
                | "clusterroles"
                | "clusterrolebindings"
                | "limitranges"
                | "events"
        )
}

/// Fills in the kind's defaults. Runs before field ownership is computed.
pub(crate) fn default(kind: &Kind, object: &mut Value) {
    match kind.plural.as_str() {
        "pods" => pod::default(object),
        "jobs" => job::default(object),
        "podtemplates" => {
            if let Some(template) = object.get_mut("template") {
                pod::default_template(template);
            }
        }
        "secrets" => {
            // Why here: `stringData` is write-only and is never read back.
            if let Some(Value::Object(plain)) = json::remove(object, &["stringData"]) {
                use base64::Engine as _;
                for (key, value) in plain {
                    let encoded =
                        base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                    json::set(object, &["data", &key], encoded);
                }
            }
            json::default(object, &["type"], "Opaque");
        }
        "namespaces" => {
            let name = json::text(object, &["metadata", "name"]).to_owned();
            if !name.is_empty() {
                json::set(
                    object,
                    &["metadata", "labels", "kubernetes.io/metadata.name"],
                    name,
                );
            }
            json::default(object, &["status", "phase"], "Active");
        }
        "priorityclasses" => json::default(object, &["preemptionPolicy"], "PreemptLowerPriority"),
        "roles" | "clusterroles" if json::items(object, &["rules"]).is_empty() => {
            // Why: a real server stores absent rules and an empty list alike.
            json::set(object, &["rules"], Value::Null);
        }
        "rolebindings" | "clusterrolebindings" => {
            json::default(object, &["roleRef", "apiGroup"], "rbac.authorization.k8s.io");
            for subject in json::items_mut(object, &["subjects"]) {
                if subject["kind"] != "ServiceAccount" {
                    json::default(subject, &["apiGroup"], "rbac.authorization.k8s.io");
                }
            }
        }
        "services" => default_service(object),
        "limitranges" => default_limits(object),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => default_webhooks(kind, object),
        "customresourcedefinitions" => definition::default(object),
        _ => {}
    }
}

fn default_service(object: &mut Value) {
    json::default(object, &["spec", "sessionAffinity"], "None");
    json::default(object, &["spec", "type"], "ClusterIP");
    for port in json::items_mut(object, &["spec", "ports"]) {
        json::default(port, &["protocol"], "TCP");
        let target = port["port"].clone();
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            json::set(port, &["targetPort"], target);
        }
    }
}

fn default_limits(object: &mut Value) {
    for limit in json::items_mut(object, &["spec", "limits"]) {
        if limit["type"] != "Container" {
            continue;
        }
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let source = json::at(limit, &[from])
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            for (name, amount) in source {
                json::default(limit, &[to, &name], amount);
            }
        }
    }
}

fn default_webhooks(kind: &Kind, object: &mut Value) {
    for webhook in json::items_mut(object, &["webhooks"]) {
        json::default(webhook, &["failurePolicy"], "Fail");
        json::default(webhook, &["matchPolicy"], "Equivalent");
        json::default(webhook, &["namespaceSelector"], json!({}));
        json::default(webhook, &["objectSelector"], json!({}));
        json::default(webhook, &["timeoutSeconds"], 10);
        if kind.plural.starts_with("mutating") {
            json::default(webhook, &["reinvocationPolicy"], "Never");
        }
        if webhook["clientConfig"]["service"].is_object() {
            json::default(webhook, &["clientConfig", "service", "port"], 443);
        }
        for rule in json::items_mut(webhook, &["rules"]) {
            json::default(rule, &["scope"], "*");
        }
    }
}

/// Sets the fields of a new object that only the server may set. Runs after field ownership is computed.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, context: &Context<'_>) -> Result<(), String> {
    if kind.is_custom() {
        if kind.status {
            json::remove(object, &["status"]);
        }
        json::set(object, &["metadata", "generation"], 1);
        return Ok(());
    }
    if has_generation(kind) {
        json::set(object, &["metadata", "generation"], 1);
    } else {
        json::remove(object, &["metadata", "generation"]);
    }
    match kind.plural.as_str() {
        "pods" => pod::prepare_create(object, context)?,
        "jobs" => job::prepare_create(object),
        "namespaces" => {
            json::set(object, &["spec", "finalizers"], json!(["kubernetes"]));
            json::set(object, &["status"], json!({"phase": "Active"}));
        }
        "services" => json::set(object, &["status"], json!({"loadBalancer": {}})),
        "customresourcedefinitions" => definition::prepare_create(object),
        _ => {}
    }
    Ok(())
}

/// Copies all fields except `but` from another object. Why not the whole object: most fields are equal already.
fn take_over(object: &mut Value, other: &Value, but: &[&str]) {
    let (Some(fields), Some(others)) = (object.as_object_mut(), other.as_object()) else {
        return;
    };
    let stays = |name: &String| but.contains(&name.as_str());
    fields.retain(|name, _| stays(name) || others.contains_key(name));
    for (name, value) in others.iter().filter(|(name, _)| !stays(name)) {
        if fields.get(name) != Some(value) {
            fields.insert(name.clone(), value.clone());
        }
    }
}

/// Restores what a request to one part of an object cannot change, and counts the generation.
pub(crate) fn prepare_update(kind: &Kind, part: Part, object: &mut Value, old: &Value) {
    match part {
        Part::Main if kind.status => {
            let has = json::at(old, &["status"]).is_some();
            if has || kind.is_custom() {
                json::copy(object, old, &["status"]);
            }
        }
        Part::Main => {}
        Part::Status if kind.is_custom() => {
            // Why: of such a request only the status and `managedFields` count; the rest of the metadata stays.
            let fields = json::remove(object, &["metadata", "managedFields"]);
            take_over(object, old, &["metadata", "status"]);
            if !object["metadata"].is_object() {
                json::set(object, &["metadata"], json!({}));
            }
            take_over(&mut object["metadata"], &old["metadata"], &["managedFields"]);
            if let Some(fields) = fields.filter(|fields| !fields.is_null()) {
                json::set(object, &["metadata", "managedFields"], fields);
            }
        }
        Part::Status => {
            json::copy(object, old, &["spec"]);
            for field in ["deletionTimestamp", "ownerReferences"] {
                if kind.plural == "pods" {
                    json::copy(object, old, &["metadata", field]);
                }
            }
        }
    }
    if kind.is_custom() {
        let counts = |name: &str| name != "metadata" && !(kind.status && name == "status");
        let has_all = |one: &Value, other: &Value| {
            let mut fields = one.as_object().into_iter().flatten();
            fields.all(|(name, value)| !counts(name) || other.get(name) == Some(value))
        };
        let changed = part == Part::Main && !(has_all(object, old) && has_all(old, object));
        generation(object, old, changed);
        return;
    }
    if kind.plural == "pods" && part == Part::Main {
        // Why before the comparison: a field that the server fills in again is no change.
        pod::prepare_update(object, old);
    }
    if has_generation(kind) {
        let spec = |value: &Value| match kind.plural.as_str() {
            "priorityclasses" => json!(null),
            "podtemplates" => value["template"].clone(),
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => value["webhooks"].clone(),
            _ => value["spec"].clone(),
        };
        let changed = spec(object) != spec(old);
        generation(object, old, changed);
    } else {
        json::copy(object, old, &["metadata", "generation"]);
    }
    match (kind.plural.as_str(), part) {
        ("namespaces", Part::Main) => json::copy(object, old, &["spec", "finalizers"]),
        ("jobs", Part::Main) => job::prepare_update(object, old),
        _ => {}
    }
}

fn generation(object: &mut Value, old: &Value, changed: bool) {
    let before = old["metadata"]["generation"].as_u64().unwrap_or(0);
    let now = if changed { before + 1 } else { before };
    json::set(object, &["metadata", "generation"], now);
}

/// Warnings for the client about a new object that is accepted.
pub(crate) fn warnings(kind: &Kind, object: &Value) -> Vec<String> {
    let used = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => "this is used in the Pod's hostname",
        ("batch", "jobs") => "this is used in Pod names and hostnames",
        _ => return Vec::new(),
    };
    let name = json::text(object, &["metadata", "name"]);
    let why = names::no_label(name);
    if why.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: {used}, which can result in surprising behavior; a DNS label is recommended: [{}]",
        why.join(" ")
    )]
}

/// Complains about an object of a built-in kind.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    match kind.plural.as_str() {
        "pods" => pod::validate(&object["spec"], "spec"),
        "jobs" => job::validate(object),
        "podtemplates" => pod::validate_template(&object["template"], "template"),
        "configmaps" => ["data", "binaryData"]
            .iter()
            .flat_map(|field| {
                let keys = object[*field].as_object().into_iter().flatten();
                keys.filter_map(|(key, _)| names::check_config_key(field, key))
                    .collect::<Vec<_>>()
            })
            .collect(),
        "secrets" => object["data"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, _)| names::check_config_key("data", key))
            .collect(),
        "leases" => validate_lease(&object["spec"]),
        "roles" | "clusterroles" => validate_role(kind, object),
        "rolebindings" | "clusterrolebindings" => validate_binding(kind, object),
        "runtimeclasses" => {
            let handler = json::text(object, &["handler"]);
            if handler.is_empty() {
                vec![Cause::required("handler", "")]
            } else {
                names::check_name("handler", handler, names::Rule::Label)
            }
        }
        "priorityclasses" => validate_priority(object),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => validate_webhooks(object),
        "customresourcedefinitions" => definition::validate(object),
        "events" => events::validate(object),
        _ => Vec::new(),
    }
}

/// Highest priority that a user's class may have.
const PRIORITY_MAX: i64 = 1_000_000_000;

fn validate_priority(object: &Value) -> Vec<Cause> {
    let name = json::text(object, &["metadata", "name"]);
    let value = object["value"].as_i64().unwrap_or(0);
    let system = ["system-cluster-critical", "system-node-critical"].contains(&name);
    let mut causes = Vec::new();
    if name.starts_with("system-") && !system {
        causes.push(Cause::forbidden(
            "metadata.name",
            "priority class names with 'system-' prefix are reserved for system use only",
        ));
    }
    if value > PRIORITY_MAX && !system {
        causes.push(Cause::forbidden(
            "value",
            "maximum allowed value of a user defined priority is 1000000000",
        ));
    }
    let policy = json::text(object, &["preemptionPolicy"]);
    let allowed = ["PreemptLowerPriority", "Never"];
    if policy.is_empty() {
        causes.push(Cause::required("preemptionPolicy", ""));
    } else if !allowed.contains(&policy) {
        let allowed: Vec<String> = allowed.iter().map(|word| (*word).to_owned()).collect();
        causes.push(Cause::not_supported("preemptionPolicy", &policy.into(), &allowed));
    }
    causes
}

fn validate_lease(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if spec["holderIdentity"] == "" {
        causes.push(Cause::invalid(
            "spec.holderIdentity",
            &"".into(),
            "must not be empty",
        ));
    }
    for (field, least, says) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(n) = spec[field].as_i64()
            && n < least
        {
            causes.push(Cause::invalid(format!("spec.{field}"), &n.into(), says));
        }
    }
    causes
}

fn validate_role(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, rule) in json::items(object, &["rules"]).iter().enumerate() {
        let path = format!("rules[{index}]");
        if json::items(rule, &["verbs"]).is_empty() {
            causes.push(Cause::required(
                format!("{path}.verbs"),
                "verbs must contain at least one value",
            ));
        }
        let urls = !json::items(rule, &["nonResourceURLs"]).is_empty();
        if urls {
            if kind.is_namespaced() {
                let says = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(
                    format!("{path}.nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    says,
                ));
            }
            continue;
        }
        if json::items(rule, &["apiGroups"]).is_empty() {
            let says = "resource rules must supply at least one api group";
            causes.push(Cause::required(format!("{path}.apiGroups"), says));
        }
        if json::items(rule, &["resources"]).is_empty() {
            let says = "resource rules must supply at least one resource";
            causes.push(Cause::required(format!("{path}.resources"), says));
        }
    }
    causes
}

fn validate_binding(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let role = &object["roleRef"];
    let allowed: &[&str] = if kind.is_namespaced() {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !allowed.iter().any(|kind| role["kind"] == *kind) {
        let allowed: Vec<String> = allowed.iter().map(|word| (*word).to_owned()).collect();
        causes.push(Cause::not_supported("roleRef.kind", &role["kind"], &allowed));
    }
    if json::text(role, &["name"]).is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in json::items(object, &["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        if json::text(subject, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        match json::text(subject, &["kind"]) {
            "ServiceAccount" if json::text(subject, &["namespace"]).is_empty() && !kind.is_namespaced() => {
                causes.push(Cause::required(format!("{path}.namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            other => {
                let allowed = ["ServiceAccount", "User", "Group"].map(str::to_owned);
                causes.push(Cause::not_supported(
                    format!("{path}.kind"),
                    &other.into(),
                    &allowed,
                ));
            }
        }
    }
    causes
}

fn validate_webhooks(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (index, webhook) in json::items(object, &["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{index}]");
        let name = json::text(webhook, &["name"]);
        if seen.contains(&name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &name.into()));
        }
        seen.push(name);
        if !names::is_subdomain(name) || name.split('.').count() < 3 {
            let says = "should be a domain with at least three segments separated by dots";
            causes.push(Cause::invalid(format!("{path}.name"), &name.into(), says));
        }
        if !["None", "NoneOnDryRun"]
            .iter()
            .any(|effects| webhook["sideEffects"] == *effects)
        {
            let field = format!("{path}.sideEffects");
            causes.push(if json::at(webhook, &["sideEffects"]).is_none() {
                Cause::required(field, "must specify one of None, NoneOnDryRun")
            } else {
                let allowed = ["None", "NoneOnDryRun"].map(str::to_owned);
                Cause::not_supported(field, &webhook["sideEffects"], &allowed)
            });
        }
        let versions = json::texts(webhook, &["admissionReviewVersions"]);
        if versions.is_empty() {
            let says = "must specify one of v1, v1beta1";
            causes.push(Cause::required(format!("{path}.admissionReviewVersions"), says));
        } else if !versions.contains(&"v1") {
            let says = "must include at least one of v1, v1beta1";
            causes.push(Cause::invalid(
                format!("{path}.admissionReviewVersions"),
                &webhook["admissionReviewVersions"],
                says,
            ));
        }
        let config = &webhook["clientConfig"];
        if config["url"].is_string() == config["service"].is_object() {
            let says = "exactly one of url or service is required";
            causes.push(Cause::required(format!("{path}.clientConfig"), says));
        }
        let timeout = webhook["timeoutSeconds"].as_i64().unwrap_or(10);
        if !(1..=30).contains(&timeout) {
            let says = "the timeout value must be between 1 and 30 seconds";
            causes.push(Cause::invalid(
                format!("{path}.timeoutSeconds"),
                &timeout.into(),
                says,
            ));
        }
    }
    causes
}

/// Complains about a change of a built-in kind's object.
pub(crate) fn validate_update(kind: &Kind, part: Part, object: &Value, old: &Value) -> Vec<Cause> {
    let immutable = |field: &str| -> Vec<Cause> {
        if object[field] == old[field] {
            Vec::new()
        } else {
            vec![Cause::immutable(field, &object[field])]
        }
    };
    match (kind.plural.as_str(), part) {
        ("jobs", Part::Main) => job::validate_update(object, old),
        ("jobs", Part::Status) => job_status::validate(object, old),
        ("pods", Part::Main) => pod::validate_update(object, old),
        ("secrets" | "configmaps", _) => {
            let mut causes = Vec::new();
            if kind.plural == "secrets" {
                causes.extend(immutable("type"));
            }
            if old["immutable"] == true {
                if object["immutable"] != true {
                    causes.push(Cause::forbidden(
                        "immutable",
                        "field is immutable when `immutable` is set",
                    ));
                }
                for field in ["data", "binaryData"] {
                    if object[field] != old[field] {
                        causes.push(Cause::forbidden(
                            field,
                            "field is immutable when `immutable` is set",
                        ));
                    }
                }
            }
            causes
        }
        ("priorityclasses", _) => {
            let mut causes = Vec::new();
            if object["value"] != old["value"] {
                causes.push(Cause::forbidden("value", "may not be changed in an update."));
            }
            causes.extend(immutable("preemptionPolicy"));
            causes
        }
        ("rolebindings" | "clusterrolebindings", _) => {
            if object["roleRef"] == old["roleRef"] {
                Vec::new()
            } else {
                vec![Cause::invalid(
                    "roleRef",
                    &object["roleRef"],
                    "cannot change roleRef",
                )]
            }
        }
        ("runtimeclasses", _) => immutable("handler"),
        ("customresourcedefinitions", Part::Main) => definition::validate_update(object, old),
        _ => Vec::new(),
    }
}
