//! `roadstead-worker`: the local admission engine of one cluster.
//!
//! It runs the admission engine and plugs in three parts. The `ProvisioningRequest` check asks the cluster whether a job really
//! fits now. The `fence` stops jobs when their manager is cut off. The third is the controller of `AppWrappers`. The worker works
//! with or without a manager; it **never** talks to another cluster.

mod appwrapper;
mod fence;
mod metrics;
mod provisioning;
mod run;

#[cfg(feature = "bugbank")]
pub use run::assemble_with_bug;
pub use run::{CONTROLLERS, NAME, assemble, run};
