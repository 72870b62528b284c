//! The only room that talks to Kubernetes API servers.
//!
//! It **never** decides anything: it connects, keeps caches filled, writes what it is told, and turns the answers of API servers
//! into values ([`write::Written`]) for the decisions. Not found, conflict and "already there" are answers, not errors.
//!
//! Reading order: [`connect`] (a client), [`cache`] (the objects of a cluster, read without asking it), [`queue`] and
//! [`reconcile`] (which object is due, and the workers for it), [`write`] (one request each), [`events`], [`rest`] (pauses after
//! writes that nothing waits for), [`latest`] (a value to wait for), [`permit`] (whether anything may be changed at all),
//! [`date`] (the cluster's time), [`served`] (which kinds), [`trouble`] (failures logged once); `raw` (answers before they are
//! decoded), `bound` (size limits), `stall` (time limits), `patience` (pauses that an API server asks for).

pub mod cache;
pub mod connect;
pub mod date;
pub mod dirty;
pub mod events;
pub mod latest;
pub mod permit;
pub mod queue;
pub mod reconcile;
pub mod rest;
pub mod retry;
pub mod served;
pub mod trouble;
pub mod write;

mod bound;
mod patience;
mod raw;
mod stall;

pub use kube;
