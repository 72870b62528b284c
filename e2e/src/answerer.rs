//! An answerer of ProvisioningRequests for a real cluster, which has no autoscaler: only this part of
//! [`roadstead_world`].

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use roadstead_world::{Capacity, World};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use roadstead_world::capacity::Policy;

/// The answers do not depend on chance.
const SEED: u64 = 0;

/// Answers the requests of one cluster until it is dropped.
#[derive(Debug)]
pub struct Answerer {
    _task: AbortOnDropHandle<()>,
}

impl Answerer {
    /// Starts answering in the current tokio runtime. `client` must be allowed to read pods, nodes and pod templates of all
    /// namespaces, and to write the status of ProvisioningRequests. The definition of ProvisioningRequest may come later.
    pub fn start(client: Client, policy: Policy) -> Self {
        let world = World {
            capacity: Capacity::Answered(policy),
            ..World::idle(SEED)
        };
        let run = roadstead_world::run(world, client, Arc::new(Timestamp::now), CancellationToken::new());
        Self {
            _task: AbortOnDropHandle::new(tokio::spawn(run)),
        }
    }
}
