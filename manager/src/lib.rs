//! `roadstead-manager`: one queue in front of many worker clusters.
//!
//! It runs the admission engine for the management cluster and plugs in the MultiKueue check: [`dispatch`] offers
//! Workloads to workers and follows the one that wins, [`remote`] keeps the connections, [`lease`] tells each worker that
//! its manager is there, `gc` finds what was left behind.
//!
//! It **never** reads from a worker in the decision path, and nothing that one worker does holds up another.

mod capacity;
mod ceiling;
mod checks;
mod credentials;
mod dispatch;
mod explain;
mod fresh;
mod gc;
mod lease;
mod metrics;
mod remote;
mod results;
mod run;
mod sites;
mod steps;
mod virtual_nodes;

pub use remote::Dial;
#[cfg(feature = "bugbank")]
pub use run::assemble_with_bug;
pub use run::{CONTROLLERS, NAME, assemble, run};
