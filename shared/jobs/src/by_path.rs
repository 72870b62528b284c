//! A kind as data: where it is held back, where its pods stand, what its status says, as one value.
//!
//! Most kinds differ only in the names of fields. Such a kind is a [`ByPath`] and nothing else; a kind that needs code of its own
//! implements [`JobKind`] itself, as `batch/v1 Job` does.
//!
//! Invariant: a status of these kinds says nothing about pods that are being ended. So a job that its controller has looked at
//! is never taken for one without pods ([`JobKind::may_have_pods`]): it may start elsewhere only when its object is gone.
//!
//! Reading order: [`ByPath`], [`places`] (pod sets), [`signs`] (what a status says).

pub mod places;
pub mod signs;

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_kinds::Kind;
use serde_json::{Value, json};

use crate::json;
use crate::kind::{Error, JobKind, JobPodSet, Mirror, StopStep, Target};
use crate::podset::{InjectError, PodSetInfo, inject, restore, same_number};
use crate::problem::Problem;
use crate::remote::{RemoteIdentity, skeleton};
use places::{Group, PodSets};
use signs::{Ends, Sign, Spare};

/// The names of the fields that lead to a value.
pub type Path = &'static [&'static str];

/// A kind of job whose integration needs no code. *Source*: `spec/jobs.md 9`.
#[derive(Clone, Copy, Debug)]
pub struct ByPath {
    /// Its row of the table.
    pub row: &'static Kind,
    /// The boolean that holds it back.
    pub suspend: Path,
    /// Where its pod sets stand, in their order.
    pub pod_sets: &'static [PodSets],
    /// What its status says while it has pods.
    pub active: Sign,
    /// What its status says when its pods are ready or done.
    pub ready: Sign,
    /// How its status says that it has ended; `None` for a kind that has no end.
    pub ends: Option<Ends>,
    /// Where its status counts what will not need its pods any more.
    pub spare: Option<Spare>,
    /// The field by which it is removed some time after its end.
    pub time_to_live: Option<Path>,
    /// The field that names a priority class for the whole job. *Source*: `spec/jobs.md 5.13`.
    pub priority_class: Option<Path>,
    /// The rules that only this kind has.
    pub rules: Rules,
}

/// What only one kind does, beside what all do.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Adds to the pod sets of a job what its controller will add to its pods, so that it is counted.
    pub added: fn(&Value, &mut [JobPodSet]),
    /// Changes a new job after all other defaults.
    pub default: fn(&mut Value),
    /// What is wrong with a new job.
    pub create: fn(&Value) -> Vec<Problem>,
    /// What is wrong with a change, from the old and the new job.
    pub update: fn(&Value, &Value) -> Vec<Problem>,
}

impl Rules {
    /// None.
    pub const NONE: Self = Self {
        added: |_job, _pod_sets| {},
        default: |_job| {},
        create: |_job| Vec::new(),
        update: |_old, _new| Vec::new(),
    };
}

impl ByPath {
    fn groups(&self, job: &Value) -> Result<Vec<Group>, Error> {
        places::groups(self.pod_sets, job)
    }

    fn ended(&self, job: &Value) -> Option<(&'static str, Outcome)> {
        self.ends.as_ref()?.of(job)
    }

    /// The job with its pod sets changed; the change gets the template and the position of each.
    fn with_templates<E>(
        groups: &[Group],
        job: &Value,
        mut change: impl FnMut(usize, &Group, &mut Value) -> Result<(), E>,
    ) -> Result<Value, E> {
        let mut after = job.clone();
        for (at, group) in groups.iter().enumerate() {
            if let Some(template) = after.pointer_mut(&group.pointer) {
                change(at, group, template)?;
            }
        }
        Ok(after)
    }

    /// The same with the templates as they were in the pod sets of the Workload; as they are when the numbers do not fit.
    fn restored(&self, job: &Value, original: &[JobPodSet]) -> Value {
        let groups = self.groups(job).unwrap_or_default();
        if groups.len() != original.len() {
            return job.clone();
        }
        let put_back = |at: usize, group: &Group, template: &mut Value| {
            let named = original.iter().find(|set| set.name == group.name);
            if let Some(set) = named.or_else(|| original.get(at)) {
                restore(template, &set.template, &[]);
            }
            Ok::<_, std::convert::Infallible>(())
        };
        Self::with_templates(&groups, job, put_back).unwrap_or_else(|never| match never {})
    }
}

/// A patch that is refused when somebody else has changed the job since it was read.
///
/// Why: a merge patch replaces lists as a whole, and the pod sets of most kinds are a list.
fn of_this_version(job: &Value, mut patch: Value) -> Value {
    if let Some(version) = json::at(job, &["metadata", "resourceVersion"]) {
        json::set(&mut patch, &["metadata", "resourceVersion"], version.clone());
    }
    patch
}

impl JobKind for ByPath {
    fn kind(&self) -> &'static Kind {
        self.row
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<JobPodSet>, Error> {
        let groups = self.groups(job)?;
        let set = |group: Group| {
            let template = job
                .pointer(&group.pointer)
                .filter(|template| template.is_object());
            let template = template.ok_or_else(|| {
                let found = job.pointer(&group.pointer);
                Error::malformed(group.field.clone(), found, "a pod template")
            })?;
            Ok(JobPodSet {
                count: group.count()?,
                name: group.name,
                min_count: None,
                template: template.clone(),
            })
        };
        let mut pod_sets = groups.into_iter().map(set).collect::<Result<Vec<_>, _>>()?;
        (self.rules.added)(job, &mut pod_sets);
        Ok(pod_sets)
    }

    fn template_paths(&self, job: &Value) -> Vec<String> {
        let groups = self.groups(job).unwrap_or_default();
        groups.into_iter().map(|group| group.field).collect()
    }

    fn is_suspended(&self, job: &Value) -> bool {
        json::is_true(job, self.suspend)
    }

    fn is_stopping(&self, _annotations: &BTreeMap<String, String>) -> bool {
        // Why never: one write stops it.
        false
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, self.suspend, json!(true));
    }

    fn finished(&self, job: &Value) -> Option<Outcome> {
        self.ended(job).map(|(_, outcome)| outcome)
    }

    fn is_active(&self, job: &Value) -> bool {
        self.active.shows(job, &[])
    }

    fn may_have_pods(&self, job: &Value) -> bool {
        // Why not by what it counts: see the module.
        json::at(job, &["status"]).is_some_and(|status| *status != json!({}))
    }

    fn counts_ending_pods(&self) -> bool {
        false
    }

    fn pods_ready(&self, job: &Value) -> bool {
        self.groups(job)
            .is_ok_and(|groups| self.ready.shows(job, &groups))
    }

    fn reclaimable(&self, job: &Value) -> BTreeMap<PodSetName, u32> {
        let groups = self.groups(job).unwrap_or_default();
        self.spare.map(|spare| spare.of(job, &groups)).unwrap_or_default()
    }

    fn start_patch(&self, job: &Value, infos: &[PodSetInfo]) -> Result<Value, InjectError> {
        let groups = self.groups(job).unwrap_or_default();
        same_number(groups.len(), infos.len())?;
        let mut after = Self::with_templates(&groups, job, |at, group, template| {
            // Why by name first: nothing promises the order of what was admitted.
            let named = infos.iter().find(|info| info.name == group.name);
            named
                .or_else(|| infos.get(at))
                .map_or(Ok(()), |info| inject(template, info))
        })?;
        json::set(&mut after, self.suspend, json!(false));
        let patch = json::difference(job, &after).unwrap_or_else(|| json!({}));
        Ok(of_this_version(job, patch))
    }

    fn stop_steps(&self, job: &Value, original: &[JobPodSet]) -> Vec<StopStep> {
        if self.is_suspended(job) {
            return Vec::new();
        }
        let mut after = self.restored(job, original);
        self.suspend(&mut after);
        let patch = json::difference(job, &after).map(|patch| StopStep {
            target: Target::Main,
            patch: of_this_version(job, patch),
        });
        patch.into_iter().collect()
    }

    fn remote_object(&self, local: &Value, identity: &RemoteIdentity<'_>, original: &[JobPodSet]) -> Value {
        let mut copy = skeleton(self, &self.restored(local, original), identity);
        // Unlike the anchor: always held back at first, even when the local job has been let go already; the worker starts it.
        self.suspend(&mut copy);
        self.outlast_its_end(&mut copy);
        copy
    }

    fn outlast_its_end(&self, job: &mut Value) {
        if let Some(field) = self.time_to_live {
            json::remove(job, field);
        }
    }

    fn forget_details(&self, copy: &mut Value) {
        for group in self.groups(copy).unwrap_or_default() {
            if let Some(template) = copy.pointer_mut(&group.pointer) {
                *template = Value::Null;
            }
        }
    }

    fn is_killed(&self, job: &Value) -> bool {
        self.ends.is_some_and(|ends| ends.is_by_deletion(job))
    }

    fn mirror(&self, local: &Value, remote: &Value, _now: Timestamp) -> Mirror {
        if self.is_killed(remote) {
            return Mirror::Nothing;
        }
        Mirror::from(json::difference(
            &signs::status_of(local),
            &signs::status_of(remote),
        ))
    }

    fn without_pods(&self, local: &Value) -> Option<Value> {
        let mut after = local.clone();
        self.active.clear(&mut after);
        json::difference(&signs::status_of(local), &signs::status_of(&after))
    }

    fn conclusion(&self, local: &Value, outcome: &Outcome, now: Timestamp) -> Option<Value> {
        let ends = self.ends.as_ref()?;
        if self.finished(local).is_some() {
            return None;
        }
        let mut after = local.clone();
        self.active.clear(&mut after);
        ends.write(&mut after, outcome, now);
        json::difference(&signs::status_of(local), &signs::status_of(&after))
    }

    fn priority_class<'a>(&self, job: &'a Value) -> Option<&'a str> {
        json::text(job, self.priority_class?).filter(|name| !name.is_empty())
    }

    fn own_defaults(&self, job: &mut Value) {
        (self.rules.default)(job);
    }

    fn own_problems(&self, job: &Value) -> Vec<Problem> {
        (self.rules.create)(job)
    }

    fn own_update_problems(&self, old: &Value, new: &Value) -> Vec<Problem> {
        (self.rules.update)(old, new)
    }
}

#[cfg(test)]
mod tests;
