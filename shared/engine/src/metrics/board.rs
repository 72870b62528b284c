//! Counters and histograms: values that are known only at the moment of the event.
//!
//! Invariant: series of a queue are deleted with the queue, whatever their other labels are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::table::{Kind, Metric};

/// Series that one metric may have. *Limit*: beyond it new label values are not counted, so that made-up names cannot fill the
/// memory.
const SERIES_MAX: usize = 50_000;

/// The label values of one series, in the order of the table.
pub(super) type Labels = Vec<Arc<str>>;

/// A change of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The metric.
    pub metric: Metric,
    /// The label values, in the order of `spec/admission-engine.md 8`.
    pub labels: Vec<Arc<str>>,
    /// The change of its value.
    pub change: Change,
}

/// How a value changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// A counter grows.
    Add(u64),
    /// A histogram gets an observation.
    Observe(f64),
    /// A histogram gets the same observation several times.
    ObserveTimes(f64, u64),
    /// A gauge is set.
    Set(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Gauge(f64),
    Distribution {
        sum: f64,
        count: u64,
        /// Upper bounds, and the number of observations in each bucket alone.
        buckets: Vec<(f64, u64)>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Board(Mutex<BTreeMap<Metric, BTreeMap<Labels, Value>>>);

impl Board {
    pub(super) fn record(&self, update: Update) {
        let Update {
            metric,
            labels,
            change,
        } = update;
        let mut board = self.lock();
        let series = board.entry(metric).or_default();
        if series.len() >= SERIES_MAX && !series.contains_key(&labels) {
            return;
        }
        let value = series
            .entry(labels)
            .or_insert_with(|| Value::new(metric.definition().kind));
        match (value, change) {
            (Value::Count(count), Change::Add(by)) => *count = count.saturating_add(by),
            (Value::Gauge(gauge), Change::Set(to)) => *gauge = to,
            (distribution, Change::Observe(seen)) => distribution.observe(seen, 1),
            (distribution, Change::ObserveTimes(seen, times)) => distribution.observe(seen, times),
            (_, Change::Add(_) | Change::Set(_)) => {
                debug_assert!(false, "{metric:?} does not take {change:?}");
            }
        }
    }

    /// Deletes the series that have all these label values.
    pub(super) fn forget(&self, named: &[(&str, &str)]) {
        for (metric, series) in self.lock().iter_mut() {
            let labels = metric.definition().labels;
            let places: Option<Vec<(usize, &str)>> = named
                .iter()
                .map(|(label, value)| Some((labels.iter().position(|l| l == label)?, *value)))
                .collect();
            if let Some(places) = places {
                let is_it = |values: &Labels| {
                    places
                        .iter()
                        .all(|(at, value)| values.get(*at).is_some_and(|v| **v == **value))
                };
                series.retain(|values, _| !is_it(values));
            }
        }
    }

    /// Deletes the series whose label of this name has an unknown value.
    pub(super) fn keep(&self, label: &str, is_known: &dyn Fn(&str) -> bool) {
        for (metric, series) in self.lock().iter_mut() {
            if let Some(at) = metric.definition().labels.iter().position(|l| *l == label) {
                series.retain(|values, _| values.get(at).is_none_or(|value| is_known(value)));
            }
        }
    }

    pub(super) fn series(&self, metric: Metric) -> Vec<(Labels, Value)> {
        let board = self.lock();
        let series = board.get(&metric).into_iter().flatten();
        series
            .map(|(labels, value)| (labels.clone(), value.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Metric, BTreeMap<Labels, Value>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Value {
    fn observe(&mut self, seen: f64, times: u64) {
        let Self::Distribution { sum, count, buckets } = self else {
            debug_assert!(false, "only histograms are observed");
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "no histogram has 2^53 observations")]
        let weight = times as f64;
        *sum += seen * weight;
        *count = count.saturating_add(times);
        if let Some((_, hits)) = buckets.iter_mut().find(|(bound, _)| seen <= *bound) {
            *hits = hits.saturating_add(times);
        }
    }

    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Count(0),
            Kind::Gauge => Self::Gauge(0.0),
            Kind::Histogram(buckets) => Self::Distribution {
                sum: 0.0,
                count: 0,
                buckets: buckets
                    .bounds()
                    .into_iter()
                    .chain(std::iter::once(f64::INFINITY))
                    .map(|bound| (bound, 0))
                    .collect(),
            },
        }
    }
}
