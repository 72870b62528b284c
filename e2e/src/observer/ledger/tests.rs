use serde_json::{Value, from_value, json};

use super::*;

struct Watched {
    ledger: Ledger,
    steps: mpsc::Receiver<Step>,
    at: Instant,
}

impl Watched {
    fn new() -> Self {
        let (sender, steps) = mpsc::channel(100);
        let ledger = Ledger::new(vec!["east".to_owned(), "west".to_owned()], sender);
        Self {
            ledger,
            steps,
            at: Instant::now(),
        }
    }

    fn sight(&self, place: Place) -> Sight {
        Sight { place, at: self.at }
    }

    /// A worker's job of run `ns/wl`.
    fn job(&mut self, worker: usize, uid: &str, suspend: bool, condition: Option<&str>, presence: Presence) {
        let job = from_value(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "j", "namespace": "ns", "uid": uid,
                "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"},
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "wl"},
            },
            "spec": {"suspend": suspend, "template": {}},
            "status": {"conditions": conditions(condition)},
        }));
        self.ledger
            .job(self.sight(Place::Worker(worker)), &job.unwrap(), presence);
    }

    fn pod(&mut self, worker: usize, job: &str, phase: &str, presence: Presence) {
        let pod = from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": format!("pod-of-{job}"), "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job, "controller": true},
            ]},
            "status": {"phase": phase},
        }));
        self.ledger
            .pod(self.sight(Place::Worker(worker)), &pod.unwrap(), presence);
    }

    fn workload(&mut self, uid: &str, finished_at: Option<&str>) {
        let conditions: Vec<Value> = finished_at
            .into_iter()
            .map(|time| json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": time}))
            .collect();
        let workload = from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "wl", "namespace": "ns", "uid": uid},
            "spec": {"podSets": []},
            "status": {"conditions": conditions},
        }));
        self.ledger
            .workload(self.sight(Place::Manager), &workload.unwrap(), There);
    }

    fn broken(&self) -> Vec<&str> {
        self.ledger
            .violations()
            .iter()
            .map(|violation| violation.invariant)
            .collect()
    }

    fn told(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.steps.try_recv().ok())
            .map(|step| step.event)
            .collect()
    }
}

fn conditions(type_: Option<&str>) -> Vec<Value> {
    type_
        .into_iter()
        .map(|type_| json!({"type": type_, "status": "True"}))
        .collect()
}

use Presence::{Gone, There};

/// Spec: safety 1 I1.
#[test]
fn two_unsuspended_jobs_of_one_workload_are_a_doubt_until_they_are_read() {
    let mut seen = Watched::new();
    seen.job(0, "a", false, None, There);
    seen.job(1, "b", true, None, There);
    assert_eq!(seen.ledger.doubts(), []);
    seen.job(1, "b", false, None, There);
    let run = Run {
        namespace: "ns".to_owned(),
        workload: "wl".to_owned(),
    };
    assert_eq!(seen.ledger.doubts(), std::slice::from_ref(&run));
    assert_eq!(seen.broken(), [""; 0]);
    seen.ledger
        .convict_overlap(&run, &["east".to_owned(), "west".to_owned()]);
    assert_eq!(seen.broken(), ["I1"]);
    assert_eq!(seen.ledger.duplicate_runs(), 1);
    assert_eq!(seen.ledger.doubts(), []);
}

/// Spec: safety 1 I1.
#[test]
fn a_pod_that_outlives_its_job_counts_as_a_run() {
    let mut seen = Watched::new();
    seen.pod(0, "a", "Running", There);
    seen.job(0, "a", false, None, There);
    seen.job(0, "a", false, None, Gone);
    seen.job(1, "b", false, None, There);
    assert_eq!(seen.ledger.doubts().len(), 1);
    let mut ended = Watched::new();
    ended.job(0, "a", false, None, There);
    ended.pod(0, "a", "Running", There);
    ended.job(0, "a", false, None, Gone);
    ended.pod(0, "a", "Succeeded", There);
    ended.job(1, "b", false, None, There);
    assert_eq!(ended.ledger.doubts(), []);
}

/// Spec: jobs 9.7.
#[test]
fn each_kind_shows_its_end_in_its_own_place() {
    let end = |status: Value| {
        let job = from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap();
        job_outcome(&job)
    };
    for (shown, outcome) in [("Succeeded", Outcome::Succeeded), ("Failed", Outcome::Failed)] {
        let condition = json!({"type": shown, "status": "True"});
        assert_eq!(end(json!({"conditions": [condition]})), Some(outcome));
        assert_eq!(end(json!({"phase": shown})), Some(outcome));
    }
    assert_eq!(
        end(json!({"jobDeploymentStatus": "Complete"})),
        Some(Outcome::Succeeded)
    );
    assert_eq!(
        end(json!({"jobDeploymentStatus": "Failed"})),
        Some(Outcome::Failed)
    );
    assert_eq!(
        end(json!({"jobDeploymentStatus": "Running", "phase": "Running"})),
        None
    );
}

/// Spec: safety 1 I11.
#[test]
fn a_workload_completes_once() {
    let mut seen = Watched::new();
    seen.job(0, "a", false, Some("Failed"), There);
    seen.job(0, "b", false, Some("Complete"), There);
    assert_eq!(seen.broken(), [""; 0], "a failed run may be followed by another");
    seen.job(1, "c", false, Some("Complete"), There);
    assert_eq!(seen.broken(), ["I11"]);
    assert_eq!(seen.ledger.duplicate_runs(), 1);
}

/// Spec: safety 1 I11.
#[test]
fn a_workload_becomes_finished_once() {
    let mut seen = Watched::new();
    seen.workload("u", None);
    seen.workload("u", Some("2026-01-01T00:00:00Z"));
    seen.workload("u", Some("2026-01-01T00:00:00Z"));
    seen.workload("other", Some("2026-01-01T00:00:01Z"));
    assert_eq!(seen.broken(), [""; 0]);
    seen.workload("u", Some("2026-01-01T00:00:05Z"));
    assert_eq!(seen.broken(), ["I11"]);
}

/// Spec: safety 1 I6.
#[test]
fn what_has_ended_stays_ended() {
    let mut seen = Watched::new();
    seen.job(0, "a", false, Some("Complete"), There);
    seen.job(0, "a", false, Some("Complete"), Gone);
    seen.job(0, "b", false, None, There);
    assert_eq!(seen.broken(), [""; 0], "a successor is another object");
    seen.job(0, "b", false, Some("Failed"), There);
    seen.job(0, "b", false, None, There);
    assert_eq!(seen.broken(), ["I6"]);
    seen.workload("u", Some("2026-01-01T00:00:00Z"));
    seen.workload("u", None);
    assert_eq!(seen.broken(), ["I6", "I6"]);
}

#[test]
fn each_step_is_told_once() {
    let mut seen = Watched::new();
    seen.job(0, "a", true, None, There);
    seen.job(0, "a", false, None, There);
    seen.job(0, "a", false, None, There);
    seen.job(0, "a", false, Some("Complete"), There);
    seen.job(0, "a", false, Some("Complete"), Gone);
    assert_eq!(
        seen.told(),
        [
            Event::Started("east".to_owned()),
            Event::Ended("east".to_owned(), Outcome::Succeeded),
        ]
    );
    assert_eq!(seen.ledger.started("ns", "j").unwrap().1, "east");
}

#[test]
fn jobs_of_nobody_are_no_runs() {
    let mut seen = Watched::new();
    for worker in 0..2 {
        let job = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "x"}, "spec": {"template": {}}});
        seen.ledger.job(
            seen.sight(Place::Worker(worker)),
            &from_value(job).unwrap(),
            There,
        );
    }
    assert_eq!(seen.ledger.doubts(), []);
    assert_eq!(seen.told(), []);
}

/// Spec: safety 1 I6; appwrapper 2.3.
#[test]
fn a_wrapper_that_goes_need_not_say_how_it_ended() {
    let mut seen = Watched::new();
    let mut wrapper = |phase: &str, going: bool| {
        let object = json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {
                "name": "j", "namespace": "ns", "uid": "a",
                "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"},
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "wl"},
                "deletionTimestamp": going.then_some("2026-01-01T00:00:00Z"),
            },
            "spec": {"suspend": false}, "status": {"phase": phase},
        });
        let sight = seen.sight(Place::Worker(0));
        seen.ledger.job(sight, &from_value(object).unwrap(), There);
    };
    wrapper("Running", false);
    wrapper("Succeeded", false);
    wrapper("Terminating", true);
    assert_eq!(seen.broken(), [""; 0]);
    let ended = Event::Ended("east".to_owned(), Outcome::Succeeded);
    assert_eq!(seen.told(), [Event::Started("east".to_owned()), ended]);
}

/// Spec: safety 1 I1.
#[test]
fn a_pod_of_a_job_that_a_job_made_counts_for_the_one_at_the_top() {
    let mut seen = Watched::new();
    seen.job(0, "a", false, None, There);
    let child = json!({
        "metadata": {"name": "j-0", "namespace": "ns", "uid": "child", "ownerReferences": [
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "a", "controller": true},
        ]},
        "spec": {"suspend": false},
    });
    let sight = seen.sight(Place::Worker(0));
    seen.ledger.job(sight, &from_value(child).unwrap(), There);
    seen.pod(0, "child", "Running", There);
    seen.job(0, "a", false, None, Gone);
    seen.job(1, "b", false, None, There);
    assert_eq!(seen.ledger.doubts().len(), 1);
}

/// Spec: safety 1 I1, I11; jobs 12.7.
#[test]
fn the_pods_of_a_group_are_one_job_that_runs_and_ends_once() {
    let mut seen = Watched::new();
    let mut pod = |worker: usize, name: &str, gated: bool, phase: &str, presence| {
        let gates = if gated {
            json!([{"name": "kueue.x-k8s.io/admission"}])
        } else {
            json!([])
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("{worker}-{name}"),
                "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue", "kueue.x-k8s.io/pod-group-name": "g"},
                "annotations": {
                    "kueue.x-k8s.io/prebuilt-workload-name": "g", "kueue.x-k8s.io/pod-group-total-count": "2",
                },
            },
            "spec": {"schedulingGates": gates}, "status": {"phase": phase},
        });
        let sight = seen.sight(Place::Worker(worker));
        seen.ledger.job(sight, &from_value(object).unwrap(), presence);
    };
    for name in ["a", "b"] {
        pod(0, name, true, "Pending", There);
        pod(0, name, false, "Running", There);
    }
    pod(0, "a", false, "Succeeded", There);
    pod(0, "a", false, "Succeeded", Gone);
    pod(0, "b", false, "Succeeded", There);
    let east = || "east".to_owned();
    assert_eq!(
        seen.told(),
        [Event::Started(east()), Event::Ended(east(), Outcome::Succeeded)]
    );
    assert_eq!(seen.broken(), [""; 0]);
    assert_eq!(seen.ledger.pods_of_group("ns", "g"), [(east(), 2)].into());
}
