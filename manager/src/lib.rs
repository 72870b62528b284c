//! `roadstead-manager`: one queue in front of many worker clusters.
//!
//! It runs the admission engine for the management cluster and plugs in the MultiKueue check. [`dispatch`] offers Workloads to
//! workers and follows the one that wins, [`remote`] keeps the connections and shows each worker that its manager lives,
//! `gc` finds orphans.
//!
//! It **never** reads from a worker in the decision path, and no worker can delay another worker.

mod capacity;
mod ceiling;
mod checks;
mod credentials;
mod dispatch;
mod explain;
mod externals;
mod families;
mod fresh;
mod gc;
mod metrics;
mod remote;
mod run;
mod sites;
mod steps;

pub use remote::Dial;
#[cfg(feature = "bugbank")]
pub use run::assemble_with_bug;
pub use run::{CONTROLLERS, NAME, assemble, run};
