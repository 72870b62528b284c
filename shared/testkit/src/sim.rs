//! The simulation: the product's own manager and workers against API servers in memory, in one thread, under tokio's paused time.
//! One number decides every fault.
//!
//! It is no model: the functions that the binaries call build the processes, with another client, another clock and another way to
//! connect. At the end of a run all faults stop, some time passes, and then the auditors judge ([`crate::audit`]).
//! *Source*: `spec/safety.md 4, 7`.
//!
//! Invariant: a run follows from its script alone: no thread, no wall clock, only seeded randomness. A process-wide counter that
//! seeds the product's back-off is reset for each run, so two runs must not share a process at the same time.
//!
//! Reading order: [`script`], [`kind`], [`fault`], `clock`, `process` (lives and deaths), `wire` (the network), `stage` (all of
//! them together), `play` (a run), `shrink`.

pub mod bank;
pub mod fault;
pub mod kind;
pub mod script;

mod clock;
mod objects;
mod play;
mod process;
mod shrink;
mod stage;
mod steward;
mod trace;
mod wire;

pub use play::{Outcome, Player};
pub use shrink::shrink;
pub use trace::Keep;
