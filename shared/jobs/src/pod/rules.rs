//! The webhooks of pods. *Source*: `spec/jobs.md 12.1`.

use roadstead_api::constants::{annotations, finalizers, gates, labels, names};
use serde_json::{Value, json};

use super::{GATES, PlainPod, role};
use crate::json;
use crate::kind::{DefaultFacts, JobKind as _, Mark, Member, MemberMut, Namespace, Owner, Presence};
use crate::labels::{Identifiers, annotation, label, prebuilt, queue};
use crate::problem::{Problem, is_subdomain};
use crate::webhook::{annotation_field, default_label, label_field};

/// Fills in the fields that a new pod leaves open.
pub(super) fn default(pod: &mut MemberMut<'_>, facts: &DefaultFacts<'_>) {
    if annotation(pod.meta, annotations::POD_SUSPENDING_PARENT).is_some() {
        if let Some(mark) = facts.mark {
            group(pod, mark);
        }
        return hold(pod);
    }
    if facts.namespace == Namespace::Outside || facts.owner == Owner::ManagedAncestor {
        return;
    }
    if facts.default_queue == Presence::Present {
        default_label(pod.meta, labels::QUEUE_NAME, names::DEFAULT_LOCAL_QUEUE);
    }
    if facts.default_priority_class == Presence::Present {
        default_label(pod.meta, labels::PRIORITY_CLASS, names::DEFAULT_PRIORITY_CLASS);
    }
    if queue(pod.meta).is_none() && facts.namespace != Namespace::InsideAll {
        return;
    }
    let label = pod.meta.labels.get_or_insert_default();
    label.insert(labels::MANAGED.to_owned(), labels::TRUE.to_owned());
    let held = pod.meta.finalizers.get_or_insert_default();
    if !held.iter().any(|one| one == finalizers::MANAGED) {
        held.push(finalizers::MANAGED.to_owned());
    }
    hold(pod);
}

/// Makes a pod a member of its group.
///
/// Unlike the anchor, which writes this on each pod after its creation: the group is known when the pod is created.
fn group(pod: &mut MemberMut<'_>, mark: &Mark) {
    let all = pod.meta.labels.get_or_insert_default();
    all.insert(labels::MANAGED.to_owned(), labels::TRUE.to_owned());
    let said = pod.meta.annotations.get_or_insert_default();
    let total = mark.total.to_string();
    let own = [
        (annotations::POD_GROUP_NAME, mark.group.as_str()),
        (annotations::POD_GROUP_TOTAL_COUNT, &total),
        (annotations::ROLE_HASH, mark.role),
    ];
    for (key, value) in own.into_iter().chain(mark.notes.iter().copied()) {
        said.insert(key.to_owned(), value.to_owned());
    }
}

/// Holds a pod, and writes its role on it.
pub(super) fn hold(pod: &mut MemberMut<'_>) {
    let mut held = json::list(pod.data, &GATES).to_vec();
    for gate in [gates::ADMISSION, gates::TOPOLOGY] {
        if !held.iter().any(|one| json::text(one, &["name"]) == Some(gate)) {
            held.push(json!({ "name": gate }));
        }
    }
    json::set(pod.data, &GATES, Value::Array(held));
    let index = annotation(pod.meta, annotations::POD_GROUP_POD_INDEX_LABEL);
    if let Some(index) = index.and_then(|key| label(pod.meta, key)).map(str::to_owned) {
        let all = pod.meta.labels.get_or_insert_default();
        all.insert(labels::POD_GROUP_POD_INDEX.to_owned(), index);
    }
    let role = role::of(pod.as_member());
    let said = pod.meta.annotations.get_or_insert_default();
    said.entry(annotations::ROLE_HASH.to_owned()).or_insert(role);
}

pub(super) fn problems(pod: Member<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if label(pod.meta, labels::MANAGED).is_some_and(|value| value != labels::TRUE) {
        let text = "managed label value can only be 'true'";
        problems.push(Problem::forbidden(label_field(labels::MANAGED), text));
    }
    let (key, name_key) = (annotations::POD_GROUP_TOTAL_COUNT, annotations::POD_GROUP_NAME);
    let is_annotation = annotation(pod.meta, name_key).is_some_and(|name| !name.is_empty());
    let (place, name_field) = if is_annotation {
        ("annotation", annotation_field(name_key))
    } else {
        ("label", label_field(labels::POD_GROUP_NAME))
    };
    let group = PlainPod.group_of(pod.meta);
    let total = annotation(pod.meta, key);
    let both = format!("both the '{key}' annotation and the '{name_key}' {place} should be set");
    match (group, total) {
        (Some(_), None) => problems.push(Problem::required(annotation_field(key), both)),
        (None, Some(_)) => problems.push(Problem::required(name_field.clone(), both)),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if let Some(name) = group {
        if !is_subdomain(name) {
            let text = "must be a DNS-1123 subdomain: at most 253 lower case letters, digits, '-' and '.', starting and ending \
                        with a letter or digit";
            problems.push(Problem::invalid(name_field, text).of(name));
        }
        if prebuilt(pod.meta, Identifiers::Annotations).is_some_and(|workload| workload != name) {
            let field = label_field(labels::PREBUILT_WORKLOAD_NAME);
            problems.push(Problem::invalid(
                field,
                "prebuilt workload and pod group should be equal",
            ));
        }
    }
    if let Some(text) = total {
        match text.parse::<i64>() {
            Ok(number) if (1..=i64::from(i32::MAX)).contains(&number) => {}
            Ok(_) | Err(_) => {
                let why = "should be a number from 1 to 2147483647";
                problems.push(Problem::invalid(annotation_field(key), why).of(text));
            }
        }
    }
    problems
}

/// The problems of a change of a pod.
pub(super) fn update_problems(old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
    let mut problems = problems(new);
    let (before, after) = (PlainPod.group_of(old.meta), PlainPod.group_of(new.meta));
    if before.is_some() && before != after {
        problems.push(Problem::invalid(
            label_field(labels::POD_GROUP_NAME),
            "field is immutable",
        ));
    }
    let key = annotations::RETRIABLE_IN_GROUP;
    let says_no = |pod: Member<'_>| annotation(pod.meta, key) == Some("false");
    if before.is_some() && says_no(old) && !says_no(new) {
        let text = "unretriable pod group can't be converted to retriable";
        problems.push(Problem::forbidden(annotation_field(key), text));
    }
    problems
}
