//! `roadstead-worker`: the local admission engine of one cluster.
//!
//! It runs the admission engine and plugs in the `ProvisioningRequest` check, by which the cluster says whether a job
//! really fits now. A manager may or may not stand in front of it; it **never** talks to another cluster.

mod provisioning;
mod run;

pub use run::{CONTROLLERS, NAME, assemble, run};
