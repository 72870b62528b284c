//! Problems of an object, for the answer of a webhook, and the checks that many kinds share.

use std::fmt;

use roadstead_api::constants::labels::is_label_value;

/// *Limit*: the longest quoted value, in characters; longer values are cut.
const VALUE_LEN_MAX: usize = 128;

/// One problem of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as in `metadata.labels[kueue.x-k8s.io/queue-name]`.
    pub field: String,
    /// The sort of refusal.
    pub sort: Sort,
    /// The value at fault, as it is quoted; `None` where the value helps no user.
    pub value: Option<String>,
    /// What is wrong and what is allowed; may be empty where sort and value say everything.
    pub message: String,
}

/// The sort of a refusal, as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The value is not valid.
    Invalid,
    /// The field may not be set at all.
    Forbidden,
    /// The field is missing.
    Required,
    /// The value occurs twice.
    Duplicate,
    /// The value is not among the allowed ones.
    NotSupported,
    /// The value names something that does not exist.
    NotFound,
    /// There are too many entries.
    TooMany,
}

impl Sort {
    /// The reason of a cause in the API server's answers.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::NotFound => "FieldValueNotFound",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Forbidden => "Forbidden",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::NotFound => "Not found",
            Self::TooMany => "Too many",
        }
    }
}

impl Problem {
    fn new(field: impl Into<String>, sort: Sort, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            sort,
            value: None,
            message: message.into(),
        }
    }

    /// The problem of a value that is not valid.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Sort::Invalid, message)
    }

    /// The problem of a field that may not be set.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Sort::Forbidden, message)
    }

    /// The problem of a field that is missing.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Sort::Required, message)
    }

    /// The problem of a value that occurs twice.
    pub fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self::new(field, Sort::Duplicate, "").of(value)
    }

    /// The problem of a value that names something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &str) -> Self {
        Self::new(field, Sort::NotFound, "").of(value)
    }

    /// The problem of a value that is not among the allowed ones.
    pub fn not_supported(field: impl Into<String>, value: &str, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|name| format!("{name:?}")).collect();
        let message = format!("supported values: {}", allowed.join(", "));
        Self::new(field, Sort::NotSupported, message).of(value)
    }

    /// The problem of more entries than allowed.
    pub fn too_many(field: impl Into<String>, found: usize, allowed: usize) -> Self {
        let mut problem = Self::new(field, Sort::TooMany, format!("must have at most {allowed} items"));
        problem.value = Some(found.to_string());
        problem
    }

    /// The same problem, with the text at fault quoted.
    #[must_use]
    pub fn of(mut self, value: &str) -> Self {
        let mut cut: String = value.chars().take(VALUE_LEN_MAX).collect();
        if cut.len() < value.len() {
            cut.push('\u{2026}');
        }
        self.value = Some(format!("{cut:?}"));
        self
    }

    /// The problem without its field: sort, value, message.
    pub fn detail(&self) -> String {
        let mut text = self.sort.text().to_owned();
        for part in [self.value.as_deref(), Some(self.message.as_str())] {
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail())
    }
}

/// Longest DNS-1123 subdomain.
const SUBDOMAIN_LEN_MAX: usize = 253;
/// Longest DNS-1123 label, and longest value of a Kubernetes label.
pub const LABEL_LEN_MAX: usize = 63;

/// Whether a text is a DNS-1123 label.
pub fn is_label(text: &str) -> bool {
    text.len() <= LABEL_LEN_MAX && is_dns_part(text)
}

/// Whether a text is a DNS-1123 subdomain: labels joined by dots, where only the whole has a limit.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LEN_MAX && text.split('.').all(is_dns_part)
}

fn is_dns_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

/// Whether a text is a label key: a name, or a subdomain, a slash and a name.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name_of_key(name),
        None => is_name_of_key(text),
    }
}

fn is_name_of_key(text: &str) -> bool {
    !text.is_empty() && is_label_value(text)
}

/// The problems of labels or of a node selector: keys must be label keys, values label values.
pub fn label_problems<'a>(
    field: &str,
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, value) in labels {
        if !is_label_key(key) {
            problems.push(Problem::invalid(field, LABEL_KEY_RULE).of(key));
        }
        if !is_label_value(value) {
            problems.push(Problem::invalid(format!("{field}[{key}]"), LABEL_VALUE_RULE).of(value));
        }
    }
    problems
}

/// The problems of the keys of annotations: they must be label keys, apart from letter case.
pub fn annotation_problems<'a>(field: &str, keys: impl IntoIterator<Item = &'a String>) -> Vec<Problem> {
    let bad = keys
        .into_iter()
        .filter(|key| !is_label_key(&key.to_ascii_lowercase()));
    bad.map(|key| Problem::invalid(field, LABEL_KEY_RULE).of(key))
        .collect()
}

/// What a label key must be, for messages.
pub const LABEL_KEY_RULE: &str = "must be a name of at most 63 letters, digits, '-', '_' and '.', starting and ending \
                                  with a letter or digit, with an optional DNS subdomain and '/' before it (such as \
                                  \"example.com/name\")";
/// What a label value must be, for messages.
pub const LABEL_VALUE_RULE: &str = "must be empty or at most 63 letters, digits, '-', '_' and '.', starting and ending with a \
                                    letter or digit";

/// The gates in a value of annotation `kueue.x-k8s.io/admission-gated-by`, and the problems of the value.
///
/// *Source*: `spec/api.md API-9.5 rule 9`: comma-separated, not empty, no duplicates, each a domain-prefixed path of at most 63 characters.
pub fn gates_of(field: &str, value: &str) -> (Vec<String>, Vec<Problem>) {
    let (mut gates, mut problems) = (Vec::<String>::new(), Vec::new());
    if value.is_empty() {
        return (gates, problems);
    }
    for gate in value.split(',') {
        if gate.is_empty() {
            problems.push(Problem::invalid(field, "gate name must not be empty").of(value));
        } else if gate.len() > LABEL_LEN_MAX {
            let text = format!("must be no more than {LABEL_LEN_MAX} characters");
            problems.push(Problem::invalid(field, text).of(gate));
        } else if !is_domain_path(gate) {
            let text = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            problems.push(Problem::invalid(field, text).of(gate));
        } else if gates.iter().any(|known| known == gate) {
            problems.push(Problem::duplicate(field, gate));
        } else {
            gates.push(gate.to_owned());
        }
    }
    (gates, problems)
}

fn is_domain_path(text: &str) -> bool {
    let path_byte = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:@%/".contains(&b);
    text.split_once('/')
        .is_some_and(|(domain, path)| is_subdomain(domain) && !path.is_empty() && path.bytes().all(path_byte))
}

/// The problems of a change of the gates of an existing object: gates may only be removed.
pub fn gates_may_only_shrink(field: &str, old: &str, new: &str) -> Vec<Problem> {
    let (before, _) = gates_of(field, old);
    let (after, mut problems) = gates_of(field, new);
    if before.is_empty() && !after.is_empty() {
        problems.push(Problem::forbidden(
            field,
            "cannot add admission gate after creation",
        ));
    } else if after.iter().any(|gate| !before.contains(gate)) {
        problems.push(Problem::forbidden(
            field,
            "can only remove gates, not add new ones",
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{gates_may_only_shrink, gates_of, is_label, is_label_key, is_subdomain};

    #[test]
    fn names_are_checked_as_the_api_server_does() {
        for name in ["a", "a.b", "0-x", "team.a-1", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["", ".", "a.", "-a", "a-", "A", "a_b", "a..b", &"a".repeat(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
        assert!(is_label("a-1") && !is_label("a.b") && !is_label(&"a".repeat(64)) && !is_label(""));
        assert!(is_label_key("x.io/a") && is_label_key("a") && !is_label_key("x.io/") && !is_label_key("/a"));
    }

    /// Spec: api API-9.5 rule 9, admission-engine 9.1 B026.
    #[test]
    fn gates_are_domain_paths_without_duplicates_that_only_shrink() {
        assert_eq!(gates_of("f", "x.io/a,y.io/b").0, ["x.io/a", "y.io/b"]);
        for bad in [
            "x.io/a,x.io/a",
            "a",
            ",",
            "x.io/a,",
            "x.io/",
            &format!("x.io/{}", "a".repeat(59)),
        ] {
            assert_eq!(gates_of("f", bad).1.len().min(1), 1, "{bad}");
        }
        assert_eq!(gates_of("f", "").1, []);
        assert_eq!(gates_may_only_shrink("f", "x.io/a,x.io/b", "x.io/b"), []);
        assert_eq!(gates_may_only_shrink("f", "x.io/a", ""), []);
        assert_eq!(
            gates_may_only_shrink("f", "", "x.io/a")[0].message,
            "cannot add admission gate after creation"
        );
        assert_eq!(
            gates_may_only_shrink("f", "x.io/a", "x.io/a,x.io/b")[0].message,
            "can only remove gates, not add new ones"
        );
    }
}
