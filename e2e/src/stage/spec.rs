//! The specification of a stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Kueue, Runs};
use crate::Options;

/// The engine of a cluster.
#[derive(Debug, Clone, Default)]
pub enum Engine {
    /// Roadstead's engine.
    #[default]
    Roadstead,
    /// The reference's engine.
    Kueue(Arc<Kueue>),
}

/// The clusters and objects of a stage.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The management cluster, which needs no nodes.
    pub manager: Options,
    /// The cluster's engine.
    pub manager_engine: Engine,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Namespaces of every cluster, each with a LocalQueue for every queue.
    pub namespaces: Vec<String>,
    /// Queues of every cluster.
    pub queues: Vec<Queue>,
    /// WorkloadPriorityClasses of every cluster: name and value.
    pub priorities: Vec<(String, i32)>,
    /// Merged over the `Configuration` of each process; its key `roadstead` is merged over the `RoadsteadConfiguration`.
    pub configuration: Value,
    /// Third-party controllers in every cluster.
    pub controllers: Vec<Runs>,
}

impl Spec {
    /// These clusters, without queues and other objects.
    pub fn new(manager: Options, workers: Vec<Worker>) -> Self {
        Self {
            manager,
            manager_engine: Engine::Roadstead,
            workers,
            namespaces: Vec::new(),
            queues: Vec::new(),
            priorities: Vec::new(),
            configuration: json!({}),
            controllers: Vec::new(),
        }
    }

    /// The stage with one more namespace.
    #[must_use]
    pub fn with_namespace(mut self, name: impl Into<String>) -> Self {
        self.namespaces.push(name.into());
        self
    }

    /// The stage with one more queue.
    #[must_use]
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// The stage with a third-party controller in every cluster; the clusters must be real ones.
    #[must_use]
    pub fn with_controller(mut self, runs: Runs) -> Self {
        self.controllers.push(runs);
        self
    }

    /// The stage with one more priority class.
    #[must_use]
    pub fn with_priority(mut self, name: impl Into<String>, value: i32) -> Self {
        self.priorities.push((name.into(), value));
        self
    }
}

/// A worker cluster.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its control plane and nodes.
    pub options: Options,
    /// The cluster's engine.
    pub engine: Engine,
    /// Whether an [`crate::answerer::Answerer`] answers its ProvisioningRequests.
    pub answers_capacity: bool,
    /// Whether it is registered at the start; [`crate::stage::Stage::join`] registers it later.
    pub registered: bool,
}

impl Worker {
    /// A registered worker with a capacity answerer.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            engine: Engine::Roadstead,
            answers_capacity: true,
            registered: true,
        }
    }

    /// A worker with another engine.
    #[must_use]
    pub fn run_by(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// A worker that is not registered at the start.
    #[must_use]
    pub fn unregistered(mut self) -> Self {
        self.registered = false;
        self
    }
}

/// A ClusterQueue in every cluster, with a LocalQueue of the same name in every namespace.
#[derive(Debug, Clone)]
pub struct Queue {
    /// Name of the ClusterQueue and of the LocalQueues.
    pub name: String,
    /// Nominal quota by cluster and resource, as Kubernetes quantities. A cluster that is missing here gets a queue without
    /// quota for the resources of the others.
    pub quota: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether workers start its jobs only after a successful ProvisioningRequest.
    pub asks_capacity: bool,
}

impl Queue {
    /// A queue without quota.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            quota: BTreeMap::new(),
            asks_capacity: false,
        }
    }

    /// The queue with this quota in one cluster.
    #[must_use]
    pub fn with_quota(mut self, cluster: impl Into<String>, quota: &[(&str, &str)]) -> Self {
        let quota = quota
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
        self.quota.insert(cluster.into(), quota.collect());
        self
    }

    /// The queue with a ProvisioningRequest check in the workers.
    #[must_use]
    pub fn asking_capacity(mut self) -> Self {
        self.asks_capacity = true;
        self
    }
}
