//! I6: no status goes back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::book::{Actor, Book, Seen};
use super::object::{at, condition, epoch, is_deleting, is_true, job_end, list, text, time, uid, winner};
use super::{Clocks, Findings};

/// The counts of a job that never go down.
const COUNTS: &[&str] = &["succeeded", "failed"];

/// I6. For each job of the manager, by UID, the cluster that it showed last.
#[derive(Default)]
pub(super) struct Backward(BTreeMap<Arc<str>, Arc<str>>);

impl Backward {
    /// Changes that users and other clients make to a status are not counted against the product.
    pub(super) fn saw(&mut self, book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
        let Some((old, new)) = seen.both() else { return };
        let mut complaints = Vec::new();
        if seen.is_workload() {
            if is_true(old, "Finished") && !is_true(new, "Finished") {
                complaints.push("it was Finished and is not any more".to_owned());
            }
            if book.rules.clocks == Clocks::Steady {
                complaints.extend(times(old, new));
            }
            if let (Some(before), Some(after)) = (epoch(old), epoch(new))
                && after < before
            {
                complaints.push(format!("its dispatch was {before} and is {after}"));
            }
        } else if seen.is_job() {
            // Why: an AppWrapper that is being deleted shows only its deletion.
            let goes = is_deleting(new) && job_end(new).is_none();
            if job_end(old).is_some() && job_end(old) != job_end(new) && !goes {
                complaints.push(format!(
                    "its end was {:?} and is {:?}",
                    job_end(old),
                    job_end(new)
                ));
            }
            if seen.on_manager {
                complaints.extend(self.counts(book, seen, old, new));
            }
        }
        if seen.by != Actor::Other {
            for what in complaints {
                findings.of("I6", &seen.place, seen.case(), what);
            }
        }
    }

    /// The counts that fell although the dispatch is the same. After an eviction the counts begin at zero again.
    fn counts(&mut self, book: &Book, seen: &Seen<'_>, old: &Value, new: &Value) -> Vec<String> {
        let Some(workload) = seen.case().and_then(|case| book.local(case)) else {
            return Vec::new();
        };
        let shown = winner(workload);
        let before = self.0.insert(uid(new).into(), shown.into());
        let same = !shown.is_empty() && before.as_deref() == Some(shown) && !is_true(workload, "Evicted");
        let count = |job: &Value, name: &str| at(job, &["status", name]).as_u64().unwrap_or(0);
        let falls = |name: &&str| same && count(new, name) < count(old, name);
        COUNTS
            .iter()
            .filter(|name| falls(name))
            .map(|name| {
                format!(
                    "it counted {} {name} and counts {}",
                    count(old, name),
                    count(new, name)
                )
            })
            .collect()
    }
}

/// The conditions whose time went back.
fn times(old: &Value, new: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    for after in list(new, &["status", "conditions"]) {
        let kind = text(after, &["type"]);
        let Some(before) = condition(old, kind) else {
            continue;
        };
        let (then, now) = (
            time(&before["lastTransitionTime"]),
            time(&after["lastTransitionTime"]),
        );
        if let (Some(then), Some(now)) = (then, now)
            && now < then
        {
            complaints.push(format!("the time of condition {kind} went from {then} to {now}"));
        }
    }
    complaints
}
