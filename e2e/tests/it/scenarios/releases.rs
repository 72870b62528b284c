//! The configuration files with which the reference's releases are installed, and their feature gates: `config check` takes them, the
//! process starts with them, and a job runs.

use roadstead_api::config::FeatureGate;
use serde_json::{Map, Value, json};

use super::ground::{FLAVOR, Ground, RUNTIME, ask, cpu, start};
use crate::shared::chain;

/// A release, and what its file says otherwise than the one before.
struct Release {
    name: &'static str,
    api: &'static str,
    added: &'static [&'static str],
    removed: &'static [&'static str],
}

const RELEASES: [Release; 9] = [
    Release {
        name: "v0.11",
        api: "v1beta1",
        added: &[
            "batch/job",
            "kubeflow.org/mpijob",
            "ray.io/rayjob",
            "ray.io/raycluster",
            "jobset.x-k8s.io/jobset",
            "kubeflow.org/paddlejob",
            "kubeflow.org/pytorchjob",
            "kubeflow.org/tfjob",
            "kubeflow.org/xgboostjob",
            "workload.codeflare.dev/appwrapper",
        ],
        removed: &[],
    },
    Release {
        name: "v0.12",
        api: "v1beta1",
        added: &["kubeflow.org/jaxjob"],
        removed: &[],
    },
    Release {
        name: "v0.13",
        api: "v1beta1",
        added: &[],
        removed: &[],
    },
    Release {
        name: "v0.14",
        api: "v1beta1",
        added: &["trainer.kubeflow.org/trainjob"],
        removed: &[],
    },
    Release {
        name: "v0.15",
        api: "v1beta2",
        added: &[],
        removed: &[],
    },
    Release {
        name: "v0.16",
        api: "v1beta2",
        added: &[
            "pod",
            "deployment",
            "statefulset",
            "leaderworkerset.x-k8s.io/leaderworkerset",
        ],
        removed: &[],
    },
    Release {
        name: "v0.17",
        api: "v1beta2",
        added: &["ray.io/rayservice"],
        removed: &[],
    },
    Release {
        name: "v0.18",
        api: "v1beta2",
        added: &[],
        removed: &[],
    },
    Release {
        name: "v0.19",
        api: "v1beta2",
        added: &[],
        removed: &[
            "kubeflow.org/paddlejob",
            "kubeflow.org/pytorchjob",
            "kubeflow.org/tfjob",
            "kubeflow.org/xgboostjob",
            "kubeflow.org/jaxjob",
        ],
    },
];

/// The gates that a release knows, each as it is by default: what is permanent or gone by now was on.
fn gates(release: &str) -> Map<String, Value> {
    let all = include_str!("gates-by-release.txt");
    let heading = format!("# {release}.0");
    let mut lines = all.lines().skip_while(|line| *line != heading);
    assert_eq!(lines.next(), Some(heading.as_str()));
    let names = lines.take_while(|line| !line.starts_with('#'));
    let on = |name: &str| FeatureGate::named(name).is_none_or(FeatureGate::default_on);
    names.map(|name| (name.to_owned(), on(name).into())).collect()
}

/// The file of a release without its addresses, which each process of a test has of its own.
fn file(release: &Release, frameworks: &[&str]) -> Value {
    json!({
        "apiVersion": format!("config.kueue.x-k8s.io/{}", release.api),
        "kind": "Configuration",
        "leaderElection": {"leaderElect": true, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {"groupKindConcurrency": {
            "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 5, "LocalQueue.kueue.x-k8s.io": 1,
            "Cohort.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 1, "ResourceFlavor.kueue.x-k8s.io": 1,
        }},
        "clientConnection": {"qps": 50, "burst": 100},
        "integrations": {"frameworks": frameworks},
        "featureGates": gates(release.name),
    })
}

/// Spec: api API-13, API-14
#[test]
fn the_files_of_all_releases_and_their_gates_are_checked_and_run_a_job() {
    RUNTIME.block_on(async {
        let mut solo = start("releases", json!({})).await;
        let ground = Ground::new(solo.client().unwrap(), "releases").await;
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "1")])}))
            .await;
        let mut frameworks: Vec<&str> = Vec::new();
        for release in RELEASES {
            frameworks.retain(|name| !release.removed.contains(name));
            frameworks.extend(release.added);
            let file = file(&release, &frameworks);
            let mut stock = file.clone();
            stock["health"] = json!({"healthProbeBindAddress": ":8081"});
            stock["metrics"] = json!({"bindAddress": ":8443"});
            stock["webhook"] = json!({"port": 9443});
            let path = solo.dir().join(format!("{}.yaml", release.name));
            std::fs::write(&path, format!("{stock:#}")).unwrap();
            let named = solo
                .command(&["config", "check", &path.display().to_string()])
                .await;
            let piped = solo.command_reading(&path, &["config", "check", "-"]).await;
            for said in [named, piped] {
                let said = said.unwrap_or_else(|error| panic!("{}: {}", release.name, chain(&error)));
                assert!(said.contains("can be used"), "{}: {said}", release.name);
            }

            let mut file = file;
            if release.api == "v1beta1" {
                // Why: this version cannot give that server an address of its own, and other processes have the usual one.
                file["visibilityServer"] = Value::Null;
                file["featureGates"]["VisibilityOnDemand"] = false.into();
            }
            let started = solo.reconfigure(&file).await;
            started.unwrap_or_else(|error| panic!("{}: {}", release.name, chain(&error)));
            ground.submit(ask(release.name, "q")).await;
            ground.runs(release.name).await;
            ground.finish(release.name).await;
        }
    });
}
