//! The clusters and the jobs of the demo.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use roadstead_api::constants::annotations::POD_GROUP_TOTAL_COUNT;
use roadstead_api::constants::labels::{POD_GROUP_NAME, PRIORITY_CLASS, QUEUE_NAME};
use serde_json::{Value, json};

use crate::options::{Kind, Node, Options, PLAYED_JOBSETS, PLAYED_PYTORCHJOBS, PLAYED_RAYJOBS, RUN_SECONDS};
use crate::stage::{Queue, Spec, Worker};

pub(super) const MANAGER: &str = "manager";
pub(super) const EAST: &str = "east";
pub(super) const WEST: &str = "west";
/// The tenants, each with a namespace.
pub(super) const TENANTS: [&str; 3] = ["team-a", "team-b", "team-c"];

/// The queue of most jobs.
const MAIN: &str = "main";
/// The queue whose jobs start only where nodes have room.
const CHECKED: &str = "checked";
const GPU: &str = "nvidia.com/gpu";
/// How long an `AppWrapper` waits between two attempts.
const RETRY_PAUSE: &str = "workload.codeflare.dev.appwrapper/retryPausePeriodDuration";
const HIGH: &str = "high";
const LOW: &str = "low";

/// The number of jobs with a special part: one never fits, one needs a node that only one worker has, one lives through the
/// accident, one leaves a sick node, one is a group of pods.
pub(super) const NAMED_JOBS: usize = 5;

/// The expected course of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It runs in some worker.
    Runs,
    /// It is larger than every worker.
    NeverFits,
    /// Both workers have quota for it, but only this one has the node.
    OnlyIn(&'static str),
    /// It runs in west when the link is cut.
    LivesThroughAccident,
    /// It runs in west when its node is marked, and moves.
    Evacuated,
    /// All its pods run in the same worker.
    Together,
}

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// A Job.
    Job,
    /// A JobSet of one leader, and a worker for each further pod.
    JobSet,
    /// A `PyTorchJob` of one master, and a worker for each further pod.
    PyTorchJob,
    /// A `RayJob` of one head. With more pods they are a head, a submitter, and a worker for each further one.
    RayJob,
    /// An `AppWrapper` around two Jobs.
    AppWrapper,
    /// Plain pods that name the same group.
    PodGroup,
}

impl Shape {
    /// All kinds.
    pub(super) const ALL: [Self; 6] = [
        Self::Job,
        Self::JobSet,
        Self::PyTorchJob,
        Self::RayJob,
        Self::AppWrapper,
        Self::PodGroup,
    ];

    /// The kinds of ordinary jobs, in a repeating order.
    const MIX: [Self; 8] = [
        Self::Job,
        Self::JobSet,
        Self::Job,
        Self::PyTorchJob,
        Self::AppWrapper,
        Self::RayJob,
        Self::Job,
        Self::Job,
    ];

    /// The kinds whose controllers run in the clusters. Why not all beside real API servers: each further controller would have
    /// to be built from its sources first.
    pub(super) fn shown(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Embedded => &Self::ALL,
            Kind::Real => &[Self::Job, Self::PodGroup],
        }
    }

    /// Its API resource.
    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Job => ("batch", "v1", "Job"),
            Self::JobSet => ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
            Self::PyTorchJob => ("kubeflow.org", "v1", "PyTorchJob"),
            Self::RayJob => ("ray.io", "v1", "RayJob"),
            Self::AppWrapper => ("workload.codeflare.dev", "v1beta2", "AppWrapper"),
            Self::PodGroup => ("", "v1", "Pod"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// Its integration.
    const fn framework(self) -> &'static str {
        match self {
            Self::Job => "batch/job",
            Self::JobSet => "jobset.x-k8s.io/jobset",
            Self::PyTorchJob => "kubeflow.org/pytorchjob",
            Self::RayJob => "ray.io/rayjob",
            Self::AppWrapper => "workload.codeflare.dev/appwrapper",
            Self::PodGroup => "pod",
        }
    }

    /// The spec of a job with `pods` pods of this template; for a group the spec of each pod.
    fn spec(self, name: &str, pods: i32, template: &Value) -> Value {
        let job = |pods: i32| json!({"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template});
        // Why suspended although the webhook suspends it: without the webhook the job must not start on the manager.
        match self {
            Self::Job => {
                let mut spec = job(pods);
                spec["suspend"] = true.into();
                spec
            }
            Self::JobSet => {
                let part = |name: &str, replicas: i32| json!({"name": name, "replicas": replicas, "template": {"spec": job(1)}});
                let workers = (pods > 1).then(|| part("worker", pods - 1));
                let parts: Vec<Value> = std::iter::once(part("leader", 1)).chain(workers).collect();
                json!({"suspend": true, "replicatedJobs": parts})
            }
            Self::PyTorchJob => {
                let role = |replicas: i32| json!({"replicas": replicas, "template": template});
                let mut roles = json!({"Master": role(1)});
                if pods > 1 {
                    roles["Worker"] = role(pods - 1);
                }
                json!({"runPolicy": {"suspend": true}, "pytorchReplicaSpecs": roles})
            }
            Self::RayJob => {
                let mut lasts = json!({"spec": template["spec"]});
                lasts["spec"]["restartPolicy"] = "Always".into();
                let (mode, head) = if pods > 1 {
                    ("K8sJobMode", &lasts)
                } else {
                    ("HTTPMode", template)
                };
                let group = json!({"groupName": "worker", "replicas": pods - 2, "template": lasts});
                let groups: Vec<Value> = (pods > 2).then_some(group).into_iter().collect();
                let mut spec = json!({
                    "suspend": true, "shutdownAfterJobFinishes": true, "submissionMode": mode,
                    "rayClusterSpec": {"headGroupSpec": {"template": head}, "workerGroupSpecs": groups},
                });
                if pods > 1 {
                    spec["submitterPodTemplate"] = template.clone();
                }
                spec
            }
            Self::AppWrapper => {
                let child = |part: &str, pods: i32| {
                    let metadata = json!({"name": format!("{name}-{part}")});
                    json!({"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job(pods)}})
                };
                json!({"suspend": true, "components": [child("prepare", 1), child("work", pods)]})
            }
            Self::PodGroup => template["spec"].clone(),
        }
    }
}

/// A job to submit.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) shape: Shape,
    pub(super) namespace: &'static str,
    pub(super) name: String,
    pub(super) part: Part,
    /// One object, or the pods of a group.
    pub(super) objects: Vec<Value>,
}

/// One manager; east with 8 CPU, west with 4 CPU and 2 GPU.
///
/// The quota of `checked` in east includes a GPU that no node has: by quota alone a job would wait there forever.
pub(super) fn clusters(kind: Kind) -> Spec {
    let shapes = Shape::shown(kind);
    let with_controllers = |mut options: Options| {
        for (shape, controller) in [
            (Shape::JobSet, PLAYED_JOBSETS),
            (Shape::PyTorchJob, PLAYED_PYTORCHJOBS),
            (Shape::RayJob, PLAYED_RAYJOBS),
        ] {
            if shapes.contains(&shape) {
                options.controllers.push(controller.to_owned());
            }
        }
        options
    };
    let manager = Options {
        // Why none: jobs run in workers, and with a scheduler the management cluster could run one by mistake.
        scheduler: false,
        kwok: false,
        ..with_controllers(Options::complete(MANAGER).of_kind(kind))
    };
    let worker = |name| with_controllers(Options::complete(name).of_kind(kind));
    let east = worker(EAST).with_node(Node::new("east-1", "8", "32Gi"));
    let west = worker(WEST)
        .with_node(Node::new("west-1", "2", "16Gi").with_resource(GPU, "1"))
        .with_node(Node::new("west-2", "2", "16Gi").with_resource(GPU, "1"));
    let mut spec = Spec::new(manager, vec![Worker::new(east), Worker::new(west)])
        .with_queue(
            Queue::new(MAIN)
                .with_quota(MANAGER, &[("cpu", "10"), ("memory", "40Gi"), (GPU, "1")])
                .with_quota(EAST, &[("cpu", "7"), ("memory", "28Gi")])
                .with_quota(WEST, &[("cpu", "3"), ("memory", "12Gi"), (GPU, "1")]),
        )
        .with_queue(
            Queue::new(CHECKED)
                .with_quota(MANAGER, &[("cpu", "2"), ("memory", "8Gi"), (GPU, "2")])
                .with_quota(EAST, &[("cpu", "1"), ("memory", "4Gi"), (GPU, "1")])
                .with_quota(WEST, &[("cpu", "1"), ("memory", "4Gi"), (GPU, "1")])
                .asking_capacity(),
        )
        .with_priority(HIGH, 1000)
        .with_priority(LOW, 10);
    let frameworks: Vec<&str> = shapes.iter().map(|shape| shape.framework()).collect();
    spec.configuration = json!({"integrations": {"frameworks": frameworks}});
    if shapes.contains(&Shape::AppWrapper) {
        spec.configuration["roadstead"] =
            json!({"appwrapper": {"allowedKinds": ["Job.v1.batch"], "autopilot": {}}});
    }
    TENANTS.into_iter().fold(spec, Spec::with_namespace)
}

/// `count` jobs (at least [`NAMED_JOBS`]) in the order in which they are submitted, of the kinds that these clusters run.
pub(super) fn jobs(count: usize, kind: Kind) -> Vec<Planned> {
    let shapes = Shape::shown(kind);
    let evacuated = shapes.contains(&Shape::AppWrapper).then(evacuated);
    let ordinary = { count.saturating_sub(NAMED_JOBS) }.saturating_add(usize::from(evacuated.is_none()));
    let shape = |index: usize| Shape::MIX[index % Shape::MIX.len()];
    let shown = |index: usize| Some(shape(index)).filter(|shape| shapes.contains(shape));
    let ordinary = (0..ordinary).map(|index| ordinary_job(index, shown(index).unwrap_or(Shape::Job)));
    let mut jobs: Vec<Planned> = ordinary.collect();
    // Why early: the accident waits for this job, and the job that never fits has time to show its reason.
    jobs.insert(
        jobs.len().min(2),
        gpu_job("gpu-survivor", MAIN, 8.0, Part::LivesThroughAccident),
    );
    if let Some(evacuated) = evacuated {
        jobs.insert(jobs.len().min(3), evacuated);
    }
    jobs.insert(jobs.len().min(4), together());
    jobs.insert(
        jobs.len().min(6),
        gpu_job("gpu-real-node", CHECKED, 3.0, Part::OnlyIn(WEST)),
    );
    jobs.insert(jobs.len().min(9), never_fitting());
    jobs
}

/// Sizes, times, priorities and tenants in a fixed mix.
fn ordinary_job(index: usize, shape: Shape) -> Planned {
    let cpu = ["500m", "1", "1", "2", "500m"][index % 5];
    let pods = [1, 1, 2, 1, 3, 1, 2][index % 7];
    let seconds = [1.0, 2.5, 1.5, 4.0, 2.0, 3.0][index % 6];
    let (kind, priority) = if index.is_multiple_of(4) {
        ("train", HIGH)
    } else {
        ("batch", LOW)
    };
    planned(Wanted {
        shape,
        tenant: TENANTS[index % TENANTS.len()],
        name: format!("{kind}-{index:02}"),
        queue: MAIN,
        priority,
        pods,
        seconds,
        requests: json!({"cpu": cpu, "memory": "256Mi"}),
        part: Part::Runs,
    })
}

fn gpu_job(name: &str, queue: &'static str, seconds: f64, part: Part) -> Planned {
    planned(Wanted {
        shape: Shape::Job,
        tenant: TENANTS[1],
        name: name.to_owned(),
        queue,
        priority: HIGH,
        pods: 1,
        seconds,
        requests: json!({"cpu": "1", "memory": "1Gi", GPU: "1"}),
        part,
    })
}

/// An `AppWrapper` around one Job.
fn evacuated() -> Planned {
    let mut wrapper = planned(Wanted {
        shape: Shape::AppWrapper,
        tenant: TENANTS[1],
        name: "gpu-mover".to_owned(),
        queue: MAIN,
        priority: HIGH,
        pods: 1,
        seconds: 4.0,
        requests: json!({"cpu": "1", "memory": "1Gi", GPU: "1"}),
        part: Part::Evacuated,
    });
    // Why so short: a user waits for the next attempt while watching.
    for object in &mut wrapper.objects {
        object["metadata"]["annotations"] = json!({RETRY_PAUSE: "1s"});
        if let Some(components) = object["spec"]["components"].as_array_mut() {
            components.truncate(1);
        }
    }
    wrapper
}

/// Three pods that start together or not at all.
fn together() -> Planned {
    planned(Wanted {
        shape: Shape::PodGroup,
        tenant: TENANTS[0],
        name: "gang".to_owned(),
        queue: MAIN,
        priority: HIGH,
        pods: 3,
        seconds: 2.0,
        requests: json!({"cpu": "500m", "memory": "256Mi"}),
        part: Part::Together,
    })
}

fn never_fitting() -> Planned {
    planned(Wanted {
        shape: Shape::Job,
        tenant: TENANTS[2],
        name: "huge".to_owned(),
        queue: MAIN,
        priority: LOW,
        pods: 1,
        seconds: 1.0,
        requests: json!({"cpu": "64", "memory": "1Gi"}),
        part: Part::NeverFits,
    })
}

struct Wanted {
    shape: Shape,
    tenant: &'static str,
    name: String,
    queue: &'static str,
    priority: &'static str,
    pods: i32,
    seconds: f64,
    requests: Value,
    part: Part,
}

fn planned(wanted: Wanted) -> Planned {
    let Wanted {
        shape,
        tenant,
        name,
        queue,
        priority,
        pods,
        seconds,
        requests,
        part,
    } = wanted;
    // Wire: an extended resource must be limited to what is requested.
    let limits = requests.get(GPU).map(|gpus| json!({GPU: gpus}));
    let notes = json!({RUN_SECONDS: seconds.to_string()});
    let template = json!({
        "metadata": {"annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": "registry.example/train:1",
                "resources": {"requests": requests, "limits": limits},
            }],
        },
    });
    let resource = shape.resource();
    let object = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": tenant,
            "labels": {QUEUE_NAME: queue, PRIORITY_CLASS: priority},
        },
        "spec": shape.spec(&name, pods, &template),
    });
    let member = |index: i32| {
        let mut pod = object.clone();
        pod["metadata"]["name"] = format!("{name}-{index}").into();
        pod["metadata"]["labels"][POD_GROUP_NAME] = name.as_str().into();
        pod["metadata"]["annotations"] = notes.clone();
        pod["metadata"]["annotations"][POD_GROUP_TOTAL_COUNT] = pods.to_string().into();
        pod
    };
    let objects = if shape == Shape::PodGroup {
        (0..pods).map(member).collect()
    } else {
        vec![object]
    };
    Planned {
        shape,
        namespace: tenant,
        name,
        part,
        objects,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_short_demo_has_all_kinds_too() {
        let jobs = jobs(11, Kind::Embedded);
        let kinds: BTreeSet<_> = jobs.iter().map(|job| job.objects[0]["kind"].as_str()).collect();
        assert_eq!(kinds.len(), Shape::ALL.len());
    }

    #[test]
    fn every_count_has_all_parts_and_distinct_names() {
        for count in [NAMED_JOBS, 6, 24, 100] {
            let jobs = jobs(count, Kind::Embedded);
            assert_eq!(jobs.len(), count);
            let names: BTreeSet<_> = jobs.iter().map(|job| (job.namespace, &job.name)).collect();
            assert_eq!(names.len(), count);
            for part in [
                Part::NeverFits,
                Part::OnlyIn(WEST),
                Part::LivesThroughAccident,
                Part::Evacuated,
                Part::Together,
            ] {
                assert_eq!(jobs.iter().filter(|job| job.part == part).count(), 1);
            }
        }
    }

    #[test]
    fn the_usual_demo_has_several_tenants_priorities_and_sizes() {
        let jobs = jobs(24, Kind::Embedded);
        let distinct = |pointer: &str| {
            let values = jobs.iter().filter_map(|job| job.objects[0].pointer(pointer));
            values.map(ToString::to_string).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(distinct("/kind"), Shape::ALL.len());
        assert_eq!(distinct("/metadata/namespace"), 3);
        assert_eq!(distinct("/metadata/labels/kueue.x-k8s.io~1priority-class"), 2);
        assert!(distinct("/spec/parallelism") >= 3);
        assert!(distinct("/spec/template/metadata/annotations/demo.roadstead.dev~1run-seconds") >= 5);
    }

    #[test]
    fn beside_real_api_servers_there_are_jobs_and_one_group_of_pods() {
        let jobs = jobs(24, Kind::Real);
        let (groups, others): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.shape == Shape::PodGroup);
        assert!(others.iter().all(|job| job.shape == Shape::Job));
        assert_eq!((groups.len(), groups[0].objects.len(), jobs.len()), (1, 3, 24));
    }
}
