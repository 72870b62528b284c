//! Objects written as JSON, for tests.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_core::lifecycle::Outcome;
use serde_json::{Value, json};

use crate::JobKind;
use crate::kind::{
    Error, Look, Member, MemberMut, Members, Mirror, Remote, RemoteIdentity, Target, Why, Write,
};
use crate::podset::{InjectError, JobPodSet, PodSetInfo};
use crate::problem::Problem;

pub(crate) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub(crate) const CLASS: &str = "kueue.x-k8s.io/priority-class";
pub(crate) const MAX: &str = "kueue.x-k8s.io/max-exec-time-seconds";
pub(crate) const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
pub(crate) const GATES: &str = "kueue.x-k8s.io/admission-gated-by";

pub(crate) const WHY: Why<'_> = Why {
    reason: "WorkloadEvictedDueToPreempted",
    message: "make room",
    for_good: false,
    now: Timestamp::UNIX_EPOCH,
};

pub(crate) const IDENTITY: RemoteIdentity<'_> = RemoteIdentity {
    origin: "mgr",
    workload: "w",
};

pub(crate) fn outcome(success: bool, message: &str) -> Outcome {
    let message = message.to_owned();
    Outcome { success, message }
}

fn parts(object: &Value) -> (ObjectMeta, Value) {
    let mut data = object.clone();
    let meta = data.as_object_mut().and_then(|fields| fields.remove("metadata"));
    let meta = serde_json::from_value(meta.unwrap_or_else(|| json!({}))).unwrap();
    (meta, data)
}

/// Applies `look` to an object as the only member of a job.
pub(crate) fn one<T>(object: &Value, look: impl FnOnce(Members<'_>) -> T) -> T {
    let (meta, data) = parts(object);
    let (meta, data) = (&meta, &data);
    look(Members::one(&Member { meta, data }))
}

/// Applies `look` to a group.
pub(crate) fn many<T>(objects: &[Value], look: impl FnOnce(Members<'_>) -> T) -> T {
    let parts: Vec<_> = objects.iter().map(parts).collect();
    let members: Vec<Member<'_>> = { parts.iter() }
        .map(|(meta, data)| Member { meta, data })
        .collect();
    look(Members::new(&members).unwrap())
}

/// Applies `look` to two objects.
pub(crate) fn both<T>(first: &Value, second: &Value, look: impl FnOnce(Members<'_>, Members<'_>) -> T) -> T {
    one(first, |first| one(second, |second| look(first, second)))
}

pub(crate) fn changed(object: &Value, change: impl FnOnce(&mut MemberMut<'_>)) -> Value {
    let (mut meta, mut data) = parts(object);
    let has_meta = object.get("metadata").is_some();
    change(&mut MemberMut {
        meta: &mut meta,
        data: &mut data,
    });
    if has_meta || meta != ObjectMeta::default() {
        data["metadata"] = json!(meta);
    }
    data
}

/// Applies a merge patch, as the API server would.
pub(crate) fn apply(job: &Value, patch: &Value) -> Value {
    let mut job = job.clone();
    json_patch::merge(&mut job, patch);
    job
}

/// A kind whose jobs are one object, asked about objects written as JSON.
#[derive(Clone, Copy)]
pub(crate) struct Tested(pub(crate) &'static dyn JobKind);

/// The patches sent to one part of a job.
fn sent(writes: Vec<Write>, wanted: Target) -> Vec<Value> {
    let sent = |write: Write| {
        let Write::Patch { of: _, target, patch } = write else {
            panic!("nothing is deleted");
        };
        assert_eq!(target, wanted);
        patch
    };
    writes.into_iter().map(sent).collect()
}

impl Tested {
    pub(crate) fn pod_sets(self, job: &Value) -> Result<Vec<JobPodSet>, Error> {
        one(job, |job| self.0.pod_sets(job))
    }

    pub(crate) fn look(self, job: &Value) -> Look {
        one(job, |job| self.0.look(job))
    }

    pub(crate) fn start(self, job: &Value, infos: &[PodSetInfo]) -> Result<Value, InjectError> {
        let writes = one(job, |job| self.0.start(job, infos))?;
        Ok(sent(writes, Target::Main).pop().unwrap_or_else(|| json!({})))
    }

    pub(crate) fn stop(self, job: &Value, original: &[JobPodSet]) -> Option<Value> {
        let mut patches = sent(one(job, |job| self.0.stop(job, original, &WHY)), Target::Main);
        assert!(patches.len() <= 1);
        patches.pop()
    }

    pub(crate) fn copy(self, job: &Value, identity: &RemoteIdentity<'_>, original: &[JobPodSet]) -> Value {
        one(job, |job| self.0.copies(job, identity, original)).remove(0)
    }

    fn shown(self, local: &Value, remote: Remote<'_>, now: Timestamp) -> Option<Value> {
        let Mirror { writes, is_deferred } = one(local, |local| self.0.mirror(local, remote, now));
        assert!(!is_deferred);
        sent(writes, Target::Status).pop()
    }

    /// The patch that shows a copy.
    pub(crate) fn mirror(self, local: &Value, remote: &Value) -> Option<Value> {
        one(remote, |copy| {
            self.shown(local, Remote::Copies(copy), Timestamp::UNIX_EPOCH)
        })
    }

    /// The patch that shows that no pod is left.
    pub(crate) fn without_pods(self, local: &Value) -> Option<Value> {
        self.shown(local, Remote::AtRest, Timestamp::UNIX_EPOCH)
    }

    /// The patch that shows an end without a copy.
    pub(crate) fn conclusion(self, local: &Value, outcome: &Outcome) -> Option<Value> {
        self.shown(local, Remote::Ended(outcome), Timestamp::UNIX_EPOCH)
    }

    /// A copy in the form in which it is cached.
    pub(crate) fn slimmed(self, copy: &Value) -> Value {
        changed(copy, |copy| self.0.forget_details(copy))
    }

    pub(crate) fn is_queued(self, job: &Value) -> bool {
        one(job, |job| self.0.is_queued(job.first()))
    }

    pub(crate) fn defaulted(self, job: &Value) -> Value {
        changed(job, |job| self.0.own_defaults(job))
    }

    pub(crate) fn template_paths(self, job: &Value) -> Vec<String> {
        one(job, |job| self.0.template_paths(job))
    }

    pub(crate) fn priority_class(self, job: &Value) -> Option<String> {
        one(job, |job| self.0.priority_class(job).map(str::to_owned))
    }

    pub(crate) fn manager_of(self, job: &Value) -> Option<String> {
        one(job, |job| self.0.manager_of(job.first()).map(str::to_owned))
    }

    pub(crate) fn problems(self, job: &Value) -> Vec<String> {
        one(job, |job| said(&self.0.own_problems(job.first())))
    }

    pub(crate) fn update_problems(self, old: &Value, new: &Value) -> Vec<String> {
        both(old, new, |old, new| {
            said(&self.0.own_update_problems(old.first(), new.first()))
        })
    }
}

fn said(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
