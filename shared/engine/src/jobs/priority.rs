//! Where a Workload's priority comes from. *Source*: `spec/jobs.md 5.13`.

use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::names;
use roadstead_api::kueue::v1beta2::{PriorityClassGroup, PriorityClassKind, PriorityClassRef};
use roadstead_convert::Priority;
use roadstead_jobs::kind::Members;
use roadstead_jobs::{JobKind, JobPodSet};
use roadstead_kubeio::failure::Failure;
use serde_json::Value;

use crate::caches::Caches;

/// The priority of a job.
///
/// *Errors*: the WorkloadPriorityClass that it names does not exist.
pub(crate) fn resolve(
    caches: &Caches,
    gates: &FeatureGates,
    kind: &dyn JobKind,
    job: Members<'_>,
    pod_sets: &[JobPodSet],
) -> Result<Priority, Failure> {
    let default = || {
        let on = gates.enabled(FeatureGate::WorkloadPriorityClassDefaulting);
        let name = names::DEFAULT_PRIORITY_CLASS;
        (on && caches.workload_classes.named(name).is_some()).then_some(name)
    };
    if let Some(name) = roadstead_jobs::labels::priority_class(job.first().meta).or_else(default) {
        let class = caches.workload_classes.named(name);
        let class =
            class.ok_or_else(|| Failure::lasting(format!("WorkloadPriorityClass \"{name}\" not found")))?;
        let reference = PriorityClassRef {
            group: PriorityClassGroup::Kueue,
            kind: PriorityClassKind::WorkloadPriorityClass,
            name: name.to_owned(),
        };
        return Ok(Priority {
            class: Some(reference),
            value: class.spec.value,
        });
    }
    let of_pods = pod_sets.iter().find_map(|set| {
        let name = set
            .template
            .pointer("/spec/priorityClassName")
            .and_then(Value::as_str)?;
        (!name.is_empty()).then_some(name)
    });
    let class = match kind.priority_class(job).or(of_pods) {
        Some(name) => caches.pod_classes.named(name),
        None => {
            let all = caches.pod_classes.all();
            all.into_iter()
                .filter(|class| class.global_default == Some(true))
                .min_by_key(|class| class.value.unwrap_or_default())
        }
    };
    // Why no error: the API server itself refuses pods whose class does not exist.
    let Some(class) = class else {
        return Ok(Priority::default());
    };
    let reference = PriorityClassRef {
        group: PriorityClassGroup::Scheduling,
        kind: PriorityClassKind::PriorityClass,
        name: class.metadata.name.clone().unwrap_or_default(),
    };
    Ok(Priority {
        class: Some(reference),
        value: class.value.unwrap_or_default(),
    })
}
