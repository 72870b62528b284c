//! How Roadstead talks to Kubernetes API servers.
//!
//! All clients are made here, and the objects that the processes watch are cached here. Stored objects are changed by
//! [`write`]; only the children of an `AppWrapper` are created elsewhere, because their controller decides by the status code
//! of a refusal. Single reads and reviews are sent by the crates that need them, over clients of this one, so the same permits
//! and limits hold for them.
//!
//! It **never** decides anything: it connects, keeps caches filled, writes what it is told, and turns the answers of API servers
//! into values ([`write::Written`]) for the decisions. Not found, conflict and "already there" are answers, not errors.
//!
//! Reading order: [`connect`] (a client), [`cache`] (the objects of a cluster, read without asking it), [`index`] (what
//! belongs to a key), [`write`] (one request each), [`failure`] (the error model), [`queue`] and [`reconcile`] (which object is
//! due, the workers for it, and the policy for failures), [`retry`] (pauses of other loops), [`events`], [`rest`] (pauses after
//! writes that nothing waits for), [`latest`] (a value to wait for), [`permit`] (whether anything may be changed at all),
//! [`date`] (the cluster's time), [`served`] (which kinds), [`trouble`] (failures logged once); `raw` (answers before they are
//! decoded), `bound` (size limits), `stall` (time limits), `patience` (pauses that an API server asks for).

pub mod cache;
pub mod connect;
pub mod date;
pub mod dirty;
pub mod events;
pub mod failure;
pub mod index;
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
