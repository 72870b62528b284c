//! The admission engine: everything around [`roadstead_core`] that makes one cluster's queues work.
//!
//! The manager and the worker both run it. It **never** decides: the brain and the reconcilers carry facts to core and core's
//! decisions to the API server.
//!
//! Reading order: [`process`] (how the engine is assembled), [`caches`], `feed` and `brain` (which Workloads get quota),
//! `workloads` (the only writer of a Workload's status), [`jobs`] (jobs and their Workloads), `control` (which Workload belongs
//! to which job), [`checks`] (admission checks that a process plugs in), [`webhook`], `queue_status`, `queues` (finalizers),
//! [`metrics`], `settings`, `visibility`; [`leader`] (which of several replicas does all that).

pub mod active;
mod ancestors;
pub mod caches;
pub mod checks;
pub mod clock;
pub mod host;
pub mod jobs;
pub mod leader;
pub mod metrics;
mod parents;
pub mod process;
pub mod webhook;

mod brain;
mod control;
mod error;
mod feed;
mod metrics_tls;
mod proposals;
mod queue_status;
mod queues;
mod settings;
mod visibility;
mod workloads;

pub use brain::until;
