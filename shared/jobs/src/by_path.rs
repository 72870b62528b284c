//! A kind as data: one value with the paths of its suspend field, its pod sets and its status.
//!
//! Most kinds differ only in the names of fields. Such a kind is a [`ByPath`] and nothing else; a kind that needs its own code implements
//! [`JobKind`] itself, as `batch/v1 Job` does.
//!
//! Invariant: a status of these kinds says nothing about pods that are terminating. So a job that its controller has looked at never counts
//! as a job without pods ([`Pods::Untold`]): it may start elsewhere only when its object is gone.
//!
//! Reading order: [`ByPath`], [`places`] (pod sets), [`signs`] (the status), `queued` (rules for jobs of a queue).

pub mod places;
pub(crate) mod queued;
pub mod signs;

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Timestamp;
use roadstead_core::lifecycle::Outcome;
use roadstead_kinds::Kind;
use serde_json::{Value, json};

use crate::json;
use crate::kind::{
    Error, JobKind, Later, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target,
    Why, Write,
};
use crate::needs::{self, Need};
use crate::podset::{InjectError, JobPodSet, PodSetInfo, inject, restore, same_number};
use crate::problem::Problem;
use crate::remote::skeleton;
use places::{Group, PodSets};
use signs::{Ends, Sign, Spare};

/// The names of the fields that lead to a value.
pub type Path = &'static [&'static str];

/// A kind of job whose integration needs no code of its own. *Source*: `spec/jobs.md 9`.
#[derive(Clone, Copy, Debug)]
pub struct ByPath {
    /// Its row of the table.
    pub row: &'static Kind,
    /// The boolean field that suspends it.
    pub suspend: Path,
    /// The places of its pod sets, in their order.
    pub pod_sets: &'static [PodSets],
    /// The sign in its status that it has pods.
    pub active: Sign,
    /// The sign in its status that its pods are ready or done.
    pub ready: Sign,
    /// How its status shows the end; `None` for a kind that has no end.
    pub ends: Option<Ends>,
    /// Where its status counts parts that need no pods any more.
    pub spare: Option<Spare>,
    /// The field by which it is deleted some time after its end.
    pub time_to_live: Option<Path>,
    /// The field that names a priority class for the whole job. *Source*: `spec/jobs.md 5.13`.
    pub priority_class: Option<Path>,
    /// The fields whose changes a running copy follows. They are outside of the pod templates.
    pub followed: &'static [Path],
    /// The rules that only this kind has.
    pub rules: Rules,
}

/// Rules of a single kind, in addition to those of all kinds.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Adds the pod templates that the controller of the kind makes where the job has none.
    pub filled: fn(&Value) -> Cow<'_, Value>,
    /// Whether jobs with these fields are queued at all.
    pub is_queued: fn(Member<'_>) -> bool,
    /// Whether a child of a running job stays suspended for good; from the job and the child.
    pub outlives: fn(Member<'_>, Member<'_>) -> bool,
    /// Removes the templates that [`Self::filled`] has added, and moves their changes to the fields of the kind.
    pub emptied: fn(&mut Value),
    /// Adds to the pod sets of a job what its controller will add to its pods, so that quota counts it.
    pub added: fn(Member<'_>, &mut [JobPodSet]),
    /// The objects that its pods cannot start without, beside those that the templates of its pod sets name.
    pub needs: fn(&Value) -> BTreeSet<Need>,
    /// The objects that its pods can start without, beside those that the templates of its pod sets name.
    pub wants: fn(&Value) -> BTreeSet<Need>,
    /// Changes a new job after all other defaults.
    pub default: fn(&mut MemberMut<'_>),
    /// The problems of a new job.
    pub create: fn(Member<'_>) -> Vec<Problem>,
    /// The problems of a change, from the old and the new job.
    pub update: fn(Member<'_>, Member<'_>) -> Vec<Problem>,
}

impl Rules {
    /// No further rules.
    pub const NONE: Self = Self {
        filled: |job| Cow::Borrowed(job),
        is_queued: |_job| true,
        outlives: |_job, _child| false,
        emptied: |_job| {},
        added: |_job, _pod_sets| {},
        needs: |_job| BTreeSet::new(),
        wants: |_job| BTreeSet::new(),
        default: |_job| {},
        create: |_job| Vec::new(),
        update: |_old, _new| Vec::new(),
    };
}

impl ByPath {
    fn groups(&self, job: &Value) -> Result<Vec<Group>, Error> {
        places::groups(self.pod_sets, job)
    }

    fn is_suspended(&self, job: &Value) -> bool {
        json::is_true(job, self.suspend)
    }

    fn ended(&self, job: &Value) -> Option<Outcome> {
        self.ends?.of(job)
    }

    fn is_killed(&self, job: Member<'_>) -> bool {
        self.ends.is_some_and(|ends| ends.is_by_deletion(job))
    }

    fn without_pods(&self, job: &Value) -> Value {
        let mut after = job.clone();
        self.active.clear(&mut after);
        after
    }

    /// The job with this end in its status; unchanged if it has ended or its kind has no end.
    fn concluded(&self, job: &Value, outcome: &Outcome, now: Timestamp) -> Value {
        let Some(ends) = self.ends.filter(|_| self.ended(job).is_none()) else {
            return job.clone();
        };
        let mut after = self.without_pods(job);
        ends.write(&mut after, outcome, now);
        after
    }

    /// The job with changed pod templates; the closure gets each template and its position.
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

    /// The job with the templates of the Workload's pod sets; unchanged when the number of pod sets differs.
    fn restored(&self, job: &Value, original: &[JobPodSet]) -> Value {
        let filled = (self.rules.filled)(job);
        let groups = self.groups(&filled).unwrap_or_default();
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
        let mut after =
            Self::with_templates(&groups, &filled, put_back).unwrap_or_else(|never| match never {});
        (self.rules.emptied)(&mut after);
        after
    }
}

/// A patch of the object that the API server refuses when another client has changed the job since it was read.
///
/// Why: a merge patch replaces lists as a whole, and the pod sets of most kinds are a list.
pub(crate) fn write(job: Member<'_>, before: &Value, after: &Value) -> Option<Write> {
    let patch = json::difference(before, after)?;
    Some(job.patched(Target::Main, versioned(job, patch)))
}

/// A patch that the API server refuses when another client has changed the object since it was read.
pub(crate) fn versioned(object: Member<'_>, mut patch: Value) -> Value {
    if let Some(version) = &object.meta.resource_version {
        json::set(&mut patch, &["metadata", "resourceVersion"], json!(version));
    }
    patch
}

impl JobKind for ByPath {
    fn kind(&self) -> &'static Kind {
        self.row
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let job = members.first();
        let filled = (self.rules.filled)(job.data);
        let groups = self.groups(&filled)?;
        let set = |group: Group| {
            let found = filled.pointer(&group.pointer);
            let template = found.filter(|template| template.is_object());
            let template =
                template.ok_or_else(|| Error::malformed(group.field.clone(), found, "a pod template"))?;
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

    fn look(&self, members: Members<'_>) -> Look {
        let job = members.first();
        let groups = self.groups(&(self.rules.filled)(job.data));
        let pods = if self.active.shows(job.data, &[]) {
            Pods::Alive
        } else if json::at(job.data, &["status"]).is_some_and(|status| *status != json!({})) {
            Pods::Untold
        } else {
            Pods::None
        };
        Look {
            suspended: self.is_suspended(job.data),
            pods,
            ready: groups
                .as_ref()
                .is_ok_and(|groups| self.ready.shows(job.data, groups)),
            ended: self.ended(job.data),
            killed: self.is_killed(job),
            reclaimable: self
                .spare
                .map(|spare| spare.of(job.data, &groups.unwrap_or_default()))
                .unwrap_or_default(),
        }
    }

    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let job = members.first();
        let filled = (self.rules.filled)(job.data);
        let groups = self.groups(&filled).unwrap_or_default();
        same_number(groups.len(), infos.len())?;
        let mut after = Self::with_templates(&groups, &filled, |at, group, template| {
            // Why by name first: the admission has no guaranteed order.
            let named = infos.iter().find(|info| info.name == group.name);
            named
                .or_else(|| infos.get(at))
                .map_or(Ok(()), |info| inject(template, info))
        })?;
        (self.rules.emptied)(&mut after);
        json::set(&mut after, self.suspend, json!(false));
        Ok(write(job, job.data, &after).into_iter().collect())
    }

    fn stop(&self, members: Members<'_>, original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        let job = members.first();
        if self.is_suspended(job.data) {
            return Vec::new();
        }
        let mut after = self.restored(job.data, original);
        json::set(&mut after, self.suspend, json!(true));
        write(job, job.data, &after).into_iter().collect()
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        original: &[JobPodSet],
    ) -> Vec<Value> {
        let local = members.first();
        let data = &self.restored(local.data, original);
        let mut copy = skeleton(self, Member { data, ..local }, identity);
        // Unlike the anchor: a copy is always suspended at first, even when the local job runs already; the worker starts it.
        json::set(&mut copy, self.suspend, json!(true));
        if let Some(field) = self.time_to_live {
            json::remove(&mut copy, field);
        }
        vec![copy]
    }

    fn later(&self, local: Members<'_>, copies: Members<'_>) -> Vec<Later> {
        let (job, copy) = (local.first(), copies.first());
        let is_going = copy.meta.deletion_timestamp.is_some();
        if self.followed.is_empty() || is_going || self.ended(copy.data).is_some() {
            return Vec::new();
        }
        let mut after = copy.data.clone();
        for path in self.followed {
            match json::at(job.data, path) {
                Some(value) => json::set(&mut after, path, value.clone()),
                None => json::remove(&mut after, path),
            }
        }
        let change = json::difference(copy.data, &after);
        let later = change.map(|patch| Later {
            copy: copy.id(),
            patch: versioned(copy, patch),
        });
        later.into_iter().collect()
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        let job = local.first();
        let after = match remote {
            Remote::Copies(copies) if self.is_killed(copies.first()) => job.data.clone(),
            Remote::Copies(copies) => copies.first().data.clone(),
            Remote::AtRest => self.without_pods(job.data),
            Remote::Ended(outcome) => self.concluded(job.data, outcome, now),
        };
        let patch = json::difference(&json::status_of(job.data), &json::status_of(&after));
        let write = patch.map(|patch| job.patched(Target::Status, patch));
        Mirror {
            writes: write.into_iter().collect(),
            is_deferred: false,
        }
    }

    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        let pod_sets = self.pod_sets(members).unwrap_or_default();
        let mut needs = needs::of(pod_sets.iter().map(|set| &set.template));
        needs.extend((self.rules.needs)(members.first().data));
        needs
    }

    fn wants(&self, members: Members<'_>) -> BTreeSet<Need> {
        let pod_sets = self.pod_sets(members).unwrap_or_default();
        let mut wants = needs::wanted(pod_sets.iter().map(|set| &set.template));
        wants.extend((self.rules.wants)(members.first().data));
        wants
    }

    fn suspend(&self, job: &mut MemberMut<'_>) {
        json::set(job.data, self.suspend, json!(true));
    }

    fn outlast_its_end(&self, job: &mut MemberMut<'_>) {
        if let Some(field) = self.time_to_live {
            json::remove(job.data, field);
        }
    }

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        for group in self.groups(copy.data).unwrap_or_default() {
            if let Some(template) = copy.data.pointer_mut(&group.pointer) {
                *template = Value::Null;
            }
        }
    }

    fn template_paths(&self, members: Members<'_>) -> Vec<String> {
        let groups = self.groups(&(self.rules.filled)(members.first().data));
        groups
            .unwrap_or_default()
            .into_iter()
            .map(|group| group.field)
            .collect()
    }

    fn priority_class<'a>(&self, members: Members<'a>) -> Option<&'a str> {
        json::text(members.first().data, self.priority_class?).filter(|name| !name.is_empty())
    }

    fn is_queued(&self, job: Member<'_>) -> bool {
        (self.rules.is_queued)(job)
    }

    fn outlives(&self, job: Member<'_>, child: Member<'_>) -> bool {
        (self.rules.outlives)(job, child)
    }

    fn own_defaults(&self, job: &mut MemberMut<'_>) {
        (self.rules.default)(job);
    }

    fn own_problems(&self, job: Member<'_>) -> Vec<Problem> {
        (self.rules.create)(job)
    }

    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
        (self.rules.update)(old, new)
    }
}

#[cfg(test)]
mod tests;
