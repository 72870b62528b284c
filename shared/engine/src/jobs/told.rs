//! On which objects of a job an Event of its plan is written.
//!
//! *Source*: `spec/jobs.md 5.17, 12.8`.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use roadstead_core::job;
use roadstead_core::note::Note;
use roadstead_jobs::kind::Write;

use crate::caches::CachedJob;

/// The objects that an Event is about. `of_group` are the writes that started or stopped the members of a group; `None` for a job of
/// one object.
///
/// Why each member: a user of a group looks at a pod, and cannot know which of them stands for the group.
pub(super) fn about<'a>(
    note: &Note,
    job: &'a CachedJob,
    of_group: Option<&[Write]>,
) -> Vec<&'a DynamicObject> {
    let Some(writes) = of_group else {
        return vec![job.first()];
    };
    let uids = match &*note.reason {
        job::STARTED => changed(writes),
        job::STOPPED => deleted(writes),
        job::UPDATED_CHECK => return job.objects().map(|object| &**object).collect(),
        _ => return vec![job.first()],
    };
    let is_told = |object: &&DynamicObject| {
        let uid = object.metadata.uid.as_deref();
        uid.is_some_and(|uid| uids.contains(uid))
    };
    job.objects().map(|object| &**object).filter(is_told).collect()
}

/// The UIDs of the members that writes change.
pub(super) fn changed(writes: &[Write]) -> BTreeSet<&str> {
    { writes.iter() }
        .filter_map(|write| match write {
            Write::Patch { of, .. } => Some(of.uid.as_str()),
            Write::Delete { .. } | Write::Bind { .. } => None,
        })
        .collect()
}

fn deleted(writes: &[Write]) -> BTreeSet<&str> {
    { writes.iter() }
        .filter_map(|write| match write {
            Write::Delete { of } => Some(of.uid.as_str()),
            Write::Patch { .. } | Write::Bind { .. } => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use roadstead_jobs::kind::{MemberId, Target};
    use serde_json::{Value, from_value, json};

    use super::*;

    fn group() -> CachedJob {
        let pods = ["a", "b", "c"].map(|name| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}});
            Arc::new(from_value(pod).unwrap())
        });
        CachedJob::of(pods).unwrap()
    }

    fn id(name: &str) -> MemberId {
        MemberId {
            name: name.to_owned(),
            uid: name.to_owned(),
        }
    }

    fn patch(name: &str) -> Write {
        Write::Patch {
            of: id(name),
            target: Target::Main,
            patch: Value::Null,
        }
    }

    fn delete(name: &str) -> Write {
        Write::Delete { of: id(name) }
    }

    fn check(reason: &'static str, of_group: Option<&[Write]>, expected: &[&str]) {
        let (note, job) = (Note::normal(reason, "text"), group());
        let told = about(&note, &job, of_group);
        let names: Vec<_> = told.iter().filter_map(|o| o.metadata.name.as_deref()).collect();
        assert_eq!(names, expected, "{reason}");
    }

    /// Spec: jobs 5.17, 12.8
    #[test]
    fn each_member_of_a_group_tells_that_it_was_started_or_stopped_and_what_it_waits_for() {
        let started = [patch("a"), patch("c"), patch("c")];
        check(job::STARTED, Some(&started), &["a", "c"]);
        // Why the patches too: a member that is stopped is marked before it is deleted, and finalizers are removed by patches.
        let stopped = [patch("a"), patch("b"), delete("b")];
        check(job::STOPPED, Some(&stopped), &["b"]);
        check(job::STOPPED, Some(&[]), &[]);
        check(job::UPDATED_CHECK, Some(&[]), &["a", "b", "c"]);
        check("CreatedWorkload", Some(&[]), &["a"]);
    }

    #[test]
    fn an_event_of_a_job_of_one_object_is_written_on_that_object() {
        for reason in [job::STARTED, job::STOPPED, job::UPDATED_CHECK, "CreatedWorkload"] {
            check(reason, None, &["a"]);
        }
    }
}
