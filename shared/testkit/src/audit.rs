//! Judges a run by what every cluster stores: the invariants of `spec/safety.md 1`, each as an auditor of its own.
//!
//! An auditor reads objects as JSON from the changes of the API servers, never through the product, and shares no code with it. It
//! keeps a little state per object and looks at nothing twice, so that thousands of seeds are cheap.
//!
//! Feed [`Auditor::saw`] with every change of every cluster in one global order, and call [`Auditor::at_rest`] when the faults
//! are over and enough time has passed. I13 compares two runs: [`ending`]. I14 (versions) needs two binaries and is not here.
//!
//! Reading order: [`object`](self) (what an object shows), `book` (what is known), then one file per family of invariants.

mod backward;
mod book;
mod bulkhead;
mod choice;
mod contain;
pub mod ending;
mod guard;
mod hands;
mod held;
mod leads;
mod lost;
mod object;
mod orphan;
mod quota;
mod ready;
mod secrets;
mod single;
mod word;
mod wrapper;

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::Change;

use book::{Book, Name};
pub use bulkhead::Placement;
pub use object::End;
pub use single::Overlap;

/// Whether the hosts' clocks may jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Clocks may be wrong but never go back, so the times of conditions must not go back either (I6).
    Steady,
    /// Clocks may go back, so the times of conditions are not judged.
    Jump,
}

/// How a run is judged.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Name of the manager's cluster.
    pub manager: String,
    /// Names of the workers.
    pub workers: Vec<String>,
    /// The user names of the manager's process, on its own cluster and on the workers.
    pub manager_users: Vec<String>,
    /// The user names of the workers' processes.
    pub worker_users: Vec<String>,
    /// The value of label `kueue.x-k8s.io/multikueue-origin` of this manager.
    pub origin: String,
    /// The policy for lost workers of every job whose ClusterQueue names none.
    pub policy: WorkerLostPolicy,
    /// Whether clocks may go back.
    pub clocks: Clocks,
    /// Secrets that must be seen nowhere but in Secrets (I8): tokens, keys, certificates, each long enough to be unique.
    pub canaries: Vec<String>,
    /// How long the lease of the manager on each worker is (I1 under [`WorkerLostPolicy::Fence`]).
    pub lease: SignedDuration,
    /// How long before [`Auditor::at_rest`] the product must have written nothing but renewals (I3).
    pub quiet: SignedDuration,
    /// Longest time from a decision for a healthy worker until it is carried out (I12). It is shorter than the deadline of a call,
    /// so a decision that waits for a hanging call is always too late.
    pub placement_max: SignedDuration,
    /// How long after the end of a trouble a cluster may still be slow (I12).
    pub recovery: SignedDuration,
}

impl Rules {
    /// Rules for a manager cluster and workers of these names, with everything else as the simulation has it.
    pub fn new(manager: &str, workers: &[&str]) -> Self {
        Self {
            manager: manager.to_owned(),
            workers: workers.iter().map(|&name| name.to_owned()).collect(),
            manager_users: vec!["roadstead-manager".to_owned()],
            worker_users: vec!["roadstead-worker".to_owned()],
            origin: "multikueue".to_owned(),
            policy: WorkerLostPolicy::Wait,
            clocks: Clocks::Steady,
            canaries: Vec::new(),
            lease: SignedDuration::from_mins(10),
            quiet: SignedDuration::from_secs(60),
            placement_max: SignedDuration::from_secs(10),
            recovery: SignedDuration::from_mins(2),
        }
    }
}

/// An invariant that a run broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `spec/safety.md 1`, such as `I1`, or the paragraph of another paper.
    pub invariant: &'static str,
    /// When it was seen, in true time.
    pub at: Timestamp,
    /// The name of the Workload or the object.
    pub subject: String,
    /// What happened, with the last changes that concern it.
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} broken at {}: {}: {}",
            self.invariant, self.at, self.subject, self.story
        )
    }
}

/// The finding of one auditor, without the story.
struct Finding {
    invariant: &'static str,
    case: Option<Name>,
    subject: String,
    what: String,
}

/// Where auditors leave their findings.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding about a job and its Workload.
    fn about(&mut self, invariant: &'static str, case: &Name, what: String) {
        self.0.push(Finding {
            invariant,
            case: Some(case.clone()),
            subject: case.to_string(),
            what,
        });
    }

    /// Adds a finding about an object, and about its job if it has one.
    fn of(&mut self, invariant: &'static str, subject: &impl ToString, case: Option<&Name>, what: String) {
        self.0.push(Finding {
            invariant,
            case: case.cloned(),
            subject: subject.to_string(),
            what,
        });
    }
}

/// All auditors.
pub struct Auditor {
    book: Book,
    guards: guard::Guards,
    single: single::Single,
    outcome: single::Outcomes,
    words: word::Words,
    leads: leads::Leads,
    lost: lost::Lost,
    quota: quota::Quota,
    backward: backward::Backward,
    secrets: secrets::Secrets,
    contain: contain::Contain,
    bulkhead: bulkhead::Bulkhead,
    wrappers: wrapper::Wrappers,
    told: BTreeSet<(&'static str, String)>,
    violations: Vec<Violation>,
}

/// Violations after which the rest is left out: one run needs no more.
const VIOLATIONS_MAX: usize = 100;

impl Auditor {
    /// Auditors at the start of a run.
    pub fn new(rules: Rules) -> Self {
        Self {
            secrets: secrets::Secrets::new(&rules),
            book: Book::new(rules),
            guards: guard::Guards::default(),
            single: single::Single::default(),
            outcome: single::Outcomes::default(),
            words: word::Words::default(),
            leads: leads::Leads::default(),
            lost: lost::Lost::default(),
            quota: quota::Quota::default(),
            backward: backward::Backward::default(),
            contain: contain::Contain::default(),
            bulkhead: bulkhead::Bulkhead::default(),
            wrappers: wrapper::Wrappers::default(),
            told: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    /// Takes in one change of one cluster. `now` is the true time, not that of any host.
    pub fn saw(&mut self, cluster: &str, change: &Change, now: Timestamp) {
        // Why: a restore may replace an object by one with another UID. The auditors see a deletion and a creation instead.
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && object::uid(old) != object::uid(new)
        {
            let (mut gone, mut made) = (change.clone(), change.clone());
            (gone.new, made.old) = (None, None);
            self.take(cluster, &gone, now);
            self.take(cluster, &made, now);
        } else {
            self.take(cluster, change, now);
        }
    }

    fn take(&mut self, cluster: &str, change: &Change, now: Timestamp) {
        let seen = self.book.take(cluster, change, now);
        let mut findings = Findings::default();
        self.words.saw(&self.book, &self.bulkhead, &seen, &mut findings);
        self.leads.saw(&self.book, &self.bulkhead, &seen, &mut findings);
        self.secrets.saw(&seen, &mut findings);
        hands::saw(&self.book, &seen, &mut findings);
        choice::saw(&self.book, &seen, &mut findings);
        held::saw(&self.book, &seen, &mut findings);
        self.backward.saw(&self.book, &seen, &mut findings);
        self.lost.saw(&seen, &mut findings);
        self.quota.saw(&seen, &mut findings);
        let told = (&self.guards, &self.words);
        self.single.saw(&self.book, told, &seen, &mut findings);
        self.outcome.saw(&self.book, &self.words, &seen, &mut findings);
        self.contain.saw(&self.book, &self.words, &seen, &mut findings);
        self.bulkhead.saw(&self.book, &seen, &mut findings);
        self.wrappers.saw(&self.book, &seen, &mut findings);
        self.tell(findings, now);
    }

    /// The API server of the manager accepted this job: it must not get lost (I2). `resource` as in [`Change`].
    pub fn submitted(&mut self, resource: &str, namespace: &str, name: &str, now: Timestamp) {
        self.lost.submitted(resource, namespace, name, now);
    }

    /// From now on this cluster or its network has trouble: [`Rules::placement_max`] does not apply to it.
    pub fn troubled(&mut self, cluster: &str) {
        self.bulkhead.troubled(cluster);
    }

    /// The trouble of this cluster is over.
    pub fn calm(&mut self, cluster: &str, now: Timestamp) {
        self.bulkhead.calm(cluster, now);
    }

    /// The engine of this cluster has started. It matters only under [`WorkerLostPolicy::Fence`].
    pub fn engine_starts(&mut self, cluster: &str, now: Timestamp) {
        self.guards.starts(cluster, now);
    }

    /// The engine of this cluster is dead.
    pub fn engine_ends(&mut self, cluster: &str, now: Timestamp) {
        self.guards.ends(cluster, now);
    }

    /// From now on the engine of this cluster may not reach its own API server.
    pub fn blinded(&mut self, cluster: &str, now: Timestamp) {
        self.guards.blinded(cluster, now);
    }

    /// One of the faults that kept the engine of this cluster from its own API server has ended.
    pub fn sees_again(&mut self, cluster: &str, now: Timestamp) {
        self.guards.sees_again(cluster, now);
    }

    /// The script took this worker out of the federation: objects that stay there are no longer judged at rest.
    pub fn left(&mut self, cluster: &str) {
        self.book.left.insert(cluster.into());
    }

    /// The faults are over and time has passed: nothing may be stuck, left over or still moving (I2, I3, I5, I11).
    pub fn at_rest(&mut self, now: Timestamp) {
        let findings = self.complaints(now);
        self.tell(findings, now);
    }

    /// The findings of [`Self::at_rest`] if it were called now.
    fn complaints(&self, now: Timestamp) -> Findings {
        let mut findings = Findings::default();
        self.single.at_rest(&mut findings);
        single::Outcomes::at_rest(&self.book, &mut findings);
        self.lost.at_rest(&self.book, now, &mut findings);
        ready::at_rest(&self.book, &mut findings);
        orphan::at_rest(&self.book, &self.words, &mut findings);
        self.words.at_rest(&self.book, &self.bulkhead, now, &mut findings);
        self.leads.at_rest(&self.book, &self.bulkhead, now, &mut findings);
        self.bulkhead.at_rest(&self.book, now, &mut findings);
        findings
    }

    /// Whether the run can end: [`Self::at_rest`] would find nothing now, and each job of the manager has ended, is deactivated,
    /// or is `hopeless` (it can never get quota).
    pub fn is_over(&self, now: Timestamp, hopeless: impl Fn(&str) -> bool) -> bool {
        let mut jobs = self.book.local_jobs();
        self.complaints(now).0.is_empty()
            && jobs.all(|(place, job)| hopeless(&place.name) || lost::is_done(&self.book, place, job))
    }

    /// Whether a job of the manager that `counts` selects by its name waits with a reason.
    pub fn waits(&self, counts: impl Fn(&str) -> bool) -> bool {
        let mut jobs = self.book.local_jobs();
        jobs.any(|(place, job)| {
            counts(&place.name) && lost::standing(&self.book, place, job) == lost::Standing::Waits
        })
    }

    /// The broken invariants, in the order of time; each invariant at most once for each subject.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Runs of one job on two clusters at once, which policy [`WorkerLostPolicy::RetryAnyway`] accepts.
    pub fn overlaps(&self) -> &[Overlap] {
        self.single.overlaps()
    }

    /// How long workers waited until decisions for them were carried out.
    pub fn placements(&self) -> &[Placement] {
        self.bulkhead.placements()
    }

    /// The state now, to be compared with another run (I13).
    pub fn ending(&self) -> ending::Ending {
        ending::Ending::of(&self.book)
    }

    fn tell(&mut self, findings: Findings, now: Timestamp) {
        for finding in findings.0 {
            let known = !self.told.insert((finding.invariant, finding.subject.clone()));
            if known || self.violations.len() >= VIOLATIONS_MAX {
                continue;
            }
            let mut story = finding.what;
            if let Some(case) = &finding.case {
                story.push_str(&self.book.story(case));
            }
            self.violations.push(Violation {
                invariant: finding.invariant,
                at: now,
                subject: finding.subject,
                story,
            });
        }
    }
}

#[cfg(test)]
mod tests;
