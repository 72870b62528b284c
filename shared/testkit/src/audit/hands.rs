//! I7: the manager changes no object on a worker that it did not make.

use super::Findings;
use super::book::{Actor, Book, Seen};
use super::object::origin;

/// Resources whose objects need no origin label: the lease that the manager renews, and the Events that it writes.
pub(super) const NO_LABEL: &[&str] = &[LEASES, "events", "events.events.k8s.io"];

/// The resource of leases. Each manager has a lease of its own on every worker.
pub(super) const LEASES: &str = "leases.coordination.k8s.io";

pub(super) fn saw(book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
    if seen.on_manager || seen.by != Actor::Manager || NO_LABEL.contains(&&*seen.place.resource) {
        return;
    }
    let ours = &book.rules.origin;
    let did = match (seen.before(), seen.after()) {
        (Some(old), None) if origin(old) != ours => "deleted",
        (Some(old), Some(_)) if origin(old) != ours => "changed",
        (None, Some(new)) if origin(new) != ours => "made without our origin",
        _ => return,
    };
    let whose = seen.before().map_or("", origin);
    let what = format!("{did} by {}; its origin is \"{whose}\"", seen.change.user);
    findings.of("I7", &seen.place, seen.case(), what);
}
