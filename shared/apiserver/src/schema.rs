//! The shape of objects: one kind of tree for built-in kinds and for custom resources.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use regex::Regex;
use serde_json::{Map, Value};

use crate::json;

/// How server-side apply sees a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListKind {
    #[default]
    Atomic,
    Set,
    /// By these fields of its elements.
    Map(Vec<String>),
}

/// How Go writes a field of a built-in kind that was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    /// Absent or null is left out; a zero is written.
    Pointer,
    /// Absent becomes null.
    NullPointer,
    OmitZero,
    /// Always written, as its zero if need be.
    Always,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    Quantity,
    #[default]
    Any,
}

/// The name of a definition, and the definition once it was looked up. Why cached: every walk through an object needs it.
#[derive(Clone)]
struct Reference {
    name: String,
    found: OnceLock<&'static Node>,
}

impl Reference {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            found: OnceLock::new(),
        }
    }

    fn node(&self) -> &'static Node {
        self.found
            .get_or_init(|| definition(&self.name).unwrap_or(&NOTHING))
    }
}

// Why only the name: definitions refer to each other in circles.
impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// One place in the shape of an object.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of a published schema"
)]
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    /// The definition that this place refers to, which has its fields.
    reference: Option<Reference>,
    pub(crate) format: String,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) additional: Option<Box<Self>>,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) list: ListKind,
    pub(crate) atomic_map: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) go: Option<(Go, String)>,
    pub(crate) merge_key: Option<String>,
    pub(crate) merge: bool,
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) rules: Option<Arc<Rules>>,
}

/// Limits on values of a custom resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) source: Value,
    pub(crate) pattern: Option<Regex>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

/// The CEL rules of one place.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) compiled: kube_cel::CompiledSchema,
    pub(crate) given: Vec<Value>,
}

static BUILTIN: LazyLock<BTreeMap<String, Node>> = LazyLock::new(|| {
    let all: Value = serde_json::from_str(include_str!("builtin/schemas.json")).unwrap_or_default();
    let all = all.as_object().into_iter().flatten();
    all.map(|(name, schema)| (name.clone(), Node::builtin(schema, name)))
        .collect()
});

static NOTHING: LazyLock<Node> = LazyLock::new(Node::default);

/// The prefix of the names of shared definitions.
pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const SPECIAL: [(&str, Type); 6] = [
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Type::IntOrString,
    ),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", Type::Quantity),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        Type::Any,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        Type::Any,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        Type::Any,
    ),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", Type::Any),
];

/// A definition of a built-in kind by its OpenAPI name.
pub(crate) fn definition(name: &str) -> Option<&'static Node> {
    BUILTIN.get(name)
}

impl Node {
    fn of(kind: Type) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    pub(crate) fn reference(name: &str) -> Self {
        Self {
            reference: Some(Reference::new(name)),
            ..Self::of(Type::Object)
        }
    }

    fn parse_type(schema: &Value) -> Type {
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return Type::IntOrString;
        }
        match json::text(schema, &["type"]) {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        }
    }

    /// Reads what built-in and custom shapes have in common; `inner` reads the schemas below.
    fn parse(schema: &Value, inner: &mut dyn FnMut(&Value) -> Self) -> Self {
        let boxed = |schema: &Value, inner: &mut dyn FnMut(&Value) -> Self| {
            schema.is_object().then(|| Box::new(inner(schema)))
        };
        let keys = json::texts(schema, &["x-kubernetes-list-map-keys"]);
        let strategy = json::text(schema, &["x-kubernetes-patch-strategy"]);
        Self {
            format: json::text(schema, &["format"]).to_owned(),
            properties: schema["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), inner(schema)))
                .collect(),
            additional: boxed(&schema["additionalProperties"], inner),
            items: boxed(&schema["items"], inner),
            required: json::texts(schema, &["required"])
                .into_iter()
                .map(str::to_owned)
                .collect(),
            default: schema.get("default").cloned(),
            list: match json::text(schema, &["x-kubernetes-list-type"]) {
                "map" => ListKind::Map(keys.into_iter().map(str::to_owned).collect()),
                "set" => ListKind::Set,
                _ => ListKind::Atomic,
            },
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            nullable: schema["nullable"] == true,
            preserve: schema["x-kubernetes-preserve-unknown-fields"] == true,
            embedded: schema["x-kubernetes-embedded-resource"] == true,
            merge_key: schema["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned),
            merge: strategy.contains("merge"),
            ..Self::of(Self::parse_type(schema))
        }
    }

    fn builtin(schema: &Value, name: &str) -> Self {
        let mut node = Self::parse(schema, &mut |schema| Self::builtin(schema, ""));
        node.reference = schema["$ref"].as_str().map(Reference::new);
        if let Some((_, kind)) = SPECIAL.iter().find(|(special, _)| *special == name) {
            node.kind = *kind;
        }
        if name.ends_with(".FieldsV1") || name == "io.k8s.apimachinery.pkg.runtime.RawExtension" {
            node.preserve = true;
        }
        node.go = schema["x-go"].as_str().and_then(|go| {
            let (flag, kind) = go.split_once(' ')?;
            let flag = match flag {
                "p" => Go::Pointer,
                "n" => Go::NullPointer,
                "o" => Go::OmitZero,
                _ => Go::Always,
            };
            Some((flag, kind.to_owned()))
        });
        node
    }

    /// Reads the schema of a custom resource's version; its metadata becomes that of every object.
    pub(crate) fn custom(schema: &Value) -> Self {
        let mut node = Self::custom_below(schema);
        node.kind = Type::Object;
        node.preserve |= !schema.is_object();
        Self::with_meta(&mut node);
        node
    }

    fn with_meta(node: &mut Self) {
        for name in ["apiVersion", "kind"] {
            let plain = Self::of(Type::String);
            node.properties.insert(name.to_owned(), plain);
        }
        let meta = Self::reference(&format!("{META}ObjectMeta"));
        node.properties.insert("metadata".to_owned(), meta);
    }

    fn custom_below(schema: &Value) -> Self {
        let mut node = Self::parse(schema, &mut Self::custom_below);
        // Why: in custom resources lists are atomic unless the schema says otherwise.
        let branches = |key: &str| -> Vec<Self> {
            json::items(schema, &[key])
                .iter()
                .map(Self::custom_below)
                .collect()
        };
        let limiting = [
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if limiting.iter().any(|key| schema.get(*key).is_some()) {
            let mut source = Map::new();
            for key in limiting {
                if let Some(value) = schema.get(key) {
                    source.insert(key.to_owned(), value.clone());
                }
            }
            node.limits = Some(Box::new(Limits {
                pattern: schema["pattern"].as_str().and_then(|text| Regex::new(text).ok()),
                all_of: branches("allOf"),
                any_of: branches("anyOf"),
                one_of: branches("oneOf"),
                not: schema["not"]
                    .is_object()
                    .then(|| Box::new(Self::custom_below(&schema["not"]))),
                source: source.into(),
            }));
        }
        let given = json::items(schema, &["x-kubernetes-validations"]);
        if !given.is_empty() {
            let own = judged_alone(schema);
            node.rules = Some(Arc::new(Rules {
                compiled: kube_cel::compile_schema(&own),
                given: given.to_vec(),
            }));
        }
        if node.embedded {
            Self::with_meta(&mut node);
        }
        node
    }

    /// Whether this place or any place below it has a CEL rule.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some()
            || self.properties.values().any(Self::has_rules)
            || self.items.as_deref().is_some_and(Self::has_rules)
            || self.additional.as_deref().is_some_and(Self::has_rules)
    }

    /// The node with the fields and elements of this place: the definition that this node refers to, or the node itself.
    pub(crate) fn shape(&self) -> &Self {
        match &self.reference {
            Some(reference) => reference.node(),
            None => self,
        }
    }

    pub(crate) fn definition_name(&self) -> Option<&str> {
        self.reference.as_ref().map(|reference| reference.name.as_str())
    }

    /// The node of a field, if the shape knows it.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        let shape = self.shape();
        shape.properties.get(name).or(shape.additional.as_deref())
    }

    /// The node of a field, for walks that continue below places without a schema.
    pub(crate) fn field_or_any(&self, name: &str) -> &Self {
        self.field(name).unwrap_or(&NOTHING)
    }

    pub(crate) fn element(&self) -> &Self {
        self.shape().items.as_deref().unwrap_or(&NOTHING)
    }

    /// How server-side apply sees a list here. A list without a schema is atomic.
    pub(crate) fn list_kind(&self) -> &ListKind {
        if self.list == ListKind::Atomic {
            &self.shape().list
        } else {
            &self.list
        }
    }

    /// Whether server-side apply owns a map here as a whole.
    pub(crate) fn is_atomic_map(&self) -> bool {
        self.atomic_map || self.shape().atomic_map
    }
}

/// A place with its own rules. Of the schema below it keeps only what changes how a value is read: formats, and maps, whose
/// keys are data. Why no more: each place that is kept costs a conversion of its value at every check.
fn judged_alone(schema: &Value) -> Value {
    let mut own = read_differently(schema).unwrap_or_else(|| Value::Object(Map::new()));
    json::copy(&mut own, schema, &["type"]);
    json::copy(&mut own, schema, &["x-kubernetes-validations"]);
    own
}

fn read_differently(schema: &Value) -> Option<Value> {
    let mut own = Map::new();
    if ["date-time", "duration", "byte"].contains(&json::text(schema, &["format"])) {
        own.insert("format".to_owned(), schema["format"].clone());
    }
    if let Some(embedded) = schema.get("x-kubernetes-embedded-resource") {
        own.insert("x-kubernetes-embedded-resource".to_owned(), embedded.clone());
    }
    let properties: Map<String, Value> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, below)| Some((name.clone(), read_differently(below)?)))
        .collect();
    if !properties.is_empty() {
        own.insert("properties".to_owned(), properties.into());
    }
    if let Some(items) = schema.get("items").and_then(read_differently) {
        own.insert("items".to_owned(), items);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let below = if additional.is_object() {
            read_differently(additional).unwrap_or_else(|| Value::Object(Map::new()))
        } else {
            additional.clone()
        };
        own.insert("additionalProperties".to_owned(), below);
    }
    if own.is_empty() {
        return None;
    }
    if let Some(kind) = schema.get("type") {
        own.insert("type".to_owned(), kind.clone());
    }
    Some(own.into())
}
