//! The facts for the plan of one Workload, read from caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::constants::annotations::PROVISIONING_PARAMETER_PREFIX;
use roadstead_api::kueue::v1beta2::{self as api, PodSetMergePolicy, ProvisioningRequestConfigSpec};
use roadstead_core::condition::Conditions;
use roadstead_core::name::{CheckName, Key, PodSetName};
use roadstead_core::provision::{
    self, Backoff, Check, Classes, Config, CreateFailure, MergePolicy, Observed, OnEviction, Plan, Request,
    TemplateOwner, names,
};
use roadstead_core::status::{CheckPhase, Status};
use roadstead_core::workload::Workload;
use roadstead_engine::checks::Pass;
use roadstead_jobs::labels::controller;
use serde_json::Value;

use super::state::Served;
use super::{ATTEMPT_ANNOTATION, CHECK_ANNOTATION, Provisioning, suffix};

/// Everything that the plan reads, owned.
pub(super) struct Scene {
    workload: Workload,
    checks: BTreeMap<CheckName, Check>,
    classes: BTreeMap<PodSetName, Classes>,
    overrides: BTreeMap<String, String>,
    requests: Vec<Request>,
    templates: BTreeMap<String, TemplateOwner>,
    create_failures: BTreeMap<CheckName, CreateFailure>,
    on_eviction: OnEviction,
    jitter: f64,
}

impl Scene {
    pub(super) fn plan(&self, now: Timestamp) -> Plan {
        let observed = Observed {
            workload: &self.workload,
            checks: &self.checks,
            classes: &self.classes,
            overrides: &self.overrides,
            requests: &self.requests,
            templates: &self.templates,
            create_failures: &self.create_failures,
            on_eviction: self.on_eviction,
            suffix,
            jitter: self.jitter,
        };
        provision::plan(&observed, now)
    }
}

/// The facts about one Workload with the status that is being composed; `None` when none of our checks is concerned, or when it
/// is too early to decide.
pub(super) fn scene(p: &Provisioning, pass: &Pass<'_>, status: &Status) -> Option<Scene> {
    let served = p.served.get();
    if served == Served::NotYet {
        return None;
    }
    let listed = status
        .checks
        .keys()
        .filter_map(|name| Some((name.clone(), p.ours(name)?)));
    let mut checks: BTreeMap<CheckName, Check> = listed
        .map(|(name, check)| {
            let config = p.config(&check).ok();
            (name, read_check(config.as_deref().map(|c| &c.spec), pass.stored))
        })
        .collect();
    let stored = p.owners.of(pass.workload.uid.as_str());
    let mut stored: Vec<_> = stored.iter().filter_map(|key| p.requests.get(key)).collect();
    if let Served::No(_) = served {
        // Why: nothing can be decided without the requests. Waiting checks say so, and decided checks stay.
        stored.clear();
        checks.retain(|name, _| {
            status
                .checks
                .get(name)
                .is_some_and(|state| state.phase == CheckPhase::Pending)
        });
        for check in checks.values_mut() {
            check.config = None;
        }
    }
    if checks.is_empty() && stored.is_empty() {
        return None;
    }
    let requests: Vec<Request> = stored.iter().map(|stored| request(stored)).collect();
    let mut workload = pass.workload.clone();
    workload.status.clone_from(status);
    let merges = checks
        .values()
        .any(|check| check.config.as_ref().is_some_and(|config| config.merge.is_some()));
    Some(Scene {
        classes: if merges {
            classes(pass.stored)
        } else {
            BTreeMap::new()
        },
        overrides: overrides(pass.stored),
        templates: templates(p, &workload, &checks, (&stored, &requests)),
        create_failures: p.failures.of(&workload.key),
        on_eviction: p.on_eviction,
        jitter: p.roll(),
        workload,
        checks,
        requests,
    })
}

fn read_check(config: Option<&ProvisioningRequestConfigSpec>, workload: &api::Workload) -> Check {
    let Some(spec) = config else {
        return Check {
            config: None,
            managed: BTreeSet::new(),
        };
    };
    let sets = workload.spec.pod_sets.iter();
    let managed = sets.filter(|set| uses(set.template.get("spec"), &spec.managed_resources));
    Check {
        managed: managed.map(|set| PodSetName::from(set.name.as_str())).collect(),
        config: Some(read_config(spec)),
    }
}

/// A negative number, which the API server would refuse, counts as 0.
fn read_config(spec: &ProvisioningRequestConfigSpec) -> Config {
    let number = |number: i32| u32::try_from(number).unwrap_or_default();
    let retry = &spec.retry_strategy;
    let updates = spec
        .pod_set_updates
        .iter()
        .flat_map(|updates| &updates.node_selector);
    Config {
        class: spec.provisioning_class_name.clone(),
        parameters: spec.parameters.clone(),
        retry_limit: number(retry.backoff_limit_count),
        backoff: Backoff {
            base_secs: number(retry.backoff_base_seconds),
            max_secs: number(retry.backoff_max_seconds),
        },
        node_selector: updates
            .map(|u| (u.key.clone(), u.value_from_provisioning_class_detail.clone()))
            .collect(),
        merge: spec.pod_set_merge_policy.map(|policy| match policy {
            PodSetMergePolicy::IdenticalPodTemplates => MergePolicy::IdenticalPodTemplates,
            PodSetMergePolicy::IdenticalWorkloadSchedulingRequirements => {
                MergePolicy::IdenticalWorkloadSchedulingRequirements
            }
        }),
    }
}

/// Whether pods of this template use one of the resources; no resources means any. *Source*: `spec/provisioning.md 4.2`.
///
/// Unlike the anchor: resources of the pod itself count too (`spec/provisioning.md` 16).
fn uses(spec: Option<&Value>, managed: &[String]) -> bool {
    if managed.is_empty() {
        return true;
    }
    let Some(spec) = spec else {
        return false;
    };
    let of_containers = containers(spec, "containers")
        .iter()
        .chain(containers(spec, "initContainers"));
    let mut resources = of_containers
        .chain([spec])
        .filter_map(|holder| holder.get("resources"));
    resources.any(|resources| {
        let lists = ["requests", "limits"]
            .iter()
            .filter_map(|list| resources.get(list)?.as_object());
        lists.flatten().any(|(resource, _)| managed.contains(resource))
    })
}

fn containers<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec.get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Which templates are equal, and which are equal for a scheduler. *Source*: `spec/provisioning.md 6.2`.
fn classes(workload: &api::Workload) -> BTreeMap<PodSetName, Classes> {
    let sets = &workload.spec.pod_sets;
    let templates: Vec<_> = sets.iter().map(|set| &set.template).collect();
    let needs: Vec<_> = templates.iter().map(|template| scheduling(template)).collect();
    let names = sets.iter().map(|set| PodSetName::from(set.name.as_str()));
    let classes = templates.iter().zip(&needs).map(|(template, need)| Classes {
        template: first(&templates, template),
        scheduling: first(&needs, need),
    });
    names.zip(classes).collect()
}

/// The index of the first that equals `wanted`.
fn first<T: PartialEq>(all: &[T], wanted: &T) -> u32 {
    let place = all.iter().position(|one| one == wanted).unwrap_or(all.len());
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn scheduling(template: &api::RawTemplate) -> Vec<Value> {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let requests = |field| {
        let of = containers(spec, field)
            .iter()
            .map(|c| c.pointer("/resources/requests").cloned().unwrap_or_default());
        Value::Array(of.collect())
    };
    let field = |field| spec.get(field).cloned().unwrap_or_default();
    let plain = [
        "resources",
        "nodeSelector",
        "tolerations",
        "affinity",
        "resourceClaims",
    ]
    .map(field);
    [requests("containers"), requests("initContainers")]
        .into_iter()
        .chain(plain)
        .collect()
}

/// *Source*: `spec/provisioning.md 6.1`.
fn overrides(workload: &api::Workload) -> BTreeMap<String, String> {
    let annotations = workload.metadata.annotations.iter().flatten();
    let parameters = annotations.filter_map(|(key, value)| {
        let parameter = key
            .strip_prefix(PROVISIONING_PARAMETER_PREFIX)
            .filter(|parameter| !parameter.is_empty())?;
        Some((parameter.to_owned(), value.clone()))
    });
    parameters.collect()
}

fn request(stored: &ProvisioningRequest) -> Request {
    let (meta, spec) = (&stored.metadata, &stored.spec);
    let note = |key| meta.annotations.as_ref().and_then(|all| all.get(key));
    let check = note(CHECK_ANNOTATION).map(|name| CheckName::from(name.as_str()));
    let attempt = note(ATTEMPT_ANNOTATION).and_then(|number| number.parse().ok());
    let conditions = { stored.status.as_ref() }.map_or_else(Conditions::default, |status| {
        roadstead_convert::conditions(&status.conditions)
    });
    Request {
        name: meta.name.clone().unwrap_or_default(),
        identity: check.zip(attempt),
        deleting: meta.deletion_timestamp.is_some(),
        class: spec.provisioning_class_name.clone(),
        parameters: spec.parameters.clone(),
        templates: spec
            .pod_sets
            .iter()
            .map(|set| set.pod_template_ref.name.clone())
            .collect(),
        conditions,
        details: stored
            .status
            .as_ref()
            .map(|status| status.provisioning_class_details.clone())
            .unwrap_or_default(),
    }
}

/// The owners of the templates that existing requests point at, and of those whose names the next request would take.
fn templates(
    p: &Provisioning,
    workload: &Workload,
    checks: &BTreeMap<CheckName, Check>,
    (stored, requests): (&[Arc<ProvisioningRequest>], &[Request]),
) -> BTreeMap<String, TemplateOwner> {
    let mut wanted: BTreeSet<String> = requests
        .iter()
        .flat_map(|request| request.templates.clone())
        .collect();
    for check in checks.keys() {
        for attempt in next_attempts(workload, check, requests) {
            let request = names::request(&workload.key.name, check.as_str(), attempt, suffix);
            let sets = workload.pod_sets.iter();
            wanted.extend(sets.map(|set| names::template(&request, set.name.as_str(), suffix)));
        }
    }
    let owner = |name: &String| {
        let template = p
            .templates
            .get(&Key::new(workload.key.namespace.clone(), name.as_str()))?;
        let uid = controller(&template.metadata).map(|owner| owner.uid.as_str());
        let is_owner = |request: &ProvisioningRequest| {
            request.metadata.deletion_timestamp.is_none() && request.metadata.uid.as_deref() == uid
        };
        let going = template.metadata.deletion_timestamp.is_some();
        Some(match uid {
            Some(uid) if uid == workload.uid.as_str() && !going => TemplateOwner::Workload,
            Some(_) if !going && stored.iter().any(|request| is_owner(request)) => TemplateOwner::Request,
            Some(_) | None => TemplateOwner::Stale,
        })
    };
    let owners = wanted
        .into_iter()
        .filter_map(|name| owner(&name).map(|owner| (name, owner)));
    owners.collect()
}

/// The attempts that the plan may choose for its next request.
fn next_attempts(workload: &Workload, check: &CheckName, requests: &[Request]) -> BTreeSet<u32> {
    let retries = workload
        .status
        .checks
        .get(check)
        .and_then(|state| state.retry_count)
        .unwrap_or_default();
    let made = requests.iter().filter_map(|request| match &request.identity {
        Some((of, attempt)) => (of == check).then_some(*attempt),
        None => names::attempt(&request.name, &workload.key.name, check.as_str(), suffix),
    });
    made.chain([retries])
        .map(|attempt| attempt.saturating_add(1))
        .collect()
}

#[cfg(test)]
mod tests;
