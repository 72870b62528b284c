//! The engine's metrics: names, labels and buckets of the reference.
//!
//! Gauges are computed from the brain's reports when `/metrics` is read. Counters and histograms change with Workloads as the
//! cache sees them, and with rounds of decisions. The computations are pure functions; this file only connects them.
//!
//! Invariant: recording never waits for anything but a short lock, and never fails. *Source*: `spec/admission-engine.md 8`.
//!
//! Reading order: `table`, `board` (counters and histograms), `transitions`, `rounds`, `standing`, `gauges`, `custom` (the
//! administrator's labels), `events` (Events that were not written).

mod board;
mod custom;
mod events;
mod gauges;
mod rounds;
mod standing;
mod table;
mod transitions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use roadstead_api::config::{Config, FeatureGate, LabelSelector};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::{ClusterQueueName, CohortName, Key};
use roadstead_core::state::CycleOutcome;
use roadstead_jobs::labels::controller;
use roadstead_kubeio::cache::Change as CacheChange;
use roadstead_kubeio::events::Recorder;

use crate::caches::Caches;
use crate::clock::Clock;
use crate::leader::Leadership;
use crate::queue_status::Reports;
use board::{Board, Labels, Value};
use custom::Custom;
use events::Unwritten;
use gauges::Inputs;
use standing::{Requests, Standings};
use table::{Condition, Kind};
use transitions::Owner;

pub use board::{Change, Update};
pub use table::Metric;
pub(crate) use transitions::Part;

/// The metrics of one engine.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    switches: Switches,
    custom: Custom,
    board: Board,
    standings: Standings,
    caches: Caches,
    reports: Arc<Reports>,
    clock: Clock,
    leadership: Leadership,
    events: OnceLock<Recorder>,
}

#[derive(Clone, Debug)]
struct Switches {
    local_queues: LocalQueues,
    on: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LocalQueues {
    None,
    All,
    Matching(LabelSelector),
}

impl Switches {
    fn of(config: &Config) -> Self {
        let gate = |gate| config.feature_gates.enabled(gate);
        let resources = config.metrics.enable_cluster_queue_resources;
        let shares = config.fair_sharing.is_some();
        let locals = gate(FeatureGate::LocalQueueMetrics) && config.metrics.local_queue_enable;
        let unadmitted = gate(FeatureGate::UnadmittedWorkloadsObservability);
        let usage = gate(FeatureGate::AdmissionFairSharing) && config.admission_fair_sharing.is_some();
        let all = [
            (Condition::Always, true),
            (Condition::LocalQueues, locals),
            (Condition::UnadmittedOfLocalQueues, locals && unadmitted),
            (Condition::UsageOfLocalQueues, locals && usage),
            (Condition::Unadmitted, unadmitted),
            (
                Condition::Creation,
                gate(FeatureGate::MetricForWorkloadCreationLatency),
            ),
            (Condition::Resources, resources),
            (Condition::ResourcesAndShares, resources && shares),
            (Condition::Shares, shares),
            (Condition::Cohorts, gate(FeatureGate::MetricsForCohorts)),
        ];
        let selector = config.metrics.local_queue_selector.as_ref();
        Self {
            local_queues: match (locals, selector) {
                (false, _) => LocalQueues::None,
                (true, None) => LocalQueues::All,
                (true, Some(selector)) => LocalQueues::Matching(selector.clone()),
            },
            on: all
                .into_iter()
                .filter(|(_, on)| *on)
                .map(|(when, _)| when)
                .collect(),
        }
    }
}

impl Metrics {
    /// Metrics that read from these caches and reports, and follow the Workloads from now on.
    pub(crate) fn new(
        config: &Config,
        caches: &Caches,
        reports: Arc<Reports>,
        clock: Clock,
        leadership: Leadership,
    ) -> Self {
        let requests = if config.metrics.enable_cluster_queue_resources {
            Requests::Counted
        } else {
            Requests::Ignored
        };
        let metrics = Self(Arc::new(Inner {
            switches: Switches::of(config),
            custom: Custom::of(config),
            board: Board::default(),
            standings: Standings::new(requests),
            caches: caches.clone(),
            reports,
            clock,
            leadership,
            events: OnceLock::new(),
        }));
        metrics.listen();
        metrics
    }

    /// The same metrics, with the events of this recorder that were not written.
    pub(crate) fn with_events(self, recorder: &Recorder) -> Self {
        // Why a second call is ignored: an engine has one recorder.
        let _ = self.0.events.set(recorder.clone());
        self
    }

    /// Adds all metrics to the registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
        if let Some(recorder) = self.0.events.get() {
            registry.register_collector(Box::new(Unwritten::of(recorder.clone())));
        }
    }

    /// Counts something that no Workload's status shows. While another replica leads, that replica counts it.
    pub fn record(&self, update: Update) {
        if self.is_on(update.metric) && self.0.leadership.leads() {
            self.0.board.record(update);
        }
    }

    /// Counts the outcome of rounds of decisions that took `took` together.
    pub(crate) fn rounds(&self, outcome: &CycleOutcome, took: Duration) {
        for update in rounds::of(outcome, took) {
            self.record(update);
        }
    }

    fn listen(&self) {
        // Why weak: the metrics own the cache, so a listener that owned the metrics would keep both alive for ever.
        let inner = Arc::downgrade(&self.0);
        self.0.caches.workloads.listen(move |change| {
            if let Some(inner) = inner.upgrade() {
                Self(inner).note(change);
            }
        });
        let inner = Arc::downgrade(&self.0);
        self.0.caches.cluster_queues.listen(move |change| {
            if let (Some(inner), None) = (inner.upgrade(), change.new) {
                let name = &*change.key.name;
                inner.board.forget(&[("cluster_queue", name)]);
                inner.board.forget(&[("preempting_cluster_queue", name)]);
            }
        });
        let inner = Arc::downgrade(&self.0);
        self.0.caches.local_queues.listen(move |change| {
            if let (Some(inner), None) = (inner.upgrade(), change.new) {
                let Key { namespace, name } = change.key;
                inner.board.forget(&[("name", name), ("namespace", namespace)]);
            }
        });
        let inner = Arc::downgrade(&self.0);
        self.0.caches.cohorts.listen(move |change| {
            if let (Some(inner), None) = (inner.upgrade(), change.new) {
                inner.board.forget(&[("cohort", &change.key.name)]);
            }
        });
    }

    fn note(&self, change: &CacheChange<'_, Workload>) {
        let (old, new) = (change.old.map(|w| &**w), change.new.map(|w| &**w));
        let counted = |workload: &Workload| self.0.caches.counted(workload);
        let gauge = Metric::AdmittedActiveWorkloads.definition();
        let said = |workload: &Workload| self.0.custom.of_workload(&gauge, &workload.metadata);
        self.0.standings.note(change.key, (old, new), &counted, &said);
        match (old, new) {
            (Some(old), Some(new)) if old.metadata.uid == new.metadata.uid => {
                if old.status != new.status
                    && let Some(owner) = self.owner(old, new)
                {
                    for mut update in transitions::of(old, new, &owner, (self.0.clock)()) {
                        let definition = update.metric.definition();
                        let said = self.0.custom.of_workload(&definition, &new.metadata);
                        update.labels.extend(said);
                        self.record(update);
                    }
                }
            }
            // Why only when live: Workloads of the first list were created long ago.
            (_, Some(new)) if self.0.caches.workloads.is_live() => self.created(new),
            (_, Some(_) | None) => {}
        }
    }

    fn owner(&self, old: &Workload, new: &Workload) -> Option<Owner> {
        let name = new.spec.queue_name.as_deref().unwrap_or_default();
        let key = Key::new(new.metadata.namespace.as_deref().unwrap_or_default(), name);
        let local = self.0.caches.local_queues.get(&key);
        let admitted = |workload: &Workload| {
            let admission = workload.status.as_ref()?.admission.as_ref()?;
            Some(admission.cluster_queue.clone())
        };
        let named = || local.as_ref().map(|queue| queue.spec.cluster_queue.clone());
        let cluster_queue = admitted(new).or_else(|| admitted(old)).or_else(named)?;
        // Why: series of a deleted queue must not come back.
        self.0.caches.cluster_queues.named(&cluster_queue)?;
        let above = self.0.reports.cohorts_above(&cluster_queue);
        Some(Owner {
            cohorts: above.iter().map(|name| name.as_str().into()).collect(),
            cluster_queue: cluster_queue.into(),
            local_queue: self
                .shows(&key)
                .then(|| (key.name.clone(), key.namespace.clone())),
        })
    }

    fn created(&self, workload: &Workload) {
        let Some(owner) = controller(&workload.metadata) else {
            return;
        };
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let namespace = workload.metadata.namespace.clone().unwrap_or_default();
        let jobs = self.0.caches.kind(group, &owner.kind);
        let job = jobs.and_then(|jobs| jobs.objects.get(&Key::new(namespace, owner.name.as_str())));
        let Some(since) = job.and_then(|job| Some(job.metadata.creation_timestamp.as_ref()?.0)) else {
            return;
        };
        self.record(Update {
            metric: Metric::WorkloadCreationLatency,
            labels: vec![owner.kind.as_str().into()],
            change: Change::Observe(transitions::seconds(since, (self.0.clock)())),
        });
    }

    /// Counts so many pods of an admitted Workload that were let go just now.
    pub(crate) fn gates_removed(&self, workload: &Workload, part: Part, pods: usize) {
        let update = transitions::gates_removed(workload, (part, pods), (self.0.clock)());
        if let Some(update) = update.filter(|_| pods > 0) {
            self.record(update);
        }
    }

    /// Whether a LocalQueue is reported.
    fn shows(&self, key: &Key) -> bool {
        match &self.0.switches.local_queues {
            LocalQueues::None => false,
            LocalQueues::All => self.0.caches.local_queues.get(key).is_some(),
            LocalQueues::Matching(selector) => self
                .0
                .caches
                .local_queues
                .get(key)
                .is_some_and(|queue| selector.matches(&queue.metadata.labels.clone().unwrap_or_default())),
        }
    }

    fn is_on(&self, metric: Metric) -> bool {
        self.0.switches.on.contains(&metric.definition().when)
    }

    fn gauges(&self) -> gauges::Series {
        let reports = self.0.reports.all();
        let known = |name: &str| reports.cluster_queues.contains_key(&ClusterQueueName::from(name));
        let specs: Vec<_> = { self.0.caches.cluster_queues.all() }
            .into_iter()
            .filter(|queue| known(queue.metadata.name.as_deref().unwrap_or_default()))
            .collect();
        gauges::of(&Inputs {
            reports: &reports,
            shown: &|key| self.shows(key),
            specs: &specs,
            groups: self.0.standings.groups(),
            asked: self.0.standings.asked(),
            admitted: (self.0.custom.reads_workloads()).then(|| self.0.standings.admitted()),
        })
    }

    /// All series of all enabled metrics, in the order of the table.
    fn page(&self) -> Vec<(Metric, BTreeMap<Labels, Value>)> {
        // Why here: a cohort may exist without an object, so no cache reports its end.
        let cohorts = self.0.reports.all().cohorts;
        let is_known = |name: &str| cohorts.contains_key(&CohortName::from(name));
        self.0.board.keep("cohort", &is_known);
        let mut gauges = self.gauges();
        let shown = Metric::ALL.iter().filter(|metric| self.is_on(**metric));
        shown
            .map(|metric| {
                let mut series: BTreeMap<_, _> = self.0.board.series(*metric).into_iter().collect();
                let gauges = gauges.remove(metric).unwrap_or_default();
                series.extend(
                    gauges
                        .into_iter()
                        .map(|(labels, value)| (labels, Value::Gauge(value))),
                );
                (*metric, series)
            })
            .collect()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("switches", &self.0.switches)
            .finish_non_exhaustive()
    }
}

/// The family of a metric as the library wants it; the library adds the suffix of counters itself.
///
/// Wire: the reference has gauges and counters whose names differ only by that suffix. `OpenMetrics` would give both families one
/// name, so such a counter is written there as a value of unknown type. The text format writes it as a counter
/// (`roadstead_serve::metrics`).
fn family(name: &'static str, kind: Kind) -> (&'static str, MetricType) {
    match kind {
        Kind::Counter => {
            let stem = name.strip_suffix("_total").unwrap_or(name);
            if Metric::ALL.iter().any(|other| other.definition().name == stem) {
                (name, MetricType::Unknown)
            } else {
                (stem, MetricType::Counter)
            }
        }
        Kind::Gauge => (name, MetricType::Gauge),
        Kind::Histogram(_) => (name, MetricType::Histogram),
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (metric, series) in self.page() {
            if series.is_empty() {
                continue;
            }
            let definition = metric.definition();
            let (name, kind) = family(definition.name, definition.kind);
            let mut family = encoder.encode_descriptor(name, definition.help, None, kind)?;
            for (values, value) in series {
                let custom = self.0.custom.of_series(&definition, &values, &self.0.caches);
                let mut labels = vec![("replica_role", self.0.leadership.role())];
                let pairs = definition.labels.iter().zip(&values);
                labels.extend(pairs.map(|(label, value)| (*label, &**value)));
                labels.extend(custom.iter().map(|(label, value)| (*label, value.as_str())));
                let mut one = family.encode_family(&labels)?;
                match value {
                    Value::Count(count) if matches!(kind, MetricType::Unknown) => one.encode_gauge(&count)?,
                    Value::Count(count) => {
                        one.encode_counter(&count, None::<&Exemplar<NoLabelSet, f64>>)?;
                    }
                    Value::Gauge(value) => one.encode_gauge(&value)?,
                    Value::Distribution { sum, count, buckets } => {
                        one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
