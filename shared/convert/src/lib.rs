//! The border between the API and core: objects are parsed once on the way in, and printed once on the way out.
//!
//! It **never** decides and never does I/O. A value that does not parse is not an error here: it becomes a problem of that object
//! ([`roadstead_core::workload::Workload::problems`]) and is shown as its reason for waiting.
//!
//! Reading order: `queues` and `inward` (API to core), `template` and `accounting` (the requests of a pod), `outward` (core to a patch),
//! `copies` (Workloads that Roadstead creates), [`appwrapper`] (the controller of wrapped jobs), [`explanation`] (why a Workload waits),
//! [`default`] and [`validate`] (the webhooks), [`versions`] (objects of older versions of the API).
//!
//! ```
//! let flavor = roadstead_api::kueue::v1beta2::ResourceFlavor::new("spot", Default::default());
//! assert_eq!(roadstead_convert::flavor(&flavor).name.as_str(), "spot");
//! ```

mod accounting;
pub mod appwrapper;
mod copies;
pub mod default;
pub mod explanation;
mod inward;
mod outward;
mod queues;
mod template;
mod topology;
pub mod validate;
pub mod versions;

pub use accounting::{Accounting, Boost, limit_range, overhead, reclaim, request_rules};
pub use copies::{
    Made, Priority, Stamp, dispatch_annotations, epoch, lease_secs, lost_policy, member_reference, pod_sets,
    remote_workload, spec_drift, workload_for_job,
};
pub use inward::{asks_for_more, conditions, counted_workload, workload, workload_status};
pub use outward::{
    Shares, cluster_queue_status, cohort_status, local_queue_status, request_stop, status_patch, with_active,
};
pub use queues::{
    check, cluster_queue, cohort, flavor, local_queue, past_usage, queue_view, says_inactive, selector,
};
