//! Follows the kinds of jobs on a connected worker, each one independent of the others.
//!
//! Invariant: no event of a kind ends the connection. Workloads that depend on a kind are looked at again when the jobs of this
//! kind are known again.
//!
//! *Source*: `spec/multikueue.md 2.4` (deviation), `spec/safety.md` F26.

use std::sync::Arc;
use std::time::Duration;

use roadstead_kubeio::cache::Health;
use roadstead_kubeio::latest::Follower;
use roadstead_kubeio::trouble;

use super::Remote;
use super::fleet::{Fleet, of_kind};

/// How long a connection that is being opened waits for kinds about which the API server does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Waits, for a limited time, until the API server has answered about each kind.
pub(super) async fn answered(remote: &Remote) {
    let all = async {
        for jobs in &remote.jobs {
            let mut health = jobs.objects.health();
            health.wait_for(|health| *health != Health::Starting).await;
        }
    };
    // Why no error: an unknown kind delays only its own jobs.
    let _all_in_time = tokio::time::timeout(ANSWER_MAX, all).await;
}

/// Results of steps, as named in the memory of reported failures.
const RESULTS: &str = "WorkflowTaskResult";

/// Follows one kind, by its place among those of the worker. Never ends.
pub(super) async fn follow(fleet: Arc<Fleet>, remote: Arc<Remote>, kind: usize) {
    let Some(jobs) = remote.jobs.get(kind) else {
        return std::future::pending().await;
    };
    let (row, mut health) = (jobs.kind.kind(), jobs.objects.health());
    let looked_at_again = || fleet.changed.mark(remote.name.clone());
    let remedy = if jobs.kind.is_external() {
        format!(
            "let this manager's account create, delete, get, list, patch and watch {} (API group \"{}\") in all namespaces there",
            row.plural, row.group
        )
    } else {
        format!(
            "run \"roadstead cluster join\" with integration {} for this cluster",
            row.framework
        )
    };
    let unread = trouble::tell_unread(health.clone(), |why| {
        let Some(why) = why else { return };
        let why = of_kind(row.kind, why.to_owned());
        let words = format!(
            "jobs of {row} cannot be listed or watched there, so nothing is decided about those that it has, and none are sent there: \
             {why}; other kinds go on; it is tried again until it succeeds; if this is a refusal, {remedy}"
        );
        fleet.told.failed(remote.name.as_str(), row.kind, &words);
        looked_at_again();
    });
    let settling = async {
        let mut now = health.see();
        loop {
            match now {
                Health::Live => fleet.told.serves(remote.name.as_str(), row.kind),
                Health::NotServed => {
                    let words = format!(
                        "it does not serve {row}, so no such jobs are sent there; install its CustomResourceDefinition and its controller \
                         there, and they are, without a restart"
                    );
                    fleet.told.failed(remote.name.as_str(), row.kind, &words);
                }
                Health::Starting | Health::Failing(_) => {}
            }
            health.changed().await;
            now = health.see();
            if now.is_settled() {
                looked_at_again();
            }
        }
    };
    tokio::join!(unread, settling);
}

/// Reports when the results of steps of Argo Workflows cannot be read there. Never ends.
pub(super) async fn tell_results(fleet: Arc<Fleet>, cluster: String, health: Follower<Health>) {
    let tell = |why: Option<&str>| match why {
        Some(why) => {
            let words = format!(
                "results of steps of Argo Workflows cannot be listed or watched there, so a step that gives something to the next one does \
                 not end on the manager: {why}; it is tried again until it succeeds; if this is a refusal, run \"roadstead cluster join\" \
                 with integration pod for this cluster"
            );
            fleet.told.failed(&cluster, RESULTS, &words);
        }
        None => fleet.told.succeeded(&cluster, RESULTS),
    };
    trouble::tell_unread(health, tell).await;
}
