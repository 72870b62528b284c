use serde_json::{Value, from_value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// One `RayJob`, its pods and its Job in a cluster where every write succeeds at once. The test sets their states.
struct Play {
    ray: RayJob,
    pods: BTreeMap<String, Pod>,
    jobs: BTreeMap<String, Job>,
    /// All values of `jobDeploymentStatus`, in their order.
    states: Vec<String>,
}

const PODS: [&str; 3] = [
    "ray-cluster-head",
    "ray-cluster-small-worker-0",
    "ray-cluster-small-worker-1",
];

impl Play {
    /// A suspended job with a head and two workers.
    fn new(mode: &str) -> Self {
        let template = json!({
            "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "ray", "image": "ray:2"}]},
        });
        let ray = json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob",
            "metadata": {"name": "ray", "namespace": "ns", "uid": "u"},
            "spec": {
                "suspend": true, "submissionMode": mode, "shutdownAfterJobFinishes": true,
                "rayClusterSpec": {
                    "headGroupSpec": {"template": template},
                    "workerGroupSpecs": [{"groupName": "small", "numOfHosts": 2, "template": template}],
                },
            },
        });
        let mut play = Self {
            ray: from_value(ray).unwrap(),
            pods: BTreeMap::new(),
            jobs: BTreeMap::new(),
            states: Vec::new(),
        };
        play.settle();
        play
    }

    /// A job that is not suspended, and whose pods are ready.
    fn ready(mode: &str) -> Self {
        let mut play = Self::new(mode);
        play.suspend(false);
        play.are(&PODS, "Running");
        play
    }

    fn suspend(&mut self, suspend: bool) {
        self.ray.spec.suspend = suspend;
        self.states.clear();
        self.settle();
    }

    /// Carries out writes until none is due.
    fn settle(&mut self) {
        for _ in 0..10 {
            let pods: Vec<_> = self.pods.values().cloned().map(Arc::new).collect();
            let jobs: Vec<_> = self.jobs.values().cloned().map(Arc::new).collect();
            let plan = decide(&[Arc::new(self.ray.clone())], &jobs, &pods, at(0));
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
                    Action::CreateJob(job) => {
                        self.jobs.insert(job.name_any(), *job);
                    }
                    Action::DeleteJob(job) => {
                        self.jobs.remove(&job.name_any());
                    }
                    Action::RayJobStatus(_, status) => {
                        self.states.push(status.job_deployment_status.clone());
                        self.ray.status = Some(*status);
                    }
                    Action::ReleasePod(_)
                    | Action::DropPod(_)
                    | Action::RemovePod(_)
                    | Action::BindPod(..)
                    | Action::PodStatus(..)
                    | Action::JobSpec(_)
                    | Action::JobStatus(..)
                    | Action::JobSetStatus(..)
                    | Action::PyTorchJobStatus(..)
                    | Action::CreateNode(_)
                    | Action::NodeStatus(_)
                    | Action::Answer(_) => panic!("not for this controller"),
                }
            }
        }
        panic!("never at rest: {:?}", self.ray.status);
    }

    fn are(&mut self, pods: &[&str], phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        for pod in pods {
            let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
            self.pods.get_mut(*pod).unwrap().status = Some(from_value(status).unwrap());
        }
        self.settle();
    }

    fn submitter_is(&mut self, status: Value) {
        self.jobs.get_mut("ray").unwrap().status = Some(from_value(status).unwrap());
        self.settle();
    }

    fn pods(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    fn status(&self) -> &RayJobStatus {
        self.ray.status.as_ref().unwrap()
    }

    /// `jobDeploymentStatus`, `jobStatus` and the state of the cluster.
    fn said(&self) -> [&str; 3] {
        let status = self.status();
        [
            &status.job_deployment_status,
            &status.job_status,
            &status.ray_cluster_status.state,
        ]
    }
}

/// The operator looks at `suspend` only after it has begun.
///
/// Spec: jobs 9.7
#[test]
fn a_suspended_job_comes_to_rest_without_pods() {
    let play = Play::new("");
    assert_eq!(play.states, [INITIALIZING, SUSPENDING, SUSPENDED]);
    assert!(play.pods.is_empty() && play.jobs.is_empty());
    assert_eq!(play.status().ray_cluster_name, "");
}

/// Spec: jobs 9.7
#[test]
fn it_is_submitted_once_its_cluster_is_ready_and_succeeds_with_its_submitter() {
    let mut play = Play::new("K8sJobMode");
    play.suspend(false);
    assert_eq!(play.states, [NEW, INITIALIZING]);
    assert_eq!(play.pods(), PODS);
    let labels = play.pods[PODS[1]].labels();
    for (key, value) in [
        ("app", "x"),
        (CLUSTER, "ray-cluster"),
        (GROUP, "small"),
        (NODE_TYPE, WORKER),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    play.are(&PODS[..2], "Running");
    assert!(play.jobs.is_empty(), "one pod is not ready yet");
    play.are(&PODS[2..], "Running");
    assert_eq!(play.said(), [RUNNING, "", ""]);
    let spec = play.jobs["ray"].spec.as_ref().unwrap();
    let container = &spec.template.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        (spec.backoff_limit, container.image.as_deref()),
        (Some(2), Some("ray:2"))
    );
    play.submitter_is(json!({"active": 1, "ready": 1}));
    assert_eq!(play.said(), [RUNNING, "RUNNING", "ready"]);
    assert_eq!(play.status().ray_cluster_status.ready_worker_replicas, 2);
    play.submitter_is(json!({"conditions": [{"type": "Complete", "status": "True"}]}));
    assert_eq!(play.said(), [COMPLETE, "SUCCEEDED", "ready"]);
    assert!(
        play.pods.is_empty() && play.jobs.len() == 1,
        "the Job keeps its logs"
    );
    assert_eq!((play.status().succeeded, play.status().failed), (1, 0));
}

#[test]
fn it_fails_with_its_submitter() {
    let mut play = Play::ready("K8sJobMode");
    play.submitter_is(json!({"conditions": [{"type": "Failed", "status": "True"}]}));
    assert_eq!(play.said(), [FAILED, "FAILED", "ready"]);
    assert_eq!(
        (play.status().reason.as_str(), play.status().failed),
        ("AppFailed", 1)
    );
    assert!(play.pods.is_empty());
}

#[test]
fn without_a_submitter_it_ends_with_its_head() {
    for (end, said) in [
        ("Succeeded", [COMPLETE, "SUCCEEDED"]),
        ("Failed", [FAILED, "FAILED"]),
    ] {
        let mut play = Play::ready("HTTPMode");
        assert_eq!(play.said(), [RUNNING, "RUNNING", "ready"]);
        play.are(&PODS[..1], end);
        assert_eq!(play.said()[..2], said);
        assert!(play.jobs.is_empty() && play.pods.is_empty());
    }
}

#[test]
fn a_pod_of_the_cluster_that_ends_is_created_anew() {
    let mut play = Play::ready("K8sJobMode");
    play.are(&PODS[..2], "Failed");
    assert_eq!(play.pods(), PODS);
    assert_eq!(phase(&play.pods[PODS[0]]), "");
    assert_eq!(play.said()[0], RUNNING);
}

/// Spec: jobs 9.7
#[test]
fn a_job_that_is_held_again_loses_its_pods_and_its_job_and_starts_anew() {
    let mut play = Play::ready("K8sJobMode");
    play.submitter_is(json!({"active": 1, "ready": 1}));
    play.suspend(true);
    assert_eq!(play.states, [SUSPENDING, SUSPENDED]);
    assert_eq!(play.said(), [SUSPENDED, "", ""]);
    assert!(play.pods.is_empty() && play.jobs.is_empty());
    play.suspend(false);
    assert_eq!(play.pods(), PODS);
}

/// If a job is unsuspended while its pods are being removed, the controller first removes all of them.
#[test]
fn a_suspension_that_has_begun_is_finished() {
    let mut play = Play::ready("HTTPMode");
    for pod in play.pods.values_mut() {
        pod.metadata.deletion_timestamp = Some(stamp(at(1)));
    }
    play.suspend(true);
    play.suspend(false);
    assert_eq!((play.said()[0], play.pods.len()), (SUSPENDING, 3));
    play.pods.clear();
    play.settle();
    assert_eq!(play.states, [SUSPENDED, NEW, INITIALIZING]);
}

#[test]
fn a_job_of_another_controller_or_for_an_existing_cluster_is_left_alone() {
    let of_another = |ray: &mut RayJob| ray.spec.managed_by = Some("kueue.x-k8s.io/multikueue".to_owned());
    let of_a_cluster = |ray: &mut RayJob| {
        ray.spec
            .cluster_selector
            .insert(CLUSTER.to_owned(), "other".to_owned());
    };
    let changes: [fn(&mut RayJob); 2] = [of_another, of_a_cluster];
    for change in changes {
        let mut play = Play::ready("HTTPMode");
        change(&mut play.ray);
        play.suspend(true);
        assert_eq!((play.said()[0], play.pods.len()), (RUNNING, 3));
    }
}
