//! The job reconciler: writes jobs, and creates, adopts, changes and deletes their Workloads.
//!
//! `read` gathers facts from caches, [`roadstead_core::job::plan`] decides, `write` does one thing after another.
//!
//! Invariant: it never writes a Workload's status; it asks the workload reconciler for that ([`crate::workloads::Requests`]). So
//! the two never race for one object.

mod children;
mod priority;
mod read;
mod told;
mod write;

use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use kube::{Client, Resource, ResourceExt as _};
use roadstead_api::config::Config;
use roadstead_api::constants::labels;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::ancestry::Stop;
use roadstead_core::job::{self, ADOPTION_PAUSE, FollowUp, Scope};
use roadstead_core::name::Key;
use roadstead_core::note::Note;
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::{Remote, Write};
use roadstead_kinds::{Idle, Members};
use roadstead_kubeio::events::Recorder;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::Outcome;

use crate::ancestors::{self, Missing, Top};
use crate::caches::{Caches, JobKey, JobRef, KindCache, member};
use crate::checks::{CheckList, Elsewhere, Fate};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::parents;
use crate::workloads::Requests;

pub(crate) use priority::resolve as resolve_priority;
pub use read::job_of;

/// The pause before a status that could not be copied yet is tried again. *Source*: `spec/multikueue.md 5.1`.
const DEFERRED_PAUSE: Duration = Duration::from_secs(2);

/// The pause before a job whose owner's kind is not listed is tried again.
const PARENT_PAUSE: Duration = Duration::from_secs(5);

/// How long a job waits before it is shown as suspended. Why not at once: a job that is placed sooner costs no such write.
/// *Source*: `spec/experience.md 5`.
const WAIT_SHOWN_AFTER: Duration = Duration::from_secs(2);
/// The same for a job whose Workload was not refused quota. Why longer: the job is on its way to a worker, and in a burst of
/// jobs one more write for each would slow down all of them.
const WAIT_UNDERWAY_SHOWN_AFTER: Duration = Duration::from_secs(30);
/// The API server cuts creation times to this unit.
const CREATION_GRAIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) config: Arc<Config>,
    pub(crate) due: Arc<Queue<JobRef>>,
    pub(crate) workloads_due: Arc<Queue<Key>>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) checks: CheckList,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
}

impl Jobs {
    /// Makes a job due whenever it or one of its Workloads changes.
    pub(crate) fn listen(&self) {
        for (kind, jobs) in self.caches.jobs.iter().enumerate() {
            let (due, of_kind) = (self.due.clone(), jobs.clone());
            jobs.objects.listen(move |change| {
                for object in [change.old, change.new].into_iter().flatten() {
                    let key = of_kind.key_of(object);
                    due.add(JobRef { kind, key }, Lane::New);
                }
            });
        }
        self.listen_for_children();
        self.listen_for_companions();
        self.listen_for_gates();
        let (due, caches) = (self.due.clone(), self.caches.clone());
        self.caches.workloads.listen(move |change| {
            for workload in [change.old, change.new].into_iter().flatten() {
                if let Some(job) = job_of(&caches, workload) {
                    due.add(job, Lane::Placed);
                }
            }
            // Why: the deleted Workload may have had the name of a pod group without belonging to it, and the group can now get
            // its own.
            if change.new.is_none()
                && let Some(kind) = caches.jobs.iter().position(KindCache::has_groups)
            {
                let key = JobKey::Group(change.key.clone());
                due.add(JobRef { kind, key }, Lane::New);
            }
            if change.new.is_some_and(|w| w.metadata.owner_references.is_none()) {
                for job in caches.prebuilt.of(change.key) {
                    due.add(job, Lane::Placed);
                }
            }
        });
        // Why: a job whose priority class does not exist waits for it.
        let (due, caches) = (self.due.clone(), self.caches.clone());
        self.caches.workload_classes.listen(move |change| {
            if change.old.is_some() == change.new.is_some() {
                return;
            }
            for (kind, jobs) in caches.jobs.iter().enumerate() {
                for job in jobs.objects.all() {
                    if job.labels().get(labels::PRIORITY_CLASS).map(String::as_str) == Some(&*change.key.name)
                    {
                        let key = jobs.key_of(&job);
                        due.add(JobRef { kind, key }, Lane::New);
                    }
                }
            }
        });
        // Why all jobs of the namespace: the namespace's labels decide whether a job is managed.
        let (due, caches) = (self.due.clone(), self.caches.clone());
        self.caches.namespaces.listen(move |change| {
            let labels = |n: Option<&Arc<k8s_openapi::api::core::v1::Namespace>>| {
                n.and_then(|n| n.metadata.labels.clone())
            };
            if labels(change.old) == labels(change.new) {
                return;
            }
            for (kind, jobs) in caches.jobs.iter().enumerate() {
                for job in jobs.objects.all() {
                    let key = jobs.key_of(&job);
                    if *key.key().namespace == *change.key.name {
                        due.add(JobRef { kind, key }, Lane::New);
                    }
                }
            }
        });
    }

    /// Makes a job due whenever an object changes that its controller made for it.
    fn listen_for_companions(&self) {
        for (kind, jobs) in self.caches.jobs.iter().enumerate() {
            let Some(companions) = jobs.companions() else {
                continue;
            };
            let (due, own) = (self.due.clone(), jobs.objects.clone());
            companions.listen(move |change| {
                if own.get(change.key).is_some() {
                    let key = JobKey::Object(change.key.clone());
                    due.add(JobRef { kind, key }, Lane::New);
                }
            });
        }
    }

    pub(crate) async fn reconcile(self, at: JobRef) -> Outcome {
        let Some(jobs) = self.caches.jobs.get(at.kind).cloned() else {
            return Outcome::Done;
        };
        let Some(job) = jobs.job(&at.key) else {
            return Outcome::Done;
        };
        if jobs.kind.is_external() {
            return self.follow_copy(&jobs, &at, job.first()).await;
        }
        let is_parent = jobs.kind.kind().members == Members::WithPods;
        if is_parent || !jobs.kind.is_queued(member(job.first())) {
            return Outcome::Done;
        }
        let top = match self.top(&jobs, &at, job.first()).await {
            Ok(top) => top,
            Err(stop) => return self.without_top(&jobs, job.first(), stop),
        };
        let is_made = top.is_some() || parents::said(job.first()).is_some();
        if !is_made && !parents::is_listed(&self.config, jobs.kind.kind()) {
            return Outcome::Done;
        }
        if let Some(outcome) = self.replace(&jobs, &at, job.first()).await {
            return outcome;
        }
        let scene = match read::scene(&self, &jobs, job.clone(), top.as_ref()) {
            Ok(scene) => scene,
            Err(problem) => {
                // Why not an error: the job stays as it is until its user corrects it, and that change makes it due.
                self.tell(&jobs, job.first(), vec![problem]);
                return Outcome::Done;
            }
        };
        if let Err(outcome) = write::tend(&self, &jobs, &scene).await {
            return outcome;
        }
        let mut plan = job::plan(&scene.observed());
        let mut writes = Vec::new();
        for action in plan.actions {
            if let job::Action::Start(_) = action
                && scene
                    .current_workload()
                    .is_some_and(|w| !self.checks.may_start(w))
            {
                plan.notes.retain(|note| note.reason != job::STARTED);
                continue;
            }
            match write::act(&self, &jobs, &scene, action).await {
                Ok(more) => writes.extend(more),
                Err(outcome) => return outcome,
            }
        }
        let of_group = scene.group.is_some().then_some(&*writes);
        for note in plan.notes {
            for object in told::about(&note, &job, of_group) {
                self.tell(&jobs, object, vec![note.clone()]);
            }
        }
        if let Some(workload) = scene.current_workload()
            && let Some(outcome) = self.mirror(&jobs, &at, workload).await
        {
            return outcome;
        }
        let shown = self.show_wait(&jobs, &at, &scene).await;
        match plan.follow_up {
            FollowUp::OnChange => shown,
            FollowUp::Retry => Failure::passing("waiting for surplus workloads to go").into(),
            FollowUp::Adoption => Outcome::After(ADOPTION_PAUSE),
            FollowUp::PrebuiltMissing => Failure::passing("prebuilt workload not found").into(),
        }
    }

    /// The managed object above a job. Pods are jobs of their own, whatever owns them. *Source*: `spec/jobs.md 5.1` steps 4, 5.
    async fn top(
        &self,
        jobs: &KindCache,
        at: &JobRef,
        object: &DynamicObject,
    ) -> Result<Option<Top>, Stop<Missing>> {
        let is_group = jobs.kind.kind().members == Members::Group;
        if is_group || read::scope(self, at.key.key()) == Scope::Outside {
            return Ok(None);
        }
        ancestors::learn(&self.client, &self.caches, object).await
    }

    /// Deletes a held child of a job that would never be started; the job's controller creates it again. `None` when it is not
    /// such a child.
    async fn replace(&self, jobs: &KindCache, at: &JobRef, object: &DynamicObject) -> Option<Outcome> {
        let (parents, parent) = ancestors::parent(&self.caches, object)?;
        let (child, outlives) = (member(object), JobKind::outlives);
        if object.metadata.deletion_timestamp.is_some() || !outlives(parents.kind, member(&parent), child) {
            return None;
        }
        let write = Write::Delete { of: child.id() };
        let done = write::carry_out(self, jobs, at.key.key(), write).await;
        if done.is_ok() {
            let text = format!(
                "Deleted {}, which was held, so that it is made anew",
                object.name_any()
            );
            let resource = &parents.resource;
            self.recorder.record(
                parent.object_ref(resource),
                Note::normal("DeletedHeldChild", text),
            );
        }
        Some(done.err().unwrap_or(Outcome::Done))
    }

    /// The outcome when the owners above a job cannot be determined: the job stays as it is.
    fn without_top(&self, jobs: &KindCache, object: &DynamicObject, stop: Stop<Missing>) -> Outcome {
        let note = match stop {
            Stop::Unread(Missing::Unlisted(_)) => return Outcome::After(PARENT_PAUSE),
            Stop::Unread(Missing::Unreadable(failure)) => return failure.into(),
            Stop::Unread(Missing::Unread(owner)) => {
                let why = format!("its owner {} {} is not known", owner.kind, owner.name);
                return Failure::passing(why).into();
            }
            Stop::TooDeep => Note::warning("JobNestingTooDeep", ancestors::TOO_DEEP),
            Stop::Cyclic => Note::warning("InvalidJob", ancestors::CYCLIC),
        };
        self.tell(jobs, object, vec![note]);
        Outcome::Done
    }

    /// Shows the status of the copies on a job that is only dispatched here. Nothing else of it is touched.
    async fn follow_copy(&self, jobs: &KindCache, at: &JobRef, job: &DynamicObject) -> Outcome {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        for key in self.caches.workloads_of(&at.key, uid) {
            if let Some(workload) = self.caches.workloads.get(&key)
                && workload.cluster_name().is_some()
                && let Some(outcome) = self.mirror(jobs, at, &workload).await
            {
                return outcome;
            }
        }
        Outcome::Done
    }

    /// Shows the status of the copies on the local job, or what is known when no copy is left.
    async fn mirror(&self, jobs: &KindCache, at: &JobRef, workload: &Workload) -> Option<Outcome> {
        let elsewhere = self.checks.runs_elsewhere(workload, &at.key)?;
        if let Err(failed) = self.settle(jobs, at, &elsewhere).await {
            return Some(failed);
        }
        // Why read again: this pass may just have written the job.
        let local = jobs.job(&at.key)?;
        let now = (self.clock)();
        // Why only the end for a kind whose jobs stay suspended here: the kind's controller would overwrite any other status.
        let is_held = jobs.kind.kind().idle == Idle::Held;
        let show = |remote: Remote<'_>| local.with(|local| jobs.kind.mirror(local, remote, now));
        let mirror = match (&elsewhere.job, elsewhere.fate) {
            (Some(copies), _) if is_held && copies.look(jobs.kind).ended.is_none() => return None,
            (Some(copies), _) => copies.with(|copies| show(Remote::Copies(copies))),
            (None, Fate::Unknown) => return None,
            // Why: nothing else makes the job due when the facts are known again.
            (None, Fate::NotYet) => return Some(Outcome::After(DEFERRED_PAUSE)),
            (None, Fate::AtRest) => show(Remote::AtRest),
            (None, Fate::Ended) => show(Remote::Ended(&read::ended(workload)?)),
        };
        for write in mirror.writes {
            if let Err(failed) = write::carry_out(self, jobs, at.key.key(), write).await {
                return Some(failed);
            }
        }
        mirror.is_deferred.then_some(Outcome::After(DEFERRED_PAUSE))
    }

    /// Puts the objects of the local job on the virtual node that stands for the cluster of their copies.
    async fn settle(&self, jobs: &KindCache, at: &JobRef, elsewhere: &Elsewhere) -> Result<(), Outcome> {
        let (Some(copies), Some(node)) = (&elsewhere.job, &elsewhere.node) else {
            return Ok(());
        };
        // Why twice: the first round removes the gates of the pods, the second binds them.
        for _ in 0..2 {
            let Some(local) = jobs.job(&at.key) else {
                return Ok(());
            };
            let writes = local.with(|local| copies.with(|copies| jobs.kind.settle(local, copies, node)));
            for write in writes {
                write::carry_out(self, jobs, at.key.key(), write).await?;
            }
        }
        Ok(())
    }

    /// Shows on a job that it is waiting, once it has waited for a while.
    async fn show_wait(&self, jobs: &KindCache, at: &JobRef, scene: &read::Scene) -> Outcome {
        let (Some(local), Some(workload)) = (jobs.job(&at.key), scene.current_workload()) else {
            return Outcome::Done;
        };
        if workload.cluster_name().is_some() || workload.is_true("Finished") {
            return Outcome::Done;
        }
        let now = (self.clock)();
        let Some(write) = local.with(|local| jobs.kind.show_wait(local, now)) else {
            return Outcome::Done;
        };
        let created = local.first().metadata.creation_timestamp.as_ref();
        let waited = created.and_then(|time| Duration::try_from(now.duration_since(time.0)).ok());
        let is_refused =
            { workload.condition("QuotaReserved") }.is_some_and(|reserved| reserved.status == "False");
        let shown_after = if is_refused {
            WAIT_SHOWN_AFTER
        } else {
            WAIT_UNDERWAY_SHOWN_AFTER
        };
        let due = shown_after + CREATION_GRAIN;
        match waited.and_then(|waited| due.checked_sub(waited)) {
            Some(rest) if !rest.is_zero() => Outcome::After(rest),
            Some(_) | None => match write::carry_out(self, jobs, &scene.key, write).await {
                Ok(()) => Outcome::Done,
                Err(failed) => failed,
            },
        }
    }

    fn tell(&self, jobs: &KindCache, object: &DynamicObject, notes: Vec<Note>) {
        for note in notes {
            self.recorder.record(object.object_ref(&jobs.resource), note);
        }
    }
}
