//! I15: the manager deletes no copy that the stored status names.

use super::Findings;
use super::book::{Actor, Book, Seen};
use super::object::{copy_of, epoch, holds_quota, is_deleting, is_true, uid, winner};

pub(super) fn saw(book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
    if seen.on_manager || seen.by != Actor::Manager || !seen.is_workload() {
        return;
    }
    let Some(copy) = seen.before().filter(|copy| !is_deleting(copy)) else {
        return;
    };
    if seen.after().is_some_and(|now| !is_deleting(now)) {
        return;
    }
    let Some((case, local)) = seen.case().and_then(|case| Some((case, book.local(case)?))) else {
        return;
    };
    let of = copy_of(copy);
    // Why 1: the manager's Workload has no number before its second dispatch.
    let number = |workload| epoch(workload).unwrap_or(1);
    let is_present = (of.is_empty() || of == uid(local)) && number(copy) == number(local);
    let ready = { book.dispatch_check(local) }.is_some_and(|check| check["state"] == "Ready");
    let runs = holds_quota(local) && !is_true(local, "Evicted") && !is_deleting(local);
    if is_present && ready && runs && winner(local) == &*seen.place.cluster {
        let what = format!(
            "{} names this cluster, and its copy there was asked to go",
            seen.place.name
        );
        findings.of("I15", &seen.place, Some(case), what);
    }
}
