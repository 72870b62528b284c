//! What a stage is made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Kueue, Runs};
use crate::Options;

/// Whose engine runs in a cluster.
#[derive(Debug, Clone, Default)]
pub enum Engine {
    /// Ours.
    #[default]
    Roadstead,
    /// The reference's, which the user has brought.
    Kueue(Arc<Kueue>),
}

/// What a stage is made of.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The management cluster. Needs no nodes.
    pub manager: Options,
    /// Whose engine runs there.
    pub manager_engine: Engine,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Namespaces made in every cluster, each with a LocalQueue for every queue.
    pub namespaces: Vec<String>,
    /// Queues made in every cluster.
    pub queues: Vec<Queue>,
    /// WorkloadPriorityClasses made in every cluster: name and value.
    pub priorities: Vec<(String, i32)>,
    /// Merged over the `Configuration` of each process; what stands under `roadstead`, over its `RoadsteadConfiguration`.
    pub configuration: Value,
    /// Controllers of other people that run in every cluster.
    pub controllers: Vec<Runs>,
}

impl Spec {
    /// These clusters and nothing in them.
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

    /// With one more namespace.
    #[must_use]
    pub fn with_namespace(mut self, name: impl Into<String>) -> Self {
        self.namespaces.push(name.into());
        self
    }

    /// With one more queue.
    #[must_use]
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// With a controller of other people in every cluster, real ones only.
    #[must_use]
    pub fn with_controller(mut self, runs: Runs) -> Self {
        self.controllers.push(runs);
        self
    }

    /// With one more priority class.
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
    /// Whose engine runs there.
    pub engine: Engine,
    /// Whether an [`crate::answerer::Answerer`] answers its ProvisioningRequests.
    pub answers_capacity: bool,
    /// Whether it is registered at the start; [`crate::stage::Stage::join`] does it later.
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
    /// Nominal quota by cluster and resource, as Kubernetes quantities. A cluster that is not in it gets a queue without
    /// quota for the resources that others have.
    pub quota: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether workers start its jobs only after a ProvisioningRequest was answered with yes.
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

    /// With this quota in one cluster.
    #[must_use]
    pub fn with_quota(mut self, cluster: impl Into<String>, quota: &[(&str, &str)]) -> Self {
        let quota = quota
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
        self.quota.insert(cluster.into(), quota.collect());
        self
    }

    /// With a ProvisioningRequest check in the workers.
    #[must_use]
    pub fn asking_capacity(mut self) -> Self {
        self.asks_capacity = true;
        self
    }
}
