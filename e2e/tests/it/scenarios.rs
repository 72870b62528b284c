//! A worker alone on a real API server, with real batch Jobs, as its users see it.
//!
//! The Job controller is the real one; there are no nodes, so pods stay pending until the test says that they succeeded.

mod admission;
mod cohorts;
mod fair;
mod flavors;
mod ground;
mod lifecycle;
mod nesting;
mod people;
mod preemption;
mod queues;
mod releases;
mod telling;
