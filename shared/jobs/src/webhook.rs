//! The webhooks of all kinds of jobs: defaults and rules. Pure: the facts about the cluster are arguments.
//!
//! *Source*: `spec/jobs.md 7`.

mod topology;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::{annotations, controllers, labels, names};
use roadstead_kinds::Ability;
use serde_json::json;

use crate::json;
use crate::kind::{
    DefaultFacts, Defaulting, JobKind, Member, MemberMut, Members, Namespace, Owner, Presence,
};
use crate::labels::{Identifiers, annotation, label, prebuilt, queue};
use crate::problem::{Problem, gates_may_only_shrink, gates_of, is_subdomain};

use topology::Template;

/// Fills in the fields that a new job leaves open: queue, priority class, suspension, managed-by; in this order. A job that a manager has
/// sent does not delete itself: the manager deletes it.
///
/// *Source*: `spec/jobs.md 7.2`, `spec/multikueue.md 5.1`.
pub fn default_job(kind: &dyn JobKind, job: &mut MemberMut<'_>, facts: &DefaultFacts<'_>) {
    if !kind.is_queued(job.as_member()) {
        return;
    }
    if let Some(Defaulting(own)) = kind.defaulting() {
        return own(job, facts);
    }
    let free = facts.owner == Owner::Unmanaged;
    let inside = facts.namespace != Namespace::Outside;
    if free && inside && facts.default_queue == Presence::Present {
        default_label(job.meta, labels::QUEUE_NAME, names::DEFAULT_LOCAL_QUEUE);
    }
    if free && facts.default_priority_class == Presence::Present {
        default_label(job.meta, labels::PRIORITY_CLASS, names::DEFAULT_PRIORITY_CLASS);
    }
    // Unlike the anchor: its managers send the job unchanged, and treat a copy that has deleted itself as lost. So a job that deletes
    // itself at once ran again and again (seen with the real reference).
    if label(job.meta, labels::MULTIKUEUE_ORIGIN).is_some() {
        kind.outlast_its_end(job);
    }
    let deleting = job.meta.deletion_timestamp.is_some();
    // Why not in other namespaces: no controller starts jobs there, so a held job would be held for ever.
    let held = inside && (queue(job.meta).is_some() || facts.namespace == Namespace::InsideAll);
    if held && !deleting && facts.owner != Owner::ManagedAncestor {
        kind.suspend(job);
    }
    if let (Some(managed_by), Some(queue), true) = (kind.kind().managed_by, queue(job.meta), inside) {
        let ours = kind
            .manager_of(job.as_member())
            .is_none_or(|manager| manager == managed_by.default);
        if ours && (facts.uses_multikueue)(queue) {
            json::set(job.data, managed_by.path, json!(controllers::MULTIKUEUE));
        }
    }
    kind.own_defaults(job);
}

/// Sets a label that is missing or empty. Why an empty one too: everything else reads it as missing, so a job with it would escape the
/// default queue.
pub(crate) fn default_label(meta: &mut ObjectMeta, key: &str, value: &str) {
    let label = meta.labels.get_or_insert_default().entry(key.to_owned());
    let label = label.or_default();
    if label.is_empty() {
        value.clone_into(label);
    }
}

/// The problems of a new job. *Source*: `spec/jobs.md 7.3`.
pub fn validate_create(kind: &dyn JobKind, job: Member<'_>, gates: &FeatureGates) -> Vec<Problem> {
    let mut problems = common_problems(kind, job, gates);
    problems.extend(kind.own_problems(job));
    problems.extend(template_problems(kind, job, gates));
    problems
}

/// The problems of the pod templates, and of fields that cannot be combined with elastic jobs.
fn template_problems(kind: &dyn JobKind, job: Member<'_>, gates: &FeatureGates) -> Vec<Problem> {
    // Why no problem is reported: the API server itself refuses what the schema of the kind does not allow.
    let members = Members::one(&job);
    let Ok(pod_sets) = kind.pod_sets(members) else {
        return Vec::new();
    };
    let templates: Vec<Template<'_>> = kind
        .template_paths(members)
        .into_iter()
        .zip(&pod_sets)
        .map(|(path, set)| Template {
            path,
            content: &set.template,
            count: set.count,
        })
        .collect();
    let mut problems = Vec::new();
    if gates.enabled(FeatureGate::TopologyAwareScheduling) {
        problems.extend(topology::problems(&templates, gates));
    }
    if is_elastic(job, gates) {
        if pod_sets.iter().any(|set| set.min_count.is_some()) {
            let text = "partial admission and elastic job cannot be used together";
            problems.push(Problem::forbidden(
                annotation_field(annotations::ELASTIC_JOB),
                text,
            ));
        }
        problems.extend(templates.iter().flat_map(topology::fixed_places).map(|field| {
            Problem::forbidden(
                field,
                "required and preferred topology cannot be used together with elastic job",
            )
        }));
    }
    problems
}

/// Whether the job opts in to changing its size while it runs. *Source*: `spec/jobs.md 6`.
fn is_elastic(job: Member<'_>, gates: &FeatureGates) -> bool {
    gates.enabled(FeatureGate::ElasticJobsViaWorkloadSlices)
        && annotation(job.meta, annotations::ELASTIC_JOB) == Some(labels::TRUE)
}

/// What a new job asks for in vain, for its user to read. *Source*: `spec/jobs.md 6`.
pub fn warnings(job: Member<'_>) -> Vec<String> {
    if annotation(job.meta, annotations::ELASTIC_JOB) != Some(labels::TRUE) {
        return Vec::new();
    }
    let key = annotations::ELASTIC_JOB;
    vec![format!(
        "annotation {key} has no effect: elastic jobs are not built yet. A job whose size is changed while it runs is stopped, and waits \
         anew in its new size"
    )]
}

fn common_problems(kind: &dyn JobKind, job: Member<'_>, gates: &FeatureGates) -> Vec<Problem> {
    let mut problems = Vec::new();
    subdomain(
        &mut problems,
        label_field(labels::QUEUE_NAME),
        label(job.meta, labels::QUEUE_NAME),
    );
    problems.extend(prebuilt_problems(kind, job, gates));
    problems.extend(max_time_problems(job));
    problems.extend(retry_problems(job));
    if is_elastic(job, gates) && !kind.kind().can(Ability::Elastic) {
        let text = format!("elastic job is not supported for \"{}\"", kind.kind());
        problems.push(Problem::forbidden(
            annotation_field(annotations::ELASTIC_JOB),
            text,
        ));
    }
    if let Some(by) = annotation(job.meta, annotations::ADMISSION_GATED_BY)
        .filter(|_| gates.enabled(FeatureGate::AdmissionGatedBy))
    {
        problems.extend(gates_of(&annotation_field(annotations::ADMISSION_GATED_BY), by).1);
    }
    problems
}

fn max_time_problems(job: Member<'_>) -> Option<Problem> {
    let text = label(job.meta, labels::MAX_EXEC_TIME_SECONDS)?;
    let field = label_field(labels::MAX_EXEC_TIME_SECONDS);
    let why = match text.parse::<i32>() {
        Err(_) => "must be a 32-bit integer",
        Ok(secs) if secs <= 0 => "should be greater than 0",
        Ok(_) => return None,
    };
    Some(Problem::invalid(field, why).of(text))
}

/// Most tries on other workers.
const RETRY_ELSEWHERE_MAX: u32 = 100;

fn retry_problems(job: Member<'_>) -> Option<Problem> {
    let text = annotation(job.meta, annotations::RETRY_ELSEWHERE)?;
    let is_fine = text
        .parse::<u32>()
        .is_ok_and(|tries| tries <= RETRY_ELSEWHERE_MAX);
    let field = annotation_field(annotations::RETRY_ELSEWHERE);
    (!is_fine).then(|| Problem::invalid(field, "must be a number from 0 to 100").of(text))
}

fn prebuilt_problems(kind: &dyn JobKind, job: Member<'_>, gates: &FeatureGates) -> Vec<Problem> {
    let identifiers = Identifiers::of(gates);
    let mut problems = Vec::new();
    let places = [
        (
            annotation_field(annotations::PREBUILT_WORKLOAD_NAME),
            annotation(job.meta, annotations::PREBUILT_WORKLOAD_NAME).filter(|name| identifiers.read(name)),
        ),
        (
            label_field(labels::PREBUILT_WORKLOAD_NAME),
            label(job.meta, labels::PREBUILT_WORKLOAD_NAME),
        ),
    ];
    for (field, name) in places {
        if name.is_some() && !kind.kind().can(Ability::Prebuilt) {
            let text = format!("Is not supported for \"{}\"", kind.kind());
            problems.push(Problem::forbidden(field.clone(), text));
        }
        subdomain(&mut problems, field, name);
    }
    problems
}

/// The problems of a change of a job. *Source*: `spec/jobs.md 7.4`.
///
/// `default_queue` says whether the namespace has a `LocalQueue` named `default`.
pub fn validate_update(
    kind: &dyn JobKind,
    old: Member<'_>,
    new: Member<'_>,
    default_queue: Presence,
    gates: &FeatureGates,
) -> Vec<Problem> {
    let [was_held, is_held] = [old, new].map(|job| kind.look(Members::one(&job)).suspended);
    let mut problems = Vec::new();
    let field = label_field(labels::QUEUE_NAME);
    subdomain(&mut problems, field.clone(), label(new.meta, labels::QUEUE_NAME));
    if !is_held && queue(old.meta) != queue(new.meta) {
        problems.push(Problem::invalid(field.clone(), IMMUTABLE));
    }
    if queue(old.meta).is_some() && queue(new.meta).is_none() && default_queue == Presence::Present {
        let text = "queue-name must not be empty in namespace with default queue";
        problems.push(Problem::invalid(field, text));
    }
    if is_held || is_elastic(new, gates) {
        problems.extend(prebuilt_problems(kind, new, gates));
    } else if prebuilt(old.meta, Identifiers::of(gates)) != prebuilt(new.meta, Identifiers::of(gates)) {
        problems.push(Problem::invalid(
            label_field(labels::PREBUILT_WORKLOAD_NAME),
            IMMUTABLE,
        ));
    }
    let max = labels::MAX_EXEC_TIME_SECONDS;
    if !(was_held && is_held) && label(old.meta, max) != label(new.meta, max) {
        problems.push(Problem::invalid(label_field(max), IMMUTABLE));
    } else {
        problems.extend(max_time_problems(new));
    }
    problems.extend(retry_problems(new));
    problems.extend(priority_class_problems(old, new, is_held));
    problems.extend(manager_problems(kind, old, new, is_held));
    let elastic = annotations::ELASTIC_JOB;
    if annotation(old.meta, elastic) != annotation(new.meta, elastic) {
        problems.push(Problem::invalid(annotation_field(elastic), IMMUTABLE));
    }
    let gated = annotations::ADMISSION_GATED_BY;
    if gates.enabled(FeatureGate::AdmissionGatedBy) {
        let by = |job: Member<'_>| annotation(job.meta, gated).unwrap_or_default().to_owned();
        problems.extend(gates_may_only_shrink(
            &annotation_field(gated),
            &by(old),
            &by(new),
        ));
    }
    problems.extend(kind.own_update_problems(old, new));
    if is_held {
        // Why: a job that an earlier version accepted with a fault must still be startable and stoppable. A start may also change the
        // number of pods.
        let known = template_problems(kind, old, gates);
        let templates = template_problems(kind, new, gates).into_iter();
        problems.extend(templates.filter(|problem| !known.contains(problem)));
    }
    problems
}

/// The problem of a changed `managedBy`. The job's controller in this cluster would begin to run a job that runs on a worker, or would stop
/// managing a job that runs here.
///
/// Unlike the anchor, which leaves the check to each kind: not every kind protects the field (the training operator 1.9 compares the new
/// job with itself).
fn manager_problems(kind: &dyn JobKind, old: Member<'_>, new: Member<'_>, is_held: bool) -> Option<Problem> {
    let field = kind.kind().managed_by?;
    let [before, after] = [old, new].map(|job| kind.manager_of(job));
    let ours = Some(controllers::MULTIKUEUE);
    let moved = before != after && (before == ours || (after == ours && !is_held));
    moved.then(|| Problem::invalid(field.path.join("."), IMMUTABLE))
}

fn priority_class_problems(old: Member<'_>, new: Member<'_>, is_held: bool) -> Option<Problem> {
    let field = label_field(labels::PRIORITY_CLASS);
    let text = match (
        crate::labels::priority_class(old.meta),
        crate::labels::priority_class(new.meta),
    ) {
        (None, Some(_)) if !is_held => "WorkloadPriorityClass cannot be added to a non-suspended workload",
        (Some(_), None) => "WorkloadPriorityClass cannot be removed from a workload",
        (Some(_) | None, Some(_)) | (None, None) => return None,
    };
    Some(Problem::invalid(field, text))
}

pub(crate) const IMMUTABLE: &str = "field is immutable";

fn subdomain(problems: &mut Vec<Problem>, field: String, name: Option<&str>) {
    if let Some(name) = name.filter(|name| !name.is_empty() && !is_subdomain(name)) {
        let text = "must be a DNS-1123 subdomain: at most 253 lower case letters, digits, '-' and '.', starting and ending \
                    with a letter or digit";
        problems.push(Problem::invalid(field, text).of(name));
    }
}

pub(crate) fn label_field(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

/// The path of an annotation.
pub fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

#[cfg(test)]
mod tests;
