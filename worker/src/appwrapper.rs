//! The `AppWrapper` controller: creates the wrapped objects, watches their pods, retries, and deletes everything that it created.
//!
//! `read` gathers the facts about one `AppWrapper`, [`roadstead_core::appwrapper::plan`] decides, `write` carries the plan out.
//! `kinds` handles children of any kind, `pods` and `nodes` know which pods run where.
//!
//! Invariant: the whole state is in the API, so the next process can go on after one that was killed at any moment. Before quota
//! is freed the pods are listed again, so that a cache that is behind never frees quota in use.
//!
//! *Source*: `spec/appwrapper.md 2, 6`.

mod kinds;
mod nodes;
mod pods;
mod read;
mod settings;
mod slack;
mod write;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource as _};
use prometheus_client::registry::Registry;
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_api::config::Config;
use roadstead_core::appwrapper::status::{LABEL, QUOTA_RESERVED, RESOURCES_DEPLOYED, Status};
use roadstead_core::appwrapper::{Finalizer, Plan};
use roadstead_core::name::Key;
use roadstead_engine::caches::{Caches, KindCache, watch_of};
use roadstead_engine::clock::Clock;
use roadstead_engine::leader::Leadership;
use roadstead_engine::process::tell_unread;
use roadstead_jobs::appwrapper::{AppWrapper as WrapperKind, ROW};
use roadstead_kubeio::cache::{Cache, Health};
use roadstead_kubeio::events::Recorder;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_serve::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

use kinds::{Kinds, slim_metadata};
use nodes::{Node, Nodes};
use pods::{Index, Parents, Pod};
pub(crate) use settings::Settings;
use slack::Slack;

use crate::metrics::Phases;

/// `AppWrappers` reconciled at the same time.
const WORKERS: usize = 16;
/// Limit: plans carried out for one `AppWrapper` in a row; the usual way through the phases takes four.
const PLANS_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Wrappers {
    client: Client,
    settings: Arc<Settings>,
    objects: Arc<Cache<DynamicObject>>,
    resource: ApiResource,
    /// Whether the engine queues `AppWrappers`. Then the engine watches them, and `objects` is its cache.
    shared: bool,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    index: Arc<Index>,
    parents: Arc<Parents>,
    sick: Arc<Nodes>,
    kinds: Arc<Kinds>,
    due: Arc<Queue<Key>>,
    recorder: Recorder,
    clock: Clock,
    phases: Phases,
    slack: Slack,
}

/// Whether the configuration enables the controller: it queues `AppWrappers`. Why not for the section alone: only the webhooks of the
/// integration check what a user wraps, and without them the controller would create, with its own rights, objects that the user may not
/// create.
pub(crate) fn is_wanted(config: &Config) -> bool {
    let integrations = &config.integrations.frameworks;
    integrations.iter().any(|name| name == ROW.framework)
}

impl Wrappers {
    /// The controller for the cluster of `client`. Nothing runs yet.
    pub(crate) fn new(
        client: Client,
        settings: Settings,
        caches: &Caches,
        recorder: Recorder,
        clock: Clock,
    ) -> Self {
        let due = Arc::new(Queue::default());
        let nodes = Cache::new();
        let of_engine = caches.kind(ROW.group, ROW.kind);
        let kind = of_engine.cloned().unwrap_or_else(|| KindCache::new(&WrapperKind));
        let (autopilot, names) = (settings.autopilot().clone(), settings.slack_queues.clone());
        Self {
            slack: Slack::new(client.clone(), autopilot, names, nodes.clone(), caches),
            kinds: Arc::new(Kinds::new(client.clone(), due.clone())),
            client,
            settings: Arc::new(settings),
            shared: of_engine.is_some(),
            objects: kind.objects,
            resource: kind.resource,
            pods: Cache::slimmed(|pod: &mut Pod| slim_metadata(pod.meta_mut())),
            nodes,
            index: Arc::default(),
            parents: Arc::default(),
            sick: Arc::default(),
            due,
            recorder,
            clock,
            phases: Phases::default(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.phases.register(registry);
        self.slack.withdrawn.register(registry);
    }

    /// Makes `AppWrappers` due when they, their pods or the nodes of these change.
    fn listen(&self) {
        let (due, parents) = (self.due.clone(), self.parents.clone());
        self.objects.listen(move |change| {
            if change.new.is_none() {
                let uid = change.old.and_then(|old| old.metadata.uid.as_deref());
                parents.forget(uid.unwrap_or_default());
            }
            due.add(change.key.clone(), Lane::New);
        });
        let (due, index) = (self.due.clone(), self.index.clone());
        self.pods.listen(move |change| {
            let (old, new) = (change.old.map(|pod| &**pod), change.new.map(|pod| &**pod));
            for wrapper in index.note(change.key, old, new) {
                due.add(wrapper, Lane::Placed);
            }
        });
        let this = self.clone();
        self.nodes.listen(move |change| {
            let name = &change.key.name;
            let evict = change
                .new
                .map(|node| this.settings.autopilot().evict(&node.facts()));
            if this.sick.note(name, &evict.unwrap_or_default()) {
                for wrapper in this.index.on_node(name) {
                    this.due.add(wrapper, Lane::Placed);
                }
            }
        });
    }

    /// Starts the watches, and the work after this process leads and everything has been listed.
    pub(crate) fn spawn(&self, leadership: &Leadership, tasks: &mut Tasks, stop: &CancellationToken) {
        self.listen();
        let mut healths = vec![("pods", self.pods.health())];
        if !self.shared {
            let wrappers = Api::all_with(self.client.clone(), &self.resource);
            let watching = self.objects.clone().run(wrappers, None, stop.clone());
            tasks.spawn(watch_of("appwrappers"), watching);
            healths.push(("appwrappers", self.objects.health()));
        }
        let pods = Api::all(self.client.clone());
        let watching = self.pods.clone().run(pods, Some(LABEL.to_owned()), stop.clone());
        tasks.spawn(watch_of("pods of appwrappers"), watching);
        if self.settings.autopilot().monitors {
            let nodes = Api::all(self.client.clone());
            let watching = self.nodes.clone().run(nodes, None, stop.clone());
            tasks.spawn(watch_of("nodes"), watching);
            healths.push(("nodes", self.nodes.health()));
        }
        for (kind, health) in healths {
            let telling = tell_unread(kind.to_owned(), health, stop.clone());
            tasks.spawn(format!("health of {kind} for appwrappers"), telling);
        }
        let (this, followed, until) = (self.clone(), !leadership.leads(), stop.clone());
        let work = async move {
            // Why: the watches may be behind. The last objects of the previous leader would seem missing and be created again.
            if followed {
                this.objects.refresh();
                this.pods.refresh();
            }
            this.run(until).await;
        };
        tasks.spawn("appwrapper", leadership.clone().then(stop.clone(), work));
        if self.settings.autopilot().monitors && !self.settings.slack_queues.is_empty() {
            self.slack.listen();
            let work = self.slack.clone().run(stop.clone());
            tasks.spawn("slack queues", leadership.clone().then(stop.clone(), work));
        }
    }

    async fn run(self, stop: CancellationToken) {
        let listed = async {
            for mut health in [self.objects.health(), self.pods.health()] {
                health.wait_for(|health| *health == Health::Live).await;
            }
        };
        if stop.run_until_cancelled(listed).await.is_none() {
            return;
        }
        let (kinds, queue) = (self.kinds.clone(), self.due.clone());
        let pass = move |key| self.clone().reconcile(key);
        let passes = reconcile::run("appwrapper", queue, WORKERS, stop.clone(), pass);
        tokio::join!(kinds.run(stop), passes);
    }

    async fn reconcile(self, key: Key) -> Outcome {
        let mut sure = Sureness::Cached;
        for _ in 0..PLANS_MAX {
            let (wrapper, status) = match self.ours(&key) {
                Ok(Some(ours)) => ours,
                Ok(None) => return Outcome::Done,
                Err(failure) => return failure.into(),
            };
            let scene = read::scene(&self, &wrapper, status).await;
            let now = (self.clock)();
            let plan = scene.plan(now);
            if frees(&scene.status, &plan) && sure == Sureness::Cached {
                if let Err(failure) = self.list_pods(&key).await {
                    let what = "listing its pods before its quota is freed";
                    return failure.in_doing(what).into();
                }
                sure = Sureness::Listed;
                continue;
            }
            sure = Sureness::Cached;
            match write::carry_out(&self, &wrapper, &scene, plan).await {
                write::Done::Again => {}
                write::Done::Rest(wake) => return until(now, wake),
                write::Done::Stuck(failure) => return failure.into(),
            }
        }
        let why = format!("its state still changes after {PLANS_MAX} plans");
        Failure::passing(why).into()
    }

    /// The `AppWrapper`, if it exists, is managed by this controller, and has a known phase.
    ///
    /// *Errors*: it does not fit its schema.
    fn ours(&self, key: &Key) -> Result<Option<(AppWrapper, Status)>, Failure> {
        let Some(object) = self.objects.get(key) else {
            return Ok(None);
        };
        let wrapper = read::typed(&object).map_err(|error| {
            let Key { namespace, name } = key;
            let text = format!("{error}: correct it with `kubectl edit appwrapper {name} -n {namespace}`");
            Failure::lasting(text).in_doing("reading the AppWrapper failed")
        })?;
        let manager = wrapper.spec.managed_by.as_deref();
        let ours = ROW.managed_by.map(|managed_by| managed_by.default);
        if manager.is_some() && manager != ours {
            return Ok(None);
        }
        Ok(roadstead_convert::appwrapper::status(&wrapper).map(|status| (wrapper, status)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sureness {
    /// From the watch, which may be behind.
    Cached,
    /// From a list a moment ago.
    Listed,
}

/// Whether a plan releases quota or the object: then the pods must certainly be gone.
fn frees(before: &Status, plan: &Plan) -> bool {
    let ends = |kind: &str| before.conditions.is_true(kind) && !plan.status.conditions.is_true(kind);
    let was_deployed = before.conditions.get(RESOURCES_DEPLOYED).is_some();
    ends(QUOTA_RESERVED) || ends(RESOURCES_DEPLOYED) || (plan.finalizer == Finalizer::Remove && was_deployed)
}

fn until(now: Timestamp, wake: Option<Timestamp>) -> Outcome {
    wake.map_or(Outcome::Done, |at| {
        let pause = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        // Why: stored times are whole seconds, so the end of a period may seem a fraction of a second away.
        Outcome::After(pause.max(Duration::from_millis(50)))
    })
}
