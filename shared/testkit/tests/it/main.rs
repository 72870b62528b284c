//! The product against slow and obvious models, and in runs that no seed makes.

#![expect(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod burst;
mod comes;
mod quota;
mod unanswered;

use roadstead_testkit::sim::kind::{Child, JobKind};
use roadstead_testkit::sim::script::{JobPlan, WorkerPlan};

/// A job of one pod with one CPU that ends well.
fn plain_job(name: &str, secs: i64) -> JobPlan {
    JobPlan {
        name: name.to_owned(),
        kind: JobKind::Job,
        child: Child::Well,
        pods: 1,
        cpus: 1,
        secs,
        fails: false,
        vanishes: false,
        urgent: false,
        queue: None,
    }
}

/// A worker with nothing but quota.
const fn plain_worker(cpus: i64) -> WorkerPlan {
    WorkerPlan {
        cpus,
        asks_capacity: false,
        preempts: false,
    }
}
