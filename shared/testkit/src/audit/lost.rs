//! I2: no job gets lost. I3: no job is stuck, and nothing is written at rest.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

use super::Findings;
use super::book::{Actor, Book, Name, Place, Seen};
use super::object::{
    at, condition, group, holds_quota, is_deleting, is_let_go, is_live_pod, is_true, job_end, list, queue,
    text, winner,
};

/// Objects that are written for ever: leases, Events, and the credentials in Secrets.
const RENEWALS: &[&str] = &[
    "leases.coordination.k8s.io",
    "events",
    "events.events.k8s.io",
    "secrets",
];
/// How many writes are remembered.
const WRITES: usize = 64;

/// The auditor of I2 and I3.
#[derive(Default)]
pub(super) struct Lost {
    submitted: BTreeMap<(String, String, String), Timestamp>,
    stored: BTreeMap<(String, String, String), Timestamp>,
    writes: VecDeque<(Timestamp, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The job has ended, and its Workload is Finished.
    Ended,
    Runs,
    /// It waits, and says why.
    Waits,
    Stuck(String),
}

impl Lost {
    pub(super) fn submitted(&mut self, resource: &str, namespace: &str, name: &str, now: Timestamp) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.submitted.insert(key, now);
    }

    pub(super) fn saw(&mut self, seen: &Seen<'_>, findings: &mut Findings) {
        if seen.by != Actor::Other && !RENEWALS.contains(&&*seen.place.resource) {
            if self.writes.len() == WRITES {
                self.writes.pop_front();
            }
            self.writes
                .push_back((seen.now, format!("{} by {}", seen.place, seen.change.user)));
        }
        if !seen.on_manager || seen.is_workload() || (seen.is_pod() && !seen.is_plain_pod()) {
            return;
        }
        let Some(old) = seen.before() else {
            if seen.after().is_some_and(|job| !queue(job).is_empty()) {
                self.stored.insert(key(&seen.place), seen.now);
            }
            return;
        };
        let goes = seen.after().is_none_or(is_deleting) && !is_deleting(old);
        if goes && seen.by != Actor::Other && !queue(old).is_empty() && job_end(old).is_none() {
            let what = format!("{} deleted the job before it ended", seen.change.user);
            findings.of("I2", &seen.place, seen.case(), what);
        }
    }

    pub(super) fn at_rest(&self, book: &Book, now: Timestamp, findings: &mut Findings) {
        for (key, at) in &self.submitted {
            if !self.stored.contains_key(key) {
                let (resource, namespace, name) = key;
                let subject = format!("{} {resource} {namespace}/{name}", book.rules.manager);
                let what = format!("it was accepted at {at} and was never stored");
                findings.of("I2", &subject, None, what);
            }
        }
        for (place, job) in book.local_jobs() {
            let case = book.workload_of(place, job).map(|(case, _)| case);
            if let Standing::Stuck(what) = standing(book, place, job) {
                findings.of("I3", place, case, what);
            }
        }
        let quiet_since = now.checked_sub(book.rules.quiet).unwrap_or(Timestamp::MIN);
        let late: Vec<&(Timestamp, String)> =
            self.writes.iter().filter(|(at, _)| *at > quiet_since).collect();
        if let Some((at, last)) = late.last() {
            let what = format!(
                "{} writes within {:#} although nothing happens, the last at {at}: {last}",
                late.len(),
                book.rules.quiet
            );
            findings.of("I3", &"all clusters", None, what);
        }
    }
}

fn key(place: &Place) -> (String, String, String) {
    (
        place.resource.to_string(),
        place.namespace.to_string(),
        place.name.to_string(),
    )
}

/// The state of a job of the manager at rest.
pub(super) fn standing(book: &Book, place: &Place, job: &Value) -> Standing {
    let Some((case, workload)) = book.workload_of(place, job) else {
        return if job_end(job).is_some() {
            Standing::Ended
        } else {
            Standing::Stuck("it has no Workload".to_owned())
        };
    };
    let finished = is_true(workload, "Finished");
    // Why `finished` for a group: its other pods may still run.
    let ended = job_end(job).is_some() && (group(job).is_empty() || finished);
    match (ended, finished) {
        (true, true) => return Standing::Ended,
        (true, false) => return Standing::Stuck("the job ended and its Workload did not".to_owned()),
        (false, true) => return Standing::Stuck("the Workload ended and the job did not".to_owned()),
        (false, false) => {}
    }
    if !holds_quota(workload) {
        let said = condition(workload, "QuotaReserved").map_or("", |c| text(c, &["message"]));
        return waits(said, "it waits for quota and does not say why");
    }
    if is_true(workload, "Evicted") {
        return Standing::Stuck("it is evicted and still holds quota".to_owned());
    }
    let checks = list(workload, &["status", "admissionChecks"]);
    if let Some(check) = checks.iter().find(|check| check["state"] != "Ready") {
        if check["state"] != "Pending" {
            return Standing::Stuck(format!("its check is {} for good", check["state"]));
        }
        if !winner(workload).is_empty() {
            return Standing::Stuck(format!("it is bound to {} and not sent there", winner(workload)));
        }
        return waits(
            text(check, &["message"]),
            "it waits for a check that does not say why",
        );
    }
    if !is_true(workload, "Admitted") {
        return Standing::Stuck("all its checks are ready and it is not admitted".to_owned());
    }
    let here = match winner(workload) {
        "" if book.dispatch_check(workload).is_some() => {
            return Standing::Stuck("its check is ready and names no cluster".to_owned());
        }
        "" => &*book.rules.manager,
        cluster => cluster,
    };
    if runs(book, here, case) {
        Standing::Runs
    } else {
        Standing::Stuck(format!("it is admitted and has no live pod on {here}"))
    }
}

/// Whether a job of the manager has ended, or is deactivated and holds nothing.
pub(super) fn is_done(book: &Book, place: &Place, job: &Value) -> bool {
    standing(book, place, job) == Standing::Ended
        || book
            .workload_of(place, job)
            .is_some_and(|(_, workload)| at(workload, &["spec", "active"]) == false && !holds_quota(workload))
}

fn waits(reason: &str, otherwise: &str) -> Standing {
    if reason.is_empty() {
        Standing::Stuck(otherwise.to_owned())
    } else {
        Standing::Waits
    }
}

/// Whether a cluster has a live pod of this case, or a job of it whose status counts an active pod.
fn runs(book: &Book, cluster: &str, case: &Name) -> bool {
    book.all_on(cluster).any(|(place, object)| {
        let ours = book.run_at(place, object).is_some_and(|run| run.case == *case);
        let counts =
            || is_let_go(object) && at(object, &["status", "active"]).as_u64().is_some_and(|n| n > 0);
        ours && match &*place.resource {
            super::object::PODS => is_live_pod(object),
            _ => counts(),
        }
    })
}
