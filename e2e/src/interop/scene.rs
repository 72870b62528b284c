//! The clusters of a scene: a manager, the worker that the scene is about, and another worker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use serde_json::{Value, json};

use super::history::History;
use super::kind::{Facts, Kind};
use crate::observer::{Cluster, Observer};
use crate::options::TTL_CONTROLLER;
use crate::stage::{Engine, Spec, Stage, Worker};
use crate::{Node, Options, Progress};

/// The management cluster.
pub(super) const MANAGER: &str = "manager";
/// After this long the manager considers a worker lost. Short, so that a scene can wait for it.
pub(super) const WORKER_LOST_TIMEOUT_SECS: u64 = 15;

/// A running federation of Roadstead and Kueue.
pub(super) struct Scene {
    /// The direction, as printed.
    pub(super) title: &'static str,
    /// The worker of Kueue, if there is one.
    theirs: Option<&'static str>,
    pub(super) stage: Stage,
    /// The worker that scenes are about.
    pub(super) target: &'static str,
    /// Another worker.
    pub(super) other: &'static str,
    pub(super) observer: Observer,
    pub(super) history: History,
    pub(super) progress: Progress,
    clients: [(&'static str, Client); 3],
}

/// Feature gates by name.
pub(super) type Gates = BTreeMap<String, bool>;

/// The engines and names of the clusters.
pub(super) struct Cast<'a> {
    pub(super) title: &'static str,
    pub(super) manager: Engine,
    pub(super) target: (&'static str, Engine),
    pub(super) other: (&'static str, Engine),
    /// Feature gates of all processes.
    pub(super) gates: &'a Gates,
    /// The kind of the jobs.
    pub(super) kind: Kind,
}

impl Scene {
    /// Starts all clusters. No worker is registered.
    pub(super) async fn set_up(cast: Cast<'_>) -> anyhow::Result<Self> {
        let Cast {
            title,
            manager: manager_engine,
            target: (target, target_engine),
            other: (other, other_engine),
            gates,
            kind,
        } = cast;
        let theirs = match &target_engine {
            Engine::Kueue(_) => Some(target),
            Engine::Roadstead => None,
        };
        let progress = Progress::stderr();
        // Why no scheduler: a job of the manager must not run on it. Why no TTL controller: a scene with a TTL on the workers must
        // still see the end of its job on the manager.
        let mut manager = Options {
            scheduler: false,
            kwok: false,
            ..Options::complete(MANAGER)
        };
        manager.controllers.retain(|name| name != TTL_CONTROLLER);
        let worker = |name: &str, engine| {
            let node = Node::new(format!("{name}-1"), "64", "256Gi");
            let options = Options::complete(name).with_node(node);
            Worker::new(options).unregistered().run_by(engine)
        };
        let workers = vec![worker(target, target_engine), worker(other, other_engine)];
        let mut spec = Spec::new(manager, workers)
            .with_priority("low", 10)
            .with_priority("high", 1000);
        spec.manager_engine = manager_engine;
        spec.configuration = json!({"featureGates": gates, "multiKueue": {
            "gcInterval": "5s", "workerLostTimeout": format!("{WORKER_LOST_TIMEOUT_SECS}s"),
        }});
        if let Some(facts) = kind.facts() {
            spec = spec.with_controller(facts.runs);
            spec.configuration["integrations"]["frameworks"] = json!(["batch/job", facts.framework]);
        }
        let stage = Stage::start(spec, progress.clone()).await?;
        let client = |name: &'static str| stage.client(name).map(|client| (name, client));
        let clients = [client(MANAGER)?, client(target)?, client(other)?];
        let [seen_manager, seen_target, seen_other] = clients.clone().map(|(name, client)| Cluster {
            name: name.to_owned(),
            client,
        });
        let workers = vec![seen_target, seen_other];
        let (observer, steps) = Observer::start(seen_manager, workers.clone());
        let played = kind.facts().map(Facts::resource);
        let history = History::start(steps, &workers, played.as_ref());
        Ok(Self {
            title,
            theirs,
            stage,
            target,
            other,
            observer,
            history,
            progress,
            clients,
        })
    }

    /// An administrator's client of a cluster.
    pub(super) fn client(&self, cluster: &str) -> anyhow::Result<Client> {
        let found = self.clients.iter().find(|(name, _)| *name == cluster);
        let (_, client) = found.with_context(|| format!("no cluster {cluster} in this scene"))?;
        Ok(client.clone())
    }

    /// All clusters, the manager first.
    pub(super) fn clusters(&self) -> [&'static str; 3] {
        [MANAGER, self.target, self.other]
    }

    /// Whether a violation's sentence is about a Workload in a worker of Kueue.
    ///
    /// Why it matters: Kueue finishes the copy of a job that is being deleted, and a write of its scheduler that was under way may
    /// undo that. The copy is deleted anyway.
    pub(super) fn is_theirs(&self, sentence: &str) -> bool {
        let there = |worker: &str| sentence.contains(&format!(" on {worker} "));
        sentence.starts_with("Workload ") && self.theirs.is_some_and(there)
    }

    /// Fails if a process has ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        Ok(self.stage.check()?)
    }

    /// Copies the logs of all processes.
    pub(super) fn keep_logs(&self, into: Option<&Path>) -> anyhow::Result<()> {
        let Some(into) = into else { return Ok(()) };
        fs::create_dir_all(into).with_context(|| format!("creating {}", into.display()))?;
        for cluster in self.clusters() {
            let to = into.join(format!("{}-{cluster}.log", self.title));
            fs::copy(self.stage.log(cluster)?, &to).with_context(|| format!("writing {}", to.display()))?;
        }
        Ok(())
    }
}

/// An engine of the user's Kueue.
pub(super) fn kueue(kueue: &Arc<crate::stage::Kueue>) -> Engine {
    Engine::Kueue(Arc::clone(kueue))
}

/// A condition of an object, as its API writes it.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|each| each["type"] == kind)
}
