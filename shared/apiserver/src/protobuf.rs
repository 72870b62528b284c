//! The two messages that kubectl sends as protobuf whatever it is told: `auth can-i` and `auth can-i --list`. All other
//! protobuf is refused with 415.

use serde_json::{Map, Value, json};

/// How Kubernetes begins its protobuf.
const MAGIC: &[u8] = b"k8s\0";
/// Nesting of messages that is read.
const DEPTH_MAX: usize = 8;

/// A field of a message: its number, its name, and the fields below it if it is a message.
struct Field(u64, &'static str, &'static [Self]);

const ACCESS: &[Field] = &[Field(
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
)];
const RULES: &[Field] = &[Field(2, "spec", &[Field(1, "namespace", &[])])];
const ENVELOPE: &[Field] = &[Field(
    1,
    "type",
    &[Field(1, "apiVersion", &[]), Field(2, "kind", &[])],
)];

/// Reads one of the two messages; nothing if it is another one or broken.
pub(crate) fn decode(body: &[u8]) -> Option<Value> {
    let body = body.strip_prefix(MAGIC)?;
    let envelope = message(body, ENVELOPE, 0)?;
    let (version, kind) = (&envelope["type"]["apiVersion"], &envelope["type"]["kind"]);
    let fields = match kind.as_str()? {
        "SelfSubjectAccessReview" => ACCESS,
        "SelfSubjectRulesReview" => RULES,
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

/// The next field: its number and, if it has a length, its bytes.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let tag = varint(bytes)?;
    match tag & 7 {
        0 => {
            varint(bytes)?;
            Some((tag >> 3, &[]))
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (inner, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some((tag >> 3, inner))
        }
        _ => None,
    }
}

fn raw_field(mut bytes: &[u8], wanted: u64) -> Option<&[u8]> {
    while !bytes.is_empty() {
        let (number, inner) = next(&mut bytes)?;
        if number == wanted {
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
        let (number, inner) = next(&mut bytes)?;
        let Some(Field(_, name, below)) = fields.iter().find(|field| field.0 == number) else {
            continue;
        };
        let value = if below.is_empty() {
            json!(std::str::from_utf8(inner).ok()?)
        } else {
            message(inner, below, depth + 1)?
        };
        out.insert((*name).to_owned(), value);
    }
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(length: usize) -> u8 {
        u8::try_from(length).unwrap()
    }

    #[test]
    fn a_question_about_access_is_read_and_broken_bytes_are_not() {
        let text =
            |number: u8, text: &str| [&[number << 3 | 2, short(text.len())][..], text.as_bytes()].concat();
        let bytes = |number: u8, inner: Vec<u8>| [vec![number << 3 | 2, short(inner.len())], inner].concat();
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
}
