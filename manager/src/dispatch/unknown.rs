//! The Workloads that could not be planned because the federation was not listed. When it is, each of them becomes due once.
//!
//! Why no timer for each: while a list of the federation fails, which may last for hours, each Workload would be looked at again and
//! again.

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::{ClusterName, Key};
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::latest::Follower;
use roadstead_kubeio::queue::{Lane, Queue};
use tokio_util::sync::CancellationToken;

use super::{Dispatch, has_check};

/// Namespaces and names of Workloads to look at once the federation is known.
#[derive(Debug, Default)]
pub(crate) struct Unknown(Dirty<Key>);

impl Unknown {
    pub(super) fn mark(&self, key: Key) {
        self.0.mark(key);
    }

    /// Makes the marked Workloads due as soon as all `healths` are live, until `stop`.
    pub(crate) async fn run(
        &self,
        mut healths: Vec<Follower<Health>>,
        due: &Queue<Key>,
        stop: CancellationToken,
    ) {
        loop {
            let known = async {
                let mut keys = self.0.take().await;
                while !healths.iter().all(|health| health.get() == Health::Live) {
                    for health in &mut healths {
                        health.wait_for(|health| *health == Health::Live).await;
                    }
                }
                // Why again: more Workloads were marked while this task waited.
                keys.append(&mut self.0.take_now());
                keys
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                keys = known => {
                    for key in keys {
                        due.add(key, Lane::New);
                    }
                }
            }
        }
    }
}

impl Dispatch {
    /// What [`Dispatch::knows_everything`] depends on.
    pub(crate) fn sources(&self) -> Vec<Follower<Health>> {
        let federation = &self.federation;
        vec![
            federation.checks.health(),
            federation.configs.health(),
            federation.clusters.health(),
            self.caches.workloads.health(),
        ]
    }

    /// Has a Workload looked at once the federation is known, if a worker may have something to do with it.
    pub(super) fn wait_until_known(&self, key: &Key, stored: &Workload) {
        let cluster = stored.cluster_name().map(ClusterName::from);
        let is_open = !stored.is_true("Finished") && (has_check(stored) || cluster.is_some());
        let owes_end = || { cluster.as_ref() }.is_some_and(|cluster| self.owes_end(stored, cluster));
        let is_left = || self.registry.all().iter().any(|remote| remote.holds(key));
        if is_open || owes_end() || is_left() {
            self.unknown.mark(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_kubeio::latest::Latest;

    use super::*;

    /// Lets the other task go on until it waits.
    async fn others() {
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_could_not_be_planned_is_due_once_when_all_is_listed() {
        let (unknown, due) = (Unknown::default(), Queue::<Key>::default());
        let [first, second] = [(); 2].map(|()| Latest::new(Health::Starting));
        let (stop, healths) = (CancellationToken::new(), vec![first.follow(), second.follow()]);
        let key = |name: &str| Key::new("ns", name);
        let look = async {
            unknown.mark(key("a"));
            others().await;
            first.set(Health::Live);
            others().await;
            first.set(Health::Failing("forbidden".to_owned()));
            second.set(Health::Live);
            others().await;
            assert!(due.is_empty(), "the first cannot be listed");
            unknown.mark(key("a"));
            unknown.mark(key("b"));
            first.set(Health::Live);
            others().await;
            assert_eq!(due.len(), 2);
            // A mark that comes just after the lists are live is not lost.
            unknown.mark(key("c"));
            others().await;
            assert_eq!(due.len(), 3);
            stop.cancel();
        };
        tokio::join!(unknown.run(healths, &due, stop.clone()), look);
    }
}
