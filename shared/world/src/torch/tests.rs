use std::collections::BTreeMap;

use serde_json::{from_value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// One `PyTorchJob` and its pods in a cluster where every write succeeds at once. The test sets the state of the pods.
struct Play {
    job: PyTorchJob,
    pods: BTreeMap<String, Pod>,
}

impl Play {
    /// One master and two workers.
    fn new(policy: &str) -> Self {
        let template = json!({
            "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [], "nodeSelector": {"zone": "a"}},
        });
        let job = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
            "spec": {"runPolicy": {"suspend": true}, "pytorchReplicaSpecs": {
                "Master": {"restartPolicy": policy, "template": template},
                "Worker": {"replicas": 2, "restartPolicy": policy, "template": template},
            }},
        });
        let mut play = Self {
            job: from_value(job).unwrap(),
            pods: BTreeMap::new(),
        };
        play.settle();
        play
    }

    /// A job that is not suspended.
    fn started(policy: &str) -> Self {
        let mut play = Self::new(policy);
        play.suspend(false);
        play
    }

    fn suspend(&mut self, suspend: bool) {
        self.job.spec.run_policy.suspend = Some(suspend);
        self.settle();
    }

    /// Carries out writes until none is due.
    fn settle(&mut self) {
        for _ in 0..10 {
            let pods: Vec<_> = self.pods.values().cloned().map(Arc::new).collect();
            let plan = decide(&[Arc::new(self.job.clone())], &pods, at(0));
            if plan.actions.is_empty() {
                return;
            }
            for action in plan.actions {
                match action {
                    Action::CreatePod(pod) => {
                        self.pods.insert(pod.name_any(), *pod);
                    }
                    Action::DeletePod(pod) => {
                        self.pods.remove(&pod.name_any());
                    }
                    Action::PyTorchJobStatus(_, status) => self.job.status = Some(*status),
                    Action::ReleasePod(_)
                    | Action::DropPod(_)
                    | Action::RemovePod(_)
                    | Action::BindPod(..)
                    | Action::PodStatus(..)
                    | Action::CreateJob(_)
                    | Action::JobSpec(_)
                    | Action::JobStatus(..)
                    | Action::DeleteJob(_)
                    | Action::JobSetStatus(..)
                    | Action::RayJobStatus(..)
                    | Action::CreateNode(_)
                    | Action::NodeStatus(_)
                    | Action::Answer(_) => panic!("not for this controller"),
                }
            }
        }
        panic!("never at rest: {:?}", self.job.status);
    }

    fn is(&mut self, pods: &[&str], phase: &str) {
        for pod in pods {
            let pod = self.pods.get_mut(*pod).unwrap();
            pod.status = Some(from_value(json!({"phase": phase})).unwrap());
        }
        self.settle();
    }

    /// Status and reason of a condition.
    fn said(&self, kind: &str) -> Option<(&str, &str)> {
        let conditions = &self.job.status.as_ref()?.conditions;
        let said = conditions.iter().find(|each| each.kind == kind)?;
        Some((said.status.as_str(), said.reason.as_str()))
    }

    /// Active, succeeded, failed.
    fn counts(&self, role: &str) -> [i32; 3] {
        let counted = self.job.status.as_ref().unwrap().replica_statuses[role];
        [counted.active, counted.succeeded, counted.failed]
    }
}

const PODS: [&str; 3] = ["job-master-0", "job-worker-0", "job-worker-1"];

/// Spec: jobs 9.3
#[test]
fn a_suspended_job_has_no_pods_and_gets_them_from_its_templates_when_it_is_let_go() {
    let mut play = Play::new("OnFailure");
    assert!(play.pods.is_empty());
    assert_eq!(play.said("Suspended"), Some(("True", "PyTorchJobSuspended")));
    play.suspend(false);
    assert_eq!(play.pods.keys().map(String::as_str).collect::<Vec<_>>(), PODS);
    assert_eq!(play.said("Suspended"), Some(("False", "PyTorchJobResumed")));
    let master = &play.pods[PODS[0]];
    for (key, value) in [
        ("app", "x"),
        (REPLICA_TYPE, "master"),
        (REPLICA_INDEX, "0"),
        (ROLE, "master"),
    ] {
        assert_eq!(master.labels().get(key).map(String::as_str), Some(value), "{key}");
    }
    let spec = master.spec.as_ref().unwrap();
    assert_eq!(spec.node_selector.as_ref().unwrap()["zone"], "a");
    assert_eq!(spec.restart_policy.as_deref(), Some("OnFailure"));
}

/// Spec: jobs 9.3
#[test]
fn it_runs_with_its_master_and_succeeds_with_it() {
    let mut play = Play::started("OnFailure");
    play.is(&PODS[1..], "Running");
    assert_eq!(play.said("Running"), None);
    play.is(&PODS[..1], "Running");
    assert_eq!(play.said("Running"), Some(("True", "PyTorchJobRunning")));
    assert_eq!(
        (play.counts("Master"), play.counts("Worker")),
        ([1, 0, 0], [2, 0, 0])
    );
    play.is(&PODS[..1], "Succeeded");
    assert_eq!(play.said("Succeeded"), Some(("True", "PyTorchJobSucceeded")));
    assert_eq!(play.said("Running"), Some(("False", "PyTorchJobRunning")));
    assert!(play.job.status.as_ref().unwrap().completion_time.is_some());
    // No pod is cleaned up unless the job asks for it.
    assert_eq!(play.pods.len(), 3);
    play.job.spec.run_policy.clean_pod_policy = Some("Running".to_owned());
    play.settle();
    assert_eq!(
        play.pods.keys().map(String::as_str).collect::<Vec<_>>(),
        PODS[..1]
    );
}

#[test]
fn without_a_master_all_workers_must_succeed() {
    let mut play = Play::new("OnFailure");
    play.job.spec.pytorch_replica_specs.remove(MASTER);
    play.suspend(false);
    play.is(&["job-worker-0"], "Succeeded");
    assert_eq!(play.said("Succeeded"), None);
    play.is(&["job-worker-1"], "Succeeded");
    assert_eq!(play.said("Succeeded"), Some(("True", "PyTorchJobSucceeded")));
}

#[test]
fn a_pod_that_fails_fails_the_job() {
    let mut play = Play::started("Never");
    play.is(&PODS, "Running");
    play.is(&PODS[2..], "Failed");
    assert_eq!(play.said("Failed"), Some(("True", "PyTorchJobFailed")));
    assert_eq!(play.counts("Worker"), [1, 0, 1]);
}

#[test]
fn a_pod_that_is_deleted_is_made_anew_unless_nothing_is_started_again() {
    for (policy, fails) in [("OnFailure", false), ("Never", true)] {
        let mut play = Play::started(policy);
        play.is(&PODS, "Running");
        let pod = play.pods.get_mut(PODS[1]).unwrap();
        pod.metadata.deletion_timestamp = Some(stamp(at(1)));
        play.settle();
        assert_eq!(play.said("Failed").is_some(), fails, "{policy}");
        play.pods.remove(PODS[1]);
        play.settle();
        assert_eq!(play.pods.len(), if fails { 2 } else { 3 }, "{policy}");
    }
}

#[test]
fn a_job_that_is_held_again_loses_its_pods_and_starts_anew() {
    let mut play = Play::started("OnFailure");
    play.is(&PODS, "Running");
    play.suspend(true);
    assert!(play.pods.is_empty());
    assert_eq!(play.said("Running"), Some(("False", "PyTorchJobSuspended")));
    assert_eq!(play.counts("Worker"), [0, 0, 0]);
    play.suspend(false);
    assert_eq!(play.pods.len(), 3);
}

#[test]
fn a_job_of_another_controller_is_left_alone() {
    let mut play = Play::started("OnFailure");
    play.is(&PODS, "Running");
    play.job.spec.run_policy.managed_by = Some("kueue.x-k8s.io/multikueue".to_owned());
    let before = play.job.clone();
    play.suspend(true);
    assert_eq!((play.job.status, play.pods.len()), (before.status, 3));
}
