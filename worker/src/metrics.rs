//! What is counted about the fence.
//!
//! Invariant: label `origin` has at most as many values as managers can share a worker; the others share one.
//!
//! *Source*: `spec/multikueue.md 8`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::fence::Fence;

/// Managers that are told apart: as many as can share a worker.
const ORIGINS_MAX: usize = 100;
/// Label of those beyond.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    known: Arc<Mutex<BTreeSet<String>>>,
    fenced: Family<Labels, Counter>,
}

impl Metrics {
    /// Adds all of them to what `/metrics` shows.
    pub(crate) fn register(&self, registry: &mut Registry, fence: Fence) {
        registry.register(
            "roadstead_fenced_workloads",
            "Workloads that were stopped because their manager had not been heard of for too long",
            self.fenced.clone(),
        );
        registry.register_collector(Box::new(Ages(Box::new(move || fence.ages()))));
    }

    /// A copy was stopped.
    pub(crate) fn fenced(&self, origin: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = known.contains(origin) || known.len() < ORIGINS_MAX;
        if fits {
            known.insert(origin.to_owned());
        }
        let name = if fits { origin } else { OTHER };
        self.fenced
            .get_or_create(&vec![("origin", name.to_owned())])
            .inc();
    }
}

/// How old the lease of each manager is, computed when somebody asks: a number that stood still would look like a good one.
struct Ages(Box<dyn Fn() -> Vec<(String, Duration)> + Send + Sync>);

impl fmt::Debug for Ages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ages")
    }
}

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ages = (self.0)();
        if ages.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "roadstead_manager_lease_age_seconds",
            "Time since a manager sent the last renewal of its lease here, at most; none before that can be told",
            None,
            MetricType::Gauge,
        )?;
        for (origin, age) in ages.iter().take(ORIGINS_MAX) {
            let labels = [("origin", origin.as_str())];
            ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    /// Spec: multikueue 8
    #[test]
    fn fences_and_ages_are_told_by_origin_and_there_is_a_limit() {
        let metrics = Metrics::default();
        for manager in 0..ORIGINS_MAX + 3 {
            metrics.fenced(&format!("m{manager}"));
        }
        metrics.fenced("m0");
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register("roadstead_fenced_workloads", "", metrics.fenced.clone());
        let ages = || vec![("m0".to_owned(), Duration::from_secs(7))];
        registry.register_collector(Box::new(Ages(Box::new(ages))));
        encode(&mut text, &registry).unwrap();
        for line in [
            "roadstead_fenced_workloads_total{origin=\"m0\"} 2",
            "roadstead_fenced_workloads_total{origin=\"other\"} 3",
            "roadstead_manager_lease_age_seconds{origin=\"m0\"} 7.0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        }
    }
}
