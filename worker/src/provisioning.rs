//! The `ProvisioningRequest` check: asks this cluster's autoscaler whether it can run the jobs that have quota.
//!
//! `read` gathers the facts, [`roadstead_core::provision::plan`] decides, `write` creates and deletes requests and their
//! templates, `state` shows in condition `Active` whether our checks can be used.
//!
//! Invariant: nothing is decided before everything has been listed once, so an empty cache never counts as a missing request. In
//! a cluster that does not serve `ProvisioningRequests`, only these checks wait.
//!
//! *Source*: `spec/provisioning.md 3, 4`.

mod failures;
mod read;
mod state;
mod template;
mod write;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::{Api, Client};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::{controllers, labels};
use roadstead_api::kueue::v1beta2::{AdmissionCheck, ProvisioningRequestConfig};
use roadstead_core::check::PROVISIONING_PARAMETERS;
use roadstead_core::name::{CheckName, Key};
use roadstead_core::provision::{Action, OnEviction};
use roadstead_core::status::Status;
use roadstead_engine::active::parameters;
use roadstead_engine::caches::{Caches, watch_of};
use roadstead_engine::checks::{Checks, Follow, Pass, Rest};
use roadstead_engine::clock::Clock;
use roadstead_engine::leader::Leadership;
use roadstead_jobs::labels::controller;
use roadstead_kubeio::cache::{Cache, key_of};
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::events::Recorder;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::index::Index;
use roadstead_kubeio::latest::Latest;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_serve::shutdown::Tasks;
use sha1::{Digest as _, Sha1};
use tokio_util::sync::CancellationToken;

use failures::CreateFailures;
use state::Served;

/// Seed of the random values. Why fixed: they only spread retries by a ten-thousandth, and a run can be repeated.
const SEED: u64 = 0x5eed;

/// Annotation of a request: the check for which it was created. Ours; a name of more than 247 characters is left out.
const CHECK_ANNOTATION: &str = "roadstead.dev/provisioning-check";
/// Annotation of a request: which attempt it is, from 1.
const ATTEMPT_ANNOTATION: &str = "roadstead.dev/provisioning-attempt";

#[derive(Clone)]
pub(crate) struct Provisioning {
    client: Client,
    caches: Caches,
    requests: Arc<Cache<ProvisioningRequest>>,
    /// `PodTemplates` with our label; raw, so that fields unknown to this version survive.
    templates: Arc<Cache<DynamicObject>>,
    configs: Arc<Cache<ProvisioningRequestConfig>>,
    /// The requests by the UID of their controller. Why the UID: a Workload may be deleted and created again under the same name while
    /// requests of the old one still exist.
    owners: Arc<Index<String, Key>>,
    failures: Arc<CreateFailures>,
    served: Latest<Served>,
    touched: Arc<Dirty<()>>,
    dice: Arc<Mutex<ChaCha8Rng>>,
    due: Arc<Queue<Key>>,
    recorder: Recorder,
    clock: Clock,
    on_eviction: OnEviction,
}

impl Provisioning {
    /// The check for the cluster of `client`. Nothing runs yet.
    pub(crate) fn new(
        client: Client,
        caches: Caches,
        due: Arc<Queue<Key>>,
        recorder: Recorder,
        clock: Clock,
        gates: &FeatureGates,
    ) -> Self {
        let cleanup = FeatureGate::CleanupProvisioningRequestsOnEviction;
        let on_eviction = if gates.enabled(cleanup) {
            OnEviction::Delete
        } else {
            OnEviction::Keep
        };
        Self {
            client,
            caches,
            requests: Cache::new(),
            templates: Cache::new(),
            configs: Cache::new(),
            owners: Arc::default(),
            failures: Arc::default(),
            served: Latest::new(Served::NotYet),
            touched: Arc::new(Dirty::default()),
            dice: Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(SEED))),
            due,
            recorder,
            clock,
            on_eviction,
        }
    }

    /// Makes Workloads due when one of their requests, or the configuration of one of their checks, changes. A change of an
    /// `AdmissionCheck` makes every Workload due without this.
    pub(crate) fn listen(&self) {
        let (owners, due) = (self.owners.clone(), self.due.clone());
        self.requests.listen(move |change| {
            let entry = |request: Option<&Arc<ProvisioningRequest>>| {
                let owner = controller(&request?.metadata)?;
                Some((owner.uid.clone(), change.key.clone()))
            };
            owners.note(entry(change.old), entry(change.new));
            for request in [change.old, change.new].into_iter().flatten() {
                if let Some(owner) = controller(&request.metadata).filter(|owner| owner.kind == "Workload") {
                    due.add(
                        Key::new(change.key.namespace.clone(), owner.name.as_str()),
                        Lane::Placed,
                    );
                }
            }
        });
        let this = self.clone();
        self.configs.listen(move |change| {
            this.touched.mark(());
            // Unlike the anchor: every change of the spec counts (`spec/provisioning.md` 16).
            if change.old.map(|c| &c.spec) != change.new.map(|c| &c.spec) {
                this.wake(|check| {
                    parameters(check, PROVISIONING_PARAMETERS).is_ok_and(|name| name == *change.key.name)
                });
            }
        });
        let touched = self.touched.clone();
        self.caches.checks.listen(move |_| touched.mark(()));
    }

    /// Starts the watches and the loop that writes condition `Active`.
    pub(crate) fn spawn(&self, leadership: &Leadership, tasks: &mut Tasks, stop: &CancellationToken) {
        let ours = Some(format!("{}={}", labels::MANAGED, labels::TRUE));
        let requests = Api::all(self.client.clone());
        let watching = self.requests.clone().run(requests, None, stop.clone());
        tasks.spawn(watch_of("provisioningrequests"), watching);
        let templates = Api::all_with(self.client.clone(), &template::resource());
        let watching = self.templates.clone().run(templates, ours, stop.clone());
        tasks.spawn(watch_of("podtemplates"), watching);
        let configs = Api::all(self.client.clone());
        let watching = self.configs.clone().run(configs, None, stop.clone());
        tasks.spawn(watch_of("provisioningrequestconfigs"), watching);
        let (this, followed, until) = (self.clone(), !leadership.leads(), stop.clone());
        let conditions = async move {
            // Why: the watches may be behind. The last request of the previous leader would seem missing and be created again.
            // Nothing is decided before these are listed (`spec/safety.md` F6).
            if followed {
                this.requests.refresh();
                this.templates.refresh();
                this.configs.refresh();
            }
            state::run(this, until).await;
        };
        tasks.spawn("provisioning", leadership.clone().then(stop.clone(), conditions));
    }

    fn ours(&self, name: &CheckName) -> Option<Arc<AdmissionCheck>> {
        self.caches
            .checks
            .named(name.as_str())
            .filter(|check| is_ours(check))
    }

    /// The configuration of a check.
    ///
    /// *Errors*: the text for condition `Active` (`spec/provisioning.md` 3).
    fn config(&self, check: &AdmissionCheck) -> Result<Arc<ProvisioningRequestConfig>, Failure> {
        let name = parameters(check, PROVISIONING_PARAMETERS)?;
        let missing = || format!("ProvisioningRequestConfig.kueue.x-k8s.io \"{name}\" not found");
        { self.configs.named(&name) }.ok_or_else(|| Failure::lasting(missing()))
    }

    /// Makes the Workloads due that list one of our checks for which `which` is true.
    fn wake(&self, which: impl Fn(&AdmissionCheck) -> bool) {
        let checks = self.caches.checks.all();
        let checks = checks.iter().filter(|check| is_ours(check) && which(check));
        let names: Vec<_> = checks
            .filter_map(|check| check.metadata.name.as_deref())
            .collect();
        if names.is_empty() {
            return;
        }
        for workload in self.caches.workloads.all() {
            let mut listed = workload.status.iter().flat_map(|status| &status.admission_checks);
            if listed.any(|check| names.contains(&check.name.as_str())) {
                self.due.add(key_of(&*workload), Lane::Placed);
            }
        }
    }

    fn roll(&self) -> f64 {
        self.dice
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random_range(0.0..1.0)
    }
}

impl Checks for Provisioning {
    fn plan(&self, pass: &Pass<'_>, status: &mut Status, now: Timestamp) -> Follow {
        let Some(scene) = read::scene(self, pass, status) else {
            return Follow::default();
        };
        let plan = scene.plan(now);
        *status = plan.status;
        self.failures.keep(&pass.workload.key, |check| {
            plan.actions.iter().any(|action| match action {
                Action::CreateRequest(request) => request.check == *check,
                Action::DeleteRequest { .. }
                | Action::CreateTemplates { .. }
                | Action::TransferOwner { .. } => false,
            })
        });
        let work = (!plan.actions.is_empty() || !plan.problems.is_empty()).then(|| {
            let site = write::Site::new(self.clone(), pass.workload);
            site.carry_out(plan.actions, plan.problems)
        });
        Follow {
            notes: plan.notes,
            wake_at: None,
            work,
            rest: Rest::AskTheJob,
            annotate: Vec::new(),
        }
    }

    fn gone(&self, key: &Key) {
        self.failures.keep(key, |_| false);
    }
}

fn is_ours(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == controllers::PROVISIONING_REQUEST
}

/// The suffix of a shortened name: the first five hex digits of its SHA-1. *Source*: `spec/provisioning.md` 5.
fn suffix(name: &str) -> String {
    let digest = Sha1::digest(name.as_bytes());
    let head = digest
        .iter()
        .take(3)
        .fold(0_u32, |head, byte| (head << 8) | u32::from(*byte));
    format!("{:05x}", head >> 4)
}

#[cfg(test)]
mod tests;
