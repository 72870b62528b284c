//! Metrics of the fence and of `AppWrappers`.
//!
//! Invariant: label `origin` has at most as many values as managers can share a worker; further managers share one value.
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
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use roadstead_core::amount::Amount;

/// Limit: managers with a value of their own, as many as can share a worker.
const ORIGINS_MAX: usize = 100;
/// The label of managers beyond the limit.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    known: Arc<Mutex<BTreeSet<String>>>,
    fenced: Family<Labels, Counter>,
}

impl Metrics {
    /// Adds all metrics to the registry. `ages` tells the greatest possible age of each manager's lease, by origin.
    pub(crate) fn register<F>(&self, registry: &mut Registry, ages: F)
    where
        F: Fn() -> Vec<(String, Duration)> + Send + Sync + 'static,
    {
        registry.register(
            "roadstead_fenced_workloads",
            "Workloads that were stopped because the Lease of their manager was not renewed in time",
            self.fenced.clone(),
        );
        registry.register_collector(Box::new(Ages(Box::new(ages))));
    }

    /// Counts a stopped copy.
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

/// How much of each resource a slack queue does not lend. *Source*: `spec/appwrapper.md N-21`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Withdrawn(Family<Labels, Gauge>);

impl Withdrawn {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "roadstead_slack_queue_withdrawn",
            "Amount of a resource, in thousandths for cpu, that nodes out of service take out of what a slack queue lends",
            self.0.clone(),
        );
    }

    /// Sets the amount of a resource that is out of service for a queue now.
    pub(crate) fn set(&self, queue: &str, resource: &str, amount: Amount) {
        let labels = vec![
            ("cluster_queue", queue.to_owned()),
            ("resource", resource.to_owned()),
        ];
        self.0.get_or_create(&labels).set(amount.get());
    }
}

/// Limit: namespaces with a value of their own in the metrics of `AppWrappers`; the others share one.
const NAMESPACES_MAX: usize = 1_000;

/// The metrics of `AppWrappers`. *Source*: `spec/appwrapper.md 2.9`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    known: Arc<Mutex<BTreeSet<String>>>,
    entered: Family<Labels, Counter>,
}

impl Phases {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // Wire: shown as `appwrapper_phase_total`.
        registry.register(
            "appwrapper_phase",
            "Number of times a phase was entered",
            self.entered.clone(),
        );
    }

    /// Counts an `AppWrapper` that has entered a phase.
    pub(crate) fn entered(&self, namespace: &str, phase: &'static str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = known.contains(namespace) || known.len() < NAMESPACES_MAX;
        if fits {
            known.insert(namespace.to_owned());
        }
        let namespace = if fits { namespace } else { OTHER };
        let labels = vec![("namespace", namespace.to_owned()), ("phase", phase.to_owned())];
        self.entered.get_or_create(&labels).inc();
    }
}

/// The age of each manager's lease. Why computed when `/metrics` is read: a stored age would stay low if the fence stopped
/// working.
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

    /// Spec: appwrapper 2.9.
    #[test]
    fn phases_are_counted_by_namespace_and_there_is_a_limit() {
        let phases = Phases::default();
        for namespace in 0..NAMESPACES_MAX + 2 {
            phases.entered(&format!("n{namespace}"), "Running");
        }
        phases.entered("n0", "Running");
        let (mut registry, mut text) = (Registry::default(), String::new());
        phases.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        for line in [
            "appwrapper_phase_total{namespace=\"n0\",phase=\"Running\"} 2",
            "appwrapper_phase_total{namespace=\"other\",phase=\"Running\"} 2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}");
        }
    }

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
