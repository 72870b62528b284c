//! Rules for names, labels, annotations and finalizers.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::failure::Cause;
use crate::json;

/// Longest label value, and longest DNS label.
const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Bytes of all annotations of an object.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants that a test compiles"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a valid expression")
}

static LABEL: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static QUALIFIED: LazyLock<Regex> = LazyLock::new(|| pattern("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"));
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| pattern("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"));
static CONFIG_KEY: LazyLock<Regex> = LazyLock::new(|| pattern("^[-._a-zA-Z0-9]+$"));

const SUBDOMAIN_SAYS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_SAYS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const VALUE_SAYS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_SAYS: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY_SAYS: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Subdomain,
    Label,
    /// Any text that is one segment of a path.
    Segment,
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX && SUBDOMAIN.is_match(text)
}

/// Whether it is a label's key: a name with an optional DNS prefix.
pub(crate) fn is_qualified(text: &str) -> bool {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && name.len() <= LABEL_MAX && QUALIFIED.is_match(name)
}

/// Complains about a key of a `ConfigMap` or Secret.
pub(crate) fn check_config_key(field: &str, key: &str) -> Option<Cause> {
    (key.len() > SUBDOMAIN_MAX || !CONFIG_KEY.is_match(key) || key == "." || key == "..")
        .then(|| Cause::invalid(format!("{field}[{key}]"), &key.into(), KEY_SAYS))
}

/// Why a name is no DNS label, as a warning says it.
pub(crate) fn no_label(name: &str) -> Vec<String> {
    let mut why = Vec::new();
    if name.len() > LABEL_MAX {
        why.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !LABEL.is_match(name) {
        let dots = SUBDOMAIN.is_match(name);
        why.push(if dots { "must not contain dots" } else { LABEL_SAYS }.to_owned());
    }
    why
}

pub(crate) fn check_name(field: &str, name: &str, rule: Rule) -> Vec<Cause> {
    let (right, says, max) = match rule {
        Rule::Subdomain => (SUBDOMAIN.is_match(name), SUBDOMAIN_SAYS, SUBDOMAIN_MAX),
        Rule::Label => (LABEL.is_match(name), LABEL_SAYS, LABEL_MAX),
        Rule::Segment => (
            !name.contains(['/', '%']) && name != "." && name != "..",
            "may not contain '/' or '%', and may not be '.' or '..'",
            usize::MAX,
        ),
    };
    let mut causes = Vec::new();
    if name.len() > max {
        let says = format!("must be no more than {max} bytes");
        causes.push(Cause::invalid(field, &name.into(), &says));
    }
    if !right {
        causes.push(Cause::invalid(field, &name.into(), says));
    }
    causes
}

/// Complains about keys and values of labels at `field`.
pub(crate) fn check_labels(field: &str, labels: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if !is_qualified(key) {
            causes.push(Cause::invalid(field, &key.as_str().into(), QUALIFIED_SAYS));
        }
        if value.len() > LABEL_MAX {
            causes.push(Cause::invalid(
                field,
                &value.into(),
                "must be no more than 63 bytes",
            ));
        }
        if !LABEL_VALUE.is_match(value) {
            causes.push(Cause::invalid(field, &value.into(), VALUE_SAYS));
        }
    }
    causes
}

/// Whether finalizers need a domain: those of built-in kinds do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finalizers {
    Any,
    Qualified,
}

/// Warnings about new finalizers of custom resources that have no domain.
pub(crate) fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let path = ["metadata", "finalizers"];
    let before = old.map(|old| json::texts(old, &path)).unwrap_or_default();
    let mut new = json::texts(object, &path);
    new.retain(|name| {
        let standard = ["foregroundDeletion", "orphan", "kubernetes"].contains(name);
        !name.contains('/') && !standard && !before.contains(name)
    });
    new.sort_unstable();
    new.dedup();
    new.into_iter()
        .map(|name| {
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Removes duplicate owner references; returns the warning for the client.
pub(crate) fn dedup_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = json::at_mut(object, &["metadata", "ownerReferences"])?.as_array_mut()?;
    let (mut kept, mut twice): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            twice.push(json::text(&owner, &["uid"]).to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        )
    })
}

/// Complains about an object's metadata.
pub(crate) fn check_meta(object: &Value, rule: Rule, finalizers: Finalizers) -> Vec<Cause> {
    let meta = &object["metadata"];
    let mut causes = Vec::new();
    let generate = json::text(meta, &["generateName"]);
    if !generate.is_empty() {
        // Why: `generateName` may end in a dash.
        let shown = generate.trim_end_matches('-');
        let shown = if shown.len() < generate.len() {
            format!("{shown}a")
        } else {
            generate.to_owned()
        };
        if !check_name("metadata.generateName", &shown, rule).is_empty() {
            let says = if rule == Rule::Label {
                LABEL_SAYS
            } else {
                SUBDOMAIN_SAYS
            };
            causes.push(Cause::invalid("metadata.generateName", &generate.into(), says));
        }
    }
    let name = json::text(meta, &["name"]);
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        causes.extend(check_name("metadata.name", name, rule));
    }
    causes.extend(check_labels("metadata.labels", &meta["labels"]));
    let mut bytes = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                QUALIFIED_SAYS,
            ));
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause::too_long(
            "metadata.annotations",
            ANNOTATIONS_BYTES_MAX as u64,
        ));
    }
    let mut controllers = 0;
    for owner in json::items(meta, &["ownerReferences"]) {
        let version = json::text(owner, &["apiVersion"]);
        if version.is_empty() || version.matches('/').count() > 1 {
            let path = "metadata.ownerReferences.apiVersion";
            causes.push(Cause::invalid(path, &version.into(), "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if json::text(owner, &[field]).is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(path, &"".into(), "must not be empty"));
            }
        }
        if version == "v1" && owner["kind"] == "Event" {
            let says = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid("metadata.ownerReferences", owner, says));
        }
        if owner["controller"] == true {
            controllers += 1;
        }
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &meta["ownerReferences"],
            "Only one reference can have Controller set to true",
        ));
    }
    for (index, finalizer) in json::texts(meta, &["finalizers"]).into_iter().enumerate() {
        if !is_qualified(finalizer) {
            causes.push(Cause::invalid(
                "metadata.finalizers",
                &finalizer.into(),
                QUALIFIED_SAYS,
            ));
            if finalizers == Finalizers::Qualified {
                let path = format!("metadata.finalizers[{index}]");
                causes.push(Cause::invalid(path, &finalizer.into(), QUALIFIED_SAYS));
            }
        } else if finalizers == Finalizers::Qualified
            && !finalizer.contains('/')
            && !["foregroundDeletion", "orphan", "kubernetes"].contains(&finalizer)
        {
            let path = format!("metadata.finalizers[{index}]");
            causes.push(Cause::invalid(
                path,
                &finalizer.into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}
