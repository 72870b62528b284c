//! A workload, its queue and its job, as the tests change them.

use std::collections::BTreeMap;

use super::super::*;
use crate::amount::Amount;
use crate::name::{CheckName, FlavorName, Key};
use crate::queue::{CheckRule, ClusterQueue, FlavorQuota, ResourceGroup};
use crate::state::fixtures;
pub(super) use crate::state::fixtures::at;
use crate::status::{Assignment, CheckState};
use crate::workload::Workload;

pub(super) const NOW: i64 = 1_000;

pub(super) fn workload() -> Workload {
    Workload {
        key: Key::new("lab", "job-a"),
        queue: "tests".to_owned(),
        ..fixtures::workload("job-a", 900, vec![fixtures::pod_set("main", 3, &[])])
    }
}

pub(super) fn queue(checks: &[(&str, &[&str])]) -> ClusterQueue {
    let flavor = |name: &str| FlavorQuota {
        name: name.into(),
        quotas: BTreeMap::new(),
    };
    let group = ResourceGroup {
        covered: vec!["cpu".into()],
        flavors: vec![flavor("spot"), flavor("fixed")],
    };
    let mut queue = fixtures::cluster_queue("team", vec![group]);
    queue.checks = checks
        .iter()
        .map(|(name, flavors)| CheckRule {
            name: (*name).into(),
            on_flavors: flavors.iter().map(|f| FlavorName::from(*f)).collect(),
        })
        .collect();
    queue
}

pub(super) fn admission(flavor: &str) -> Admission {
    Admission {
        cluster_queue: "team".into(),
        pod_sets: vec![Assignment {
            name: "main".into(),
            flavors: [("cpu".into(), flavor.into())].into(),
            usage: [("cpu".into(), Amount::new(3000))].into(),
            count: 3,
        }],
    }
}

pub(super) fn reserve(flavor: &str) -> Proposal {
    Proposal::Reserve {
        admission: admission(flavor),
        considered: String::new(),
    }
}

pub(super) fn pending(reason: &'static str, message: &str) -> Proposal {
    Proposal::Pending {
        reason: reason.into(),
        message: message.to_owned(),
    }
}

pub(super) fn ended(world: &mut World, success: bool) {
    let message = if success { "done" } else { "exit 1" };
    world.job = JobFacts::Present {
        finished: Some(Outcome {
            success,
            message: message.to_owned(),
        }),
        active: false,
        suspended: false,
        ready: false,
        reclaimable: BTreeMap::new(),
        missing: None,
    };
}

pub(super) fn job(active: bool, suspended: bool) -> JobFacts {
    JobFacts::Present {
        finished: None,
        active,
        suspended,
        ready: false,
        reclaimable: BTreeMap::new(),
        missing: None,
    }
}

pub(super) fn ready_job() -> JobFacts {
    JobFacts::Present {
        finished: None,
        active: true,
        suspended: false,
        ready: true,
        reclaimable: BTreeMap::new(),
        missing: None,
    }
}

/// A world in which passes follow each other; each pass must be stable.
#[derive(Debug)]
pub(super) struct World {
    pub(super) workload: Workload,
    pub(super) queue: Option<ClusterQueue>,
    pub(super) local_stop: Option<StopPolicy>,
    pub(super) job: JobFacts,
    pub(super) request: Option<Request>,
    pub(super) proposal: Option<Proposal>,
    pub(super) policy: Policy,
    pub(super) now: i64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            workload: workload(),
            queue: Some(queue(&[])),
            local_stop: Some(StopPolicy::None),
            job: job(false, true),
            request: None,
            proposal: None,
            policy: Policy::default(),
            now: NOW,
        }
    }

    /// Reserved and admitted in `ClusterQueue` `team` at time 1000, job running.
    pub(super) fn admitted() -> Self {
        Self::admitted_under(Policy::default())
    }

    /// The same under this policy.
    pub(super) fn admitted_under(policy: Policy) -> Self {
        let mut world = Self::new();
        world.policy = policy;
        world.admit();
        world
    }

    /// Gives it quota.
    pub(super) fn reserve(&mut self) {
        self.proposal = Some(reserve("spot"));
        self.pass();
        self.proposal = None;
    }

    /// Gives it quota, no checks asked, and starts the job.
    pub(super) fn admit(&mut self) {
        self.reserve();
        self.job = job(true, false);
        assert!(self.workload.is_admitted());
    }

    fn look(&self) -> (Next, Vec<Note>) {
        let seen = Observed {
            workload: &self.workload,
            cluster_queue: self.queue.as_ref(),
            local_stop: self.local_stop,
            job: &self.job,
            request: self.request.as_ref(),
            proposal: self.proposal.as_ref(),
            policy: &self.policy,
        };
        let mut next = step(&seen, at(self.now));
        let more = settle(&mut next.status, &self.job, &self.policy, at(self.now));
        let notes = next.notes.iter().cloned().chain(more).collect();
        (next, notes)
    }

    /// One pass and its status write; asserts that the next pass would change nothing.
    pub(super) fn pass(&mut self) -> (Next, Vec<Note>) {
        let (next, notes) = self.look();
        self.workload.status = next.status.clone();
        let (again, noise) = self.look();
        assert_eq!(again.status, next.status, "a second pass changed something");
        assert_eq!(again.active, next.active);
        assert_eq!(noise, Vec::new(), "a second pass told something");
        (next, notes)
    }

    fn condition(&self, kind: &str) -> (Truth, String, String) {
        let condition = self.workload.status.conditions.get(kind).unwrap();
        (
            condition.truth,
            condition.reason.to_string(),
            condition.message.clone(),
        )
    }

    fn check(&self, kind: &str, truth: Truth, reason: &str, message: &str) {
        let expected = (truth, reason.to_owned(), message.to_owned());
        assert_eq!(self.condition(kind), expected, "{kind}");
    }

    pub(super) fn check_true(&self, kind: &str, reason: &str, message: &str) {
        self.check(kind, Truth::True, reason, message);
    }

    pub(super) fn check_false(&self, kind: &str, reason: &str, message: &str) {
        self.check(kind, Truth::False, reason, message);
    }

    pub(super) fn has_no_reservation(&self) {
        let message = "The workload has no reservation";
        self.check_false("Admitted", "NoReservation", message);
    }

    /// The names of its checks.
    pub(super) fn checks(&self) -> Vec<&str> {
        self.workload
            .status
            .checks
            .keys()
            .map(CheckName::as_str)
            .collect()
    }

    pub(super) fn set(&mut self, kind: &'static str, truth: Truth, reason: &'static str, message: &str) {
        let conditions = &mut self.workload.status.conditions;
        conditions.set(kind, truth, reason, message, at(self.now));
    }

    pub(super) fn verdict(
        &mut self,
        name: &str,
        phase: CheckPhase,
        message: &str,
        requeue_after_secs: Option<u32>,
    ) {
        self.workload.status.checks.insert(
            CheckName::from(name),
            CheckState {
                phase,
                message: message.to_owned(),
                requeue_after_secs,
                ..CheckState::pending(at(self.now))
            },
        );
    }
}

pub(super) fn texts(notes: &[Note]) -> Vec<(&str, &str)> {
    notes
        .iter()
        .map(|n| (n.reason.as_ref(), n.message.as_str()))
        .collect()
}
