//! The rules that all kinds share, and what no kind may do with a malformed object: one valid job of each kind, changed in one place.

use jiff::Timestamp;
use roadstead_api::config::FeatureGates;
use roadstead_kinds::{Ability, TABLE, rows};
use serde_json::{Value, json};

use crate::equivalence::{Tolerations, same_pod_sets};
use crate::fixture::{
    CLASS, GATES, IDENTITY, MAX, PREBUILT, QUEUE, Tested, WHY, apply, both, changed, one, outcome,
};
use crate::kind::{DefaultFacts, Namespace, Owner, Presence, Remote};
use crate::podset::PodSetInfo;
use crate::trainjob::TrainJob;
use crate::webhook::{default_job, validate_create, validate_update};
use crate::{JobKind, JobPodSet, kind_of};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

/// A kind, a spec of a job with no optional fields, and the path of the number of pods of its first pod set.
struct Sample {
    kind: &'static dyn JobKind,
    spec: Value,
    replicas: String,
}

fn samples() -> Vec<Sample> {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let replica = json!({"replicas": 1, "template": template});
    let head = json!({"template": template});
    let groups = json!([{"groupName": "small", "replicas": 1, "template": template}]);
    let cluster = json!({"headGroupSpec": head, "workerGroupSpecs": groups});
    let spark = json!({"type": "Scala", "image": "none", "driver": {"cores": 1}, "executor": {"cores": 1, "instances": 1}});
    let of = |row: &'static roadstead_kinds::Kind, spec: Value, replicas: &str| Sample {
        kind: kind_of(row.group, row.kind).unwrap(),
        spec,
        replicas: replicas.to_owned(),
    };
    let workers = |row: &'static roadstead_kinds::Kind, map: &str| {
        let spec = json!({map: {"Worker": replica}, "runPolicy": {}});
        of(row, spec, &format!("/spec/{map}/Worker/replicas"))
    };
    vec![
        of(
            &rows::JOB,
            json!({"parallelism": 1, "template": template}),
            "/spec/parallelism",
        ),
        of(
            &rows::JOB_SET,
            json!({"replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": {"template": template}}}]}),
            "/spec/replicatedJobs/0/replicas",
        ),
        workers(&rows::MPI_JOB, "mpiReplicaSpecs"),
        workers(&rows::TF_JOB, "tfReplicaSpecs"),
        workers(&rows::PYTORCH_JOB, "pytorchReplicaSpecs"),
        workers(&rows::PADDLE_JOB, "paddleReplicaSpecs"),
        workers(&rows::XGBOOST_JOB, "xgbReplicaSpecs"),
        workers(&rows::JAX_JOB, "jaxReplicaSpecs"),
        of(
            &rows::RAY_JOB,
            json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": cluster}),
            "/spec/rayClusterSpec/workerGroupSpecs/0/replicas",
        ),
        of(
            &rows::RAY_CLUSTER,
            cluster.clone(),
            "/spec/workerGroupSpecs/0/replicas",
        ),
        of(
            &rows::RAY_SERVICE,
            json!({"rayClusterConfig": cluster}),
            "/spec/rayClusterConfig/workerGroupSpecs/0/replicas",
        ),
        of(&rows::SPARK_APPLICATION, spark, "/spec/executor/instances"),
    ]
}

/// All samples and a `TrainJob`: the common rules hold for it, but its pods are described elsewhere.
fn ruled() -> Vec<Sample> {
    let train_job = Sample {
        kind: &TrainJob,
        spec: json!({"runtimeRef": {"name": "torch"}}),
        replicas: String::new(),
    };
    samples().into_iter().chain([train_job]).collect()
}

#[test]
fn each_kind_is_among_these_or_has_tests_of_its_own() {
    let apart = [
        &rows::APP_WRAPPER,
        &rows::POD,
        &rows::DEPLOYMENT,
        &rows::STATEFUL_SET,
        &rows::LEADER_WORKER_SET,
        &rows::WORKFLOW,
    ];
    for row in TABLE.iter() {
        let is_here = ruled().iter().any(|sample| sample.kind.kind() == row);
        assert_ne!(is_here, apart.contains(&row), "{row}");
    }
}

impl Sample {
    fn name(&self) -> &'static str {
        self.kind.kind().kind
    }

    #[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
    fn with(&self, labels: Value, annotations: Value) -> Value {
        json!({"metadata": {"name": "train", "namespace": "lab", "labels": labels, "annotations": annotations}, "spec": self.spec})
    }

    fn job(&self) -> Value {
        self.with(json!({QUEUE: "q"}), json!({}))
    }

    fn held(&self, job: &Value) -> Value {
        changed(job, |job| self.kind.suspend(job))
    }

    fn on_create(&self, job: &Value) -> Vec<String> {
        let problems = one(job, |job| {
            validate_create(self.kind, job.first(), &FeatureGates::default())
        });
        problems.iter().map(ToString::to_string).collect()
    }

    fn on_update(&self, old: &Value, new: &Value, default_queue: Presence) -> Vec<String> {
        let problems = both(old, new, |old, new| {
            validate_update(
                self.kind,
                old.first(),
                new.first(),
                default_queue,
                &FeatureGates::default(),
            )
        });
        problems.iter().map(ToString::to_string).collect()
    }
}

/// Spec: jobs 7.3, 15.39, 15.58, 15.59
#[test]
fn each_rule_for_new_jobs_refuses_one_and_accepts_one_of_each_kind() {
    let label = |key: &str, value: &str| (json!({key: value}), json!({}));
    let annotation = |key: &str, value: &str| (json!({}), json!({key: value}));
    for sample in ruled() {
        let said =
            |(labels, annotations): (Value, Value)| sample.on_create(&sample.with(labels, annotations));
        let subdomain = "must be a DNS-1123 subdomain";
        for (refused, accepted, text) in [
            (label(QUEUE, "Q_"), label(QUEUE, "q.a"), subdomain),
            (label(PREBUILT, "W_"), label(PREBUILT, "w"), subdomain),
            (annotation(PREBUILT, "W_"), annotation(PREBUILT, "w"), subdomain),
            (label(MAX, "abc"), label(MAX, "60"), "must be a 32-bit integer"),
            (label(MAX, "0"), label(MAX, "1"), "should be greater than 0"),
            (
                annotation(GATES, "x.io/a,x.io/a"),
                annotation(GATES, "x.io/a,x.io/b"),
                "Duplicate value",
            ),
        ] {
            let [only] = said(refused.clone()).try_into().unwrap();
            assert!(only.contains(text), "{}: {only}", sample.name());
            assert_eq!(said(accepted), [""; 0], "{}", sample.name());
        }
        let elastic = said(annotation(ELASTIC, "true"));
        let row = sample.kind.kind();
        let text = format!(
            "metadata.annotations[{ELASTIC}]: Forbidden: elastic job is not supported for \"{}, Kind={}\"",
            row.api_version(),
            row.kind
        );
        let expected: Vec<String> = (!row.can(Ability::Elastic)).then_some(text).into_iter().collect();
        assert_eq!(elastic, expected);
    }
}

/// Spec: jobs 7.4, 15.55 to 15.57
#[test]
fn each_rule_for_changes_refuses_one_and_accepts_one_of_each_kind() {
    let no = Presence::Absent;
    for sample in ruled() {
        let job = |labels: Value| sample.with(labels, json!({}));
        let noted = |annotations: Value| sample.held(&sample.with(json!({QUEUE: "q"}), annotations));
        let held = |labels: Value| sample.held(&job(labels));
        let check = |old: &Value, new: &Value, default_queue, expected: &[&str]| {
            let said = sample.on_update(old, new, default_queue);
            let tails: Vec<&str> = said
                .iter()
                .filter_map(|text| text.split(": Invalid value: ").nth(1))
                .collect();
            assert_eq!(tails, expected, "{}: {said:?}", sample.name());
        };
        let (a, b) = (json!({QUEUE: "a"}), json!({QUEUE: "b"}));
        check(&job(a.clone()), &job(b.clone()), no, &["field is immutable"]);
        check(&job(a.clone()), &held(b), no, &[]);
        let text = "queue-name must not be empty in namespace with default queue";
        check(&held(a.clone()), &held(json!({})), Presence::Present, &[text]);
        check(&held(a), &held(json!({})), no, &[]);

        for key in [PREBUILT, MAX] {
            let [one, two] = ["1", "2"].map(|value| json!({QUEUE: "q", key: value}));
            check(&job(one.clone()), &job(two.clone()), no, &["field is immutable"]);
            check(&held(one), &held(two), no, &[]);
        }
        let class = |name: &str| json!({QUEUE: "q", CLASS: name});
        let none = json!({QUEUE: "q"});
        let added = "WorkloadPriorityClass cannot be added to a non-suspended workload";
        check(&job(none.clone()), &job(class("x")), no, &[added]);
        check(&held(none.clone()), &held(class("x")), no, &[]);
        check(&job(class("x")), &job(class("y")), no, &[]);
        let removed = "WorkloadPriorityClass cannot be removed from a workload";
        check(&held(class("x")), &held(none), no, &[removed]);

        check(
            &noted(json!({})),
            &noted(json!({ELASTIC: "false"})),
            no,
            &["field is immutable"],
        );
        let grown = sample.on_update(&noted(json!({})), &noted(json!({GATES: "x.io/a"})), no);
        assert!(
            grown
                .concat()
                .contains("cannot add admission gate after creation"),
            "{grown:?}"
        );
        let more = [json!({GATES: "x.io/a"}), json!({GATES: "x.io/b"})].map(noted);
        let more = sample.on_update(&more[0], &more[1], no);
        assert!(
            more.concat().contains("can only remove gates, not add new ones"),
            "{more:?}"
        );
        check(
            &noted(json!({GATES: "x.io/a,x.io/b"})),
            &noted(json!({GATES: "x.io/b"})),
            no,
            &[],
        );
    }
}

/// Spec: jobs 7.2, 15.51, 15.53, 15.54
#[test]
fn each_kind_is_held_and_marked_where_its_controller_reads_it() {
    let federated = |queue: &str| queue == "fed";
    let facts = DefaultFacts {
        default_queue: Presence::Absent,
        default_priority_class: Presence::Absent,
        owner: Owner::Unmanaged,
        namespace: Namespace::Inside,
        uses_multikueue: &federated,
        mark: None,
    };
    for sample in ruled() {
        let defaulted = |queue: &str, managed_by: Option<&str>| {
            let mut job = sample.with(json!({QUEUE: queue}), json!({}));
            if let (Some(field), Some(value)) = (sample.kind.kind().managed_by, managed_by) {
                crate::json::set(&mut job, field.path, json!(value));
            }
            let job = changed(&job, |job| default_job(sample.kind, job, &facts));
            assert!(Tested(sample.kind).look(&job).suspended, "{}", sample.name());
            Tested(sample.kind).manager_of(&job)
        };
        let ours = Some("kueue.x-k8s.io/multikueue".to_owned());
        let Some(own) = sample.kind.kind().managed_by.map(|field| field.default) else {
            assert_eq!(defaulted("fed", None), None, "it is only held");
            continue;
        };
        assert_eq!(defaulted("local", None), None);
        assert_eq!(defaulted("fed", None), ours);
        assert_eq!(defaulted("fed", Some(own)), ours);
        assert_eq!(
            defaulted("fed", Some("else.example/x")).as_deref(),
            Some("else.example/x")
        );
    }
}

/// The controller in this cluster would begin to run a job that runs on a worker, or let go of a job that runs here.
///
/// Spec: safety 1 I1
#[test]
fn who_runs_a_job_does_not_change_while_it_runs_nor_once_a_manager_has_it() {
    let ours = "kueue.x-k8s.io/multikueue";
    let samples = ruled().into_iter();
    for (sample, field) in
        samples.filter_map(|sample| { sample.kind.kind().managed_by }.map(|by| (sample, by)))
    {
        let managed = |job: Value, by: Option<&str>| {
            let mut job = job;
            if let Some(by) = by {
                crate::json::set(&mut job, field.path, json!(by));
            }
            job
        };
        let said = |old: &Value, new: &Value| sample.on_update(old, new, Presence::Absent);
        let (running, held) = (sample.job(), sample.held(&sample.job()));
        let refused = [format!(
            "{}: Invalid value: field is immutable",
            field.path.join(".")
        )];
        let of_manager = managed(held.clone(), Some(ours));
        assert_eq!(said(&of_manager, &held), refused);
        assert_eq!(
            said(&of_manager, &managed(held.clone(), Some(field.default))),
            refused
        );
        assert_eq!(said(&running, &managed(running.clone(), Some(ours))), refused);
        assert_eq!(said(&held, &of_manager), [""; 0]);
        assert_eq!(said(&of_manager, &managed(running.clone(), Some(ours))), [""; 0]);
        assert_eq!(
            said(&running, &managed(running.clone(), Some(field.default))),
            [""; 0]
        );
    }
}

/// Spec: jobs 5.6
#[test]
fn a_missing_template_is_named_and_zero_replicas_are_no_fault() {
    for sample in samples() {
        let kind = Tested(sample.kind);
        let [field] = kind
            .template_paths(&sample.job())
            .into_iter()
            .take(1)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        let mut without = sample.job();
        // Why not Spark: its operator makes the templates, so none can be missing.
        let has_templates = sample.kind.kind() != &rows::SPARK_APPLICATION;
        if has_templates {
            *without.pointer_mut(&pointer).unwrap() = Value::Null;
        }
        if sample.kind.kind() != &rows::JOB && has_templates {
            let said = kind.pod_sets(&without).unwrap_err().to_string();
            assert!(
                said.contains(&field) && said.ends_with("expected a pod template"),
                "{said}"
            );
        }
        let mut none = sample.job();
        *none.pointer_mut(&sample.replicas).unwrap() = json!(0);
        let sets = kind.pod_sets(&none).unwrap();
        let counts: Vec<u32> = sets.iter().map(|set| set.count).collect();
        assert!(counts.contains(&0), "{}: {counts:?}", sample.name());
        *none.pointer_mut(&sample.replicas).unwrap() = json!(-1);
        let said = kind.pod_sets(&none).map_err(|error| error.to_string());
        assert!(
            said.is_err() || sample.kind.kind() == &rows::JOB,
            "{}: {said:?}",
            sample.name()
        );
    }
}

/// Fields of a later version of an API stay in the job and its copies.
#[test]
fn unknown_fields_stay_in_the_job_and_in_its_copies() {
    for sample in samples() {
        let kind = Tested(sample.kind);
        let mut job = sample.held(&sample.job());
        job["spec"]["later"] = json!({"kept": [1]});
        let original = kind.pod_sets(&job).unwrap();
        let infos: Vec<PodSetInfo> = original
            .iter()
            .map(|set| PodSetInfo {
                name: set.name.clone(),
                ..PodSetInfo::default()
            })
            .collect();
        let patch = kind.start(&job, &infos).unwrap();
        assert_eq!(
            patch["spec"].get("later"),
            None,
            "{}: it is not touched",
            sample.name()
        );
        assert_eq!(
            kind.copy(&job, &IDENTITY, &original)["spec"]["later"],
            job["spec"]["later"]
        );
    }
}

/// Spec: jobs 5.5, 15.18
#[test]
fn a_template_that_is_edited_while_its_job_is_held_does_not_match_its_workload_any_more() {
    for sample in samples() {
        let kind = Tested(sample.kind);
        let held = sample.held(&sample.job());
        let before = kind.pod_sets(&held).unwrap();
        let edited = held.to_string().replace("\"none\"", "\"other\"");
        let edited = serde_json::from_str(&edited).unwrap();
        let after = kind.pod_sets(&edited).unwrap();
        let same = |sets: &[JobPodSet]| same_pod_sets(&before, sets, Tolerations::Compare);
        assert!(same(&before) && !same(&after), "{}", sample.name());
        assert_eq!(
            sample.on_update(&held, &edited, Presence::Absent),
            [""; 0],
            "{}",
            sample.name()
        );
    }
}

/// A job of the largest size that an API server accepts.
#[test]
fn a_huge_job_is_started_stopped_and_copied_as_any_other() {
    let huge = "x".repeat(1_400_000);
    for sample in samples() {
        let kind = Tested(sample.kind);
        let mut job = sample.held(&sample.job());
        job["spec"]["later"] = json!(huge);
        let original = kind.pod_sets(&job).unwrap();
        let info = |set: &JobPodSet| PodSetInfo {
            name: set.name.clone(),
            node_selector: [("tier".to_owned(), "gpu".to_owned())].into(),
            ..PodSetInfo::default()
        };
        let infos: Vec<PodSetInfo> = original.iter().map(info).collect();
        let patch = kind.start(&job, &infos).unwrap();
        assert!(
            patch.to_string().len() < 10_000,
            "{}: only what changes is sent",
            sample.name()
        );
        let running = apply(&job, &patch);
        assert!(!kind.look(&running).suspended, "{}", sample.name());
        let writes = one(&running, |job| sample.kind.stop(job, &original, &WHY));
        assert!(!writes.is_empty(), "{}", sample.name());
        assert_eq!(
            kind.copy(&running, &IDENTITY, &original)["spec"]["later"],
            job["spec"]["later"]
        );
        assert_eq!(sample.on_create(&job), [""; 0], "{}", sample.name());
    }
}

/// Every value in a job, and in a usual status, is replaced by nonsense, one at a time.
#[test]
fn nonsense_anywhere_in_a_job_is_no_panic_and_no_end() {
    let nonsense = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!("x"),
        json!([]),
        json!({}),
        json!([null, 3]),
    ];
    for sample in samples() {
        let mut job = sample.job();
        job["status"] = json!({
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "active": 1, "succeeded": 0, "completedIndexes": "0-1", "state": "x", "jobDeploymentStatus": "Running",
            "replicaStatuses": {"Worker": {"active": 1}}, "replicatedJobsStatus": [{"name": "a", "active": 1, "succeeded": 0}],
        });
        for pointer in pointers(&job, "") {
            for value in &nonsense {
                let mut bad = job.clone();
                *bad.pointer_mut(&pointer).unwrap() = value.clone();
                survives(&sample, &job, &bad);
            }
        }
    }
}

/// The pointers of all values of an object below its metadata.
fn pointers(value: &Value, at: &str) -> Vec<String> {
    let below: Vec<String> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (format!("{at}/{}", key.replace('/', "~1")), value))
            .collect::<Vec<_>>(),
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .map(|(index, value)| (format!("{at}/{index}"), value))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
    .into_iter()
    .filter(|(pointer, _)| pointer != "/metadata")
    .flat_map(|(pointer, value)| [vec![pointer.clone()], pointers(value, &pointer)].concat())
    .collect();
    below
}

fn survives(sample: &Sample, good: &Value, bad: &Value) {
    let kind = Tested(sample.kind);
    let outcome = outcome(true, "");
    let original = kind.pod_sets(good).unwrap();
    let look = kind.look(bad);
    assert_eq!(look.ended, None, "{}: {bad}", sample.name());
    let infos: Vec<PodSetInfo> = original.iter().map(|_| PodSetInfo::default()).collect();
    let _ = kind.pod_sets(bad);
    let _ = kind.start(bad, &infos);
    one(bad, |job| sample.kind.stop(job, &original, &WHY));
    kind.copy(bad, &IDENTITY, &original);
    for (local, remote) in [(good, bad), (bad, good)] {
        both(local, remote, |local, remote| {
            sample
                .kind
                .mirror(local, Remote::Copies(remote), Timestamp::UNIX_EPOCH);
            sample.kind.mirror(local, Remote::AtRest, Timestamp::UNIX_EPOCH);
            sample
                .kind
                .mirror(local, Remote::Ended(&outcome), Timestamp::UNIX_EPOCH);
        });
        sample.on_update(local, remote, Presence::Present);
    }
    sample.on_create(bad);
    kind.slimmed(bad);
    kind.defaulted(bad);
    kind.template_paths(bad);
    kind.priority_class(bad);
    one(bad, |job| sample.kind.needs(job));
    changed(bad, |job| {
        sample.kind.suspend(job);
        sample.kind.outlast_its_end(job);
    });
}
