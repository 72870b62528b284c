//! The rules of the webhooks for objects of our own kinds, one file per kind.
//!
//! Invariant: all problems are reported at once, each with the path of the field, the value, and what is allowed. Rules of the schema are
//! checked again only where the answer would otherwise be wrong.

mod appwrapper;
mod cluster_queue;
mod cohort;
mod quotas;
mod resource_flavor;
mod workload;

pub use appwrapper::{appwrapper, appwrapper_update};
pub use cluster_queue::{cluster_queue, cluster_queue_warnings};
pub use cohort::cohort;
pub use resource_flavor::resource_flavor;
pub use workload::workload;

#[cfg(test)]
mod tests;
