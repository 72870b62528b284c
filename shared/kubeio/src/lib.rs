//! The only room that talks to Kubernetes API servers.
//!
//! It **never** decides anything: it connects, keeps caches filled, writes what it is told, and turns what API servers
//! answer into values ([`write::Written`]) that the decisions can be made from. Not found, conflict and "already there"
//! are answers, not errors.
//!
//! Reading order: [`connect`] (a client), [`cache`] (what a cluster holds, read without asking it), [`queue`] and
//! [`reconcile`] (which object is due, and who works on it), [`write`] (one request each), [`events`], [`rest`] (how long to pause
//! after writes that nothing waits for), [`latest`] (a value to wait for), [`permit`] (whether anything may be changed at all), [`date`]
//! (what time it is there), [`served`] (which kinds), [`trouble`] (what is told once);
//! `raw` (what comes over the wire, before it is decoded), `bound` (how much of it at most), `stall` (how long it is waited for),
//! `patience` (the pauses that it asks for).

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
