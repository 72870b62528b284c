//! Kinds that are in no table: the administrator names them in `multiKueue.externalFrameworks`, and a controller of the user runs their
//! jobs. A manager sends such a job to a worker and shows the status of its copy; everything else is left to that controller.
//!
//! Invariant: nothing is read of such a job but its metadata, `spec.managedBy` and the whole status. So nothing here says that it has no
//! pods or has ended: it may start elsewhere only when its copy is gone, and its end is what its Workload on the worker says.
//!
//! *Source*: `spec/multikueue.md 5.4`, `spec/jobs.md 10.3, 11`.

use jiff::Timestamp;
use roadstead_kinds::{Kind, rows};
use serde_json::Value;

use crate::json;
use crate::kind::{
    Error, JobKind, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target, Why,
    Write,
};
use crate::podset::{InjectError, JobPodSet, PodSetInfo};
use crate::problem::Problem;
use crate::remote::skeleton;

/// A kind that the administrator names.
#[derive(Debug)]
pub struct External {
    row: &'static Kind,
}

/// The kind of this API and plural.
///
/// Why it is never freed: rows of kinds live as long as the process, and a process makes one for each name in its configuration.
pub fn kind(group: &str, version: &str, kind: &str, plural: &str) -> &'static dyn JobKind {
    let kept = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let framework = kept(&format!("{kind}.{version}.{group}"));
    let row = rows::external(framework, [kept(group), kept(version), kept(kind), kept(plural)]);
    Box::leak(Box::new(External {
        row: Box::leak(Box::new(row)),
    }))
}

impl JobKind for External {
    fn kind(&self) -> &'static Kind {
        self.row
    }

    fn is_external(&self) -> bool {
        true
    }

    fn pod_sets(&self, _members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        Ok(Vec::new())
    }

    /// Only when its object is gone is it certain that it has no pods.
    fn look(&self, _members: Members<'_>) -> Look {
        Look {
            suspended: true,
            pods: Pods::Untold,
            ..Look::default()
        }
    }

    fn start(&self, _members: Members<'_>, _infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        Ok(Vec::new())
    }

    fn stop(&self, _members: Members<'_>, _original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        Vec::new()
    }

    /// Why: nothing here can stop it, so a worker that is cut off may go on with it.
    fn stop_leaves_pods(&self) -> bool {
        true
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        _original: &[JobPodSet],
    ) -> Vec<Value> {
        vec![skeleton(self, members.first(), identity)]
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, _now: Timestamp) -> Mirror {
        let job = local.first();
        let Remote::Copies(copies) = remote else {
            return Mirror::default();
        };
        let (here, there) = (json::status_of(job.data), json::status_of(copies.first().data));
        let patch = json::difference(&here, &there);
        let write = patch.map(|patch| job.patched(Target::Status, patch));
        Mirror {
            writes: write.into_iter().collect(),
            is_deferred: false,
        }
    }

    fn suspend(&self, _member: &mut MemberMut<'_>) {}

    fn outlast_its_end(&self, _member: &mut MemberMut<'_>) {}

    /// Only the status of a copy is read.
    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        json::remove(copy.data, &["spec"]);
    }

    fn template_paths(&self, _members: Members<'_>) -> Vec<String> {
        Vec::new()
    }

    fn own_problems(&self, _job: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }

    fn own_update_problems(&self, _old: Member<'_>, _new: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use roadstead_core::lifecycle::Outcome;
    use serde_json::{from_value, json};

    use super::*;

    fn foo() -> &'static dyn JobKind {
        kind("example.com", "v1", "Foo", "foos")
    }

    fn mirrored(local: &Value, remote: Remote<'_>) -> Vec<Write> {
        let meta: ObjectMeta = from_value(json!({"name": "f", "uid": "1"})).unwrap();
        let job = Member {
            meta: &meta,
            data: local,
        };
        let mirror = foo().mirror(Members::one(&job), remote, Timestamp::UNIX_EPOCH);
        assert!(!mirror.is_deferred);
        mirror.writes
    }

    /// Spec: multikueue 5.4, 11.68; jobs 10.3
    #[test]
    fn a_copy_has_the_spec_without_its_manager_and_the_metadata_without_owners() {
        let meta: ObjectMeta = from_value(json!({
            "name": "f", "namespace": "ns", "uid": "1", "resourceVersion": "7", "finalizers": ["example.com/keep"],
            "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "2"}],
        }))
        .unwrap();
        let data = json!({
            "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "steps": [{"image": "i"}]},
            "status": {"phase": "Waiting"},
        });
        let job = Member {
            meta: &meta,
            data: &data,
        };
        let identity = RemoteIdentity {
            origin: "hub",
            workload: "w",
        };
        let prebuilt = "kueue.x-k8s.io/prebuilt-workload-name";
        let wanted = json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {
                "name": "f", "namespace": "ns",
                "labels": {"a": "b", "kueue.x-k8s.io/multikueue-origin": "hub", prebuilt: "w"},
                "annotations": {"c": "d", prebuilt: "w"},
            },
            "spec": {"steps": [{"image": "i"}]},
        });
        assert_eq!(foo().copies(Members::one(&job), &identity, &[]), [wanted]);
        assert_eq!(foo().manager_of(job), Some("kueue.x-k8s.io/multikueue"));
        assert_eq!(foo().kind().framework, "Foo.v1.example.com");
    }

    /// Spec: jobs 15.130
    #[test]
    fn the_whole_status_is_shown_if_it_differs_and_nothing_else() {
        let meta = ObjectMeta::default();
        let there = json!({"spec": {"steps": []}, "status": {"phase": "Running", "active": 2}});
        let copy = Member {
            meta: &meta,
            data: &there,
        };
        let copies = || Remote::Copies(Members::one(&copy));
        let here = json!({"spec": {"steps": [1]}, "status": {"phase": "Waiting", "message": "m"}});
        let [Write::Patch { target, patch, .. }] = &*mirrored(&here, copies()) else {
            panic!("one patch");
        };
        assert_eq!(*target, Target::Status);
        let wanted = json!({"status": {"phase": "Running", "active": 2, "message": null}});
        assert_eq!(*patch, wanted);
        assert_eq!(mirrored(&there, copies()), []);
        assert_eq!(mirrored(&json!({"spec": {}}), copies()).len(), 1);
    }

    /// Spec: multikueue 5.4
    #[test]
    fn without_a_copy_nothing_is_made_up() {
        let here = json!({"spec": {}, "status": {"phase": "Running"}});
        let end = Outcome {
            success: true,
            message: "done".to_owned(),
        };
        assert_eq!(mirrored(&here, Remote::Ended(&end)), []);
        assert_eq!(mirrored(&here, Remote::AtRest), []);
    }

    /// Spec: safety 1 I1
    #[test]
    fn no_status_says_that_it_has_no_pods_or_has_ended() {
        for data in [
            json!({"spec": {}}),
            json!({"spec": {}, "status": {}}),
            json!({"spec": {"suspend": true}, "status": {"active": 0, "phase": "Succeeded", "completionTime": "t"}}),
        ] {
            let meta = ObjectMeta::default();
            let job = Member {
                meta: &meta,
                data: &data,
            };
            let look = foo().look(Members::one(&job));
            assert!(!look.at_rest(), "{data}");
            assert_eq!((look.pods, look.ended), (Pods::Untold, None), "{data}");
        }
        assert!(foo().stop_leaves_pods());
    }
}
