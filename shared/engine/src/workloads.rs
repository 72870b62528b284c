//! The workload reconciler: the only writer of a Workload's status and of its `spec.active`. It also keeps `spec.priority` at the
//! value of the class that the Workload names, and deletes Workloads whose retention time is over.
//!
//! One pass reads caches, and the Workload itself when the result of an earlier write is unknown. Then [`lifecycle::step`], the
//! process's [`Checks`] and [`lifecycle::settle`] compose the new status. The pass writes the difference as one patch, and then
//! does what follows.
//!
//! Invariant: parts of the status that users see change together are written together, with the resourceVersion that was read.

mod follow;
mod policy;
mod read;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, ClusterQueueSpec, Workload};
use roadstead_core::dispatch::LostPolicy;
use roadstead_core::lifecycle::{self, Policy, Proposal, Request};
use roadstead_core::name::{Key, Uid};
use roadstead_core::note::Note;
use roadstead_core::state::Event;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::events::Recorder;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{CONFLICT_PAUSE, Outcome};
use roadstead_kubeio::write::{self, Written};
use serde_json::json;
use tokio::sync::mpsc;

use crate::brain::until;
use crate::caches::Caches;
use crate::checks::{CheckList, Pass, Rest};
use crate::clock::Clock;
use crate::control;
use crate::proposals::Proposals;

pub(crate) use policy::policy;

/// What the job reconciler asks the workload reconciler to write, by Workload.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<Key, (Uid, Request)>>);

impl Requests {
    /// Asks for a write; the newest request for a Workload counts.
    pub(crate) fn put(&self, key: Key, uid: Uid, request: Request) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, (uid, request));
    }

    fn get(&self, key: &Key, uid: &Uid) -> Option<Request> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key)
            .filter(|(about, _)| about == uid)
            .map(|(_, request)| request.clone())
    }

    fn settle(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[derive(Clone)]
pub(crate) struct Workloads {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) policy: Policy,
    pub(crate) due: Arc<Queue<Key>>,
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) mail: mpsc::Sender<Event>,
    pub(crate) checks: CheckList,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

impl Workloads {
    /// Makes a Workload due whenever it, its job, or an object it depends on changes.
    pub(crate) fn listen(&self) {
        let due = self.due.clone();
        self.caches
            .workloads
            .listen(move |change| due.add(change.key.clone(), lane(change.new.map(|w| &**w))));
        for jobs in self.caches.jobs.iter() {
            let (due, caches) = (self.due.clone(), self.caches.clone());
            let of_kind = jobs.clone();
            jobs.objects.listen(move |change| {
                for job in [change.old, change.new].into_iter().flatten() {
                    for key in control::workloads_of(&caches, &of_kind, job) {
                        due.add(key, Lane::Placed);
                    }
                }
            });
        }
        // Why all Workloads: a queue, check or flavor changes seldom, and a pass over each Workload is cheap.
        let everybody = |due: Arc<Queue<Key>>, caches: Caches| {
            move || {
                for workload in caches.workloads.all() {
                    due.add(roadstead_kubeio::cache::key_of(&*workload), Lane::New);
                }
            }
        };
        let all = everybody(self.due.clone(), self.caches.clone());
        self.caches.cluster_queues.listen(move |change| {
            if change.old.map(|q| wishes(q)) != change.new.map(|q| wishes(q)) {
                all();
            }
        });
        let all = everybody(self.due.clone(), self.caches.clone());
        self.caches.local_queues.listen(move |change| {
            if change.old.map(|q| &q.spec) != change.new.map(|q| &q.spec) {
                all();
            }
        });
        let due = self.due.clone();
        self.caches.on_recount(move |workload| {
            due.add(roadstead_kubeio::cache::key_of(&**workload), Lane::New);
        });
        let all = everybody(self.due.clone(), self.caches.clone());
        self.caches.workload_classes.listen(move |change| {
            if change.old.map(|c| c.spec.value) != change.new.map(|c| c.spec.value) {
                all();
            }
        });
        let all = everybody(self.due.clone(), self.caches.clone());
        self.caches.checks.listen(move |change| {
            if change.old.map(|c| &c.spec) != change.new.map(|c| &c.spec) {
                all();
            }
        });
    }

    /// Makes the Workloads of a kind due whenever its jobs become known.
    pub(crate) async fn follow(self, kind: usize) {
        let Some(mut health) = self.caches.jobs.get(kind).map(|jobs| jobs.objects.health()) else {
            return std::future::pending().await;
        };
        loop {
            health.wait_for(Health::is_settled).await;
            for workload in self.caches.workloads.all() {
                if control::of(&self.caches, &workload).is_some_and(|(job, _)| job.kind == kind) {
                    self.due
                        .add(roadstead_kubeio::cache::key_of(&*workload), Lane::Placed);
                }
            }
            health.changed().await;
        }
    }

    pub(crate) async fn reconcile(self, key: Key) -> Outcome {
        if let Err(outcome) = self.look_again(&key).await {
            return outcome;
        }
        let Some(stored) = self.caches.workloads.get(&key) else {
            self.caches.unsure.settle(&key);
            self.requests.settle(&key);
            self.proposals.forget(&key);
            self.checks.gone(&key);
            return Outcome::Done;
        };
        let now = (self.clock)();
        let workload = self.caches.counted(&stored);
        let proposal = self.proposals.get(&key, &workload.uid);
        let request = self.requests.get(&key, &workload.uid);
        // Why nothing while the facts are unknown: a job that is only not listed yet must not count as deleted. The Workload
        // becomes due when the job is known.
        let Some(mut facts) = read::facts(&self.caches, self.policy, (&stored, &workload), now) else {
            return Outcome::Done;
        };
        if let Some(there) = self.checks.there(&stored) {
            facts = facts.there(there);
        }
        if self.checks.may_run_elsewhere(&stored) {
            facts = facts.running();
        }
        let mut next = lifecycle::step(
            &facts.observed(&workload, request.as_ref(), proposal.as_ref()),
            now,
        );
        let pass = Pass {
            stored: &stored,
            workload: &workload,
        };
        let follow = self.checks.plan(&pass, &mut next.status, now);
        // Why not for a Workload that is being deleted: nothing would record where its job ran.
        let goes = stored.metadata.deletion_timestamp.is_some();
        if follow.rest == Rest::Certain && !facts.at_rest() && !goes {
            // Why a second step: the job no longer runs on any worker, so quota is released now. The status for which the first
            // step waits never comes.
            facts = facts.rested();
            let evicted = roadstead_core::workload::Workload {
                status: next.status.clone(),
                ..workload.clone()
            };
            next = lifecycle::step(&facts.observed(&evicted, request.as_ref(), None), now);
        }
        next.notes.extend(follow.notes);
        next.notes.extend(lifecycle::settle(
            &mut next.status,
            facts.job(),
            facts.policy(),
            now,
        ));

        if self.policy.words == lifecycle::Words::Older {
            lifecycle::use_older_words(&workload.status, &mut next);
        }

        let stored = match self.annotate(stored, &follow.annotate, &next.status).await {
            Ok(stored) => stored,
            Err(outcome) => return outcome,
        };
        if let Some(patch) = roadstead_convert::status_patch(&stored, &next.status)
            && let Some(outcome) = self.store(&stored, patch, proposal.as_ref()).await
        {
            return outcome;
        }
        if let Some(proposal) = &proposal {
            self.proposals.settle(&key, proposal);
            let taken = next.status.conditions.is_true(lifecycle::QUOTA_RESERVED);
            if matches!(proposal, Proposal::Reserve { .. }) && !taken {
                self.withdraw(&workload.key, &workload.uid).await;
            }
        }
        self.tell(&stored, next.notes);
        if let Err(outcome) = self.change_spec(&stored, next.active, next.finalizer).await {
            return outcome;
        }
        if let Err(outcome) = self.remove(&stored, next.removal).await {
            return outcome;
        }
        if let Some(work) = follow.work
            && let Err(failure) = work.await
        {
            return failure.into();
        }
        let wake_at = [next.wake_at, follow.wake_at, facts.pods_end_by()]
            .into_iter()
            .flatten()
            .min();
        until(wake_at, now).map_or(Outcome::Done, Outcome::After)
    }

    /// Reads a Workload again if the result of an earlier write is unknown. Why not wait for the watch: it may be as silent as
    /// the write was, and a copy that the stored status names would be deleted.
    async fn look_again(&self, key: &Key) -> Result<(), Outcome> {
        if !self.caches.is_unsure(key) {
            return Ok(());
        }
        // Why the UID is taken before the read: a Workload of the same name that is created during the read is another one.
        let uid = { self.caches.workloads.get(key) }.and_then(|cached| cached.metadata.uid.clone());
        let api: Api<Workload> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.get(&key.name).await {
            // Why no list from here: the task of the watch lists everything again, and a list here would hold up every
            // Workload.
            Ok(stored) if self.caches.unsure.is_ahead_of(&stored) => {
                let why = "the API server stores an older version than it has shown, as after a restore of its etcd from a backup; \
                     nothing is done for it until everything is listed again";
                return Err(Failure::passing(why).into());
            }
            Ok(stored) => self.caches.workloads.observe(stored),
            // Why strict: a Workload that is wrongly believed deleted is stopped on every worker.
            Err(error) if uid.is_some() && write::says_gone(&error, &key.name) => {
                self.caches.workloads.forget(key, uid.as_deref());
            }
            Err(error) => {
                let what =
                    "the result of an earlier write is not known, and reading the Workload again failed";
                return Err(Failure::of(&error).in_doing(what).into());
            }
        }
        self.caches.unsure.settle(key);
        Ok(())
    }

    /// Writes the status. `Some` ends the pass.
    async fn store(
        &self,
        stored: &Workload,
        mut patch: serde_json::Value,
        proposal: Option<&Proposal>,
    ) -> Option<Outcome> {
        let meta = &stored.metadata;
        patch["metadata"] = json!({ "resourceVersion": meta.resource_version, "uid": meta.uid });
        let key = roadstead_kubeio::cache::key_of(stored);
        self.caches.unsure.note(stored);
        let answer = write::patch_status(
            &self.api(stored),
            meta.name.as_deref().unwrap_or_default(),
            &patch,
        )
        .await;
        match answer {
            Written::Done(object) => {
                self.caches.workloads.observe(*object);
                self.caches.unsure.settle(&key);
                None
            }
            Written::Gone => Some(not_found("writing the status").into()),
            Written::Conflict | Written::AlreadyExists => Some(Outcome::After(CONFLICT_PAUSE)),
            Written::Unclear(why) => {
                if write::lacked_webhook(&why) {
                    self.caches.unsure.settle(&key);
                }
                let what = "writing the status was not answered";
                Some(Failure::passing(why).in_doing(what).into())
            }
            Written::Refused(why) => {
                self.caches.unsure.settle(&key);
                let now = (self.clock)();
                if proposal.is_some_and(|proposal| self.proposals.refused(&key, proposal, now)) {
                    self.withdraw(&key, &Uid::new(meta.uid.clone().unwrap_or_default()))
                        .await;
                }
                let what = "the API server refused the status";
                Some(Failure::lasting(why).in_doing(what).into())
            }
        }
    }

    /// Tells the brain that a reservation will not be written.
    async fn withdraw(&self, key: &Key, uid: &Uid) {
        let event = Event::ReserveFailed {
            key: key.clone(),
            uid: uid.clone(),
        };
        // Why a failure is ignored: the brain's mailbox is closed only when the process is ending.
        let _ = self.mail.send(event).await;
    }

    fn tell(&self, stored: &Workload, notes: Vec<Note>) {
        for note in notes {
            self.recorder
                .record(kube::Resource::object_ref(stored, &()), note);
        }
    }

    fn api(&self, stored: &Workload) -> Api<Workload> {
        Api::namespaced(
            self.client.clone(),
            stored.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }
}

/// The failure after a "not found". Why the object does not count as deleted yet: a proxy answers 404 too, so the object is
/// read again.
fn not_found(what: &str) -> Failure {
    Failure::passing(format!(
        "{what} was answered by \"not found\" (404); it is read again"
    ))
}

/// The parts of a queue on which its Workloads depend. Why the policy for lost workers: a job on a lost worker may wait for
/// another policy, and only that change makes it due.
fn wishes(queue: &ClusterQueue) -> (&ClusterQueueSpec, Option<LostPolicy>) {
    let policy = roadstead_convert::lost_policy(queue.metadata.annotations.as_ref());
    (&queue.spec, policy)
}

/// Work on Workloads that hold quota goes before new work.
fn lane(workload: Option<&Workload>) -> Lane {
    match workload {
        Some(workload) if !workload.is_true(lifecycle::QUOTA_RESERVED) => Lane::New,
        Some(_) | None => Lane::Placed,
    }
}
