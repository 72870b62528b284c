use serde_json::{Value, from_value, json, to_value};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// One JobSet and its Jobs in a cluster where every write succeeds at once. The test sets the state of the Jobs.
struct Play {
    set: JobSet,
    jobs: BTreeMap<String, Job>,
}

impl Play {
    /// Two leaders of one pod and one worker Job of two.
    fn new(suspend: bool) -> Self {
        let job = |parallelism: i32| json!({"spec": {"parallelism": parallelism, "template": {"spec": {"containers": []}}}});
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "set", "namespace": "ns", "uid": "u"},
            "spec": {"suspend": suspend, "replicatedJobs": [
                {"name": "leader", "replicas": 2, "template": job(1)}, {"name": "worker", "template": job(2)},
            ]},
        });
        Self {
            set: from_value(set).unwrap(),
            jobs: BTreeMap::new(),
        }
    }

    /// Carries out writes until none is due.
    fn settle(&mut self) {
        for _ in 0..10 {
            let jobs: Vec<_> = self.jobs.values().cloned().map(Arc::new).collect();
            let plan = decide(&[Arc::new(self.set.clone())], &jobs, at(0));
            if plan.actions.is_empty() {
                return;
            }
            for action in plan.actions {
                match action {
                    Action::CreateJob(job) | Action::JobSpec(job) => {
                        self.jobs.insert(job.name_any(), *job);
                    }
                    Action::JobStatus(job, status) => {
                        self.jobs.get_mut(&job.name_any()).unwrap().status = Some(*status);
                    }
                    Action::DeleteJob(job) => {
                        self.jobs.remove(&job.name_any());
                    }
                    Action::JobSetStatus(_, status) => self.set.status = Some(*status),
                    Action::CreatePod(_)
                    | Action::ReleasePod(_)
                    | Action::DeletePod(_)
                    | Action::DropPod(_)
                    | Action::RemovePod(_)
                    | Action::BindPod(..)
                    | Action::PodStatus(..)
                    | Action::PyTorchJobStatus(..)
                    | Action::RayJobStatus(..)
                    | Action::CreateNode(_)
                    | Action::NodeStatus(_)
                    | Action::Answer(_) => panic!("not for a JobSet controller"),
                }
            }
        }
        panic!("never at rest: {:?}", self.set.status);
    }

    fn is(&mut self, job: &str, status: Value) {
        self.jobs.get_mut(job).unwrap().status = Some(from_value(status).unwrap());
        self.settle();
    }

    fn said(&self, kind: &str) -> Option<&str> {
        let conditions = &self.set.status.as_ref()?.conditions;
        Some(conditions.iter().find(|each| each.type_ == kind)?.status.as_str())
    }

    /// Ready, succeeded, failed, active, suspended.
    fn counts(&self, entry: usize) -> [i32; 5] {
        let counted = &self.set.status.as_ref().unwrap().replicated_jobs_status[entry];
        [
            counted.ready,
            counted.succeeded,
            counted.failed,
            counted.active,
            counted.suspended,
        ]
    }
}

#[test]
fn held_jobs_are_made_and_let_go_with_what_was_added_to_their_templates() {
    let mut play = Play::new(true);
    play.settle();
    assert_eq!(
        play.jobs.keys().collect::<Vec<_>>(),
        ["set-leader-0", "set-leader-1", "set-worker-0"]
    );
    assert!(play.jobs.values().all(is_suspended));
    assert_eq!(
        (play.said(SUSPENDED), play.counts(0), play.counts(1)),
        (Some("True"), [0, 0, 0, 0, 2], [0, 0, 0, 0, 1])
    );
    play.set.spec.suspend = Some(false);
    let template = &mut play.set.spec.replicated_jobs[1]
        .template
        .spec
        .as_mut()
        .unwrap()
        .template;
    template.spec.as_mut().unwrap().node_selector = Some([("tier".to_owned(), "spot".to_owned())].into());
    play.settle();
    assert!(!play.jobs.values().any(is_suspended));
    let selector =
        to_value(&play.jobs["set-worker-0"]).unwrap()["spec"]["template"]["spec"]["nodeSelector"].clone();
    assert_eq!(selector, json!({"tier": "spot"}));
    assert_eq!(
        (play.said(SUSPENDED), play.counts(0)),
        (Some("False"), [0, 0, 0, 0, 0])
    );
}

#[test]
fn it_counts_its_jobs_and_ends_with_them() {
    let mut play = Play::new(false);
    play.settle();
    play.is("set-worker-0", json!({"active": 2, "ready": 1}));
    assert_eq!(play.counts(1), [0, 0, 0, 1, 0]);
    play.is("set-worker-0", json!({"active": 2, "ready": 2}));
    assert_eq!(play.counts(1), [1, 0, 0, 1, 0]);
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    for job in ["set-worker-0", "set-leader-0"] {
        play.is(job, complete.clone());
    }
    assert_eq!((play.said(COMPLETED), play.counts(0)), (None, [0, 1, 0, 0, 0]));
    play.is("set-leader-1", complete);
    assert_eq!(play.said(COMPLETED), Some("True"));
    assert_eq!(play.set.status.unwrap().terminal_state, COMPLETED);
}

#[test]
fn one_failed_job_ends_it_and_the_others_go() {
    let mut play = Play::new(false);
    play.settle();
    play.is(
        "set-leader-1",
        json!({"conditions": [{"type": "Failed", "status": "True"}]}),
    );
    assert_eq!(play.said(FAILED), Some("True"));
    assert_eq!(play.jobs.keys().collect::<Vec<_>>(), ["set-leader-1"]);
}

#[test]
fn a_stop_and_a_start_lead_through_a_job_that_has_not_started() {
    let mut play = Play::new(false);
    play.settle();
    play.is(
        "set-worker-0",
        json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"}),
    );
    play.set.spec.suspend = Some(true);
    play.settle();
    assert!(play.jobs.values().all(is_suspended));
    assert_eq!(play.counts(1), [0, 0, 0, 1, 1]);
    play.is("set-worker-0", json!({"startTime": "2026-01-01T00:00:00Z"}));
    play.set.spec.suspend = Some(false);
    play.settle();
    let job = &play.jobs["set-worker-0"];
    assert!(!is_suspended(job) && job.status.as_ref().unwrap().start_time.is_none());
}

#[test]
fn what_another_controller_runs_or_is_going_is_left_alone() {
    let mut play = Play::new(false);
    play.set.spec.managed_by = Some("kueue.x-k8s.io/multikueue".to_owned());
    play.settle();
    assert!(play.jobs.is_empty());
    let mut play = Play::new(false);
    play.set.metadata.deletion_timestamp = Some(stamp(at(0)));
    play.settle();
    assert!(play.jobs.is_empty() && play.set.status.is_none());
}
