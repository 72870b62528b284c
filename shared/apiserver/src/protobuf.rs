//! The few messages that kubectl sends as protobuf whatever it is told: `auth can-i` and `auth whoami`, and `create` of
//! namespaces, service accounts, config maps and tokens. All other protobuf is refused with 415, and so is a message with a
//! field that is not known here.

use serde_json::{Map, Value, json};

/// How Kubernetes begins its protobuf.
const MAGIC: &[u8] = b"k8s\0";
/// Nesting of messages that is read.
const DEPTH_MAX: usize = 8;

/// A field of a message: its number, its name, and the fields below it if it is a message.
struct Field(u64, &'static str, &'static [Self]);

/// What the names of some fields say about them; all others are texts or messages.
const MAPS: [&str; 3] = ["labels", "annotations", "data"];
const LISTS: [&str; 1] = ["audiences"];
const ENTRY: &[Field] = &[Field(1, "key", &[]), Field(2, "value", &[])];
const META: &[Field] = &[
    Field(1, "name", &[]),
    Field(2, "generateName", &[]),
    Field(3, "namespace", &[]),
    Field(11, "labels", ENTRY),
    Field(12, "annotations", ENTRY),
];
const NAMESPACE: &[Field] = &[
    Field(1, "metadata", META),
    Field(3, "status", &[Field(1, "phase", &[])]),
];
const ACCOUNT: &[Field] = &[Field(1, "metadata", META)];
const CONFIG_MAP: &[Field] = &[Field(1, "metadata", META), Field(2, "data", ENTRY)];
const TOKEN: &[Field] = &[
    Field(1, "metadata", META),
    Field(
        2,
        "spec",
        &[Field(1, "audiences", &[]), Field(4, "expirationSeconds", &[])],
    ),
    Field(
        3,
        "status",
        &[Field(1, "token", &[]), Field(2, "expirationTimestamp", &[])],
    ),
];
const ANSWER: &[Field] = &[
    Field(1, "allowed", &[]),
    Field(2, "reason", &[]),
    Field(3, "evaluationError", &[]),
    Field(4, "denied", &[]),
];
const ACCESS: &[Field] = &[
    Field(1, "metadata", META),
    Field(3, "status", ANSWER),
    Field(
        2,
        "spec",
        &[
            Field(
                1,
                "resourceAttributes",
                &[
                    Field(1, "namespace", &[]),
                    Field(2, "verb", &[]),
                    Field(3, "group", &[]),
                    Field(4, "version", &[]),
                    Field(5, "resource", &[]),
                    Field(6, "subresource", &[]),
                    Field(7, "name", &[]),
                ],
            ),
            Field(
                2,
                "nonResourceAttributes",
                &[Field(1, "path", &[]), Field(2, "verb", &[])],
            ),
        ],
    ),
];
const RULES: &[Field] = &[
    Field(1, "metadata", META),
    Field(2, "spec", &[Field(1, "namespace", &[])]),
    Field(
        3,
        "status",
        &[Field(3, "incomplete", &[]), Field(4, "evaluationError", &[])],
    ),
];
const SELF: &[Field] = &[
    Field(1, "metadata", META),
    Field(
        2,
        "status",
        &[Field(
            1,
            "userInfo",
            &[Field(1, "username", &[]), Field(2, "uid", &[])],
        )],
    ),
];
const TYPE: &[Field] = &[Field(1, "apiVersion", &[]), Field(2, "kind", &[])];

/// Reads one of these messages; nothing if it is another one, broken, or says more than is known here.
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

/// What a field holds.
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
        let (inner, Field(_, name, below)) = match (held, known) {
            (Held::Number(0) | Held::Bytes([]), _) => continue,
            (Held::Number(n), Some(Field(_, name, _))) => {
                out.insert((*name).to_owned(), n.into());
                continue;
            }
            (Held::Bytes(inner), Some(field)) => (inner, field),
            // Why: what is not understood must not be dropped in silence.
            (_, None) => return None,
        };
        let value = if below.is_empty() {
            json!(std::str::from_utf8(inner).ok()?)
        } else {
            message(inner, below, depth + 1)?
        };
        let slot = out.entry((*name).to_owned());
        if MAPS.contains(name) {
            let key = value["key"].as_str().unwrap_or_default().to_owned();
            let value = value["value"].as_str().unwrap_or_default();
            slot.or_insert_with(|| json!({}))[key] = value.into();
        } else if LISTS.contains(name) {
            if let Some(list) = slot.or_insert_with(|| json!([])).as_array_mut() {
                list.push(value);
            }
        } else {
            slot.or_insert(value);
        }
    }
    Some(Value::Object(out))
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
        let wrapped = |meta: Vec<u8>| {
            let kind = [text(1, "v1"), text(2, "Namespace")].concat();
            let raw = [bytes(1, meta), bytes(2, Vec::new()), bytes(3, Vec::new())].concat();
            [
                MAGIC.to_vec(),
                bytes(1, kind),
                bytes(2, raw),
                text(3, ""),
                text(4, ""),
            ]
            .concat()
        };
        let label = bytes(11, [text(1, "a"), text(2, "b")].concat());
        let meta = [text(1, "team"), text(2, ""), vec![7 << 3, 0], label].concat();
        let read = decode(&wrapped(meta)).unwrap();
        let meta = json!({"name": "team", "labels": {"a": "b"}});
        assert_eq!(
            read,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        );
        let finalizer = [text(1, "team"), text(14, "example.com/f")].concat();
        assert_eq!(decode(&wrapped(finalizer)), None);
    }
}
