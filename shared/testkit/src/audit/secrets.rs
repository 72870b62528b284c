//! I8: secret values are stored in Secrets only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use super::book::Seen;
use super::{Findings, Rules};

/// The auditor of I8: the texts to look for, plain and in Base64.
pub(super) struct Secrets {
    forms: Vec<String>,
    /// Length in bytes of the shortest form: most texts of an object are shorter and need no search.
    shortest: usize,
}

impl Secrets {
    pub(super) fn new(rules: &Rules) -> Self {
        let forms: Vec<String> = rules.canaries.iter().flat_map(|canary| forms(canary)).collect();
        let shortest = forms.iter().map(String::len).min().unwrap_or(0);
        Self { forms, shortest }
    }

    pub(super) fn saw(&self, seen: &Seen<'_>, findings: &mut Findings) {
        if *seen.place.resource == *"secrets" || self.forms.is_empty() {
            return;
        }
        if let Some(path) = seen.after().and_then(|object| self.find(object)) {
            let what = format!("a secret stands in it at {path}");
            findings.of("I8", &seen.place, seen.case(), what);
        }
    }

    /// The path to a secret in an object.
    fn find(&self, value: &Value) -> Option<String> {
        let is_secret = |text: &str| {
            text.len() >= self.shortest && self.forms.iter().any(|secret| text.contains(secret.as_str()))
        };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
            Value::String(text) => is_secret(text).then(String::new),
            Value::Array(all) => {
                let mut all = all.iter().enumerate();
                all.find_map(|(index, inner)| Some(format!("[{index}]{}", self.find(inner)?)))
            }
            Value::Object(fields) => fields.iter().find_map(|(key, inner)| {
                if is_secret(key) {
                    return Some(format!(".{key}"));
                }
                Some(format!(".{key}{}", self.find(inner)?))
            }),
        }
    }
}

/// A text, and its Base64 for each of the three offsets at which it can begin, without the letters that depend on its neighbours.
fn forms(canary: &str) -> Vec<String> {
    let mut forms = vec![canary.to_owned()];
    for shift in 0..3 {
        let shifted: Vec<u8> = std::iter::repeat_n(b'-', shift).chain(canary.bytes()).collect();
        let encoded = STANDARD_NO_PAD.encode(&shifted);
        // Four letters of Base64 are three bytes. Letters that also encode bytes of neighbouring text are left out.
        let whole = shifted.len() / 3 * 4;
        let first = if shift == 0 { 0 } else { 4 };
        if let Some(middle) = encoded.get(first..whole).filter(|middle| middle.len() >= 8) {
            forms.push(middle.to_owned());
        }
    }
    forms
}
