//! The schema of an older version, derived from that of the stored one by its differences.
//!
//! Why no types of its own: Roadstead only serves older versions and never works with them. Equal parts cannot differ by
//! accident, and each difference is one line beside its limit.

use serde_json::{Map, Value};

/// The schema of a kind while it is changed into an older version.
///
/// A path is written `spec.podSets[].name`; the empty path is the root. *Panics*: if there is no such field; the test that builds
/// every definition finds that.
#[derive(Clone, Debug)]
pub(crate) struct Older(Value);

impl Older {
    /// Starts from the schema of the newer version.
    pub(crate) const fn of(schema: Value) -> Self {
        Self(schema)
    }

    pub(crate) fn finish(self) -> Value {
        self.0
    }

    pub(crate) fn set(&mut self, path: &str, keyword: &str, value: impl Into<Value>) {
        self.at(path).insert(keyword.to_owned(), value.into());
    }

    /// Removes a limit from a field, and the words about it from the field's documentation.
    pub(crate) fn lift(&mut self, path: &str, limit: &str, words: &str) {
        self.cut(path, limit);
        self.reword(path, words, "");
    }

    /// Removes a keyword from a field that has it.
    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    pub(crate) fn cut(&mut self, path: &str, keyword: &str) {
        self.at(path).remove(keyword).expect("a keyword of the field");
    }

    /// Replaces words in the documentation of a field.
    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    pub(crate) fn reword(&mut self, path: &str, words: &str, by: &str) {
        let text = self.at(path).get_mut("description").expect("a documented field");
        let old = text.as_str().unwrap_or_default();
        assert!(
            old.contains(words),
            "{path} is documented as {old:?}, without {words:?}"
        );
        *text = old.replace(words, by).into();
    }

    /// Adds a field that only the older version has.
    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    pub(crate) fn add(&mut self, parent: &str, name: &str, schema: impl Into<Value>) {
        let fields = self
            .at(parent)
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
        let fields = fields.as_object_mut().expect("fields of an object");
        fields.insert(name.to_owned(), schema.into());
    }

    /// Removes a field that only the newer version has, and returns its schema.
    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    pub(crate) fn remove(&mut self, parent: &str, name: &str) -> Value {
        let parent = self.at(parent);
        if let Some(Value::Array(required)) = parent.get_mut("required") {
            required.retain(|required| required != name);
            if required.is_empty() {
                parent.remove("required");
            }
        }
        let fields = parent.get_mut("properties").and_then(Value::as_object_mut);
        fields
            .and_then(|fields| fields.remove(name))
            .expect("a field of the parent")
    }

    pub(crate) fn rename(&mut self, parent: &str, name: &str, to: &str) {
        let schema = self.remove(parent, name);
        self.add(parent, to, schema);
    }

    pub(crate) fn require(&mut self, path: &str, names: &[&str]) {
        self.set(path, "required", names);
    }

    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    pub(crate) fn replace_rule(&mut self, path: &str, message: &str, by: Value) {
        let rules = self.at(path).get_mut("x-kubernetes-validations");
        let rules = rules.and_then(Value::as_array_mut).expect("a field with rules");
        let rule = rules.iter_mut().find(|rule| rule["message"] == message);
        *rule.expect("a rule with this message") = by;
    }

    #[expect(clippy::expect_used, reason = "a test builds every definition")]
    fn at(&mut self, path: &str) -> &mut Map<String, Value> {
        let mut schema = &mut self.0;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let field = name.strip_suffix("[]").unwrap_or(name);
            schema = schema
                .get_mut("properties")
                .and_then(|fields| fields.get_mut(field))
                .unwrap_or_else(|| no_field(path, field));
            if field != name {
                schema = schema.get_mut("items").unwrap_or_else(|| no_field(path, name));
            }
        }
        schema.as_object_mut().expect("a schema is an object")
    }
}

#[expect(clippy::panic, reason = "a test builds every definition")]
fn no_field(path: &str, name: &str) -> &'static mut Value {
    panic!("no {name} in {path}")
}
