//! The simulation: the product's own manager and workers against API servers in memory, in one thread, under tokio's
//! paused time, with everything that goes wrong decided by one number.
//!
//! It is no model: processes are put together by the very functions that the binaries call, and get another client, another
//! clock and another way to dial. A run ends like this: troubles over, everything heals, time passes, and then the auditors
//! judge ([`crate::audit`]). *Source*: `spec/safety.md 4, 7`.
//!
//! Invariant: a run follows from its script alone. No thread, no wall clock, no chance but the seeded one; a process-wide
//! counter that seeds the product's back-off is set anew for each run, so two runs must not go on in one process at once.
//!
//! Reading order: [`script`], [`kind`], [`fault`], `clock`, `process` (lives and deaths), `wire` (the network), `stage` (all of them
//! together), `play` (a run), `shrink`.

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
