use std::collections::BTreeMap;

use super::record::Reply;
use super::*;
use crate::name::Uid;
use crate::state::fixtures;
use crate::status::CheckState;
use crate::workload::Workload;

mod elsewhere;
mod epochs;
mod failures;
mod hold;
mod kinds;
mod leftovers;
mod offers;
mod records;
mod rooms;
mod rules;
mod stops;
mod world;

const CHECK: &str = "mk";
const TIMEOUT_MINS: i64 = 15;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn workload(status: Status) -> Workload {
    Workload {
        uid: Uid::from("1"),
        status,
        ..fixtures::workload("wl", 0, Vec::new())
    }
}

fn names(names: &[&str]) -> Vec<ClusterName> {
    names.iter().map(|name| (*name).into()).collect()
}

fn replies(plan: &Plan) -> Vec<(&str, Reply, &str)> {
    let seen = plan.seen.iter();
    seen.map(|seen| (seen.cluster.as_str(), seen.reply, seen.detail.as_str()))
        .collect()
}

fn remote() -> RemoteWorkload {
    RemoteWorkload {
        origin: Origin::Ours,
        life: Life::Present,
        has_finalizer: true,
        drift: Drift::None,
        active: true,
        answer: Answer::None,
        words: String::new(),
        admitted: None,
        finished: None,
        evicted: None,
        stop: Stop::NotRequested,
        epoch: 1,
        fenced: false,
    }
}

fn admitted(minute: i64) -> RemoteWorkload {
    RemoteWorkload {
        answer: Answer::Reserved,
        admitted: Some(at(minute)),
        ..remote()
    }
}

/// An admitted copy of the dispatch of this number.
fn numbered(epoch: u64) -> RemoteWorkload {
    RemoteWorkload { epoch, ..admitted(1) }
}

const RUNNING: RemoteJob = RemoteJob {
    origin: Origin::Ours,
    life: Life::Present,
    pods: PodsThere::Some,
    finished: false,
    epoch: 1,
    kept: true,
    twins: Twins::All,
};

/// A job that its worker holds back, or whose pods the worker has ended.
const HELD: RemoteJob = RemoteJob {
    pods: PodsThere::None,
    ..RUNNING
};

const ENDED: RemoteJob = RemoteJob {
    finished: true,
    ..RUNNING
};

/// A cluster that is lost since then and has no fence.
fn away(minute: i64) -> Remote {
    Remote::Unreachable {
        since: at(minute),
        fence: Fence::Open,
    }
}

fn said(reason: &str, message: &str) -> Said {
    Said {
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

fn reachable(workload: Option<RemoteWorkload>, job: Option<RemoteJob>) -> Remote {
    Remote::Reachable(Copies { workload, job })
}

/// One situation; starts with quota reserved, the check Pending, workers `a` and `b` connected and empty.
#[derive(Clone)]
struct Case {
    status: Status,
    stored: Option<Status>,
    local: Local,
    /// The MultiKueue check of the Workload.
    ours: Option<CheckName>,
    owner: Owner,
    clusters: Vec<ClusterName>,
    behind: Option<Behind>,
    remotes: BTreeMap<ClusterName, Remote>,
    failures: BTreeMap<ClusterName, Failure>,
    refusals: BTreeMap<ClusterName, String>,
    max_execution_secs: Option<u32>,
    /// The Workload is being deleted.
    deleting: bool,
    job: LocalJob,
    epoch: u64,
    highest: u64,
    elsewhere: Elsewhere,
    lost: LostPolicy,
    dispatcher: Dispatcher,
    round: Option<i64>,
    sites: BTreeMap<ClusterName, Site>,
    now: i64,
}

impl Case {
    fn new() -> Self {
        let mut status = Status::default();
        status
            .conditions
            .set("QuotaReserved", Truth::True, "QuotaReserved", "", at(0));
        status.checks.insert(CHECK.into(), CheckState::pending(at(0)));
        let empty = || reachable(None, None);
        Self {
            status,
            stored: None,
            local: Local::Present,
            ours: Some(CHECK.into()),
            owner: Owner::Managed,
            clusters: vec!["b".into(), "a".into()],
            behind: None,
            remotes: BTreeMap::from([("a".into(), empty()), ("b".into(), empty())]),
            failures: BTreeMap::new(),
            refusals: BTreeMap::new(),
            max_execution_secs: None,
            deleting: false,
            job: LocalJob {
                present: true,
                finished: false,
            },
            epoch: 1,
            highest: 0,
            elsewhere: Elsewhere::default(),
            lost: LostPolicy::Wait,
            dispatcher: Dispatcher::AllAtOnce,
            round: None,
            sites: BTreeMap::new(),
            now: 100,
        }
    }

    /// Quota was reserved just now.
    fn fresh() -> Self {
        let mut case = Self::new();
        let conditions = &mut case.status.conditions;
        conditions.remove("QuotaReserved");
        conditions.set("QuotaReserved", Truth::True, "QuotaReserved", "", at(100));
        case
    }

    /// Worker `a` is chosen and stored, and runs the job.
    fn won() -> Self {
        let mut case = Self::new();
        case.status.cluster = Some("a".into());
        let check = case.check();
        check.phase = CheckPhase::Ready;
        check.message = admitted_on(&"a".into());
        case.remote("a", reachable(Some(admitted(1)), Some(RUNNING)))
    }

    fn check(&mut self) -> &mut CheckState {
        self.status.checks.get_mut(&CheckName::from(CHECK)).unwrap()
    }

    fn nominated(mut self, names: &[&str]) -> Self {
        self.status.nominated = names.iter().map(|name| (*name).into()).collect();
        self
    }

    fn remote(mut self, cluster: &str, remote: Remote) -> Self {
        self.remotes.insert(cluster.into(), remote);
        self
    }

    fn condition(mut self, kind: &'static str, message: &str) -> Self {
        self.status
            .conditions
            .set(kind, Truth::True, "Because", message, at(0));
        self
    }

    fn workload(&self) -> Workload {
        Workload {
            max_execution_secs: self.max_execution_secs,
            deleting: self.deleting,
            ..workload(self.status.clone())
        }
    }

    fn plan(&self) -> Plan {
        let plan = self.plan_knowing(&self.remotes, &self.sites);
        let holder = |cluster: &ClusterName| self.status.cluster.as_ref() == Some(cluster);
        let answers = { self.remotes.iter() }
            .any(|(cluster, remote)| holder(cluster) && matches!(remote, Remote::Reachable(_)));
        let followed = |name: &CheckName| {
            is_followed(&self.workload(), name, &self.owner) && self.local == Local::Present
        };
        if answers && self.ours.as_ref().is_some_and(followed) {
            let has_some = |remote: &Remote| match remote {
                Remote::Reachable(copies) => *copies != Copies::default(),
                Remote::Unreachable { .. } | Remote::Unreadable { .. } => false,
            };
            let (mut remotes, mut sites) = (self.remotes.clone(), self.sites.clone());
            remotes.retain(|cluster, remote| holder(cluster) || has_some(remote));
            sites.retain(|cluster, _| remotes.contains_key(cluster));
            assert_eq!(
                plan,
                self.plan_knowing(&remotes, &sites),
                "the others do not matter"
            );
        }
        plan
    }

    fn plan_knowing(
        &self,
        remotes: &BTreeMap<ClusterName, Remote>,
        sites: &BTreeMap<ClusterName, Site>,
    ) -> Plan {
        plan(
            &Observed {
                workload: &self.workload(),
                stored: self.stored.as_ref().unwrap_or(&self.status),
                local: self.local,
                check: self.ours.as_ref(),
                owner: &self.owner,
                clusters: &self.clusters,
                behind: self.behind.as_ref(),
                remotes,
                failures: &self.failures,
                refusals: &self.refusals,
                round: self.round.map(at),
                sites,
                job: self.job,
                epoch: self.epoch,
                highest: self.highest,
                kind: Some("Job"),
                elsewhere: &self.elsewhere,
                policy: &Policy {
                    worker_lost_timeout: SignedDuration::from_mins(TIMEOUT_MINS),
                    lost: self.lost,
                    dispatcher: self.dispatcher,
                    #[cfg(feature = "bugbank")]
                    bug: None,
                },
            },
            at(self.now),
        )
    }
}

impl Plan {
    fn on(&self, cluster: &str) -> &[RemoteAction] {
        self.remote
            .get(&ClusterName::from(cluster))
            .map_or(&[], Vec::as_slice)
    }

    fn check(&self) -> (CheckPhase, &str) {
        let state = &self.status.checks[&CheckName::from(CHECK)];
        (state.phase, &state.message)
    }

    fn cluster(&self) -> Option<&str> {
        self.status.cluster.as_ref().map(ClusterName::as_str)
    }

    fn nominated(&self) -> Vec<&str> {
        self.status.nominated.iter().map(ClusterName::as_str).collect()
    }

    fn mirrors(&self) -> Option<&str> {
        self.mirror.as_ref().map(ClusterName::as_str)
    }

    fn waits_for(&self) -> Option<&'static str> {
        self.waiting.as_ref().map(Waiting::reason)
    }
}
