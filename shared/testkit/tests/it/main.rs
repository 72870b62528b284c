//! The product against slow and obvious models, and in runs that no seed makes.

#![expect(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod burst;
mod comes;
mod quota;
mod unanswered;

use roadstead_testkit::sim::script::WorkerPlan;

/// A worker with nothing but quota.
const fn plain_worker(cpus: i64) -> WorkerPlan {
    WorkerPlan {
        cpus,
        asks_capacity: false,
        preempts: false,
    }
}
