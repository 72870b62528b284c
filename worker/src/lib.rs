//! `roadstead-worker`: the local admission engine of one cluster.
//!
//! It runs the admission engine and plugs in the `ProvisioningRequest` check, by which the cluster says whether a job
//! really fits now, the `fence`, by which jobs stop when their manager is cut off, and the controller of `AppWrappers`. A
//! manager may or may not stand in front of it; it **never** talks to another cluster.

mod appwrapper;
mod fence;
mod metrics;
mod provisioning;
mod run;

#[cfg(feature = "bugbank")]
pub use run::assemble_with_bug;
pub use run::{CONTROLLERS, NAME, assemble, run};
