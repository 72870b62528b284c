//! No cluster is chosen yet: the plan offers the Workload, and takes the first answer.

use jiff::{SignedDuration, Timestamp};

use super::capacity::{Closed, Room};
use super::observed::{
    Answer, Cause, Copies, Cordon, Dispatcher, Drift, Life, LostPolicy, Remote, RemoteWorkload,
};
use super::waiting::{Missing, Waiting};
use super::{Pass, RemoteAction, admitted_on, false_end};
use crate::kind::KindState;
use crate::lease::Tenure;
use crate::moment::later;
use crate::name::{CheckName, ClusterName};
use crate::note::Severity;
use crate::status::CheckPhase;

/// How long after the reservation workers may take to answer before the user is told why a Workload waits. A worker without a
/// running engine never answers.
const ANSWER_WAIT: SignedDuration = SignedDuration::from_secs(30);

/// What a listed cluster can do for a Workload that seeks a place.
pub(super) enum Standing<'a> {
    Silent,
    /// It failed in this pass or before.
    Failed {
        cause: Cause,
        detail: &'a str,
        until: Option<Timestamp>,
    },
    /// It takes nothing new.
    Cordoned,
    NotServed,
    /// Its jobs of this kind cannot be read; the text says why.
    Unreadable(&'a str),
    /// Its copies of an earlier round must be removed first.
    Clearing,
    /// It can take a copy, or has one.
    Open(Option<&'a RemoteWorkload>),
}

impl<'a> Pass<'a> {
    pub(super) fn seek(&mut self, check: &CheckName) {
        let listed: Vec<_> = self.o.clusters.iter().map(|c| (c, self.standing(c))).collect();
        for (cluster, standing) in &listed {
            if let Standing::Failed {
                cause,
                detail,
                until: None,
            } = standing
                // Why not a lapsed lease: the next renewal ends that, so no pause is needed.
                && !self.has_lapsed(cluster)
                // Why not `JobFailed`: that failure is stored already.
                && *cause != Cause::JobFailed
            {
                self.fail(cluster, *cause, detail);
            }
        }
        if let Some(winner) = self.winner(&listed) {
            return self.choose(check, &winner);
        }
        let obstacle = self.obstacle(check);
        // Why not with an obstacle: then no round of the dispatcher begins.
        let offered = if obstacle.is_none() {
            self.offer(&listed)
        } else {
            Vec::new()
        };
        if obstacle.is_none() && !same_set(&self.plan.status.nominated, &offered) {
            self.plan.status.nominated.clone_from(&offered);
        }
        self.spread(&offered, obstacle.is_some());
        if obstacle.is_none() {
            self.look_for_needs(&listed);
        }
        let waiting = obstacle
            .or_else(|| self.not_offered(&offered))
            .unwrap_or_else(|| self.top_reason(&listed, &offered));
        let ends = self
            .o
            .clusters
            .iter()
            .filter_map(|cluster| self.patience_with(cluster));
        if let Some(until) = { ends.chain(self.patience()) }
            .filter(|until| *until > self.now)
            .min()
        {
            self.wake(until);
        }
        if self.is_settled(&waiting, &listed, &offered) {
            self.set_check(check, CheckPhase::Pending, waiting.to_string());
        }
        self.plan.waiting = Some(waiting);
    }

    /// Until when workers that have been asked are expected to answer.
    fn patience(&self) -> Option<Timestamp> {
        let reserved = self.o.stored.conditions.get("QuotaReserved")?;
        Some(later(reserved.since, ANSWER_WAIT))
    }

    /// The same for one worker. Why a failure moves this time: the worker is asked again only after it, and until the worker answers, the
    /// user goes on reading what failed.
    fn patience_with(&self, cluster: &ClusterName) -> Option<Timestamp> {
        let failure = self.o.failures.get(cluster);
        self.patience()
            .max(failure.map(|failure| later(failure.until, ANSWER_WAIT)))
    }

    /// Whether the manager still waits for the answer of a worker before it tells the user why the Workload waits.
    pub(super) fn may_yet_answer(&self, cluster: &ClusterName) -> bool {
        self.patience_with(cluster).is_none_or(|until| self.now < until)
    }

    /// Asks the clusters that lacked an object whether they have it by now.
    fn look_for_needs(&mut self, listed: &[(&'a ClusterName, Standing<'a>)]) {
        for (cluster, standing) in listed {
            let is_failed = matches!(standing, Standing::Failed { until: Some(_), .. });
            let failure = self.o.failures.get(*cluster).filter(|_| is_failed);
            if failure.is_some_and(|failure| failure.is_over(self.now)) {
                self.act(cluster, RemoteAction::LookForNeeds);
            }
        }
    }

    fn standing(&mut self, cluster: &ClusterName) -> Standing<'a> {
        let copies = match self.o.remotes.get(cluster) {
            Some(Remote::Reachable(copies)) => copies,
            Some(Remote::Unreadable { why }) => return Standing::Unreadable(why),
            Some(Remote::Unreachable { .. }) | None => return Standing::Silent,
        };
        if self.site(cluster).cordon != Cordon::Open {
            return Standing::Cordoned;
        }
        if self.site(cluster).kind == KindState::NotServed {
            return Standing::NotServed;
        }
        if self.o.elsewhere.failed_on.contains(cluster) {
            return Standing::Failed {
                cause: Cause::JobFailed,
                detail: "",
                until: None,
            };
        }
        if self.has_lapsed(cluster) {
            return Standing::Failed {
                cause: Cause::LeaseLapsed,
                detail: "",
                until: None,
            };
        }
        if let Some(failure) = self.o.failures.get(cluster).filter(|f| f.excludes(self.now)) {
            if !failure.is_over(self.now) {
                self.wake(failure.until);
            }
            return Standing::Failed {
                cause: failure.cause,
                detail: &failure.detail,
                until: Some(failure.until),
            };
        }
        let workload = copies.our_workload();
        if workload.is_some_and(|w| w.fenced && w.epoch == self.o.epoch) && self.was_never_leased(cluster) {
            return Standing::Failed {
                cause: Cause::LeaseLapsed,
                detail: "",
                until: None,
            };
        }
        // Why before failures: a copy of an earlier round says nothing about this one. Why any job of ours: a job is created only after the
        // decision, so this one is of an earlier round. Why a fenced copy: only the manager can end the fence, by replacing the copy.
        if copies.our_job().is_some()
            || copies.has_former_job()
            || workload.is_some_and(|w| w.life != Life::Present || w.epoch != self.o.epoch || w.fenced)
        {
            return Standing::Clearing;
        }
        if let Some((cause, detail)) = failure_of(copies) {
            return Standing::Failed {
                cause,
                detail,
                until: None,
            };
        }
        Standing::Open(workload)
    }

    /// Whether the worker stops the jobs that it is given, because our lease there was not renewed for too long
    /// (`spec/safety.md 3.3`).
    pub(super) fn has_lapsed(&self, cluster: &ClusterName) -> bool {
        self.o.policy.lost == LostPolicy::Fence && self.site(cluster).lease == Tenure::Lapsed
    }

    /// Whether this process has seen no lease of this manager there. The lease may have lapsed before this process began: only the worker
    /// knows, and shows it by the jobs that it stops.
    pub(super) fn was_never_leased(&self, cluster: &ClusterName) -> bool {
        self.o.policy.lost == LostPolicy::Fence && self.site(cluster).lease == Tenure::Never
    }

    /// The first cluster, in config order, whose copy is admitted.
    ///
    /// Unlike the anchor: the times of admission are not compared, because they come from different clocks (`spec/safety.md` W2).
    fn winner(&self, listed: &[(&'a ClusterName, Standing<'a>)]) -> Option<ClusterName> {
        // Invariant: no decision while a run of an earlier round may still be alive somewhere.
        let still_runs = self.reachable().any(|(_, copies)| copies.has_unended_job());
        // Why not behind another Workload: both may have been offered at the same moment, and admitted by different clusters.
        if still_runs || !self.o.job.present || self.o.job.finished || self.o.behind.is_some() {
            return None;
        }
        let nominated = &self.o.stored.nominated;
        let admitted = listed.iter().find(|(cluster, standing)| match standing {
            // Wire: the webhook accepts only a cluster that was nominated before (`spec/multikueue.md` 1.6).
            Standing::Open(Some(w)) => {
                let early = bug!(self.o.policy, WinnerTooEarly) && w.answer == Answer::Reserved;
                (w.admitted.is_some() || early) && w.evicted.is_none() && nominated.contains(cluster)
            }
            Standing::Open(None)
            | Standing::Silent
            | Standing::Failed { .. }
            | Standing::Cordoned
            | Standing::NotServed
            | Standing::Unreadable(_)
            | Standing::Clearing => false,
        });
        admitted.map(|(cluster, _)| (*cluster).clone())
    }

    /// Names the winner. Its job is created, and the other copies are deleted, only after the name is stored.
    ///
    /// Why not now: the manager plans for each worker in a separate queue. The winner's queue may not have seen the admission yet. It would
    /// treat the winner as a loser, and delete the copy that is being chosen.
    pub(super) fn choose(&mut self, check: &CheckName, winner: &ClusterName) {
        let message = admitted_on(winner);
        self.note(Severity::Routine, message.clone());
        self.set_check(check, CheckPhase::Ready, message);
        self.plan.status.cluster = Some(winner.clone());
        self.plan.status.nominated.clear();
        self.plan.wake_at = None;
        if bug!(self.o.policy, LosersGoEarly) {
            self.remove_elsewhere(winner);
        }
    }

    /// Creates copies on the clusters that the Workload is offered to, and removes the others. With an obstacle (`keep_copies`) usable
    /// copies stay as they are.
    fn spread(&mut self, offered: &[ClusterName], keep_copies: bool) {
        for (cluster, copies) in self.reachable() {
            let listed = self.o.clusters.contains(cluster);
            let standing = if listed {
                self.standing(cluster)
            } else {
                Standing::Silent
            };
            match standing {
                Standing::Open(None) if offered.contains(cluster) => {
                    self.act(cluster, RemoteAction::CreateWorkload);
                }
                Standing::Open(Some(w)) if keep_copies || offered.contains(cluster) => {
                    if w.drift == Drift::Priority {
                        self.act(cluster, RemoteAction::SetPriority);
                    }
                }
                // Why the copy stays: another pass may be storing the choice of this cluster just now, and this plan must not delete the
                // chosen copy.
                Standing::Silent | Standing::Cordoned if self.is_to_be_dropped(cluster) => {}
                Standing::Open(_)
                | Standing::Silent
                | Standing::Failed { .. }
                | Standing::Cordoned
                | Standing::NotServed
                | Standing::Unreadable(_)
                | Standing::Clearing => {
                    self.remove(cluster, copies);
                }
            }
        }
    }

    /// Whether this plan drops a cluster from those that are asked, and the drop is not stored yet.
    fn is_to_be_dropped(&self, cluster: &ClusterName) -> bool {
        self.o.stored.nominated.contains(cluster) && !self.plan.status.nominated.contains(cluster)
    }

    /// What keeps the Workload from being offered at all. *Source*: `spec/multikueue.md 3.3 R8`.
    fn obstacle(&self, check: &CheckName) -> Option<Waiting> {
        let others = self.plan.status.checks.iter().filter(|(name, _)| *name != check);
        let checks: Vec<_> = others
            .filter(|(_, state)| state.phase != CheckPhase::Ready)
            .map(|(name, _)| name.clone())
            .collect();
        if !checks.is_empty() {
            return Some(Waiting::OtherChecks { checks });
        }
        if !self.o.workload.active {
            return Some(Waiting::Deactivated);
        }
        if !self.o.job.present || self.o.job.finished {
            return Some(Waiting::NoLocalJob);
        }
        self.o
            .behind
            .map(|first| Waiting::BehindAnother { first: first.clone() })
    }

    /// Whether the reason will stay for a while, so that it is worth a write: users read it in the check's message.
    ///
    /// Unlike the anchor: there the message of a pending check is empty (`spec/experience.md` P4).
    fn is_settled(
        &self,
        waiting: &Waiting,
        listed: &[(&'a ClusterName, Standing<'a>)],
        offered: &[ClusterName],
    ) -> bool {
        match waiting {
            Waiting::NoClusterListed
            | Waiting::NoClusterConnected { .. }
            | Waiting::ClusterFailed { .. }
            | Waiting::QueueClosed { .. }
            | Waiting::Missing { .. }
            | Waiting::Cordoned { .. }
            | Waiting::KindNotServed { .. }
            | Waiting::KindNotReadable { .. }
            | Waiting::NotNominated { .. } => true,
            // Why all of them: shortly before a worker with room answers, the others may have answered already.
            Waiting::WaitingForWorkers { .. } => {
                let has_answered = |standing: &Standing<'_>, cluster| match standing {
                    Standing::Open(Some(copy)) => copy.answer != Answer::None,
                    Standing::Open(None) => !offered.contains(cluster),
                    Standing::Silent
                    | Standing::Failed { .. }
                    | Standing::Cordoned
                    | Standing::NotServed
                    | Standing::Unreadable(_)
                    | Standing::Clearing => true,
                };
                { listed.iter() }.all(|(cluster, standing)| {
                    has_answered(standing, cluster) || !self.may_yet_answer(cluster)
                })
            }
            // Why not earlier: usually the other Workload gets a cluster at once.
            Waiting::BehindAnother { .. } => self.patience().is_some_and(|until| self.now >= until),
            Waiting::OtherChecks { .. }
            | Waiting::Deactivated
            | Waiting::NoLocalJob
            | Waiting::StoppingOnWorker { .. }
            | Waiting::WorkerLost { .. } => false,
        }
    }

    /// The listed clusters that may take the Workload. With an external dispatcher they are those that it has nominated, or all as long as it has
    /// nominated none of them.
    fn hopeful<'b>(
        &self,
        listed: &'b [(&'a ClusterName, Standing<'a>)],
        offered: &'b [ClusterName],
    ) -> impl Iterator<Item = &'b (&'a ClusterName, Standing<'a>)> {
        let is_offered = |cluster: &ClusterName| offered.contains(cluster);
        let only_offered = self.is_external() && listed.iter().any(|(cluster, _)| is_offered(cluster));
        listed
            .iter()
            .filter(move |(cluster, _)| !only_offered || is_offered(cluster))
    }

    /// Why a cluster that could take a copy has none. `None` if its turn comes later: every dispatcher but an external one asks it by itself,
    /// after the clusters that it has asked already.
    fn why_not_asked(
        &self,
        cluster: ClusterName,
        listed: &[(&'a ClusterName, Standing<'a>)],
        offered: &[ClusterName],
    ) -> Option<Waiting> {
        match &self.site(&cluster).room {
            Room::Closed(why) => Some(Waiting::QueueClosed {
                why: why.clone(),
                cluster,
            }),
            Room::Unknown | Room::Fits { .. } | Room::Full { .. } | Room::TooLarge => {
                self.is_external().then(|| not_nominated(listed, offered))
            }
        }
    }

    fn is_external(&self) -> bool {
        self.o.policy.dispatcher == Dispatcher::External
    }

    /// The one reason that is shown: the most hopeful cluster decides.
    fn top_reason(&self, listed: &[(&'a ClusterName, Standing<'a>)], offered: &[ClusterName]) -> Waiting {
        let running = self.reachable().find(|(_, copies)| copies.has_unended_job());
        if let Some((cluster, _)) = running {
            return self.stopping(cluster);
        }
        let (mut reserved, mut queued, mut cordoned) = (Vec::new(), Vec::new(), Vec::new());
        let (mut clearing, mut failed, mut unasked, mut unserved) = (None, None, None, None);
        let (mut without_namespace, mut without_queue) = (Vec::new(), Vec::new());
        let mut silent = Vec::new();
        for (cluster, standing) in self.hopeful(listed, offered) {
            let cluster = (*cluster).clone();
            match standing {
                Standing::Open(Some(w)) if w.answer == Answer::Reserved => reserved.push(cluster),
                // Why also a cluster that was asked: every dispatcher but the one by capacity asks it, and its queue never answers.
                Standing::Open(copy)
                    if self.site(&cluster).room.closed_queue().is_some()
                        || (copy.is_none() && !offered.contains(&cluster)) =>
                {
                    if matches!(self.site(&cluster).room, Room::Closed(Closed::QueueMissing)) {
                        without_queue.push(cluster.clone());
                    }
                    unasked = unasked.or_else(|| self.why_not_asked(cluster, listed, offered));
                }
                Standing::Open(_) => queued.push(cluster),
                Standing::Cordoned => cordoned.push(cluster),
                Standing::Clearing => {
                    clearing.get_or_insert_with(|| self.stopping(&cluster));
                }
                Standing::Failed {
                    cause,
                    detail,
                    until: _,
                } => {
                    if *cause == Cause::NamespaceMissing {
                        without_namespace.push(cluster.clone());
                    }
                    failed.get_or_insert_with(|| Waiting::ClusterFailed {
                        cluster,
                        cause: *cause,
                        detail: (*detail).to_owned(),
                    });
                }
                Standing::NotServed => {
                    let kind = self.kind();
                    unserved.get_or_insert(Waiting::KindNotServed { cluster, kind });
                }
                Standing::Unreadable(why) => {
                    unserved.get_or_insert_with(|| self.unreadable(&cluster, why));
                }
                Standing::Silent => silent.push(cluster),
            }
        }
        if !reserved.is_empty() || !queued.is_empty() {
            return Waiting::WaitingForWorkers { reserved, queued };
        }
        // Why sorted: the order of candidates differs from Workload to Workload.
        without_namespace.sort();
        without_queue.sort();
        let namespace = self.o.workload.key.namespace.to_string();
        let reason = clearing.or(failed).or(unasked).or(unserved).map(|reason| {
            if let Waiting::ClusterFailed {
                cause: Cause::NamespaceMissing,
                ..
            } = reason
            {
                Waiting::Missing {
                    what: Missing::Namespace(namespace),
                    clusters: without_namespace,
                }
            } else if let Waiting::QueueClosed {
                why: Closed::QueueMissing,
                ..
            } = reason
            {
                Waiting::Missing {
                    what: Missing::LocalQueue {
                        name: self.o.workload.queue.clone(),
                        namespace,
                    },
                    clusters: without_queue,
                }
            } else {
                reason
            }
        });
        reason.unwrap_or(match self.o.clusters {
            [] => Waiting::NoClusterListed,
            _ if !cordoned.is_empty() => Waiting::Cordoned { clusters: cordoned },
            _ => Waiting::NoClusterConnected { clusters: silent },
        })
    }
}

/// The reason when an external dispatcher has nominated no listed cluster.
fn not_nominated(listed: &[(&ClusterName, Standing<'_>)], offered: &[ClusterName]) -> Waiting {
    let is_listed = |name: &ClusterName| listed.iter().any(|(one, _)| *one == name);
    let unlisted = offered.iter().filter(|name| !is_listed(name));
    Waiting::NotNominated {
        unlisted: unlisted.cloned().collect(),
    }
}

/// Why a reachable cluster is no candidate. Before the choice this ends one candidacy, never the Workload.
///
/// Unlike the anchor: an `OutOfSync` copy does not wedge the Workload, and a rejected copy is not created again at once
/// (`spec/multikueue.md` 13.B1, B5, B18).
pub(super) fn failure_of(copies: &Copies) -> Option<(Cause, &str)> {
    if copies.has_foreign_job() || copies.has_foreign_workload() {
        return Some((Cause::NameConflict, ""));
    }
    let workload = copies.our_workload()?;
    if let Some(end) = &workload.finished {
        return Some((
            false_end(&end.reason).unwrap_or(Cause::FinishedEarly),
            &end.message,
        ));
    }
    if !workload.active {
        let detail = workload.evicted.as_ref().map_or("", |said| said.message.as_str());
        return Some((Cause::Rejected, detail));
    }
    (workload.drift == Drift::Spec).then_some((Cause::SpecDrift, ""))
}

fn same_set(a: &[ClusterName], b: &[ClusterName]) -> bool {
    let sorted = |names: &[ClusterName]| {
        let mut names = names.to_vec();
        names.sort();
        names.dedup();
        names
    };
    sorted(a) == sorted(b)
}
