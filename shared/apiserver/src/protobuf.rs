//! The messages that kubectl always sends as protobuf: `auth can-i`, `auth whoami`, and `create` with its typed clients
//! (namespaces, accounts, config maps, secrets, services, jobs, roles and bindings, priority classes, tokens).
//! The server refuses other protobuf with 415, and also a message with a field that this table does not list.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The first bytes of Kubernetes' protobuf.
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting of messages that is read.
const DEPTH_MAX: usize = 8;

/// A field of a message: its number, its name, and what it holds.
struct Field(u64, &'static str, Shape);

/// What a field holds.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Number,
    Flag,
    Message(&'static [Field]),
    Texts,
    Messages(&'static [Field]),
    /// From text to text.
    TextMap,
    /// From text to bytes, which are base64 in JSON.
    BytesMap,
    IntOrString,
}

use Shape::{BytesMap, Flag, IntOrString, Message, Messages, Number, Text, TextMap, Texts};

const META: &[Field] = &[
    Field(1, "name", Text),
    Field(2, "generateName", Text),
    Field(3, "namespace", Text),
    Field(11, "labels", TextMap),
    Field(12, "annotations", TextMap),
];
const NAMESPACE: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(3, "status", Message(&[Field(1, "phase", Text)])),
];
const ACCOUNT: &[Field] = &[Field(1, "metadata", Message(META))];
const CONFIG_MAP: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "data", TextMap),
    Field(3, "binaryData", BytesMap),
    Field(4, "immutable", Flag),
];
const SECRET: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "data", BytesMap),
    Field(3, "type", Text),
    Field(4, "stringData", TextMap),
    Field(5, "immutable", Flag),
];
const PORT: &[Field] = &[
    Field(1, "name", Text),
    Field(2, "protocol", Text),
    Field(3, "port", Number),
    Field(4, "targetPort", IntOrString),
    Field(5, "nodePort", Number),
];
const SERVICE_SPEC: &[Field] = &[
    Field(1, "ports", Messages(PORT)),
    Field(2, "selector", TextMap),
    Field(3, "clusterIP", Text),
    Field(4, "type", Text),
    Field(10, "externalName", Text),
];
const SERVICE: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "spec", Message(SERVICE_SPEC)),
    Field(3, "status", Message(&[Field(1, "loadBalancer", Message(&[]))])),
];
const CONTAINER: &[Field] = &[
    Field(1, "name", Text),
    Field(2, "image", Text),
    Field(3, "command", Texts),
    Field(4, "args", Texts),
    Field(14, "imagePullPolicy", Text),
];
const POD: &[Field] = &[
    Field(2, "containers", Messages(CONTAINER)),
    Field(3, "restartPolicy", Text),
    Field(8, "serviceAccountName", Text),
];
const TEMPLATE: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "spec", Message(POD)),
];
const JOB_SPEC: &[Field] = &[
    Field(1, "parallelism", Number),
    Field(2, "completions", Number),
    Field(7, "backoffLimit", Number),
    Field(6, "template", Message(TEMPLATE)),
    Field(10, "suspend", Flag),
];
const JOB: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "spec", Message(JOB_SPEC)),
    Field(3, "status", Message(&[])),
];
const RULE: &[Field] = &[
    Field(1, "verbs", Texts),
    Field(2, "apiGroups", Texts),
    Field(3, "resources", Texts),
    Field(4, "resourceNames", Texts),
    Field(5, "nonResourceURLs", Texts),
];
const SELECTOR: &[Field] = &[Field(1, "matchLabels", TextMap)];
const AGGREGATION: &[Field] = &[Field(1, "clusterRoleSelectors", Messages(SELECTOR))];
const ROLE: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "rules", Messages(RULE)),
    Field(3, "aggregationRule", Message(AGGREGATION)),
];
const SUBJECT: &[Field] = &[
    Field(1, "kind", Text),
    Field(2, "apiGroup", Text),
    Field(3, "name", Text),
    Field(4, "namespace", Text),
];
const ROLE_REF: &[Field] = &[
    Field(1, "apiGroup", Text),
    Field(2, "kind", Text),
    Field(3, "name", Text),
];
const BINDING: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "subjects", Messages(SUBJECT)),
    Field(3, "roleRef", Message(ROLE_REF)),
];
const PRIORITY: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "value", Number),
    Field(3, "globalDefault", Flag),
    Field(4, "description", Text),
    Field(5, "preemptionPolicy", Text),
];
const TOKEN_SPEC: &[Field] = &[
    Field(1, "audiences", Texts),
    Field(4, "expirationSeconds", Number),
];
const TOKEN_STATUS: &[Field] = &[Field(1, "token", Text), Field(2, "expirationTimestamp", Text)];
const TOKEN: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "spec", Message(TOKEN_SPEC)),
    Field(3, "status", Message(TOKEN_STATUS)),
];
const ANSWER: &[Field] = &[
    Field(1, "allowed", Flag),
    Field(2, "reason", Text),
    Field(3, "evaluationError", Text),
    Field(4, "denied", Flag),
];
const ON_RESOURCE: &[Field] = &[
    Field(1, "namespace", Text),
    Field(2, "verb", Text),
    Field(3, "group", Text),
    Field(4, "version", Text),
    Field(5, "resource", Text),
    Field(6, "subresource", Text),
    Field(7, "name", Text),
];
const ON_PATH: &[Field] = &[Field(1, "path", Text), Field(2, "verb", Text)];
const QUESTION: &[Field] = &[
    Field(1, "resourceAttributes", Message(ON_RESOURCE)),
    Field(2, "nonResourceAttributes", Message(ON_PATH)),
];
const ACCESS: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(3, "status", Message(ANSWER)),
    Field(2, "spec", Message(QUESTION)),
];
const RULES_STATUS: &[Field] = &[Field(3, "incomplete", Flag), Field(4, "evaluationError", Text)];
const RULES: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "spec", Message(&[Field(1, "namespace", Text)])),
    Field(3, "status", Message(RULES_STATUS)),
];
const USER: &[Field] = &[Field(1, "username", Text), Field(2, "uid", Text)];
const SELF: &[Field] = &[
    Field(1, "metadata", Message(META)),
    Field(2, "status", Message(&[Field(1, "userInfo", Message(USER))])),
];
const TYPE: &[Field] = &[Field(1, "apiVersion", Text), Field(2, "kind", Text)];

/// Reads one of these messages; `None` if it is another kind, broken, or has an unknown field.
pub(crate) fn decode(body: &[u8]) -> Option<Value> {
    let body = body.strip_prefix(MAGIC)?;
    let envelope = message(raw_field(body, 1)?, TYPE, 0)?;
    let (version, kind) = (&envelope["apiVersion"], &envelope["kind"]);
    let fields = match kind.as_str()? {
        "SelfSubjectAccessReview" => ACCESS,
        "SelfSubjectRulesReview" => RULES,
        "SelfSubjectReview" => SELF,
        "Namespace" => NAMESPACE,
        "ServiceAccount" => ACCOUNT,
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "Service" => SERVICE,
        "Job" => JOB,
        "Role" | "ClusterRole" => ROLE,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "PriorityClass" => PRIORITY,
        "TokenRequest" => TOKEN,
        _ => return None,
    };
    let raw = raw_field(body, 2)?;
    let mut object = message(raw, fields, 0)?;
    object["apiVersion"] = version.clone();
    object["kind"] = kind.clone();
    Some(object)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

enum Held<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The next field: its number and what it holds.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Held<'a>)> {
    let tag = varint(bytes)?;
    match tag & 7 {
        0 => Some((tag >> 3, Held::Number(varint(bytes)?))),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (inner, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some((tag >> 3, Held::Bytes(inner)))
        }
        _ => None,
    }
}

fn raw_field(mut bytes: &[u8], wanted: u64) -> Option<&[u8]> {
    while !bytes.is_empty() {
        if let (number, Held::Bytes(inner)) = next(&mut bytes)?
            && number == wanted
        {
            return Some(inner);
        }
    }
    None
}

fn message(mut bytes: &[u8], fields: &[Field], depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut out = Map::new();
    while !bytes.is_empty() {
        let (number, held) = next(&mut bytes)?;
        let known = fields.iter().find(|field| field.0 == number);
        let Some(Field(_, name, shape)) = known else {
            // Why: an unknown field must not be dropped in silence. A zero may be: Go writes it for a field that was never set.
            match held {
                Held::Number(0) | Held::Bytes([]) => continue,
                Held::Number(_) | Held::Bytes(_) => return None,
            }
        };
        set(&mut out, name, *shape, held, depth)?;
    }
    Some(Value::Object(out))
}

/// Sets a field to the value `held`, or appends the value to a repeated field. Zeros of single fields are left out.
fn set(out: &mut Map<String, Value>, name: &str, shape: Shape, held: Held<'_>, depth: usize) -> Option<()> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    match (shape, held) {
        (Number | Flag, Held::Number(0)) | (Text | Message(_) | IntOrString, Held::Bytes([])) => {}
        (Number, Held::Number(number)) => {
            out.insert(name.to_owned(), number.cast_signed().into());
        }
        (Flag, Held::Number(_)) => {
            out.insert(name.to_owned(), true.into());
        }
        (Texts, Held::Bytes(inner)) => push(out, name, text(inner)?.into()),
        (Messages(below), Held::Bytes(inner)) => push(out, name, message(inner, below, depth + 1)?),
        (TextMap | BytesMap, Held::Bytes(inner)) => {
            let key = text(raw_field(inner, 1).unwrap_or_default())?;
            let value = raw_field(inner, 2).unwrap_or_default();
            let value = if matches!(shape, BytesMap) {
                STANDARD.encode(value)
            } else {
                text(value)?.to_owned()
            };
            let map = out.entry(name.to_owned()).or_insert_with(|| json!({}));
            map[key] = value.into();
        }
        (Text, Held::Bytes(inner)) => {
            out.insert(name.to_owned(), text(inner)?.into());
        }
        (Message(below), Held::Bytes(inner)) => {
            out.insert(name.to_owned(), message(inner, below, depth + 1)?);
        }
        (IntOrString, Held::Bytes(inner)) => {
            const EITHER: &[Field] = &[
                Field(1, "type", Number),
                Field(2, "number", Number),
                Field(3, "text", Text),
            ];
            let either = message(inner, EITHER, depth + 1)?;
            let which = if either["type"].is_null() {
                "number"
            } else {
                "text"
            };
            let value = &either[which];
            if !value.is_null() {
                out.insert(name.to_owned(), value.clone());
            }
        }
        (Number | Flag, Held::Bytes(_)) => return None,
        (Texts | Messages(_) | TextMap | BytesMap | Text | Message(_) | IntOrString, Held::Number(_)) => {
            return None;
        }
    }
    Some(())
}

fn push(out: &mut Map<String, Value>, name: &str, value: Value) {
    if let Value::Array(list) = out.entry(name.to_owned()).or_insert_with(|| json!([])) {
        list.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(length: usize) -> u8 {
        u8::try_from(length).unwrap()
    }

    fn text(number: u8, text: &str) -> Vec<u8> {
        bytes(number, text.as_bytes().to_vec())
    }

    fn bytes(number: u8, inner: Vec<u8>) -> Vec<u8> {
        [vec![number << 3 | 2, short(inner.len())], inner].concat()
    }

    #[test]
    fn a_question_about_oneself_is_read() {
        let kind = [text(1, "authentication.k8s.io/v1"), text(2, "SelfSubjectReview")].concat();
        let nobody = [text(1, ""), text(2, "")].concat();
        let raw = [bytes(1, Vec::new()), bytes(2, bytes(1, nobody))].concat();
        let body = [MAGIC.to_vec(), bytes(1, kind), bytes(2, raw)].concat();
        let read = decode(&body).unwrap();
        assert_eq!(read["kind"], "SelfSubjectReview");
        assert_eq!(read["status"], json!({"userInfo": {}}));
    }

    #[test]
    fn a_question_about_access_is_read_and_broken_bytes_are_not() {
        let kind = [
            text(1, "authorization.k8s.io/v1"),
            text(2, "SelfSubjectAccessReview"),
        ]
        .concat();
        let attributes = [text(2, "create"), text(5, "pods")].concat();
        let raw = bytes(2, bytes(1, attributes));
        let body = [MAGIC.to_vec(), bytes(1, kind), bytes(2, raw)].concat();
        let read = decode(&body).unwrap();
        assert_eq!(
            read["spec"]["resourceAttributes"],
            json!({"verb": "create", "resource": "pods"})
        );
        assert_eq!(decode(&body[..body.len() - 3]), None);
        assert_eq!(decode(b"k8s"), None);
    }

    #[test]
    fn a_new_namespace_is_read_and_what_is_not_understood_is_refused() {
        let namespace = |meta: Vec<u8>| {
            let raw = [bytes(1, meta), bytes(2, Vec::new()), bytes(3, Vec::new())].concat();
            wrapped("v1", "Namespace", raw)
        };
        let label = bytes(11, [text(1, "a"), text(2, "b")].concat());
        let meta = [text(1, "team"), text(2, ""), vec![7 << 3, 0], label].concat();
        let read = decode(&namespace(meta)).unwrap();
        let meta = json!({"name": "team", "labels": {"a": "b"}});
        assert_eq!(
            read,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        );
        let finalizer = [text(1, "team"), text(14, "example.com/f")].concat();
        assert_eq!(decode(&namespace(finalizer)), None);
    }

    fn wrapped(version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
        let kind = [text(1, version), text(2, kind)].concat();
        [
            MAGIC.to_vec(),
            bytes(1, kind),
            bytes(2, raw),
            text(3, ""),
            text(4, ""),
        ]
        .concat()
    }

    fn entry(number: u8, key: &str, value: &[u8]) -> Vec<u8> {
        bytes(number, [text(1, key), bytes(2, value.to_vec())].concat())
    }

    /// As `kubectl create secret generic s --from-literal=k=v` sends it.
    #[test]
    fn the_bytes_of_a_secret_become_base64() {
        let raw = [
            bytes(1, text(1, "s")),
            entry(2, "k", b"\xff\x00"),
            entry(2, "empty", b""),
            text(3, "Opaque"),
        ]
        .concat();
        let read = decode(&wrapped("v1", "Secret", raw)).unwrap();
        assert_eq!(read["data"], json!({"k": "/wA=", "empty": ""}));
        assert_eq!(read["type"], "Opaque");
    }

    /// As `kubectl create role r --verb=get,list --resource=pods` sends it: the core group is an empty text in a list.
    #[test]
    fn an_empty_text_in_a_list_is_kept() {
        let rule = [text(1, "get"), text(1, "list"), text(2, ""), text(3, "pods")].concat();
        let raw = [bytes(1, text(1, "r")), bytes(2, rule)].concat();
        let read = decode(&wrapped("rbac.authorization.k8s.io/v1", "Role", raw)).unwrap();
        let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(read["rules"], rules);
    }

    /// As `kubectl create job j --image=i -- sleep 1` sends it, with the zeros that Go writes.
    #[test]
    fn a_job_is_read_and_one_with_a_field_beyond_is_refused() {
        let job = |more: Vec<u8>| {
            let container = [
                text(1, "j"),
                text(2, "i"),
                text(3, "sleep"),
                text(3, "1"),
                text(5, ""),
                bytes(8, Vec::new()),
            ];
            let container = [container.concat(), vec![0x80, 1, 0]].concat();
            let pod = [bytes(2, container), text(3, "Never"), vec![11 << 3, 0], more].concat();
            let template = [bytes(1, text(1, "")), bytes(2, pod)].concat();
            let status = vec![4 << 3, 0, 5 << 3, 0, 6 << 3, 0];
            [
                bytes(1, text(1, "j")),
                bytes(2, bytes(6, template)),
                bytes(3, status),
            ]
            .concat()
        };
        let read = decode(&wrapped("batch/v1", "Job", job(Vec::new()))).unwrap();
        let container = json!({"name": "j", "image": "i", "command": ["sleep", "1"]});
        assert_eq!(
            read["spec"]["template"]["spec"],
            json!({"containers": [container], "restartPolicy": "Never"})
        );
        assert_eq!(read["status"], json!({}));
        assert_eq!(decode(&wrapped("batch/v1", "Job", job(text(10, "node")))), None);
    }

    #[test]
    fn numbers_keep_their_sign_and_a_port_is_a_number_or_a_name() {
        let minus_one = [vec![0xff; 9], vec![1]].concat();
        let raw = [bytes(1, text(1, "low")), vec![2 << 3], minus_one, vec![3 << 3, 1]].concat();
        let read = decode(&wrapped("scheduling.k8s.io/v1", "PriorityClass", raw)).unwrap();
        assert_eq!(
            (&read["value"], &read["globalDefault"]),
            (&json!(-1), &json!(true))
        );
        let port = |target: Vec<u8>| {
            let port = [vec![3 << 3, 80], bytes(4, target)].concat();
            let raw = [bytes(1, text(1, "s")), bytes(2, bytes(1, port))].concat();
            decode(&wrapped("v1", "Service", raw)).unwrap()["spec"]["ports"][0]["targetPort"].clone()
        };
        assert_eq!(port(vec![1 << 3, 0, 2 << 3, 80, 3 << 3 | 2, 0]), json!(80));
        assert_eq!(
            port([vec![1 << 3, 1, 2 << 3, 0], text(3, "web")].concat()),
            json!("web")
        );
    }
}
