use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, from_value, json, to_value};

use super::*;

const START: &str = "2026-01-01T00:10:00Z";

fn at(second: i64) -> Timestamp {
    let start: Timestamp = START.parse().unwrap();
    start.checked_add(SignedDuration::from_secs(second)).unwrap()
}

/// One Job and its pods in a cluster where every write succeeds at once.
struct Play {
    job: Option<Arc<Job>>,
    pods: Vec<Arc<Pod>>,
    made: usize,
}

impl Play {
    fn new(spec: &Value) -> Self {
        let mut job = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid"},
            "spec": {
                "parallelism": 1,
                "backoffLimit": 6,
                "template": {"metadata": {"labels": {"job-name": "j"}}, "spec": {"containers": [{"name": "main"}]}},
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            job["spec"][key] = value.clone();
        }
        Self {
            job: Some(Arc::new(from_value(job).unwrap())),
            pods: Vec::new(),
            made: 0,
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut JobSpec)) {
        let mut job = Job::clone(self.job.as_ref().unwrap());
        change(job.spec.as_mut().unwrap());
        self.job = Some(Arc::new(job));
    }

    /// Carries out the writes of this second until none is due. Returns when the next one is due, in seconds.
    fn settle(&mut self, second: i64) -> Option<i64> {
        for _ in 0..50 {
            let jobs: Vec<Arc<Job>> = self.job.iter().cloned().collect();
            let plan = decide(&jobs, &self.pods, at(second));
            if plan.actions.is_empty() {
                return plan.due.map(|due| due.duration_since(at(0)).as_secs());
            }
            for action in plan.actions {
                self.act(&action);
            }
        }
        panic!("never at rest: {:?}", self.status());
    }

    fn act(&mut self, action: &Action) {
        match action.clone() {
            Action::CreatePod(mut pod) => {
                self.made += 1;
                let name = format!("{}{}", pod.metadata.generate_name.as_ref().unwrap(), self.made);
                pod.metadata.uid = Some(name.clone());
                pod.metadata.name = Some(name);
                self.pods.push(Arc::from(pod));
            }
            Action::ReleasePod(pod) => self.change_pod(&pod.name_any(), |pod| pod.metadata.finalizers = None),
            Action::DeletePod(pod) => {
                self.change_pod(&pod.name_any(), |pod| {
                    pod.metadata.deletion_timestamp = Some(stamp(at(0)));
                });
            }
            Action::DropPod(pod) => self.pods.retain(|other| other.name_any() != pod.name_any()),
            Action::JobStatus(job, status) => {
                let mut job = Job::clone(&job);
                job.status = Some(*status);
                self.job = Some(Arc::new(job));
            }
            Action::DeleteJob(_) => self.job = None,
            Action::RemovePod(_)
            | Action::BindPod(..)
            | Action::PodStatus(..)
            | Action::CreateJob(_)
            | Action::JobSpec(_)
            | Action::JobSetStatus(..)
            | Action::PyTorchJobStatus(..)
            | Action::RayJobStatus(..)
            | Action::CreateNode(_)
            | Action::NodeStatus(_)
            | Action::Answer(_) => panic!("a Job controller does not {action:?}"),
        }
    }

    fn change_pod(&mut self, name: &str, change: impl Fn(&mut Pod)) {
        for pod in self.pods.iter_mut().filter(|pod| pod.name_any() == name) {
            change(Arc::make_mut(pod));
        }
    }

    /// All pods that run end at this second.
    fn end(&mut self, phase: &str, second: i64) {
        let status: PodStatus = from_value(json!({
            "phase": phase,
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "finishedAt": at(second).to_string()}},
            }],
        }))
        .unwrap();
        for pod in &mut self.pods {
            if !crate::play::has_ended(pod) {
                Arc::make_mut(pod).status = Some(status.clone());
            }
        }
    }

    fn status(&self) -> JobStatus {
        let job = self.job.as_ref().unwrap();
        job.status.clone().unwrap_or_default()
    }

    /// Active, succeeded, failed, and the conditions that are True.
    fn sum(&self) -> (i32, i32, i32, Vec<String>) {
        let status = self.status();
        let conditions = status.conditions.into_iter().flatten();
        let conditions = { conditions }.filter(|condition| condition.status == "True");
        (
            status.active.unwrap_or(0),
            status.succeeded.unwrap_or(0),
            status.failed.unwrap_or(0),
            conditions.map(|condition| condition.type_).collect(),
        )
    }
}

fn conditions(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn pods_run_in_waves_and_the_verdict_comes_before_the_end() {
    let mut play = Play::new(&json!({"parallelism": 2, "completions": 3}));
    play.settle(0);
    assert_eq!(play.sum(), (2, 0, 0, conditions(&[])));
    assert_eq!(play.status().start_time, Some(stamp(at(0))));
    play.end("Succeeded", 1);
    play.settle(1);
    assert_eq!((play.made, play.sum()), (3, (1, 2, 0, conditions(&[]))));
    play.end("Succeeded", 2);
    play.settle(2);
    assert_eq!(
        play.sum(),
        (0, 3, 0, conditions(&[SUCCESS_CRITERIA_MET, COMPLETE]))
    );
    assert_eq!(play.status().completion_time, Some(stamp(at(2))));
    assert!(play.pods.iter().all(|pod| !is_tracked(pod)));
}

#[test]
fn a_pod_is_counted_before_it_loses_its_finalizer() {
    let mut play = Play::new(&json!({"completions": 2}));
    play.settle(0);
    play.end("Succeeded", 1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let jobs: Vec<_> = play.job.iter().cloned().collect();
        let action = decide(&jobs, &play.pods, at(1)).actions.remove(0);
        seen.push(if let Action::JobStatus(_, status) = &action {
            to_value(&status.uncounted_terminated_pods).unwrap()
        } else if let Action::ReleasePod(pod) = &action {
            pod.name_any().into()
        } else {
            assert!(matches!(action, Action::CreatePod(_)), "{action:?}");
            "create".into()
        });
        play.act(&action);
    }
    // The second pod does not wait for the first to be counted.
    assert_eq!(
        seen,
        [json!("create"), json!({"succeeded": ["j-1"]}), json!("j-1")]
    );
    play.settle(1);
    assert_eq!(play.sum(), (1, 1, 0, conditions(&[])));
}

#[test]
fn after_each_failure_the_next_pod_comes_later_until_the_limit() {
    let mut play = Play::new(&json!({"backoffLimit": 2, "completions": 1}));
    play.settle(0);
    play.end("Failed", 1);
    assert_eq!(play.settle(1), Some(11));
    assert_eq!(play.sum(), (0, 0, 1, conditions(&[])));
    play.settle(11);
    play.end("Failed", 12);
    assert_eq!(play.settle(12), Some(32));
    play.settle(32);
    play.end("Failed", 33);
    play.settle(33);
    assert_eq!(play.made, 3);
    assert_eq!(play.sum(), (0, 0, 3, conditions(&[FAILURE_TARGET, FAILED])));
    assert_eq!(play.status().completion_time, None);
}

#[test]
fn a_verdict_of_failure_ends_the_others_and_waits_for_them() {
    let mut play = Play::new(&json!({"backoffLimit": 0, "parallelism": 2, "completions": 2}));
    play.settle(0);
    let first = play.pods[0].name_any();
    play.change_pod(&first, |pod| {
        pod.status = Some(from_value(json!({"phase": "Failed"})).unwrap());
    });
    play.settle(1);
    assert_eq!(play.sum(), (0, 0, 2, conditions(&[FAILURE_TARGET])));
    assert_eq!(play.status().terminating, Some(1));
    play.end("Failed", 2);
    play.settle(2);
    assert_eq!(play.sum(), (0, 0, 2, conditions(&[FAILURE_TARGET, FAILED])));
}

#[test]
fn suspension_takes_the_pods_away_uncounted_and_a_resumed_job_starts_anew() {
    let mut play = Play::new(&json!({"suspend": true, "parallelism": 2, "completions": 2}));
    play.settle(0);
    assert_eq!(play.sum(), (0, 0, 0, conditions(&[SUSPENDED])));
    assert_eq!(play.status().start_time, None);
    play.change(|spec| spec.suspend = Some(false));
    play.settle(5);
    assert_eq!(play.sum(), (2, 0, 0, conditions(&[])));
    assert_eq!(play.status().start_time, Some(stamp(at(5))));
    play.change(|spec| spec.suspend = Some(true));
    play.settle(6);
    assert_eq!(
        (play.pods.len(), play.sum()),
        (0, (0, 0, 0, conditions(&[SUSPENDED])))
    );
    assert_eq!(play.status().start_time, None);
    play.change(|spec| spec.suspend = Some(false));
    play.settle(7);
    play.end("Succeeded", 8);
    play.settle(8);
    assert_eq!(
        play.sum(),
        (0, 2, 0, conditions(&[SUCCESS_CRITERIA_MET, COMPLETE]))
    );
}

#[test]
fn indexes_are_run_once_each() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 2, "completions": 3});
    let mut play = Play::new(&spec);
    play.settle(0);
    let names: Vec<_> = play.pods.iter().map(|pod| pod.name_any()).collect();
    assert_eq!(names, ["j-0-1", "j-1-2"]);
    play.end("Succeeded", 1);
    play.settle(1);
    assert_eq!(play.status().completed_indexes.as_deref(), Some("0,1"));
    assert_eq!(play.pods[2].name_any(), "j-2-3");
    play.end("Succeeded", 2);
    play.settle(2);
    assert_eq!(play.status().completed_indexes.as_deref(), Some("0-2"));
    assert_eq!(
        play.sum(),
        (0, 3, 0, conditions(&[SUCCESS_CRITERIA_MET, COMPLETE]))
    );
}

#[test]
fn a_deadline_ends_a_job_and_its_time_to_live_removes_it() {
    let mut play = Play::new(&json!({"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 60}));
    assert_eq!(play.settle(0), Some(30));
    play.settle(30);
    play.end("Failed", 31);
    assert_eq!(play.settle(31), Some(91));
    assert_eq!(play.sum(), (0, 0, 1, conditions(&[FAILURE_TARGET, FAILED])));
    play.settle(91);
    assert!(play.job.is_none());
}

#[test]
fn without_a_number_of_completions_one_success_is_enough() {
    let mut play = Play::new(&json!({"parallelism": 2}));
    play.settle(0);
    play.end("Succeeded", 1);
    play.settle(1);
    assert_eq!((play.made, play.sum().1), (2, 2));
    assert_eq!(play.sum().3, conditions(&[SUCCESS_CRITERIA_MET, COMPLETE]));
}

#[test]
fn surplus_pods_go_when_the_parallelism_falls() {
    let mut play = Play::new(&json!({"parallelism": 3, "completions": 3}));
    play.settle(0);
    play.change(|spec| spec.parallelism = Some(1));
    play.settle(1);
    assert_eq!((play.pods.len(), play.sum()), (1, (1, 0, 0, conditions(&[]))));
}

#[test]
fn a_job_of_another_manager_is_never_touched() {
    let mut play = Play::new(&json!({"managedBy": "kueue.x-k8s.io/multikueue"}));
    play.settle(0);
    assert_eq!((play.made, play.status()), (0, JobStatus::default()));
}

#[test]
fn pods_of_a_job_that_is_gone_are_released() {
    let mut play = Play::new(&json!({}));
    play.settle(0);
    play.job = None;
    play.settle(1);
    assert!(play.pods.iter().all(|pod| !is_tracked(pod)));
}
