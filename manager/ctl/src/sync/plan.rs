//! The namespaces and LocalQueues that a worker cluster lacks: a pure function of both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::ResourceExt;
use roadstead_api::constants::controllers;
use roadstead_api::kueue::v1beta2::{AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueConfig};
use serde::Serialize;

/// The objects of the management cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Manager {
    pub(super) local_queues: Vec<LocalQueue>,
    pub(super) cluster_queues: Vec<ClusterQueue>,
    pub(super) checks: Vec<AdmissionCheck>,
    pub(super) configs: Vec<MultiKueueConfig>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    pub(super) namespaces: BTreeSet<String>,
    pub(super) cluster_queues: BTreeSet<String>,
    /// LocalQueues, by namespace and name.
    pub(super) local_queues: BTreeSet<(String, String)>,
}

/// One object that the worker lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind")]
pub(super) enum Step {
    Namespace {
        name: String,
    },
    LocalQueue {
        namespace: String,
        name: String,
        /// `ClusterQueue` of the worker that it names.
        #[serde(rename = "clusterQueue")]
        cluster_queue: String,
        /// Whether the namespace existed on the worker before.
        #[serde(rename = "namespaceExists")]
        namespace_exists: bool,
    },
    /// A LocalQueue cannot be created: the `ClusterQueue` that it would name is not on the worker.
    Blocked {
        namespace: String,
        name: String,
        #[serde(rename = "clusterQueue")]
        cluster_queue: String,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace { name } => write!(f, "create namespace {name}"),
            Self::LocalQueue {
                namespace,
                name,
                cluster_queue,
                namespace_exists,
            } => {
                write!(
                    f,
                    "create LocalQueue {namespace}/{name} of ClusterQueue {cluster_queue}"
                )?;
                if *namespace_exists {
                    f.write_str(
                        "; the namespace exists: users of the manager's namespace can use its service accounts and Secrets in jobs",
                    )?;
                }
                Ok(())
            }
            Self::Blocked {
                namespace,
                name,
                cluster_queue,
            } => write!(
                f,
                "LocalQueue {namespace}/{name} is not created: there is no ClusterQueue {cluster_queue}; create it, or name another \
                 with --cluster-queue"
            ),
        }
    }
}

/// The objects that the worker lacks to run the jobs of every LocalQueue that dispatches to it, namespaces first. `lead_to`: the
/// `ClusterQueue` of the worker for all new LocalQueues; `None`: the one of the same name as on the manager. Existing objects
/// stay as they are.
///
/// *Source*: `spec/multikueue.md 3.3`: a dispatched job keeps its namespace and the name of its queue.
pub(super) fn plan(cluster: &str, manager: &Manager, worker: &Worker, lead_to: Option<&str>) -> Vec<Step> {
    let dispatching = dispatching_to(cluster, manager);
    let (mut steps, mut made) = (Vec::new(), BTreeSet::new());
    let mut queues: BTreeMap<(String, String), &str> = BTreeMap::new();
    for queue in &manager.local_queues {
        if dispatching.contains(queue.spec.cluster_queue.as_str()) {
            let key = (queue.namespace().unwrap_or_default(), queue.name_any());
            queues.insert(key, &queue.spec.cluster_queue);
        }
    }
    for (key, cluster_queue) in queues {
        if worker.local_queues.contains(&key) {
            continue;
        }
        let (namespace, name) = key;
        let cluster_queue = lead_to.unwrap_or(cluster_queue).to_owned();
        if !worker.cluster_queues.contains(&cluster_queue) {
            steps.push(Step::Blocked {
                namespace,
                name,
                cluster_queue,
            });
            continue;
        }
        let namespace_exists = worker.namespaces.contains(&namespace);
        if !namespace_exists && made.insert(namespace.clone()) {
            steps.push(Step::Namespace {
                name: namespace.clone(),
            });
        }
        steps.push(Step::LocalQueue {
            namespace,
            name,
            cluster_queue,
            namespace_exists,
        });
    }
    steps.sort();
    steps
}

/// The ClusterQueues of the manager with a MultiKueue check whose configuration lists the cluster.
fn dispatching_to<'a>(cluster: &str, manager: &'a Manager) -> BTreeSet<&'a str> {
    let leads_there = |config: &MultiKueueConfig| config.spec.clusters.iter().any(|name| name == cluster);
    let configs: BTreeSet<String> = { manager.configs.iter() }
        .filter(|config| leads_there(config))
        .map(ResourceExt::name_any)
        .collect();
    let checks: BTreeSet<String> = { manager.checks.iter() }
        .filter(|check| check.spec.controller_name == controllers::MULTIKUEUE)
        .filter(|check| {
            let parameters = check.spec.parameters.as_ref();
            parameters.is_some_and(|parameters| configs.contains(&parameters.name))
        })
        .map(ResourceExt::name_any)
        .collect();
    let dispatches = |queue: &&ClusterQueue| {
        let strategy = queue.spec.admission_checks_strategy.as_ref();
        strategy.is_some_and(|strategy| {
            let mut rules = strategy.admission_checks.iter();
            rules.any(|rule| checks.contains(&rule.name))
        })
    };
    let queues = manager.cluster_queues.iter().filter(dispatches);
    queues
        .filter_map(|queue| queue.metadata.name.as_deref())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn made<T: DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap()
    }

    fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> LocalQueue {
        made(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": cluster_queue},
        }))
    }

    fn cluster_queue(name: &str, checks: &[&str]) -> ClusterQueue {
        let rules: Vec<Value> = checks.iter().map(|check| json!({"name": check})).collect();
        let spec = if rules.is_empty() {
            json!({})
        } else {
            json!({"admissionChecksStrategy": {"admissionChecks": rules}})
        };
        made(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec,
        }))
    }

    fn check(name: &str, controller: &str, config: &str) -> AdmissionCheck {
        made(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name},
            "spec": {"controllerName": controller,
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config}},
        }))
    }

    /// Queue `gpu` dispatches to east and west, queue `far` to west only, queue `local` nowhere.
    fn manager() -> Manager {
        let config = |name: &str, clusters: &[&str]| {
            made(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": name},
                "spec": {"clusters": clusters},
            }))
        };
        Manager {
            local_queues: vec![
                local_queue("team-a", "main", "gpu"),
                local_queue("team-a", "spare", "gpu"),
                local_queue("team-b", "main", "gpu"),
                local_queue("team-b", "far", "far"),
                local_queue("team-c", "main", "local"),
            ],
            cluster_queues: vec![
                cluster_queue("gpu", &["other", "both"]),
                cluster_queue("far", &["west"]),
                cluster_queue("local", &["other"]),
            ],
            checks: vec![
                check("both", controllers::MULTIKUEUE, "both"),
                check("west", controllers::MULTIKUEUE, "west"),
                check("other", "kueue.x-k8s.io/provisioning-request", "both"),
            ],
            configs: vec![config("both", &["east", "west"]), config("west", &["west"])],
        }
    }

    fn words(steps: &[Step]) -> Vec<String> {
        steps.iter().map(ToString::to_string).collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Spec: experience 3
    #[test]
    fn a_worker_gets_what_queues_that_lead_to_it_need_and_nothing_else() {
        let worker = Worker {
            namespaces: names(&["team-b"]),
            cluster_queues: names(&["gpu"]),
            local_queues: [("team-a".to_owned(), "spare".to_owned())].into(),
        };
        assert_eq!(
            words(&plan("east", &manager(), &worker, None)),
            [
                "create namespace team-a",
                "create LocalQueue team-a/main of ClusterQueue gpu",
                "create LocalQueue team-b/main of ClusterQueue gpu; the namespace exists: users of the manager's namespace can use its \
                 service accounts and Secrets in jobs",
            ]
        );
        assert!(plan("north", &manager(), &worker, None).is_empty());
    }

    #[test]
    fn a_queue_without_a_cluster_queue_on_the_worker_is_not_made_unless_another_is_named() {
        let worker = Worker {
            namespaces: names(&["team-a", "team-b"]),
            cluster_queues: names(&["gpu"]),
            ..Worker::default()
        };
        let steps = plan("west", &manager(), &worker, None);
        let blocked = Step::Blocked {
            namespace: "team-b".to_owned(),
            name: "far".to_owned(),
            cluster_queue: "far".to_owned(),
        };
        assert!(steps.contains(&blocked), "{steps:?}");
        let steps = plan("west", &manager(), &worker, Some("gpu"));
        assert!(
            steps
                .iter()
                .all(|step| matches!(step, Step::LocalQueue { cluster_queue, .. } if cluster_queue == "gpu")),
            "{steps:?}"
        );
        assert_eq!(steps.len(), 4);
    }

    #[test]
    fn a_namespace_is_not_made_for_a_queue_that_cannot_be_made() {
        let steps = plan("west", &manager(), &Worker::default(), None);
        assert!(
            steps.iter().all(|step| matches!(step, Step::Blocked { .. })) && steps.len() == 4,
            "{steps:?}"
        );
    }
}
