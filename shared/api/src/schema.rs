//! Pieces of schema that many fields share: names, quantities, conditions, tolerations.
//!
//! Each function is meant for `#[schemars(schema_with = "…")]`; the field's own doc comment becomes the description.
//! A field that uses one of these and may be absent must say `#[serde(default)]`, because `schemars` cannot see the
//! `Option` behind a hand-made schema.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Pattern of a DNS-1123 subdomain: the usual name of an object.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Pattern of a DNS-1123 label.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a label key with an optional DNS prefix; condition types have the same form.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Pattern of a reason: a CamelCase word.
const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// Pattern of a resource quantity written as a string.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Longest message of a condition or of an admission check, in characters.
const MESSAGE_MAX: u32 = 32_768;

/// The name of an object: DNS-1123 subdomain, at most 253 characters.
pub(crate) fn subdomain(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN})
}

/// As [`subdomain`], but the empty string is refused by its length too, so that the error says so.
pub(crate) fn subdomain_required(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN})
}

/// DNS-1123 label, at most 63 characters.
pub(crate) fn label(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 63, "pattern": LABEL})
}

/// DNS-1123 label of 1 to 63 characters.
pub(crate) fn label_required(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": LABEL})
}

/// Key of a node label: optional DNS prefix and a name, 1 to 316 characters.
pub(crate) fn node_label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 316, "pattern": LABEL_KEY})
}

/// Key of a node selector: as [`node_label_key`], 1 to 317 characters.
pub(crate) fn selector_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 317, "pattern": LABEL_KEY})
}

/// A resource quantity: a number, or a string such as `500m` or `2Gi`.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    quantity_schema()
}

/// A map from resource name to quantity.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": quantity_schema().to_value()})
}

/// A map from resource name to the name of a `ResourceFlavor`.
pub(crate) fn flavors(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 253, "pattern": SUBDOMAIN},
    })
}

/// Free parameters of a provisioning class: at most 100 entries, values of at most 255 characters.
pub(crate) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": {"type": "string", "maxLength": 255},
    })
}

/// Details of a provisioning class's answer: at most 64 entries, values of at most 32768 characters.
pub(crate) fn class_details(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 32_768},
    })
}

/// Labels of nodes: at most 8, replaced as a whole by server-side apply.
pub(crate) fn node_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "atomic",
    })
}

/// An object of any content, kept as it is.
pub(crate) fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The conditions of an object: at most 16, one per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    condition_list(Some(16))
}

/// The conditions of a `ProvisioningRequest`: one per type, any number.
pub(crate) fn conditions_unbounded(_: &mut SchemaGenerator) -> Schema {
    condition_list(None)
}

/// A label selector, replaced as a whole by server-side apply.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be present with exactly these values; all must match.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "description": "Further requirements on labels; all must match.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "Key of the label the requirement speaks about.", "type": "string"},
                        "operator": {
                            "description": "How the label relates to the values: In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "Values to compare with: at least one for In and NotIn, none for Exists and DoesNotExist.",
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                },
            },
        },
    })
}

/// Taints of a flavor's nodes: at most 8.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [{
            "rule": "self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            "message": "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        }],
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "key": {"description": "Key of the taint.", "type": "string"},
                "value": {"description": "Value of the taint; empty when absent.", "type": "string"},
                "effect": {
                    "description": "What the taint does to pods without a matching toleration: NoSchedule, PreferNoSchedule or NoExecute.",
                    "type": "string",
                },
                "timeAdded": {
                    "description": "When the taint was added; informative only.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
    })
}

/// Tolerations added to pods: at most 8, with the five rules the API server has for a pod's tolerations.
pub(crate) fn tolerations(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = tolerations_unchecked(generator);
    schema.insert("maxItems".to_owned(), json!(8));
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        json!([
            {
                "rule": "self.all(t, (has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists'))",
                "message": "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            },
            {
                "rule": "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
                "message": "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            },
            {
                "rule": "self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])",
                "message": "supported toleration operators: 'Equal' (default), 'Exists'",
            },
            {
                "rule": "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",
                "message": "a value must be empty when 'operator' is 'Exists'",
            },
            {
                "rule": "self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
                "message": "supported toleration effects: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'; empty matches all",
            },
        ]),
    );
    schema
}

/// Tolerations that are validated elsewhere.
pub(crate) fn tolerations_unchecked(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "key": {"description": "Key of the taint that is tolerated; empty (with operator Exists) tolerates all keys.", "type": "string"},
                "operator": {
                    "description": "How key and value are compared: Equal (the default) or Exists.",
                    "type": "string",
                },
                "value": {"description": "Value of the taint that is tolerated; empty for operator Exists.", "type": "string"},
                "effect": {
                    "description": "Effect that is tolerated: NoSchedule, PreferNoSchedule or NoExecute; empty means all.",
                    "type": "string",
                },
                "tolerationSeconds": {
                    "description": "For effect NoExecute: how long the taint is tolerated, in seconds; absent means forever, 0 or less means not at all.",
                    "type": "integer",
                    "format": "int64",
                },
            },
        },
    })
}

fn quantity_schema() -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

fn condition_list(max_items: Option<u32>) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": condition(),
    });
    if let Some(max) = max_items {
        schema.insert("maxItems".to_owned(), json!(max));
    }
    schema
}

fn condition() -> Value {
    json!({
        "description": "One aspect of the current state of the object.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {
                "description": "Which aspect this is, in CamelCase or as domain/CamelCase: at most 316 characters.",
                "type": "string",
                "maxLength": 316,
                "pattern": LABEL_KEY,
            },
            "status": {
                "description": "Whether the aspect holds: True, False or Unknown.",
                "type": "string",
                "enum": ["True", "False", "Unknown"],
            },
            "reason": {
                "description": "Why the status is what it is, as one CamelCase word for programs: 1 to 1024 characters.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": REASON,
            },
            "message": {
                "description": "The same for people; may be empty, at most 32768 characters.",
                "type": "string",
                "maxLength": MESSAGE_MAX,
            },
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "type": "string",
                "format": "date-time",
            },
            "observedGeneration": {
                "description": "The metadata.generation this condition speaks about; at least 0, smaller than the current one means out of date.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
        },
    })
}
