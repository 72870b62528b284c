//! Custom resources and constants of the Kueue-compatible API, as plain data.
//!
//! The crate says what the objects look like on the wire: types with serde, their schemas, the names of labels,
//! annotations, conditions and reasons, and the `CustomResourceDefinition`s built from them.
//!
//! It will never talk to a server, decide anything, read a clock or parse a quantity: `roadstead-convert` turns these
//! types into the core's and back.
//!
//! Reading order: [`kueue::v1beta2`] (start with [`Workload`](kueue::v1beta2::Workload)), [`autoscaling`],
//! [`appwrapper`], [`constants`], [`crd`], [`install`].
//!
//! ```
//! use roadstead_api::kueue::v1beta2::{LocalQueue, LocalQueueSpec};
//!
//! let queue = LocalQueue::new("team-a", LocalQueueSpec { cluster_queue: "gpus".to_owned(), ..Default::default() });
//! assert_eq!(queue.spec.cluster_queue, "gpus");
//! ```

pub mod constants;

pub mod appwrapper;
pub mod autoscaling;
pub mod kueue;

pub mod crd;
mod older;
mod schema;

pub mod config;
pub mod install;
pub mod rights;
pub mod visibility;
