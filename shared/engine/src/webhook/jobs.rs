//! Webhooks of job kinds: the rules live in [`roadstead_jobs::webhook`], the facts come from caches.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use roadstead_api::config::Config;
use roadstead_api::constants::{controllers, names};
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::problem::Problem;
use roadstead_jobs::webhook::{self as rules, DefaultFacts, Namespace, Owner, Presence};
use roadstead_serve::webhook::{AdmissionHandler, allowed, failed, invalid, patched};
use serde_json::Value;

use crate::caches::Caches;

/// The mutating and the validating handler of a kind. A kind whose integration is off is let through unchanged.
pub(super) fn handlers(
    kind: &'static dyn JobKind,
    enabled: bool,
    caches: Caches,
    config: Arc<Config>,
) -> (AdmissionHandler, AdmissionHandler) {
    if !enabled {
        return (
            Arc::new(|request| allowed(&request)),
            Arc::new(|request| allowed(&request)),
        );
    }
    let validating = caches.clone();
    (
        Arc::new(move |request| default(kind, &caches, &config, &request)),
        Arc::new(move |request| validate(kind, &validating, &request)),
    )
}

fn default(
    kind: &dyn JobKind,
    caches: &Caches,
    config: &Config,
    request: &AdmissionRequest<DynamicObject>,
) -> AdmissionResponse {
    let Some(object) = &request.object else {
        return allowed(request);
    };
    let Ok(mut job) = serde_json::to_value(object) else {
        return failed(request, "the job cannot be read as JSON");
    };
    let namespace = request.namespace.clone().unwrap_or_default();
    let uses_multikueue = |queue: &str| leads_to_multikueue(caches, &namespace, queue);
    let facts = DefaultFacts {
        default_queue: default_queue(caches, &namespace),
        default_priority_class: present(
            caches
                .workload_classes
                .named(names::DEFAULT_PRIORITY_CLASS)
                .is_some(),
        ),
        owner: owner(caches, object),
        namespace: standing(caches, config, &namespace),
        uses_multikueue: &uses_multikueue,
    };
    rules::default_job(kind, &mut job, &facts);
    match serde_json::from_value::<DynamicObject>(job) {
        Ok(changed) => patched(request, &changed),
        Err(error) => failed(request, &format!("the defaulted job cannot be printed: {error}")),
    }
}

fn validate(
    kind: &dyn JobKind,
    caches: &Caches,
    request: &AdmissionRequest<DynamicObject>,
) -> AdmissionResponse {
    let value = |object: &Option<DynamicObject>| object.as_ref().and_then(|o| serde_json::to_value(o).ok());
    let Some(new) = value(&request.object) else {
        return allowed(request);
    };
    let problems: Vec<Problem> = match (&request.operation, value(&request.old_object)) {
        (Operation::Update, Some(old)) => {
            // Why: a job on its way out only loses finalizers; nobody can mend its fields any more.
            if new
                .pointer("/metadata/deletionTimestamp")
                .is_some_and(|at| *at != Value::Null)
            {
                return allowed(request);
            }
            let namespace = request.namespace.clone().unwrap_or_default();
            rules::validate_update(kind, &old, &new, default_queue(caches, &namespace))
        }
        (Operation::Create | Operation::Update | Operation::Delete | Operation::Connect, _) => {
            rules::validate_create(kind, &new)
        }
    };
    if problems.is_empty() {
        return allowed(request);
    }
    let causes: Vec<(String, String)> = problems
        .iter()
        .map(|problem| (problem.field.clone(), problem.message.clone()))
        .collect();
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    invalid(request, &text.join("; "), &causes)
}

fn present(is: bool) -> Presence {
    if is { Presence::Present } else { Presence::Absent }
}

fn default_queue(caches: &Caches, namespace: &str) -> Presence {
    present(
        caches
            .local_queues
            .get(&Key::new(namespace, names::DEFAULT_LOCAL_QUEUE))
            .is_some(),
    )
}

/// *Source*: `spec/multikueue.md 1.8`.
fn leads_to_multikueue(caches: &Caches, namespace: &str, queue: &str) -> bool {
    let Some(local) = caches.local_queues.get(&Key::new(namespace, queue)) else {
        return false;
    };
    let Some(cluster) = caches.cluster_queues.named(&local.spec.cluster_queue) else {
        return false;
    };
    roadstead_convert::cluster_queue(&cluster)
        .checks
        .iter()
        .any(|rule| {
            let check = caches.checks.named(rule.name.as_str());
            check.is_some_and(|check| check.spec.controller_name == controllers::MULTIKUEUE)
        })
}

fn owner(caches: &Caches, object: &DynamicObject) -> Owner {
    let Some(owner) = object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
    else {
        return Owner::Unmanaged;
    };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let Some(jobs) = caches.kind(group, &owner.kind) else {
        return Owner::Unmanaged;
    };
    let key = Key::new(object.namespace().unwrap_or_default(), owner.name.as_str());
    let parent = jobs
        .objects
        .get(&key)
        .and_then(|parent| serde_json::to_value(&*parent).ok());
    match parent {
        Some(parent) if roadstead_jobs::labels::queue(&parent).is_some() => Owner::ManagedAncestor,
        Some(_) | None => Owner::ManagedKind,
    }
}

fn standing(caches: &Caches, config: &Config, namespace: &str) -> Namespace {
    let labels = crate::feed::namespace_labels(caches, namespace).unwrap_or_default();
    if !config.managed_jobs_namespace_selector.matches(&labels) {
        return Namespace::Outside;
    }
    if config.manage_jobs_without_queue_name {
        Namespace::InsideAll
    } else {
        Namespace::Inside
    }
}
