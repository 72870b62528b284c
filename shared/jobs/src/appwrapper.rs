//! `AppWrapper`. *Source*: `spec/appwrapper.md 5.1 to 5.4`, `spec/jobs.md 9.9`.
//!
//! Its controller, in `roadstead-worker`, keeps condition `QuotaReserved` True as long as a pod of the `AppWrapper` may run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_kinds::{Kind, TABLE, rows};
use serde_json::{Value, json};

use crate::json;
use crate::kind::{
    Error, JobKind, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target, Why,
    Write,
};
use crate::needs::{self, Need};
use crate::podset::{InjectError, JobPodSet, PodSetInfo, same_number};
use crate::problem::Problem;
use crate::remote::skeleton;

pub mod infer;
mod names;
mod packed;
pub mod path;
pub mod probe;
mod projection;

pub use packed::unpacked;

/// The row of `AppWrapper` in the table of kinds.
pub const ROW: &Kind = &rows::APP_WRAPPER;

/// The kind `workload.codeflare.dev/v1beta2 AppWrapper`.
#[derive(Clone, Copy, Debug)]
pub struct AppWrapper;

const SUSPEND: [&str; 2] = ["spec", "suspend"];
const COMPONENTS: [&str; 2] = ["spec", "components"];
const COMPONENT_STATUS: [&str; 2] = ["status", "componentStatus"];
/// Condition of a component whose work is done, and its reason once no pod of the component lives.
const FINISHED: (&str, &str) = ("roadstead.dev/Finished", "SucceededAndPodsEnded");

struct PodSet {
    component: usize,
    /// The path of its template, such as `template.spec.template`.
    path: String,
    count: i64,
}

/// All pod sets, in order: from the status that the controller wrote, or otherwise from the components.
fn pod_sets_of(data: &Value) -> Vec<PodSet> {
    let components = json::list(data, &COMPONENTS);
    let stored = json::list(data, &COMPONENT_STATUS);
    let is_stored = stored.len() == components.len();
    let mut all = Vec::new();
    for (index, component) in components.iter().enumerate() {
        let declared = match stored.get(index).filter(|_| is_stored) {
            Some(stored) => json::list(stored, &["podSets"]),
            None => json::list(component, &["podSets"]),
        };
        let given = declared.iter().map(|set| PodSet {
            component: index,
            path: json::text(set, &["path"]).unwrap_or_default().to_owned(),
            count: json::int(set, &["replicas"]).unwrap_or(1),
        });
        if is_stored || !declared.is_empty() {
            all.extend(given);
            continue;
        }
        let template = component.get("template").unwrap_or(&Value::Null);
        let text = |field: &str| json::text(template, &[field]).unwrap_or_default();
        let inferred = infer::pod_sets(TABLE, text("apiVersion"), text("kind"), template).unwrap_or_default();
        all.extend(inferred.into_iter().map(|set| PodSet {
            component: index,
            path: set.path,
            count: set.replicas,
        }));
    }
    all
}

fn is_suspended(data: &Value) -> bool {
    json::is_true(data, &SUSPEND)
}

fn holds(data: &Value, kind: &str) -> bool {
    has(json::list(data, &["status", "conditions"]), kind).is_some()
}

/// The condition of this type, if it is True.
fn has<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    let mut conditions = conditions.iter();
    conditions.find(|condition| {
        json::text(condition, &["type"]) == Some(kind) && json::text(condition, &["status"]) == Some("True")
    })
}

/// How the `AppWrapper` ended, if it ended. *Source*: `spec/appwrapper.md 5.1`.
///
/// When an ended `AppWrapper` is deleted, its controller replaces the phase by `Terminating`, but leaves condition `QuotaReserved` as it
/// was at the end. So the end is read from that condition.
fn finished(data: &Value) -> Option<Outcome> {
    let end = match json::text(data, &["status", "phase"])? {
        "Terminating" => released_as(data)?,
        phase => phase,
    };
    let (success, message) = match end {
        "Succeeded" => (true, "AppWrapper finished successfully"),
        "Failed" if !holds(data, "ResourcesDeployed") => (false, "AppWrapper failed"),
        _ => return None,
    };
    Some(Outcome {
        success,
        message: message.to_owned(),
    })
}

/// The status of an object. It has the phase of the end even if the object is being deleted.
fn ended_status(data: &Value) -> Value {
    let mut status = json::status_of(data);
    if let Some(outcome) = finished(data) {
        json::set(&mut status, &["status", "phase"], json!(phase_of(&outcome)));
    }
    status
}

fn phase_of(outcome: &Outcome) -> &'static str {
    if outcome.success { "Succeeded" } else { "Failed" }
}

/// The reason with which the quota was given back.
fn released_as(data: &Value) -> Option<&str> {
    let conditions = json::list(data, &["status", "conditions"]);
    let is_released = |condition: &&Value| {
        json::text(condition, &["type"]) == Some("QuotaReserved")
            && json::text(condition, &["status"]) == Some("False")
    };
    json::text(conditions.iter().find(is_released)?, &["reason"])
}

/// Pods of finished components, by pod set. *Source*: `spec/appwrapper.md N-23`.
fn reclaimable(name: &str, data: &Value) -> BTreeMap<PodSetName, u32> {
    if !packed::mentions(data, FINISHED.0) {
        return BTreeMap::new();
    }
    let data = &*unpacked(data);
    let statuses = json::list(data, &COMPONENT_STATUS);
    let is_done = |component: usize| {
        let conditions = statuses
            .get(component)
            .map_or(&[][..], |status| json::list(status, &["conditions"]));
        let finished = has(conditions, FINISHED.0);
        finished.is_some_and(|condition| json::text(condition, &["reason"]) == Some(FINISHED.1))
    };
    let sets = pod_sets_of(data).into_iter().enumerate();
    let done = sets.filter(|(_, set)| is_done(set.component) && set.count > 0);
    done.map(|(index, set)| {
        let count = u32::try_from(set.count).unwrap_or(u32::MAX);
        (PodSetName::from(names::pod_set(name, index)), count)
    })
    .collect()
}

/// The object with these infos in its components. It is sent as a merge patch, which replaces lists as a whole.
fn with_infos(data: &Value, suspended: bool, infos: &[PodSetInfo]) -> Value {
    let mut after = data.clone();
    json::set(&mut after, &SUSPEND, json!(suspended));
    let mut components = json::list(data, &COMPONENTS).to_vec();
    for component in &mut components {
        json::remove(component, &["podSetInfos"]);
    }
    for (set, info) in pod_sets_of(data).iter().zip(infos) {
        if let Some(component) = components.get_mut(set.component) {
            let mut all = json::list(component, &["podSetInfos"]).to_vec();
            all.push(rendered(info));
            json::set(component, &["podSetInfos"], Value::Array(all));
        }
    }
    json::set(&mut after, &COMPONENTS, Value::Array(components));
    after
}

fn rendered(info: &PodSetInfo) -> Value {
    let mut all = json!({});
    for (field, map) in [
        ("annotations", &info.annotations),
        ("labels", &info.labels),
        ("nodeSelector", &info.node_selector),
    ] {
        if !map.is_empty() {
            json::set(&mut all, &[field], json!(map));
        }
    }
    if !info.tolerations.is_empty() {
        json::set(&mut all, &["tolerations"], json!(info.tolerations));
    }
    all
}

/// The objects that `read` finds in the templates of the pods, without those that the `AppWrapper` itself creates.
///
/// Why from the components: the pod sets are projections, which lack the fields that name objects.
fn named(members: Members<'_>, read: fn(&[&Value]) -> BTreeSet<Need>) -> BTreeSet<Need> {
    let data = &*unpacked(members.first().data);
    let components = json::list(data, &COMPONENTS);
    let sets = pod_sets_of(data);
    let templates = sets.iter().filter_map(|set| {
        let template = components.get(set.component)?.get("template")?;
        path::pod_template(template, &set.path).ok()
    });
    let brought = |need: &Need| {
        let [_, _, kind, _] = need.thing.api();
        components.iter().any(|component| {
            let is = |path: &[&str], text: &str| json::text(component, path) == Some(text);
            is(&["template", "kind"], kind) && is(&["template", "metadata", "name"], &need.name)
        })
    };
    let mut named = read(&templates.collect::<Vec<_>>());
    named.retain(|need| !brought(need));
    named
}

/// The status of an `AppWrapper` without pods: it holds no quota, and nothing is deployed.
fn at_rest(data: &Value, reason: &str, now: Timestamp) -> Value {
    let at = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut conditions = json::list(data, &["status", "conditions"]).to_vec();
    for condition in &mut conditions {
        let kind = json::text(condition, &["type"]).unwrap_or_default();
        if ["QuotaReserved", "ResourcesDeployed", "PodsReady"].contains(&kind)
            && json::text(condition, &["status"]) == Some("True")
        {
            for (field, value) in [
                ("status", json!("False")),
                ("reason", json!(reason)),
                ("lastTransitionTime", at.clone()),
            ] {
                json::set(condition, &[field], value);
            }
        }
    }
    let mut after = json::status_of(data);
    if !conditions.is_empty() {
        json::set(&mut after, &["status", "conditions"], Value::Array(conditions));
    }
    after
}

impl JobKind for AppWrapper {
    fn kind(&self) -> &'static Kind {
        ROW
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let job = members.first();
        let name = job.meta.name.as_deref().unwrap_or_default();
        let data = &*unpacked(job.data);
        let components = json::list(data, &COMPONENTS);
        let sets = pod_sets_of(data).into_iter().enumerate();
        sets.map(|(index, set)| {
            let template = components
                .get(set.component)
                .and_then(|component| component.get("template"));
            let template = template.unwrap_or(&Value::Null);
            let found = path::pod_template(template, &set.path).map_err(|why| Error::Malformed {
                field: "spec.components[].podSets[].path".to_owned(),
                found: why,
                expected: "the place of a pod template",
            })?;
            Ok(JobPodSet {
                name: names::pod_set(name, index),
                count: u32::try_from(set.count).map_err(|_negative| Error::Malformed {
                    field: "spec.components[].podSets[].replicas".to_owned(),
                    found: set.count.to_string(),
                    expected: "a number from 0 to 2147483647",
                })?,
                min_count: None,
                template: projection::of(found),
            })
        })
        .collect()
    }

    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        named(members, |templates| needs::of(templates.iter().copied()))
    }

    fn wants(&self, members: Members<'_>) -> BTreeSet<Need> {
        named(members, |templates| needs::wanted(templates.iter().copied()))
    }

    fn look(&self, members: Members<'_>) -> Look {
        let job = members.first();
        let name = job.meta.name.as_deref().unwrap_or_default();
        Look {
            suspended: is_suspended(job.data),
            pods: if holds(job.data, "QuotaReserved") {
                Pods::Alive
            } else {
                Pods::None
            },
            ready: holds(job.data, "PodsReady"),
            ended: finished(job.data),
            killed: false,
            reclaimable: reclaimable(name, job.data),
        }
    }

    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let job = members.first();
        let data = &*unpacked(job.data);
        same_number(pod_sets_of(data).len(), infos.len())?;
        let patch = json::difference(data, &with_infos(data, false, infos));
        Ok(patch
            .map(|patch| job.patched(Target::Main, patch))
            .into_iter()
            .collect())
    }

    fn stop(&self, members: Members<'_>, _original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        let job = members.first();
        let data = &*unpacked(job.data);
        let patch = json::difference(data, &with_infos(data, true, &[]));
        patch
            .map(|patch| job.patched(Target::Main, patch))
            .into_iter()
            .collect()
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        _original: &[JobPodSet],
    ) -> Vec<Value> {
        let mut copy = skeleton(self, members.first(), identity);
        // Unlike the anchor: the worker starts the copy, with the assignment it makes there (`spec/appwrapper.md` N-25).
        let held = with_infos(&unpacked(&copy), true, &[]);
        json::set(
            &mut copy,
            &["spec"],
            held.get("spec").cloned().unwrap_or_default(),
        );
        vec![copy]
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        let job = local.first();
        let data = &*unpacked(job.data);
        let after = match remote {
            Remote::Copies(copies) => ended_status(&unpacked(copies.first().data)),
            Remote::AtRest => at_rest(data, "Suspended", now),
            Remote::Ended(_) if finished(data).is_some() => ended_status(data),
            Remote::Ended(outcome) => {
                let phase = phase_of(outcome);
                let mut after = at_rest(data, phase, now);
                json::set(&mut after, &["status", "phase"], json!(phase));
                after
            }
        };
        let patch = json::difference(&json::status_of(data), &after);
        Mirror {
            writes: patch
                .map(|patch| job.patched(Target::Status, patch))
                .into_iter()
                .collect(),
            is_deferred: false,
        }
    }

    fn suspend(&self, job: &mut MemberMut<'_>) {
        json::set(job.data, &SUSPEND, json!(true));
    }

    /// An `AppWrapper` never removes itself.
    fn outlast_its_end(&self, _job: &mut MemberMut<'_>) {}

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        let components = copy
            .data
            .pointer_mut("/spec/components")
            .and_then(Value::as_array_mut);
        for component in components.into_iter().flatten() {
            json::remove(component, &["template"]);
        }
    }

    fn pack(&self, job: &mut MemberMut<'_>) {
        packed::pack(job.data);
    }

    fn template_paths(&self, members: Members<'_>) -> Vec<String> {
        let sets = pod_sets_of(&unpacked(members.first().data)).into_iter();
        sets.map(|set| format!("spec.components[{}].{}", set.component, set.path))
            .collect()
    }

    fn own_problems(&self, _job: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }

    fn own_update_problems(&self, _old: Member<'_>, _new: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
