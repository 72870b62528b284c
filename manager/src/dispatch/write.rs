//! Carries out the actions on one worker, with a queue, tasks and a client of its own.
//!
//! Invariant: an action is carried out only if the plan made from what is stored *now* contains it. While it is unknown what is
//! stored, nothing is done. Creations are found again by name and origin, deletions carry a UID, so each may be repeated.

mod lacking;
mod later;
mod priority;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{finalizers, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_convert::Stamp;
use roadstead_core::bug;
use roadstead_core::cluster::link::{Effect, Event, Link, Miss};
use roadstead_core::dispatch::farewell::{Body, Deletion, Farewell, Going, farewell};
use roadstead_core::dispatch::{Cause, RemoteAction};
use roadstead_core::name::Key;
use roadstead_engine::caches::{CachedJob, KindCache, look_at, named};
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::{RemoteIdentity, Unmatched};
use roadstead_kinds::Members;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::Lane;
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::write::{self, Written};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::external::has_ended_there;
use super::owning::unmatched_on;
use super::words::{met_another_write, not_served, refusal};
use super::{Dispatch, read};
use crate::metrics::{Ended, Hop};
use crate::remote::Remote;

/// Requests under way to one worker at the same time.
const WORKERS: usize = 12;

/// How long a worker may take to answer a creation before the Workload is offered to another worker.
const OFFER_MAX: Duration = Duration::from_secs(5);
/// When to look again while the federation is not listed, if the Workload does not become due earlier.
const UNLISTED_PAUSE: Duration = Duration::from_secs(30);
/// When to look again while the local jobs of a kind are not listed yet.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(200);
/// When to look again while the result of a write of the Workload is unknown. The watch usually shows the stored object earlier.
const UNSURE_PAUSE: Duration = Duration::from_secs(1);

/// Works for one worker until `stop`.
pub(crate) async fn run(dispatch: Dispatch, remote: Arc<Remote>, stop: CancellationToken) {
    let queue = remote.due.clone();
    reconcile::run("dispatch", queue, WORKERS, stop, move |key| {
        let (dispatch, remote) = (dispatch.clone(), remote.clone());
        async move { pass(&dispatch, &remote, &key).await }
    })
    .await;
}

async fn pass(d: &Dispatch, remote: &Remote, key: &Key) -> Outcome {
    // Why the key is dropped: when the worker is connected again, every Workload that concerns it becomes due.
    let Some(client) = remote.client() else {
        return Outcome::Done;
    };
    if let Some(outcome) = unknown(d, key) {
        return outcome;
    }
    #[cfg(feature = "bugbank")]
    let _turn = if bug!(d.policy, HungBlocksAll) {
        Some(d.turn.lock().await)
    } else {
        None
    };
    let version = || Some(d.caches.workloads.get(key)?.metadata.resource_version.clone());
    let planned = version();
    let (scene, mut plan) = d.plan_stored(key, (d.clock)());
    for action in plan.remote.remove(&remote.name).unwrap_or_default() {
        // Why before each action: the previous one may have taken long, and the Workload may have changed since.
        let is_outdated = || (version() != planned).then_some(Outcome::NotYet(Duration::ZERO));
        if let Some(outcome) = unknown(d, key).or_else(is_outdated) {
            return outcome;
        }
        let site = Site {
            d,
            remote,
            client: &client,
            key,
            scene: &scene,
        };
        if let Err(failure) = site.act(action).await {
            return failure.in_doing(format_args!("cluster {}", remote.name)).into();
        }
    }
    Outcome::Done
}

/// What to do while it is unknown what is stored; `None` if it is known. Either the caches are not listed, or the result of a write
/// of this Workload is unknown: the stored Workload may name another worker than the cached one.
fn unknown(d: &Dispatch, key: &Key) -> Option<Outcome> {
    if !d.knows_everything() {
        // Why a long pause: once the federation is known, the Workload becomes due, and with it this worker.
        d.unknown.mark(key.clone());
        return Some(Outcome::NotYet(UNLISTED_PAUSE));
    }
    if !{ d.caches.workloads.get(key) }.is_none_or(|stored| d.knows_jobs_like(&stored)) {
        return Some(Outcome::NotYet(UNKNOWN_PAUSE));
    }
    (d.caches.is_unsure(key) && !bug!(d.policy, LosersGoEarly)).then_some(Outcome::NotYet(UNSURE_PAUSE))
}

/// Where a refusal is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    /// To the user whose Workload waits for the end of an earlier run: `roadstead explain` shows it.
    User,
    /// To the log only: no run waits for it.
    TheLog,
}

struct Site<'a> {
    d: &'a Dispatch,
    remote: &'a Remote,
    client: &'a Client,
    key: &'a Key,
    scene: &'a read::Scene,
}

impl Site<'_> {
    async fn act(&self, action: RemoteAction) -> Result<(), Failure> {
        let started = Instant::now();
        let done = self.carry_out(action).await;
        let ended = if done.is_ok() {
            Ended::Answered
        } else {
            Ended::Failed
        };
        self.d
            .metrics
            .request(&self.remote.name, started.elapsed(), ended);
        done
    }

    async fn carry_out(&self, action: RemoteAction) -> Result<(), Failure> {
        match action {
            RemoteAction::CreateWorkload => self.create_workload().await,
            RemoteAction::DeleteWorkload => self.delete_workload().await,
            RemoteAction::StripFinalizer => self.strip_finalizer().await,
            RemoteAction::CreateJob => self.create_job().await,
            RemoteAction::UpdateJob => self.update_job().await,
            RemoteAction::DeleteJob => self.delete_job().await,
            RemoteAction::SetPriority => self.set_priority().await,
            RemoteAction::LookForNeeds => self.look_for_needs().await,
            RemoteAction::RequestStop { message } => self.request_stop(&message).await,
        }
    }

    fn workloads(&self) -> Api<Workload> {
        Api::namespaced(self.client.clone(), &self.key.namespace)
    }

    async fn create_workload(&self) -> Result<(), Failure> {
        let Some(local) = self.d.caches.workloads.get(self.key) else {
            return Ok(());
        };
        let lacking = self.lacking().await?;
        if !lacking.is_empty() {
            self.exclude(Cause::DependencyMissing, lacking.join(", "));
            return Ok(());
        }
        let stamp = Stamp {
            origin: &self.d.origin,
            epoch: self.scene.epoch(),
            lost: self.scene.lost(),
            lease_secs: { self.remote.link(|link| link.grant().was_answered()) }
                .then(|| self.d.lessor.terms.length().as_secs()),
        };
        let copy = roadstead_convert::remote_workload(&local, stamp);
        let workloads = self.workloads();
        let Some(answer) = self.patiently(write::create(&workloads, &copy)).await else {
            let why = format!("no answer within {} s", OFFER_MAX.as_secs());
            return self.offer_elsewhere(Miss::NoAnswer, &why);
        };
        match answer {
            Written::Done(object) => {
                self.remote.step(Event::RequestAnswered);
                self.remote.workloads.observe(*object);
                self.count_copy(&local);
                Ok(())
            }
            Written::AlreadyExists => self.look_at_existing_workload().await,
            Written::Gone => Err(not_served("Workloads", "kueue.x-k8s.io/v1beta2")),
            Written::Conflict => Err(met_another_write("the workload")),
            Written::Refused(why) => {
                self.exclude(refusal(&why), why);
                Ok(())
            }
            Written::Unclear(why) if write::lacked_webhook(&why) => {
                self.exclude(Cause::WebhookFailed, why);
                Ok(())
            }
            Written::Unclear(why) => self.offer_elsewhere(Miss::Error, &why),
        }
    }

    /// Waits at most [`OFFER_MAX`] for the answer to a creation. As soon as the answer is late, the other Workloads that wait for
    /// this worker may go to other workers.
    ///
    /// *Source*: `spec/multikueue.md 4.3`.
    async fn patiently<T>(&self, offer: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let mut offer = pin!(offer);
        let late_after = self.remote.link(Link::late_after);
        let answer = if let Ok(answer) = tokio::time::timeout(late_after, &mut offer).await {
            Some(answer)
        } else {
            let (_late, effect) = self.remote.late();
            if effect == Effect::Slow {
                self.d.worker_is_late(self.remote);
            }
            let left = OFFER_MAX.saturating_sub(late_after);
            tokio::time::timeout(left, offer).await.ok()
        };
        if answer.is_some() {
            self.remote.step(Event::CopyAnswered(began.elapsed()));
        }
        answer
    }

    /// Handles a creation whose result is unknown. One such failure does not exclude the worker, because the next request shows
    /// the result. Workloads that wait for this worker and have other candidates go to them at once.
    ///
    /// Invariant: a copy that appears later on an excluded worker is removed, because that worker is no candidate then.
    fn offer_elsewhere(&self, miss: Miss, why: &str) -> Result<(), Failure> {
        let detail = format!("creating the workload was not answered: {why}");
        let was_slow = self.remote.link(Link::is_slow);
        if self.remote.step(Event::RequestFailed(miss, why)) == Effect::Unusable {
            self.exclude(Cause::NoAnswer, detail.clone());
        }
        if !was_slow {
            self.d.worker_is_late(self.remote);
        }
        Err(Failure::passing(detail))
    }

    fn count_copy(&self, local: &Workload) {
        let (metrics, cluster) = (&self.d.metrics, &self.remote.name);
        let queue = local
            .admission()
            .map_or("", |admission| admission.cluster_queue.as_str());
        metrics.dispatched(queue, cluster);
        if let Some(reserved) = local.condition("QuotaReserved") {
            metrics.hop(
                Hop::Offer,
                cluster,
                reserved.last_transition_time.0,
                (self.d.clock)(),
            );
        }
    }

    /// Whether this manager made the object.
    fn is_of_us(&self, object: &impl kube::ResourceExt) -> bool {
        let origin = object.labels().get(labels::MULTIKUEUE_ORIGIN);
        origin.is_some_and(|origin| **origin == *self.d.origin)
    }

    /// Handles a Workload of that name that exists on the worker: it is ours and the watch has not shown it yet, or another
    /// client made it.
    async fn look_at_existing_workload(&self) -> Result<(), Failure> {
        match self.workloads().get_opt(&self.key.name).await {
            Ok(Some(object)) if self.is_of_us(&object) => {
                self.remote.workloads.observe(object);
                Ok(())
            }
            Ok(Some(_)) => {
                self.exclude(
                    Cause::NameConflict,
                    format!("a Workload named {} that is not ours is there", self.key),
                );
                Ok(())
            }
            Ok(None) => Err(Failure::passing("the workload vanished while it was looked at")),
            Err(error) => Err(Failure::of(&error)),
        }
    }

    async fn delete_workload(&self) -> Result<(), Failure> {
        let Some(copy) = self.remote.workloads.get(self.key) else {
            return Ok(());
        };
        let (uid, memory) = (copy.metadata.uid.as_deref(), &self.d.memory);
        // Why before the request: from then on the copy may vanish, even if its worker is chosen meanwhile.
        memory.asked_to_go(self.key, uid.unwrap_or_default());
        match write::delete(&self.workloads(), &self.key.name, uid).await {
            Written::Done(object) => self.remote.workloads.observe(*object),
            Written::Gone => self.remote.workloads.forget(self.key, uid),
            Written::Conflict | Written::AlreadyExists => return Ok(()),
            Written::Refused(why) => {
                self.tell_refusal(&why);
                return Err(Failure::lasting(why).in_doing("deleting the workload"));
            }
            Written::Unclear(why) => return Err(Failure::passing(why).in_doing("deleting the workload")),
        }
        memory.goes(self.key, uid.unwrap_or_default());
        memory.granted(self.key, &self.remote.name);
        Ok(())
    }

    /// Remembers why the worker refuses. At the first refusal the Workload becomes due, so that its user is told.
    fn tell_refusal(&self, words: &str) {
        if self.d.memory.refused(self.key, &self.remote.name, words) {
            self.d.due.add(self.key.clone(), Lane::Placed);
        }
    }

    async fn strip_finalizer(&self) -> Result<(), Failure> {
        let Some(copy) = self.remote.workloads.get(self.key) else {
            return Ok(());
        };
        let kept: Vec<&String> = copy
            .finalizers()
            .iter()
            .filter(|f| *f != finalizers::RESOURCE_IN_USE)
            .collect();
        let version = copy.metadata.resource_version.as_ref();
        let patch = json!({ "metadata": { "finalizers": kept, "resourceVersion": version } });
        self.patched(
            write::patch(&self.workloads(), &self.key.name, &patch).await,
            "taking the finalizer off the workload",
            Tells::User,
        )
    }

    async fn request_stop(&self, message: &str) -> Result<(), Failure> {
        let Some(copy) = self.remote.workloads.get(self.key) else {
            return Ok(());
        };
        let patch = roadstead_convert::request_stop(&copy, message, (self.d.clock)());
        self.patched(
            write::patch_status(&self.workloads(), &self.key.name, &patch).await,
            "asking the workload to stop",
            Tells::User,
        )?;
        // Why not after a finalizer is taken off too: the next refusal would count as the first one again. A client that puts its
        // finalizer back each time would then make the Workload due without end.
        self.d.memory.granted(self.key, &self.remote.name);
        Ok(())
    }

    fn patched(&self, answer: Written<Workload>, what: &str, tells: Tells) -> Result<(), Failure> {
        match answer {
            Written::Done(object) => {
                self.remote.workloads.observe(*object);
                Ok(())
            }
            Written::Gone | Written::AlreadyExists => Ok(()),
            Written::Conflict => {
                self.d.metrics.conflict(&self.remote.name);
                Err(Failure::passing(format!("{what} met a newer version")))
            }
            Written::Refused(why) => {
                let failure = Failure::lasting(why).in_doing(what);
                if tells == Tells::User {
                    self.tell_refusal(failure.text());
                }
                Err(failure)
            }
            Written::Unclear(why) => Err(Failure::passing(why).in_doing(what)),
        }
    }

    async fn create_job(&self) -> Result<(), Failure> {
        if let Some((kind, local)) = &self.scene.local_job {
            let same_kind = |jobs: &&KindCache| jobs.kind.kind() == kind.kind();
            let Some(jobs) = self.remote.jobs.iter().find(same_kind) else {
                return Ok(());
            };
            self.create_copies(jobs, *kind, local).await?;
        }
        let Some((jobs, there)) = read::find_job(self.remote, self.key, self.scene.job_key.as_ref()) else {
            return Ok(());
        };
        let Unmatched { lacking: _, stray } = unmatched_on(self.d, self.key, &there);
        let is_stray = |copy: &DynamicObject| stray.iter().any(|id| copy.uid().as_deref() == Some(&id.uid));
        for copy in there.objects().filter(|copy| is_stray(copy)) {
            self.delete_copy(jobs, copy).await?;
        }
        Ok(())
    }

    async fn create_copies(
        &self,
        jobs: &KindCache,
        kind: &dyn JobKind,
        local: &CachedJob,
    ) -> Result<(), Failure> {
        let there = read::find_job(self.remote, self.key, self.scene.job_key.as_ref());
        let lacking = there.map(|(_, there)| unmatched_on(self.d, self.key, &there).lacking);
        let mut copies = self.copies_of(kind, local, &jobs.resource)?;
        copies.retain(|copy| {
            lacking
                .as_ref()
                .is_none_or(|lacking| lacking.contains(&copy.name_any()))
        });
        if copies.is_empty() {
            return Ok(());
        }
        let left = self.bring_needs(kind, local).await?;
        if !left.is_empty() {
            self.exclude(Cause::DependencyMissing, left.join(", "));
            return Ok(());
        }
        for copy in copies {
            self.create_copy(jobs, copy).await?;
        }
        Ok(())
    }

    async fn create_copy(&self, jobs: &KindCache, copy: DynamicObject) -> Result<(), Failure> {
        let (api, name) = (self.api_of(jobs), copy.name_any());
        match write::create(&api, &copy).await {
            Written::Done(object) => {
                jobs.objects.observe(*object);
                if let Some(chosen) = self.scene.chosen() {
                    let (cluster, now) = (&self.remote.name, (self.d.clock)());
                    self.d.metrics.hop(Hop::Start, cluster, chosen, now);
                }
                Ok(())
            }
            Written::AlreadyExists => match api.get_opt(&name).await {
                Ok(Some(object)) if self.is_of_us(&object) => {
                    let is_ours = named(&object).as_ref() == Some(self.key);
                    let is_member = jobs.kind.group_of(&copy.metadata).is_some();
                    // Why it is only observed: if it belongs to an earlier job of that name, the next decision takes that into
                    // account.
                    jobs.objects.observe(object);
                    if is_member && !is_ours {
                        let kind = &jobs.resource.kind;
                        return Err(Failure::passing(format!(
                            "an earlier {kind} named {name} still ends there"
                        )));
                    }
                    Ok(())
                }
                Ok(Some(foreign)) if bug!(self.d.policy, ForeignJobDeleted) => {
                    write::delete(&api, &name, foreign.uid().as_deref()).await;
                    Err(Failure::passing("a job was in the way"))
                }
                Ok(Some(_)) => {
                    let detail = format!(
                        "remote object is not owned by MultiKueue: expected \"{}\"=\"{}\" on {} {}/{name}",
                        labels::MULTIKUEUE_ORIGIN,
                        self.d.origin,
                        jobs.resource.kind,
                        self.key.namespace,
                    );
                    self.exclude(Cause::NameConflict, detail);
                    Ok(())
                }
                Ok(None) => Err(Failure::passing("the job vanished while it was looked at")),
                Err(error) => Err(Failure::of(&error)),
            },
            Written::Gone => Err(not_served(&jobs.resource.plural, &jobs.resource.api_version)),
            Written::Conflict => Err(met_another_write("the job")),
            Written::Refused(why) => {
                self.exclude(refusal(&why), why);
                Ok(())
            }
            // Why no further try: the webhook may be down for days, and the other workers may take the job.
            Written::Unclear(why) if write::lacked_webhook(&why) => {
                self.exclude(Cause::WebhookFailed, why);
                Ok(())
            }
            Written::Unclear(why) => Err(Failure::passing(why).in_doing("creating the job was not answered")),
        }
    }

    fn api_of(&self, jobs: &KindCache) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.key.namespace, &jobs.resource)
    }

    fn copies_of(
        &self,
        kind: &dyn JobKind,
        local: &CachedJob,
        resource: &ApiResource,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let workload = self
            .d
            .caches
            .workloads
            .get(self.key)
            .ok_or_else(|| Failure::passing("the workload is gone"))?;
        let original = roadstead_convert::pod_sets(&workload);
        let identity = RemoteIdentity {
            origin: &self.d.origin,
            workload: &self.key.name,
        };
        let copies = local.with(|local| kind.copies(local, &identity, &original));
        let stamped = copies.into_iter().map(|mut copy| {
            for (key, value) in roadstead_convert::dispatch_annotations(&workload, self.scene.epoch()) {
                copy["metadata"]["annotations"][key] = json!(value);
            }
            // Why not always: an account that may not change a job could never take the finalizer off again.
            if self.remote.may_change(resource) {
                copy["metadata"]["finalizers"] = json!([finalizers::OUTCOME]);
            }
            #[cfg(feature = "bugbank")]
            let copy = vanishing(copy, bug!(self.d.policy, TtlRerun));
            serde_json::from_value(copy).map_err(Failure::from)
        });
        stamped.collect()
    }

    async fn delete_job(&self) -> Result<(), Failure> {
        let job_key = self.scene.job_key.as_ref();
        let Some((jobs, job)) = read::find_job(self.remote, self.key, job_key) else {
            return Ok(());
        };
        for object in job.objects() {
            self.delete_copy(jobs, object).await?;
        }
        Ok(())
    }

    async fn delete_copy(&self, jobs: &KindCache, job: &DynamicObject) -> Result<(), Failure> {
        let (api, kind) = (self.api_of(jobs), jobs.kind);
        let (name, uid) = (job.name_any(), job.metadata.uid.as_deref());
        let going = self.going(kind, job);
        let answer = match farewell(going) {
            Farewell::Delete => write::delete(&api, &name, uid).await,
            Farewell::DeleteAfterPods => write::delete_after_dependents(&api, &name, uid).await,
            Farewell::Wait => return Ok(()),
            Farewell::LetGo => return self.let_go(&api, jobs, job).await,
        };
        match answer {
            Written::Done(object) => {
                self.d.memory.granted(self.key, &self.remote.name);
                jobs.objects.observe(DynamicObject::clone(&object));
                self.d.memory.asked_to_go(self.key, uid.unwrap_or_default());
                let kept = jobs.objects.get(&roadstead_kubeio::cache::key_of(&*object));
                if kept.is_none_or(|kept| kept.metadata.uid.as_deref() != uid) {
                    // Why: the watch has shown the deletion before this answer came, and it shows each change only once.
                    self.d.memory.goes(self.key, uid.unwrap_or_default());
                }
                let now = self.going(kind, &object);
                if !going.ended && now.ended {
                    // Why the finalizer stays: the job ended while it was being deleted, and its end is stored nowhere else. The
                    // decision did not know of that end. The cache shows it, so the manager decides again.
                    return Ok(());
                }
                match farewell(now) {
                    Farewell::LetGo => self.let_go(&api, jobs, &object).await,
                    // The next change of the job makes the Workload due.
                    Farewell::Wait | Farewell::Delete | Farewell::DeleteAfterPods => Ok(()),
                }
            }
            Written::Gone => {
                self.d.memory.granted(self.key, &self.remote.name);
                jobs.objects.forget(&roadstead_kubeio::cache::key_of(job), uid);
                Ok(())
            }
            Written::Conflict | Written::AlreadyExists => Ok(()),
            Written::Refused(why) => {
                self.tell_refusal(&why);
                Err(Failure::lasting(why).in_doing("deleting the job"))
            }
            Written::Unclear(why) => Err(Failure::passing(why).in_doing("deleting the job")),
        }
    }

    fn going(&self, kind: &dyn JobKind, job: &DynamicObject) -> Going {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let look = look_at(kind, job);
        Going {
            ended: look.ended.is_some() || has_ended_there(self.remote, self.key, kind, job),
            deletion: match job.metadata.deletion_timestamp {
                None => Deletion::NotBegun,
                Some(_) if job.finalizers().iter().any(|f| f == finalizers::FOREGROUND) => {
                    Deletion::AfterPods
                }
                Some(_) => Deletion::Begun,
            },
            at_rest: look.at_rest(),
            body: match kind.kind().members {
                Members::Group => Body::IsPod,
                Members::One | Members::WithPods => Body::MakesPods,
            },
            asked: self.d.memory.was_asked_to_go(self.key, uid),
        }
    }

    /// Takes our finalizer off a job on the worker, whose outcome is stored on the manager or that will have none.
    async fn let_go(
        &self,
        api: &Api<DynamicObject>,
        jobs: &KindCache,
        job: &DynamicObject,
    ) -> Result<(), Failure> {
        let held = job.finalizers();
        if !held.iter().any(|f| f == finalizers::OUTCOME) {
            return Ok(());
        }
        let kept: Vec<&String> = held.iter().filter(|f| *f != finalizers::OUTCOME).collect();
        let what = format!(
            "taking finalizer {} off job {}",
            finalizers::OUTCOME,
            job.name_any()
        );
        let patch = json!({ "metadata": {
            "finalizers": kept, "resourceVersion": job.metadata.resource_version, "uid": job.metadata.uid,
        } });
        match write::patch(api, &job.name_any(), &patch).await {
            Written::Done(object) => {
                if object.metadata.deletion_timestamp.is_some() && kept.is_empty() {
                    let key = roadstead_kubeio::cache::key_of(&*object);
                    jobs.objects.forget(&key, object.metadata.uid.as_deref());
                } else {
                    jobs.objects.observe(*object);
                }
                Ok(())
            }
            Written::Gone | Written::AlreadyExists => Ok(()),
            Written::Conflict => {
                self.d.metrics.conflict(&self.remote.name);
                Err(Failure::passing(format!(
                    "job {} was changed while it was let go; it is looked at again",
                    job.name_any()
                )))
            }
            Written::Refused(why) => {
                let failure = Failure::lasting(why).in_doing(what);
                self.tell_refusal(failure.text());
                Err(failure)
            }
            Written::Unclear(why) => Err(Failure::passing(why).in_doing(what)),
        }
    }

    /// Excludes this worker for this Workload for a while, and makes the Workload due.
    fn exclude(&self, cause: Cause, detail: String) {
        let (cluster, now) = (&self.remote.name, (self.d.clock)());
        if self.d.memory.failed(self.key, cluster, cause, detail, now) {
            self.d.metrics.removed(cluster, cause);
        }
        self.d.due.add(self.key.clone(), Lane::Placed);
    }
}

/// For the planted bug `TtlRerun`: makes the job vanish from its worker as soon as it has ended.
#[cfg(feature = "bugbank")]
fn vanishing(mut job: serde_json::Value, is_planted: bool) -> serde_json::Value {
    if is_planted {
        job["spec"]["ttlSecondsAfterFinished"] = 0.into();
        job["metadata"]["finalizers"] = json!([]);
    }
    job
}
