//! YAML as a tree that remembers the position of each node.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Number, Value};
use serde_path_to_error::Segment;
use serde_saphyr::Spanned;

#[derive(Debug, Clone)]
pub(super) struct Node {
    path: String,
    position: (u64, u64),
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        let position = (spanned.referenced.line(), spanned.referenced.column());
        Ok(Self {
            path: String::new(),
            position,
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyContent)
    }
}

struct AnyContent;

impl<'de> Visitor<'de> for AnyContent {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        // Why: JSON has no infinity or NaN. Such a number is kept as text, which the type of the key refuses.
        let number = Number::from_f64(value).map(Value::Number);
        Ok(Content::Scalar(
            number.unwrap_or_else(|| value.to_string().into()),
        ))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let mut node: Node = entries.next_value()?;
            let at_key = (key.referenced.line(), key.referenced.column());
            if at_key.0 > 0 {
                node.position = at_key;
            }
            map.push((key.value, node));
        }
        Ok(Content::Map(map))
    }
}

/// The position of each key path of all documents.
#[derive(Debug, Default)]
pub(super) struct Positions(BTreeMap<String, Place>);

/// Line and column, and the text of a single value.
#[derive(Debug)]
struct Place {
    position: (u64, u64),
    value: Option<String>,
}

impl Positions {
    pub(super) fn is_written(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The single value that was written at exactly this path, unless it may be a secret.
    pub(super) fn value(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.value.as_deref()
    }

    /// The position of the path, else of its nearest ancestor that was written.
    pub(super) fn nearest(&self, path: &str) -> Option<(u64, u64)> {
        let mut path = path;
        loop {
            match self.0.get(path) {
                Some(place) => return Some(place.position),
                None => path = path.get(..path.rfind(['.', '['])?)?,
            }
        }
    }
}

impl Node {
    /// Gives every node its path and notes its position. Call once, on the root.
    pub(super) fn name_paths(&mut self, path: String, positions: &mut Positions) {
        let value = match &self.content {
            Content::Scalar(value) if !may_hold_secret(&path) => printed(value),
            Content::Scalar(_) | Content::List(_) | Content::Map(_) => None,
        };
        let position = self.position;
        positions
            .0
            .entry(path.clone())
            .or_insert(Place { position, value });
        match &mut self.content {
            Content::Scalar(_) => {}
            Content::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.name_paths(format!("{path}[{index}]"), positions);
                }
            }
            Content::Map(entries) => {
                for (key, node) in entries {
                    let child = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    node.name_paths(child, positions);
                }
            }
        }
        self.path = path;
    }

    pub(super) const fn position(&self) -> (u64, u64) {
        self.position
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    pub(super) const fn is_map(&self) -> bool {
        matches!(self.content, Content::Map(_))
    }

    /// The child with this key, if this is a mapping that has it.
    pub(super) fn child(&self, key: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(value) => value.as_str(),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Removes the deepest existing node on the way, other than the root.
    pub(super) fn take(&mut self, way: &[&Segment]) -> Option<Self> {
        let (step, rest) = way.split_first()?;
        match (&mut self.content, step) {
            (Content::Map(entries), Segment::Map { key } | Segment::Enum { variant: key }) => {
                let index = entries.iter().position(|(name, _)| name == key)?;
                let (_, node) = entries.get_mut(index)?;
                node.take(rest).or_else(|| Some(entries.remove(index).1))
            }
            (Content::List(items), Segment::Seq { index }) => {
                let node = items.get_mut(*index)?;
                node.take(rest).or_else(|| Some(items.remove(*index)))
            }
            (Content::Scalar(_) | Content::List(_) | Content::Map(_), _) => None,
        }
    }
}

/// Whether a value may be a secret, which errors must not quote: the environment and arguments of a credentials program.
pub(super) fn may_hold_secret(path: &str) -> bool {
    let in_environment = path.contains(".execConfig.env") && path.rsplit('.').next() != Some("name");
    in_environment || path.contains(".execConfig.args")
}

fn printed(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.is_empty() => Some("empty".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Reads from the tree. Unlike JSON's own reader it accepts no list where a mapping belongs.
impl<'de> Deserializer<'de> for &'de Node {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.content {
            Content::Scalar(value) => value.deserialize_any(visitor),
            Content::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Content::Map(entries) => visitor.visit_map(MapDeserializer::new(
                entries.iter().map(|(key, node)| (key.as_str(), node)),
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match &self.content {
            Content::List(_) => Err(Self::Error::invalid_type(Unexpected::Seq, &"a mapping")),
            Content::Scalar(value) => Err(Self::Error::invalid_type(unexpected(value), &"a mapping")),
            Content::Map(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match &self.content {
            Content::Scalar(value) => value.deserialize_enum(name, variants, visitor),
            Content::List(_) => Err(Self::Error::invalid_type(Unexpected::Seq, &"a string")),
            Content::Map(_) => Err(Self::Error::invalid_type(Unexpected::Map, &"a string")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(_) => Unexpected::Other("number"),
        Value::String(text) => Unexpected::Str(text),
        Value::Null => Unexpected::Unit,
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
