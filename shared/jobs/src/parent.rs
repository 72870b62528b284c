//! Kinds whose controllers make the pods that the queue holds: `Deployment`, `StatefulSet` and `LeaderWorkerSet`.
//!
//! An object of these kinds is never suspended itself: its templates say that its pods are to be held. Where the pods are one job together,
//! each new pod gets the name and the size of its group ([`Mark`]), and the object describes the pod sets of that group.
//!
//! *Source*: `spec/jobs.md 9.11 to 9.13`.

mod leader_worker;
mod stateful;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, labels, names};
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use crate::by_path::Path;
use crate::json;
use crate::kind::{
    Error, JobKind, Look, Maker, Mark, Member, MemberMut, Members, Mirror, Remote, RemoteIdentity, Why, Write,
};
use crate::labels::{controller, label, priority_class, queue};
use crate::pod::role;
use crate::podset::{InjectError, JobPodSet, PodSetInfo};
use crate::problem::Problem;
use crate::webhook::{IMMUTABLE, label_field};

pub use leader_worker::LEADER_WORKER_SET;
pub use stateful::STATEFUL_SET;

/// A kind of such objects.
#[derive(Clone, Copy)]
pub struct Parent {
    row: &'static Kind,
    /// The paths of its pod templates, which need not all exist.
    templates: &'static [Path],
    /// Adds annotations of the kind to a template; from the object and the path of the template.
    noted: fn(&mut Value, Path),
    /// Its pod sets; for a kind with groups the pod sets of one group.
    pod_sets: fn(&Value) -> Result<Vec<JobPodSet>, Error>,
    /// How its pods are grouped; `None` when each pod is a job.
    groups: Option<Groups>,
    /// The object of this kind that made a pod, if all pods of that object must run in one cluster.
    maker_of: fn(&ObjectMeta) -> Option<Maker<'_>>,
    /// The problems of a new object of a queue.
    create: fn(Member<'_>) -> Vec<Problem>,
    /// The problems of a change of such an object, from the old and the new object.
    update: fn(Member<'_>, Member<'_>) -> Vec<Problem>,
}

#[derive(Clone, Copy)]
struct Groups {
    parent_of: fn(&ObjectMeta) -> Option<&str>,
    mark: fn(Member<'_>, &ObjectMeta) -> Option<Mark>,
}

const TEMPLATE: Path = &["spec", "template"];
/// Label of the pods of a Deployment, and the last part of the name of their `ReplicaSet`. *Source*: the Deployment controller.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The kind `apps/v1 Deployment`.
pub static DEPLOYMENT: Parent = Parent {
    row: &rows::DEPLOYMENT,
    templates: &[TEMPLATE],
    noted: |object, template| {
        // Why here: its pods have no group that would set the label.
        let place = [template, &["metadata", "labels", labels::MANAGED]].concat();
        json::set(object, &place, json!(labels::TRUE));
    },
    pod_sets: |deployment| {
        let number = number(deployment, &["spec", "replicas"])?;
        Ok(vec![pod_set(deployment, TEMPLATE, names::MAIN_POD_SET, number)?])
    },
    groups: None,
    maker_of: |pod| {
        let revision = label(pod, TEMPLATE_HASH)?;
        let set = controlled_by(pod, "ReplicaSet")?;
        let name = set.strip_suffix(revision)?.strip_suffix('-')?;
        Some(Maker { name, revision })
    },
    create: |_deployment| Vec::new(),
    update: |_old, _new| Vec::new(),
};

/// The name of the object of this kind that controls a pod.
fn controlled_by<'a>(pod: &'a ObjectMeta, kind: &str) -> Option<&'a str> {
    let owner = controller(pod).filter(|owner| owner.kind == kind)?;
    Some(&owner.name)
}

/// The number at a path, 1 by default.
///
/// *Errors*: the API does not allow the value.
fn number(object: &Value, path: Path) -> Result<u32, Error> {
    let Some(value) = json::at(object, path) else {
        return Ok(1);
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let expected = "a number from 0 to 2147483647";
    let fits = number.filter(|number| i32::try_from(*number).is_ok());
    fits.ok_or_else(|| Error::malformed(path.join("."), Some(value), expected))
}

/// A pod set of `count` pods of a template. *Errors*: the template is missing.
fn pod_set(object: &Value, template: Path, name: &str, count: u32) -> Result<JobPodSet, Error> {
    let spec = [template, &["spec"]].concat();
    let found = json::at(object, &spec);
    let spec = found.filter(|spec| spec.is_object());
    let spec = spec.ok_or_else(|| Error::malformed(template.join("."), found, "a pod template"))?;
    Ok(JobPodSet {
        name: name.to_owned(),
        count,
        min_count: None,
        template: json!({ "spec": spec }),
    })
}

/// The problem of a changed size, which must stay the same while a queue holds the object.
fn fixed(old: Member<'_>, new: Member<'_>, path: Path) -> Option<Problem> {
    let is_changed = json::at(old.data, path) != json::at(new.data, path);
    is_changed.then(|| Problem::invalid(path.join("."), IMMUTABLE))
}

/// The problem of a changed template: quota was given to all its pods together, so their requests must stay the same.
fn same_shape(old: Member<'_>, new: Member<'_>, template: Path) -> Option<Problem> {
    let shape = |object: Member<'_>| json::at(object.data, template).map(role::hash);
    let path = [template, &["spec"]].concat();
    (shape(old) != shape(new)).then(|| Problem::invalid(path.join("."), IMMUTABLE))
}

impl JobKind for Parent {
    fn kind(&self) -> &'static Kind {
        self.row
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        (self.pod_sets)(members.first().data)
    }

    /// The state of an object: `suspended` while none of its pods is ready, so that its queue may be changed.
    fn look(&self, members: Members<'_>) -> Look {
        let ready = json::int(members.first().data, &["status", "readyReplicas"]);
        Look {
            suspended: ready.is_none_or(|ready| ready <= 0),
            ..Look::default()
        }
    }

    fn start(&self, _: Members<'_>, _: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        Ok(Vec::new())
    }

    fn stop(&self, _: Members<'_>, _: &[JobPodSet], _: &Why<'_>) -> Vec<Write> {
        Vec::new()
    }

    fn copies(&self, _: Members<'_>, _: &RemoteIdentity<'_>, _: &[JobPodSet]) -> Vec<Value> {
        Vec::new()
    }

    fn mirror(&self, _: Members<'_>, _: Remote<'_>, _: Timestamp) -> Mirror {
        Mirror::default()
    }

    /// Marks the templates so that its pods are held.
    fn suspend(&self, object: &mut MemberMut<'_>) {
        let time = label(object.meta, labels::MAX_EXEC_TIME_SECONDS);
        let marks = [
            (labels::QUEUE_NAME, queue(object.meta).map(str::to_owned)),
            (
                labels::PRIORITY_CLASS,
                priority_class(object.meta).map(str::to_owned),
            ),
            // Why not where each pod is a job: the time is that of one Workload, and the reference leaves it out there too.
            (
                labels::MAX_EXEC_TIME_SECONDS,
                time.filter(|_| self.groups.is_some()).map(str::to_owned),
            ),
        ];
        for template in self.templates {
            if json::at(object.data, template).is_none() {
                continue;
            }
            let mut write = |part: &str, key: &str, value: &str| {
                let place = [*template, &["metadata", part, key]].concat();
                json::set(object.data, &place, json!(value));
            };
            write(
                "annotations",
                annotations::POD_SUSPENDING_PARENT,
                self.row.framework,
            );
            for (key, value) in &marks {
                if let Some(value) = value {
                    write("labels", key, value);
                }
            }
            (self.noted)(object.data, template);
        }
    }

    fn outlast_its_end(&self, _object: &mut MemberMut<'_>) {}

    fn forget_details(&self, _copy: &mut MemberMut<'_>) {}

    fn template_paths(&self, members: Members<'_>) -> Vec<String> {
        let object = members.first().data;
        let there = self
            .templates
            .iter()
            .filter(|path| json::at(object, path).is_some());
        there.map(|path| path.join(".")).collect()
    }

    fn parent_of<'a>(&self, pod: &'a ObjectMeta) -> Option<&'a str> {
        (self.groups?.parent_of)(pod)
    }

    fn maker_of<'a>(&self, pod: &'a ObjectMeta) -> Option<Maker<'a>> {
        (self.maker_of)(pod)
    }

    fn mark(&self, parent: Member<'_>, pod: &ObjectMeta) -> Option<Mark> {
        (self.groups?.mark)(parent, pod)
    }

    fn own_problems(&self, object: Member<'_>) -> Vec<Problem> {
        if queue(object.meta).is_none() {
            return Vec::new();
        }
        (self.create)(object)
    }

    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
        if queue(old.meta).is_none() {
            return Vec::new();
        }
        let mut problems = (self.update)(old, new);
        // Why only then: otherwise the common rules refuse a change of the queue.
        let may_change = self.look(Members::one(&new)).suspended;
        if queue(new.meta).is_none() && may_change {
            problems.push(Problem::invalid(label_field(labels::QUEUE_NAME), IMMUTABLE));
        }
        problems
    }
}

#[cfg(test)]
mod tests;
