//! Plain pods are held by scheduling gates. On a worker a pod loses its gates only while its Workload there is admitted. On the
//! manager it never loses them: it stands for the pod that runs on a worker.
//!
//! The auditor of all jobs also judges that all pods of a group run on one cluster ([`super::single`]), and that no pod remains
//! without an owner ([`super::orphan`]).
//!
//! *Source*: `spec/jobs.md 12.8, 12.9`.

use roadstead_apiserver::RESTORER;

use super::Findings;
use super::book::{Book, Seen};
use super::object::{holds_quota, is_gated, is_true};

pub(super) fn saw(book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
    let (Some(case), Some(now)) = (seen.case(), seen.after()) else {
        return;
    };
    let was_let_go = seen.before().is_some_and(|before| !is_gated(before));
    if !seen.is_plain_pod() || is_gated(now) || was_let_go || *seen.change.user == *RESTORER {
        return;
    }
    let place = &seen.place;
    if seen.on_manager {
        let what = "it was let go on the manager, where it stands for one that runs elsewhere".to_owned();
        findings.of("jobs 12.9", place, Some(case), what);
    } else if !book
        .workload(&place.cluster, case)
        .is_some_and(|copy| holds_quota(copy) && is_true(copy, "Admitted"))
    {
        let what = "it was let go and its Workload there is not admitted".to_owned();
        findings.of("jobs 12.8", place, Some(case), what);
    }
}
