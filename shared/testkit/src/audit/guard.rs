//! Whether a worker's engine could fence. I1 under `Fence` holds only while the engine runs and reaches its API server.
//!
//! *Source*: `spec/safety.md 3.6`: when the worker's API server or its engine is dead while its nodes live, pods go on. The manager
//! counts three tenths of the lease for the worker's own delays; a restart costs two of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// How long pods get to end, at least. *Source*: the default of Kubernetes, `terminationGracePeriodSeconds`.
const DRAIN: SignedDuration = SignedDuration::from_secs(30);
/// How long a call may hang that was under way when the trouble ended.
const HANGS: SignedDuration = SignedDuration::from_secs(20);
/// How many hindrances of one worker are remembered.
const REMEMBERED: usize = 64;

/// A time in which an engine could do nothing.
#[derive(Clone, Copy, Debug)]
struct Hindrance {
    from: Timestamp,
    until: Option<Timestamp>,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Dead,
    Blind,
}

/// The hindrances of each worker's engine.
#[derive(Default)]
pub(super) struct Guards(BTreeMap<Arc<str>, VecDeque<Hindrance>>);

impl Guards {
    pub(super) fn starts(&mut self, cluster: &str, now: Timestamp) {
        self.end(cluster, Why::Dead, now);
    }

    pub(super) fn ends(&mut self, cluster: &str, now: Timestamp) {
        self.begin(cluster, Why::Dead, now);
    }

    pub(super) fn blinded(&mut self, cluster: &str, now: Timestamp) {
        self.begin(cluster, Why::Blind, now);
    }

    pub(super) fn sees_again(&mut self, cluster: &str, now: Timestamp) {
        self.end(cluster, Why::Blind, now);
    }

    fn begin(&mut self, cluster: &str, why: Why, now: Timestamp) {
        let all = self.0.entry(cluster.into()).or_default();
        if all.len() == REMEMBERED {
            all.pop_front();
        }
        all.push_back(Hindrance {
            from: now,
            until: None,
            why,
        });
    }

    fn end(&mut self, cluster: &str, why: Why, now: Timestamp) {
        let open = self
            .0
            .get_mut(cluster)
            .and_then(|all| all.iter_mut().find(|one| one.why == why && one.until.is_none()));
        if let Some(one) = open {
            one.until = Some(now);
        }
    }

    /// Whether an engine could not fence for longer than the manager allows for: three tenths of the lease. Time counts back to one
    /// lease, its allowances and the grace period of pods before `now`.
    pub(super) fn was_hindered(&self, cluster: &str, lease: SignedDuration, now: Timestamp) -> bool {
        let tenth = lease / 10;
        let counted = lease + tenth * 4 + DRAIN.max(tenth);
        let since = now.checked_sub(counted).unwrap_or(Timestamp::MIN);
        let mut lost = SignedDuration::ZERO;
        for one in self.0.get(cluster).into_iter().flatten() {
            let cost = match one.why {
                // Why more: an engine that has just started does not know how old the lease is.
                Why::Dead => tenth * 2,
                Why::Blind => HANGS,
            };
            let until = one.until.unwrap_or(now);
            if until + cost > since {
                lost += until.duration_since(one.from.max(since).min(until)) + cost;
            }
        }
        lost > tenth * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: SignedDuration = SignedDuration::from_secs(40);

    fn at(secs: i64) -> Timestamp {
        Timestamp::constant(secs, 0)
    }

    /// Spec: safety 3.6.
    #[test]
    fn one_restart_is_no_excuse_and_a_dead_engine_is() {
        let mut guards = Guards::default();
        guards.ends("a", at(100));
        guards.starts("a", at(101));
        assert!(!guards.was_hindered("a", LEASE, at(140)));
        guards.ends("a", at(150));
        assert!(guards.was_hindered("a", LEASE, at(190)));
        assert!(!guards.was_hindered("b", LEASE, at(190)));
        guards.starts("a", at(200));
        assert!(!guards.was_hindered("a", LEASE, at(400)));
    }

    /// Spec: safety 3.6.
    #[test]
    fn a_blind_engine_is_an_excuse_for_as_long_as_it_matters() {
        let mut guards = Guards::default();
        guards.blinded("a", at(100));
        assert!(guards.was_hindered("a", LEASE, at(101)));
        guards.sees_again("a", at(101));
        assert!(guards.was_hindered("a", LEASE, at(130)));
        assert!(!guards.was_hindered("a", LEASE, at(300)));
    }
}
